// Reading trusts nothing: the header's length, its JSON, every type, shape and place are checked
// before a tensor is handed out, and that the places fill the data exactly (so a cut-off file or
// two tensors over one another are seen). Writing goes through a temporary file and a rename: a
// reader sees the old file or the new one, never half of it.
#include "frontend/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "base/diagnostic.h"
#include "frontend/atomic_file.h"

namespace tandem::frontend {
namespace {

namespace dom = simdjson::dom;
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::pair<std::string_view, DType> kTypes[] = {{"F64", DType::f64},
                                                         {"F32", DType::f32},
                                                         {"BF16", DType::bf16},
                                                         {"F16", DType::f16},
                                                         {"I64", DType::i64},
                                                         {"I32", DType::i32},
                                                         {"I16", DType::i16},
                                                         {"I8", DType::i8},
                                                         {"U8", DType::u8},
                                                         {"BOOL", DType::boolean},
                                                         {"F8_E4M3", DType::f8e4m3fn},
                                                         {"F8_E5M2", DType::f8e5m2}};

std::string_view text_of(DType dtype) {
  for (const auto& [text, known] : kTypes)
    if (known == dtype) return text;
  throw Unsupported(fmt::format("[safetensors] no tensor has elements of {}", name_of(dtype)));
}

struct Place {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

class Reader {
 public:
  explicit Reader(const std::string& path)
      : file_(std::make_shared<MappedFile>(path)), result_(file_) {}

  TensorFile read() {
    std::string_view text = header_text();
    dom::element root;
    simdjson::error_code error = parser_.parse(text.data(), text.size()).get(root);
    dom::object header;
    if (error == simdjson::SUCCESS) error = root.get(header);
    if (error != simdjson::SUCCESS)
      fail(fmt::format("the header is no JSON object: {}", simdjson::error_message(error)));
    for (dom::key_value_pair field : header) {
      if (field.key == kMetadata)
        read_metadata(field.value);
      else
        read_tensor(std::string(field.key), field.value);
    }
    check_places();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("[safetensors] {}: {}", file_->path(), what));
  }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    fail(fmt::format("tensor \"{}\": {}", name, what));
  }

  std::string_view header_text() {
    std::span<const std::byte> bytes = file_->bytes();
    if (bytes.size() < kLengthBytes)
      fail(fmt::format("{} bytes are too few for the header's length", bytes.size()));
    uint64_t length = load_number<uint64_t>(bytes, 0);
    if (length > kLongestHeader)
      fail(
          fmt::format("a header of {} bytes is longer than the format allows ({}): is it a "
                      "safetensors file?",
                      length, kLongestHeader));
    if (!fits(kLengthBytes, length, bytes.size()))
      fail(fmt::format("the header of {} bytes ends beyond the file's {} bytes", length,
                       bytes.size()));
    data_ = bytes.subspan(kLengthBytes + length);
    return as_text(bytes.subspan(kLengthBytes, length));
  }

  void read_metadata(dom::element value) {
    dom::object texts;
    if (value.get(texts) != simdjson::SUCCESS) fail("__metadata__ must be an object of strings");
    for (dom::key_value_pair field : texts) {
      std::string_view text;
      if (field.value.get(text) != simdjson::SUCCESS)
        fail(fmt::format("__metadata__ \"{}\" must be a string", field.key));
      result_.metadata[std::string(field.key)] = text;
    }
  }

  void read_tensor(const std::string& name, dom::element value) {
    dom::object fields;
    if (value.get(fields) != simdjson::SUCCESS) fail(name, "its entry must be an object");
    TensorData tensor{name, read_dtype(name, fields), read_sizes(name, fields), {}};
    Place place = read_place(name, fields);
    std::optional<uint64_t> wanted = byte_count(tensor.dtype, tensor.sizes);
    if (!wanted) fail(name, "its shape has more elements than memory can hold");
    if (*wanted != place.end - place.begin)
      fail(name,
           fmt::format("data_offsets [{}, {}] hold {} bytes, {} needs {}", place.begin, place.end,
                       place.end - place.begin, describe(tensor.dtype, tensor.sizes), *wanted));
    tensor.bytes = data_.subspan(place.begin, place.end - place.begin);
    places_.push_back(std::move(place));
    if (!result_.add(std::move(tensor))) fail(name, "is there twice");
  }

  DType read_dtype(const std::string& name, dom::object fields) const {
    std::string_view text;
    if (fields["dtype"].get(text) != simdjson::SUCCESS) fail(name, "dtype must be a string");
    for (const std::pair<std::string_view, DType>& type : kTypes)
      if (type.first == text) return type.second;
    std::string known;
    for (const std::pair<std::string_view, DType>& type : kTypes)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", type.first);
    throw Unsupported(fmt::format("[safetensors] {}: tensor \"{}\": dtype {} is not read; {} are",
                                  file_->path(), name, text, known));
  }

