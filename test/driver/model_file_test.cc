// Batches are the rows of files, in order: whole ones, smaller ones where an input takes them, and
// nothing of what does not fit. Weights are found by their qualified names.
#include "driver/model_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "base/diagnostic.h"
#include "frontend/safetensors.h"
#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::driver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ModelFile : public ::testing::Test {
 protected:
  ~ModelFile() override {
    for (const std::string& path : paths_) std::filesystem::remove(path);
  }

  struct Rows {
    std::string name;
    int64_t rows;
  };
  /// Tensors f32 [rows, 2] that count from 0 on.
  std::string file(const std::vector<Rows>& tensors) {
    std::vector<std::vector<float>> values;
    std::vector<frontend::TensorData> data;
    values.reserve(tensors.size());
    for (const Rows& tensor : tensors) {
      std::vector<float>& numbers = values.emplace_back(static_cast<size_t>(tensor.rows) * 2);
      std::iota(numbers.begin(), numbers.end(), 0.0F);
      data.push_back(
          {tensor.name, DType::f32, {tensor.rows, 2}, std::as_bytes(std::span(numbers))});
    }
    paths_.push_back(testing::TempDir() +
                     fmt::format("model_file_test_{}.safetensors", paths_.size()));
    frontend::write_safetensors(paths_.back(), data);
    return paths_.back();
  }

  const ir::Graph& graph(const std::string& inputs, const std::string& where = "") {
    module_ = ir::parse_module(
        "graph @g(" + inputs + ")" + where + " {\n  %0 = aten.neg(%x)\n  return %0\n}",
        ops::op_table());
    return *module_->graphs()[0];
  }

  /// First number and rows of each batch of the first input.
  static std::vector<std::pair<float, int64_t>> all(Batches batches) {
    std::vector<std::pair<float, int64_t>> found;
    while (std::optional<std::vector<runtime::Array>> batch = batches.next())
      found.emplace_back(*(*batch)[0].data<float>(), (*batch)[0].sizes()[0]);
    EXPECT_EQ(static_cast<int64_t>(found.size()), batches.count());
    return found;
  }

  template <class F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  std::unique_ptr<ir::Module> module_;
  std::vector<std::string> paths_;
};

using Found = std::pair<float, int64_t>;

TEST_F(ModelFile, RowsOfAKnownNumberFillBatches) {
  const std::vector<DataInput> inputs = data_inputs_of(graph("%x: f32[4, 2]"));
  Batches batches({file({{"x", 9}}), file({{"x", 3}}), file({{"x", 4}})}, inputs, 7);
  EXPECT_EQ(batches.left_out(), 1 + 3);
  EXPECT_THAT(all(std::move(batches)), ElementsAre(Found{0, 4}, Found{8, 4}, Found{0, 4}));
}

TEST_F(ModelFile, TheRestIsABatchWhereAnyNumberGoes) {
  const std::string rows = file({{"x", 9}});
  const std::vector<DataInput> any =
      data_inputs_of(graph("%x: f32[s0, 2]", " where s0 in [1, 99]"));
  EXPECT_THAT(all({{rows}, any, 4}), ElementsAre(Found{0, 4}, Found{8, 4}, Found{16, 1}));
  const std::vector<DataInput> two =
      data_inputs_of(graph("%x: f32[s0, 2]", " where s0 in [2, 99]"));
  EXPECT_THAT(all({{rows}, two, 4}), ElementsAre(Found{0, 4}, Found{8, 4}));
  EXPECT_THAT(all({{rows}, two, 1}).size(), 4);  // no batch has less than two
}

TEST_F(ModelFile, WithoutFilesThereAreNone) {
  EXPECT_THAT(all({{}, data_inputs_of(graph("%x: f32[4, 2]")), 4}), ElementsAre());
}

TEST_F(ModelFile, WhatDoesNotFitIsNamed) {
  const std::vector<DataInput> inputs = data_inputs_of(graph("%x: f32[4, 2], %y: f32[2, 2]"));
  EXPECT_THAT(all({{file({{"x", 8}, {"y", 4}})}, inputs, 1}),
              ElementsAre(Found{0, 4}, Found{8, 4}));
  const auto error = [&](const std::vector<Rows>& rows) {
    return error_of([&] { Batches({file(rows)}, inputs, 1); });
  };
  EXPECT_THAT(error({{"x", 8}, {"y", 8}}), HasSubstr("'x' has 2 batches, 'y' has 4"));
  EXPECT_THAT(error({{"x", 8}}), HasSubstr("no tensor \"y\""));
  const std::vector<DataInput> wide = data_inputs_of(graph("%x: f32[4, 3]"));
  EXPECT_THAT(error_of([&] { Batches({file({{"x", 4}})}, wide, 1); }),
              HasSubstr("'x' is f32[4, 2], the model takes f32[4, 3]"));
  EXPECT_THAT(error_of([&] { data_inputs_of(graph("%x: f32[4], %n: i64")); }),
              HasSubstr("input %n is i64"));
}

TEST_F(ModelFile, WeightsHaveTheirQualifiedNames) {
  const std::string weights = file({{"fc.weight", 3}, {"b", 2}, {"else", 1}});
  const ir::Graph& named =
      graph("%w: f32[3, 2] {param \"fc.weight\"}, %x: f32[4], %b: f32[2, 2] {buffer}");
  const State state = weights_of(named, weights);
  EXPECT_EQ(state.arrays().size(), 2U);
  EXPECT_EQ(state.at("w").data<float>()[5], 5);
  EXPECT_EQ(state.at("b").describe(), "f32[2, 2]");
  const std::string error = error_of([&] {
    weights_of(graph("%w: f32[2, 2] {param \"fc.weight\"}, %x: f32[4], %u: f32[2] {param \"u\"}"),
               weights);
  });
  EXPECT_THAT(error, HasSubstr("'fc.weight' is f32[3, 2], input %w is f32[2, 2]"));
  EXPECT_THAT(error, HasSubstr("'u' is missing"));
}

}  // namespace
}  // namespace tandem::driver
