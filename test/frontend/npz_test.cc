// numpy's files: every type, shapes, alignment, and what is refused.
#include "frontend/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "test/frontend/files.h"

namespace tandem::frontend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape +
         ", }   \n";
}

class Npz : public testing::Test {
 protected:
  TensorFile read(const std::string& content) { return read_npz(folder_.write("x.npy", content)); }
  void expect_error(const std::string& content, const std::string& text) {
    EXPECT_THAT([&] { read(content); }, ThrowsMessage<UserError>(HasSubstr(text)));
  }
  TemporaryFolder folder_;
};

TEST_F(Npz, ReadsOneArray) {
  TensorFile file = read(make_npy(header("<f4", "(2, 3)"), raw<float>({1, 2, 3, 4, 5, 6})));
  ASSERT_EQ(file.tensors().size(), 1U);
  const TensorData& x = file.at("x");
  EXPECT_EQ(x.dtype, DType::f32);
  EXPECT_THAT(x.sizes, ElementsAre(2, 3));
  EXPECT_THAT(numbers<float>(x.bytes), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(Npz, ReadsEveryType) {
  const std::pair<const char*, DType> types[] = {
      {"<f2", DType::f16}, {"<f4", DType::f32}, {"<f8", DType::f64},
      {"|i1", DType::i8},  {"|u1", DType::u8},  {"<i2", DType::i16},
      {"<i4", DType::i32}, {"<i8", DType::i64}, {"|b1", DType::boolean}};
  for (const std::pair<const char*, DType>& type : types) {
    std::string content(static_cast<size_t>(3 * size_of(type.second)), '\1');
    TensorFile file = read(make_npy(header(type.first, "(3,)"), content));
    EXPECT_EQ(file.at("x").dtype, type.second);
    EXPECT_THAT(file.at("x").sizes, ElementsAre(3));
  }
}

TEST_F(Npz, ReadsScalarsAndEmptyArrays) {
  EXPECT_TRUE(read(make_npy(header("<f8", "()"), raw(2.5))).at("x").sizes.empty());
  EXPECT_THAT(read(make_npy(header("<f8", "(0, 3)"), "")).at("x").sizes, ElementsAre(0, 3));
  EXPECT_THAT(read(make_npy(header("<f8", "(1,)", "True"), raw(2.5))).at("x").sizes,
              ElementsAre(1));
}

TEST_F(Npz, ReadsArchivesWithAlignedElements) {
  std::string content = make_npy(header("<f8", "(2,)"), raw<double>({1, 2}));
  for (size_t pad = 0; pad < 8; ++pad) {
    std::string archive = make_zip({{std::string(pad, 'p'), make_npy(header("|u1", "()"), "x")},
                                    {"w.npy", content, 0, 0, true}});
    TensorFile file = read_npz(folder_.write("a.npz", archive));
    const TensorData& w = file.at("w");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w.bytes.data()) % 8, 0U);
    EXPECT_THAT(numbers<double>(w.bytes), ElementsAre(1, 2));
  }
}

TEST_F(Npz, NamesTheArraysThereAre) {
  TensorFile file = read(make_npy(header("|u1", "()"), "x"));
  EXPECT_EQ(file.find("y"), nullptr);
  EXPECT_THAT([&] { file.at("y"); },
              ThrowsMessage<UserError>(HasSubstr("has no tensor \"y\"; there are: x")));
}

TEST_F(Npz, RefusesWhatItDoesNotRead) {
  std::string eight(8, '\0');
  expect_error(make_npy(header(">f8", "()"), eight), "big-endian is not read");
  expect_error(make_npy(header("|O", "()"), eight), "has type '|O', which is not read");
  expect_error(make_npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", eight),
               "records");
  expect_error(make_npy(header("<f4", "(1, 2)", "True"), eight), "is in Fortran order");
  expect_error(make_zip({{"w.npy", "xxxx", 8}}), "entry \"w.npy\" is compressed");
  expect_error(make_zip({{"w.npy", "text"}}), "array \"w\" is no .npy file");
}

TEST_F(Npz, RefusesDamagedHeaders) {
  std::string four(4, '\0');
  expect_error(make_npy(header("<f4", "(2,)"), four), "has 4 bytes of elements, f32[2] needs 8");
  expect_error(make_npy(header("<f4", "()"), four + four),
               "has 8 bytes of elements, f32[] needs 4");
  expect_error(make_npy(header("<f4", "(-1,)"), four), "impossible shape [-1]");
  expect_error(make_npy(header("<f4", "(4611686018427387904, 4)"), four), "impossible shape");
  expect_error(make_npy(header("<f4", "(a,)"), four), "its shape holds no numbers");
  expect_error(make_npy("{'descr': '<f4', 'shape': ()}", four), "are needed");
  expect_error(make_npy("{'color': 'red'}", four), "key 'color'");
  expect_error(make_npy("{'descr': '<f4", four), "a quote is missing");
  expect_error("\x93NUMPY\x09", "is no .npy file");
  expect_error("\x93NUMPY\x09" + std::string(9, '\0'), "has format version 9");
}

TEST_F(Npz, RefusesCutOffFilesAtEveryLength) {
  std::string whole = make_npy(header("<f4", "(2, 2)"), raw<float>({1, 2, 3, 4}));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read(whole.substr(0, size)), UserError) << size;
}

}  // namespace
}  // namespace tandem::frontend