  std::vector<int64_t> read_sizes(const std::string& name, dom::object fields) const {
    dom::array shape;
    if (fields["shape"].get(shape) != simdjson::SUCCESS) fail(name, "shape must be a list");
    std::vector<int64_t> sizes;
    for (dom::element item : shape) {
      int64_t size = -1;
      if (item.get(size) != simdjson::SUCCESS || size < 0)
        fail(name, "shape must hold integers of 0 or more");
      sizes.push_back(size);
    }
    return sizes;
  }

  Place read_place(const std::string& name, dom::object fields) const {
    dom::array offsets;
    if (fields["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2)
      fail(name, "data_offsets must be two numbers");
    Place place;
    place.name = name;
    if (offsets.at(0).get(place.begin) != simdjson::SUCCESS ||
        offsets.at(1).get(place.end) != simdjson::SUCCESS)
      fail(name, "data_offsets must be integers of 0 or more");
    if (place.begin > place.end)
      fail(name, fmt::format("data_offsets [{}, {}] run backwards", place.begin, place.end));
    if (place.end > data_.size())
      fail(name, fmt::format("data_offsets [{}, {}] end beyond the {} bytes of data: is the file "
                             "cut off?",
                             place.begin, place.end, data_.size()));
    return place;
  }

  void check_places() {
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    uint64_t at = 0;
    const Place* before = nullptr;
    for (const Place& place : places_) {
      if (place.begin < at)
        fail(place.name,
             fmt::format("data_offsets [{}, {}] overlap those of \"{}\", [{}, {}]", place.begin,
                         place.end, before->name, before->begin, before->end));
      if (place.begin > at)
        fail(place.name, fmt::format("{} bytes before it belong to no tensor", place.begin - at));
      at = place.end;
      before = &place;
    }
    if (at != data_.size())
      fail(fmt::format("the last {} bytes belong to no tensor", data_.size() - at));
  }

  std::shared_ptr<const MappedFile> file_;
  TensorFile result_;
  dom::parser parser_;
  std::span<const std::byte> data_;
  std::vector<Place> places_;
};

// --- writing
// --------------------------------------------------------------------------------------

/// As a JSON string; bytes above 127 stay as they are (UTF-8).
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", c);
    else
      result += c;
  }
  return result + "\"";
}

std::vector<const TensorData*> in_file_order(std::span<const TensorData> tensors) {
  std::vector<const TensorData*> order;
  for (const TensorData& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorData* a, const TensorData* b) {
    int64_t size_a = size_of(a->dtype);
    int64_t size_b = size_of(b->dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  return order;
}

void check_for_writing(const std::string& path, std::span<const TensorData> tensors) {
  std::map<std::string_view, const TensorData*> names;
  for (const TensorData& tensor : tensors) {
    std::optional<uint64_t> wanted = byte_count(tensor.dtype, tensor.sizes);
    std::string problem;
    if (!names.emplace(tensor.name, &tensor).second) problem = "is given twice";
    if (tensor.name == kMetadata) problem = "has a name that the format keeps for itself";
    if (wanted != tensor.bytes.size())
      problem = fmt::format("has {} bytes, {} needs {}", tensor.bytes.size(),
                            describe(tensor.dtype, tensor.sizes), wanted.value_or(0));
    if (!problem.empty())
      throw UserError(
          fmt::format("[safetensors] {}: tensor \"{}\" {}", path, tensor.name, problem));
  }
}

std::string header_of(const std::vector<const TensorData*>& tensors,
                      const std::map<std::string, std::string, std::less<>>& metadata) {
  std::vector<std::string> fields;
  std::vector<std::string> texts;
  for (const std::pair<const std::string, std::string>& text : metadata)
    texts.push_back(json_string(text.first) + ":" + json_string(text.second));
  if (!texts.empty())
    fields.push_back(fmt::format("\"{}\":{{{}}}", kMetadata, fmt::join(texts, ",")));
  uint64_t at = 0;
  for (const TensorData* tensor : tensors) {
    uint64_t end = at + tensor->bytes.size();
    fields.push_back(fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                                 json_string(tensor->name), text_of(tensor->dtype),
                                 fmt::join(tensor->sizes, ","), at, end));
    at = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(fields, ","));
  header.append((8 - header.size() % 8) % 8, ' ');  // the data starts at a multiple of 8
  return header;
}

}  // namespace

TensorFile read_safetensors(const std::string& path) { return Reader(path).read(); }

void write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                       const std::map<std::string, std::string, std::less<>>& metadata) {
  check_for_writing(path, tensors);
  std::vector<const TensorData*> order = in_file_order(tensors);
  std::string header = header_of(order, metadata);
  uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const TensorData* tensor : order) file.write(tensor->bytes);
  file.commit();
}

}  // namespace tandem::frontend
