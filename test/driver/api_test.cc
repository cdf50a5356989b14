// What users of the C++ API get wrong: a clear error, and every parameter is as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "frontend/safetensors.h"
#include "test/driver/models.h"

namespace tandem::driver {
namespace {

using ::testing::HasSubstr;

class StateFile : public ::testing::Test {
 protected:
  StateFile() : state_(State::initial(net_, 3)), path_(::testing::TempDir() + name()) {
    state_.save(path_);
    std::ifstream file(path_, std::ios::binary);
    good_.assign(std::istreambuf_iterator<char>(file), {});
    state_ = State::initial(net_, 4);
    before_ = bytes_of(state_);
  }
  ~StateFile() override { std::filesystem::remove(path_); }

  void write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  /// A file of the arrays of `state`, one of them under another name or as another array.
  void write_changed(const std::string& name, const std::string& new_name, const Array& array) {
    State changed;
    for (const std::pair<const std::string, Array>& entry : state_.arrays())
      if (entry.first != name) changed.set(entry.first, entry.second);
    if (!new_name.empty()) changed.set(new_name, array);
    changed.save(path_);
  }
  void expect_error(const std::string& text) {
    EXPECT_THAT(error_of([&] { state_.load(path_); }), HasSubstr(text));
    EXPECT_EQ(bytes_of(state_), before_);
  }

  TinyNet net_;
  State state_;
  std::string path_;
  std::string good_;
  std::map<std::string, std::string> before_;

 private:
  static std::string name() {
    const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return std::string("tandem_state_") + test->name() + ".safetensors";
  }
};

TEST_F(StateFile, ComesBack) {
  state_.load(path_);
  EXPECT_EQ(bytes_of(state_), bytes_of(State::initial(net_, 3)));
}

TEST_F(StateFile, CutOffAnywhere) {
  const size_t stride = std::max<size_t>(1, good_.size() / 200);
  for (size_t end = 0; end < good_.size(); end += stride) {
    write(good_.substr(0, end));
    expect_error(path_);
  }
  write(good_.substr(0, good_.size() - 1));
  expect_error(path_);
  write(good_ + "x");
  expect_error(path_);
}

TEST_F(StateFile, OfAnotherModel) {
  write_changed("up.bias", "", {});
  expect_error("'up.bias' is missing");
  write_changed("up.bias", "up.bias", Array::zeros(DType::f32, std::vector<int64_t>{17}));
  expect_error("'up.bias' is f32[17], the model has f32[16]");
  write_changed("up.bias", "up.bias", Array::zeros(DType::f64, std::vector<int64_t>{16}));
  expect_error("'up.bias' is f64[16], the model has f32[16]");
  write_changed("", "up.extra", Array::zeros(DType::f32, std::vector<int64_t>{1}));
  expect_error("the model has no 'up.extra'");
  write_changed("up.bias", "up.base", Array::zeros(DType::f32, std::vector<int64_t>{16}));
  expect_error("'up.bias' is missing");
  expect_error("the model has no 'up.base'");
}

TEST_F(StateFile, Absent) {
  std::filesystem::remove(path_);
  expect_error(path_);
}

/// A training step whose calls go wrong: nothing of the state may change, and a right call after
/// them is as good as before.
class BadCalls : public ::testing::Test {
 protected:
  BadCalls()
      : state_(State::initial(net_, 3)),
        step_(tiny_step(net_, state_, 4, nn::adamw(0.01))),
        before_(bytes_of(state_)) {}

  void expect_error(const std::vector<Array>& inputs, const std::string& text) {
    EXPECT_THAT(error_of([&] { step_.run(inputs); }), HasSubstr(text));
    EXPECT_EQ(bytes_of(state_), before_);
  }

