// What is written reads back; what breaks a rule names the tensor and the rule.
#include "frontend/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "test/frontend/files.h"

namespace tandem::frontend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

std::string make_file(const std::string& header, const std::string& data) {
  return raw(static_cast<uint64_t>(header.size())) + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TensorData data_of(const std::string& name, DType dtype, std::vector<int64_t> sizes,
                   const std::string& content) {
  return {name, dtype, std::move(sizes), std::as_bytes(std::span(content))};
}

class SafeTensors : public testing::Test {
 protected:
  TensorFile read(const std::string& content) {
    return read_safetensors(folder_.write("x.safetensors", content));
  }
  void expect_error(const std::string& content, const std::string& text) {
    EXPECT_THAT([&] { read(content); }, ThrowsMessage<UserError>(HasSubstr(text)));
  }
  TemporaryFolder folder_;
};

TEST_F(SafeTensors, ReadsInPlace) {
  TensorFile file = read(make_file("{" + entry("w", "F32", "[2]", "[0,8]") + "," +
                                       entry("b", "I64", "[]", "[8, 16]") +
                                       ",\"__metadata__\":{\"format\":\"pt\"}}  ",
                                   raw<float>({1, 2}) + raw<int64_t>(7)));
  EXPECT_EQ(file.tensors().size(), 2U);
  EXPECT_THAT(numbers<float>(file.at("w").bytes), ElementsAre(1, 2));
  EXPECT_THAT(numbers<int64_t>(file.at("b").bytes), ElementsAre(7));
  EXPECT_TRUE(file.at("b").sizes.empty());
  EXPECT_THAT(file.metadata, ElementsAre(Pair("format", "pt")));
}

TEST_F(SafeTensors, WrittenFilesReadBack) {
  std::string bytes(64, '\5');
  std::vector<TensorData> tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    DType dtype = static_cast<DType>(i);
    if (is_complex(dtype)) continue;  // no such tensors
    std::span<const std::byte> all = std::as_bytes(std::span(bytes));
    tensors.push_back({"t" + std::to_string(i),
                       dtype,
                       {3, 1},
                       all.first(static_cast<size_t>(3 * size_of(dtype)))});
  }
  tensors.push_back({"empty \"quoted\" \\ \n \xc3\xa9", DType::f32, {0, 5}, {}});
  std::string path = folder_.file("w.safetensors");
  write_safetensors(path, tensors, {{"step", "12\t"}});
  TensorFile file = read_safetensors(path);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  EXPECT_THAT(file.metadata, ElementsAre(Pair("step", "12\t")));
  for (const TensorData& tensor : tensors) {
    const TensorData& read = file.at(tensor.name);
    EXPECT_EQ(read.dtype, tensor.dtype);
    EXPECT_EQ(read.sizes, tensor.sizes);
    EXPECT_EQ(as_text(read.bytes), as_text(tensor.bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.bytes.data()) %
                  static_cast<uintptr_t>(size_of(read.dtype)),
              0U);
  }
}

TEST_F(SafeTensors, NoTensorsAtAll) {
  EXPECT_TRUE(read(make_file("{}", "")).tensors().empty());
  write_safetensors(folder_.file("none"), {});
  EXPECT_TRUE(read_safetensors(folder_.file("none")).tensors().empty());
}

TEST_F(SafeTensors, RefusesBadHeaders) {
  expect_error("1234567", "7 bytes are too few");
  expect_error(raw<uint64_t>(100) + "{}",
               "the header of 100 bytes ends beyond the file's 10 bytes");
  expect_error(raw<uint64_t>(1ULL << 60) + "{}", "longer than the format allows");
  expect_error(make_file("{", ""), "the header is no JSON object");
  expect_error(make_file("[]", ""), "the header is no JSON object");
  expect_error(make_file("", ""), "the header is no JSON object");
  expect_error(make_file(R"({"__metadata__":3})", ""), "__metadata__ must be an object");
  expect_error(make_file(R"({"__metadata__":{"a":3}})", ""), "__metadata__ \"a\" must be a string");
}

