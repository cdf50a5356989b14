// A .npy file is a magic word, a version, the length of a header and the header: a Python
// dictionary literal
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// with exactly those keys, then the elements. The few literals that may stand in it are read by
// hand.
#include "frontend/npz.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "base/diagnostic.h"
#include "frontend/zip_reader.h"

namespace tandem::frontend {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kVersionEnd = 8;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// One array of a file; errors name both.
class NpyReader {
 public:
  NpyReader(const std::string& path, std::string name, std::span<const std::byte> bytes)
      : path_(path), name_(std::move(name)), bytes_(bytes) {}

  TensorData read() {
    Header header = parse_header(header_text());
    TensorData tensor{name_, dtype_of(header.descr), header.shape, bytes_.subspan(data_start_)};
    bool is_row_major = !header.fortran_order || header.shape.size() < 2;
    if (!is_row_major) fail("is in Fortran order; save numpy.ascontiguousarray of it");
    check_size(tensor);
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("[npy] {}: array \"{}\" {}", path_, name_, what));
  }

  std::string_view header_text() {
    if (bytes_.size() < kVersionEnd + 4 || !as_text(bytes_).starts_with(kMagic))
      fail("is no .npy file");
    int version = static_cast<int>(bytes_[6]);
    if (version < 1 || version > 3) fail(fmt::format("has format version {}", version));
    uint64_t length_bytes = version == 1 ? 2 : 4;
    uint64_t length = version == 1 ? load_number<uint16_t>(bytes_, kVersionEnd)
                                   : load_number<uint32_t>(bytes_, kVersionEnd);
    if (!fits(kVersionEnd + length_bytes, length, bytes_.size()))
      fail(fmt::format("has a header of {} bytes beyond its end", length));
    data_start_ = kVersionEnd + length_bytes + length;
    return as_text(bytes_.subspan(kVersionEnd + length_bytes, length));
  }

  // --- the dictionary -------------------------------------------------------------------------

  void skip_spaces() {
    size_t end = text_.find_first_not_of(" \n\t");
    text_.remove_prefix(std::min(end, text_.size()));
  }
  bool accept(std::string_view word) {
    skip_spaces();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) fail(fmt::format("has a damaged header: '{}' is missing", word));
  }
  std::string quoted() {
    expect("'");
    size_t end = text_.find('\'');
    if (end == std::string_view::npos) fail("has a damaged header: a quote is missing");
    std::string word(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return word;
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> numbers;
    expect("(");
    while (!accept(")")) {
      skip_spaces();
      int64_t& number = numbers.emplace_back();
      std::from_chars_result read =
          std::from_chars(text_.data(), text_.data() + text_.size(), number);
      if (read.ec != std::errc()) fail("has a damaged header: its shape holds no numbers");
      text_.remove_prefix(static_cast<size_t>(read.ptr - text_.data()));
      if (!accept(",") && !text_.starts_with(")")) expect(")");
    }
    return numbers;
  }

  std::string read_descr() {
    skip_spaces();
    if (text_.starts_with("[")) fail("has records as elements; only numbers are read");
    return quoted();
  }

  bool read_flag() {
    if (accept("True")) return true;
    expect("False");
    return false;
  }

  Header parse_header(std::string_view text) {
    text_ = text;
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
    expect("{");
    while (!accept("}")) {
      std::string key = quoted();
      expect(":");
      if (key == "descr")
        descr = read_descr();
      else if (key == "fortran_order")
        fortran_order = read_flag();
      else if (key == "shape")
        shape = tuple();
      else
        fail(fmt::format("has a damaged header: key '{}'", key));
      if (!accept(",")) skip_spaces();
    }
    if (!descr || !fortran_order || !shape)
      fail("has a damaged header: descr, fortran_order and shape are needed");
    return {*descr, *fortran_order, *shape};
  }

  DType dtype_of(const std::string& descr) const {
    static constexpr std::pair<std::string_view, DType> kTypes[] = {
        {"<f2", DType::f16}, {"<f4", DType::f32}, {"<f8", DType::f64},
        {"|i1", DType::i8},  {"|u1", DType::u8},  {"<i2", DType::i16},
        {"<i4", DType::i32}, {"<i8", DType::i64}, {"|b1", DType::boolean}};
    for (const std::pair<std::string_view, DType>& type : kTypes)
      if (type.first == descr) return type.second;
    if (descr.starts_with(">")) fail(fmt::format("has type '{}': big-endian is not read", descr));
    fail(fmt::format("has type '{}', which is not read", descr));
  }

  void check_size(const TensorData& tensor) const {
    std::optional<uint64_t> wanted = byte_count(tensor.dtype, tensor.sizes);
    if (!wanted) fail(fmt::format("has an impossible shape [{}]", fmt::join(tensor.sizes, ", ")));
    if (*wanted != tensor.bytes.size())
      fail(fmt::format("has {} bytes of elements, {} needs {}", tensor.bytes.size(),
                       describe(tensor.dtype, tensor.sizes), *wanted));
  }

  const std::string& path_;
  std::string name_;
  std::span<const std::byte> bytes_;
  std::string_view text_;  // what is left of the header
  uint64_t data_start_ = 0;
};

}  // namespace

TensorFile read_npz(const std::string& path) {
  std::shared_ptr<const MappedFile> file = std::make_shared<MappedFile>(path);
  TensorFile result(file);
  if (as_text(file->bytes()).starts_with(kMagic)) {
    std::string name = std::filesystem::path(path).stem().string();
    result.add(NpyReader(path, name, file->bytes()).read());
    return result;
  }
  ZipReader zip(file);
  for (const std::pair<const std::string, ZipReader::Entry>& entry : zip.entries()) {
    std::string name = entry.first;
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    if (!result.add(NpyReader(path, name, zip.bytes(entry.first)).read()))
      throw UserError(fmt::format("[npy] {}: array \"{}\" is there twice", path, name));
  }
  return result;
}

}  // namespace tandem::frontend