  TinyNet net_;
  State state_;
  BoundProgram step_;
  std::map<std::string, std::string> before_;
  Array good_ = tokens({0, 1, 2, 0});
};

TEST_F(BadCalls, NumberOfInputs) {
  expect_error({}, "2 data inputs are needed, 0 were given");
  expect_error({good_}, "2 data inputs are needed, 1 were given");
  expect_error({good_, good_, good_}, "2 data inputs are needed, 3 were given");
}

TEST_F(BadCalls, ShapesAndTypes) {
  expect_error({tokens({0, 1, 2}), good_}, "input 'tokens': expected i64[4], got i64[3]");
  expect_error({good_, tokens({})}, "input 'targets': expected i64[4], got i64[0]");
  expect_error({floats({0, 1, 2, 0}, {4}), good_}, "expected i64[4], got f32[4]");
  const Array square = good_.as_strided(std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 1});
  expect_error({square, good_}, "expected i64[4], got i64[2, 2]");
}

TEST_F(BadCalls, TokensOutOfRange) {
  expect_error({tokens({0, 1, TinyNet::kTokens, 0}), good_}, "out of range");
  expect_error({tokens({0, -1, 2, 0}), good_}, "out of range");
  expect_error({tokens({0, 1, INT64_MAX, INT64_MIN}), good_}, "out of range");
}

TEST_F(BadCalls, TargetsOutOfRange) {
  expect_error({good_, tokens({0, TinyNet::kClasses, 1, 2})}, "out of ");
  expect_error({good_, tokens({0, -1, 1, 2})}, "out of ");
}

TEST_F(BadCalls, TheNextCallIsRight) {
  expect_error({tokens({0, 1, TinyNet::kTokens, 0}), good_}, "out of range");
  State fresh = State::initial(net_, 3);
  BoundProgram other = tiny_step(net_, fresh, 4, nn::adamw(0.01));
  const std::vector<Array> batch{good_, good_};
  EXPECT_EQ(scalar(step_.run(batch)), scalar(other.run(batch)));
  EXPECT_EQ(bytes_of(state_), bytes_of(fresh));
  EXPECT_NE(bytes_of(state_), before_);
}

TEST(FailedCalls, DoNotCount) {
  TinyNet net;
  State state = State::initial(net, 3);
  BoundProgram step = train_step(
      [&](nn::Trace& trace, const nn::Tensors& in) {
        nn::Tensor logits = nn::dropout(trace, net.logits(trace, in[0]), 0.5);
        return nn::Tensors{nn::cross_entropy(logits, in[0])};
      },
      state, {{"tokens", DType::i64, {2}}}, nn::Sgd(0.1));
  EXPECT_THAT(error_of([&] { step.run(std::vector<Array>{tokens({0, TinyNet::kTokens})}); }),
              HasSubstr("out of range"));
  EXPECT_EQ(step.seed, 0);
  step.run(std::vector<Array>{tokens({0, 1})});
  EXPECT_EQ(step.seed, 1);
}

TEST_F(BadCalls, AStateWithoutAParameter) {
  State empty;
  EXPECT_THAT(error_of([&] { tiny_forward(net_, empty, 4).run(std::vector<Array>{good_}); }),
              HasSubstr("no parameter or state named 'table.weight'"));
}

TEST_F(BadCalls, AParameterOfAnotherShape) {
  state_.set("up.bias", Array::zeros(DType::f32, std::vector<int64_t>{5}));
  before_ = bytes_of(state_);
  expect_error({good_, good_}, "input 'up.bias': expected f32[16], got f32[5]");
}

TEST(Tracing, ShapesThatDoNotFit) {
  TinyNet net;
  State state = State::initial(net, 3);
  const ModelFunction mse = [&](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{nn::cross_entropy(net.logits(trace, in[0]), in[1])};
  };
  const std::map<std::string, std::string> before = bytes_of(state);
  EXPECT_THAT(error_of([&] {
                train_step(mse, state, {{"x", DType::i64, {4}}, {"y", DType::i64, {5}}},
                           nn::Sgd(0.1));
              }),
              HasSubstr("[aten::"));
  EXPECT_THAT(error_of([&] {
                train_step(mse, state, {{"x", DType::f32, {4}}, {"y", DType::i64, {4}}},
                           nn::Sgd(0.1));
              }),
              HasSubstr("[aten::embedding]"));
  EXPECT_EQ(bytes_of(state), before);
}

TEST(Tracing, ALossOfManyElements) {
  TinyNet net;
  State state = State::initial(net, 3);
  const ModelFunction logits = [&](nn::Trace& trace, const nn::Tensors& in) {
    return nn::Tensors{net.logits(trace, in[0])};
  };
  EXPECT_THAT(error_of([&] { train_step(logits, state, {{"x", DType::i64, {4}}}, nn::Sgd(0.1)); }),
              HasSubstr("must be a loss of one element, not f32[4, 3]"));
}

}  // namespace
}  // namespace tandem::driver