TEST_F(SafeTensors, RefusesBadEntries) {
  expect_error(make_file(R"({"w":3})", ""), "tensor \"w\": its entry must be an object");
  expect_error(make_file(R"({"w":{}})", ""), "tensor \"w\": dtype must be a string");
  expect_error(make_file("{" + entry("w", "F8_E8M0", "[1]", "[0,1]") + "}", "x"),
               "dtype F8_E8M0 is not read");
  expect_error(make_file("{" + entry("w", "F32", "3", "[0,4]") + "}", "xxxx"),
               "shape must be a list");
  expect_error(make_file("{" + entry("w", "F32", "[-1]", "[0,4]") + "}", "xxxx"),
               "integers of 0 or more");
  expect_error(make_file("{" + entry("w", "F32", "[1.5]", "[0,4]") + "}", "xxxx"),
               "integers of 0 or more");
  expect_error(make_file("{" + entry("w", "F32", "[1]", "[0]") + "}", "xxxx"),
               "data_offsets must be two numbers");
  expect_error(make_file("{" + entry("w", "F32", "[1]", "[0,-4]") + "}", "xxxx"),
               "integers of 0 or more");
  expect_error(
      make_file("{" + entry("w", "F32", "[4611686018427387904, 4]", "[0,4]") + "}", "xxxx"),
      "more elements than memory can hold");
}

TEST_F(SafeTensors, RefusesBadPlaces) {
  expect_error(make_file("{" + entry("w", "F32", "[3]", "[0,8]") + "}", "xxxxxxxx"),
               "tensor \"w\": data_offsets [0, 8] hold 8 bytes, f32[3] needs 12");
  expect_error(make_file("{" + entry("w", "F32", "[1]", "[4,0]") + "}", "xxxx"),
               "[4, 0] run backwards");
  expect_error(
      make_file("{" + entry("w", "F32", "[2]", "[0,8]") + "}", "xxxx"),
      "tensor \"w\": data_offsets [0, 8] end beyond the 4 bytes of data: is the file cut off?");
  expect_error(make_file("{" + entry("a", "F32", "[1]", "[0,4]") + "," +
                             entry("b", "F32", "[1]", "[2,6]") + "}",
                         "xxxxxx"),
               "tensor \"b\": data_offsets [2, 6] overlap those of \"a\", [0, 4]");
  expect_error(make_file("{" + entry("w", "F32", "[1]", "[4,8]") + "}", "xxxxxxxx"),
               "tensor \"w\": 4 bytes before it belong to no tensor");
  expect_error(make_file("{" + entry("w", "F32", "[1]", "[0,4]") + "}", "xxxxxx"),
               "the last 2 bytes belong to no tensor");
  expect_error(make_file("{" + entry("w", "U8", "[1]", "[0,1]") + "," +
                             entry("w", "U8", "[1]", "[1,2]") + "}",
                         "xx"),
               "tensor \"w\": is there twice");
}

TEST_F(SafeTensors, RefusesCutOffFilesAtEveryLength) {
  std::string whole = make_file("{" + entry("w", "F32", "[2]", "[0,8]") + "}", "12345678");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read(whole.substr(0, size)), UserError) << size;
}

TEST_F(SafeTensors, RefusesToWriteWhatDoesNotFit) {
  std::string four = "xxxx";
  std::string path = folder_.write("old", "old content");
  std::vector<std::vector<TensorData>> wrong = {
      {data_of("w", DType::f32, {2}, four)},
      {data_of("w", DType::f32, {1}, four), data_of("w", DType::f32, {1}, four)},
      {data_of("__metadata__", DType::f32, {1}, four)},
      {data_of("w", DType::f32, {-1}, four)}};
  for (const std::vector<TensorData>& tensors : wrong)
    EXPECT_THROW(write_safetensors(path, tensors), UserError);
  EXPECT_EQ(as_text(MappedFile(path).bytes()), "old content");
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(SafeTensors, ReplacesTheOldFileAtOnce) {
  std::string four = "xxxx";
  std::string path = folder_.write("file", "old content");
  MappedFile old(path);
  write_safetensors(path, std::vector{data_of("w", DType::f32, {1}, four)});
  EXPECT_EQ(as_text(old.bytes()), "old content");  // who had it open keeps it
  EXPECT_EQ(as_text(read_safetensors(path).at("w").bytes), "xxxx");
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(SafeTensors, SaysWhereItCannotWrite) {
  EXPECT_THAT([] { write_safetensors("/nowhere/at/all", {}); },
              ThrowsMessage<UserError>(HasSubstr("cannot write /nowhere/at/all: No such file")));
}

}  // namespace
}  // namespace tandem::frontend
