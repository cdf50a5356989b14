// Plain structs to bytes and back. A struct takes part by one function beside it,
//   template <class A> void fields(A& archive, T& value)
// which hands its members to the archive; it takes them apart with a structured binding, so that a
// member added to the struct and forgotten there does not compile. Bytes are those of this machine
// and this build: for caches and for files that carry the build's name, not for exchange.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tandem {

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::byte>;

class ArchiveWriter {
 public:
  template <class... T>
  void operator()(T&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  template <PlainNumber T>
  void put(T value) {
    raw(&value, sizeof(value));
  }
  void put(std::string& text) {
    put(text.size());
    raw(text.data(), text.size());
  }
  template <class T>
  void put(std::vector<T>& list) {
    put(list.size());
    if constexpr (PlainNumber<T>)
      raw(list.data(), list.size() * sizeof(T));
    else
      for (T& element : list) put(element);
  }
  template <class K, class V>
  void put(std::map<K, V>& map) {
    put(map.size());
    for (auto& [key, value] : map) {
      K name = key;
      put(name);
      put(value);
    }
  }
  template <class... T>
  void put(std::variant<T...>& choice) {
    put(choice.index());
    std::visit([this](auto& value) { this->put(value); }, choice);
  }
  template <class T>
  void put(std::shared_ptr<T>& pointer) {
    put(pointer != nullptr);
    if (pointer != nullptr) put(*pointer);
  }
  template <class T>
    requires std::is_class_v<T>
  void put(T& value) {
    fields(*this, value);
  }

  std::string bytes_;
};

/// Reads what the writer wrote. After bytes that end too early, or that name what does not exist,
/// values are empty and the reader is never complete.
class ArchiveReader {
 public:
  explicit ArchiveReader(std::string_view bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  /// All was read, and nothing is left over.
  bool is_complete() const { return good_ && bytes_.empty(); }
  /// All was there so far, and what is left.
  bool is_good() const { return good_; }
  std::string_view rest() const { return bytes_; }

 private:
  bool raw(void* data, size_t size) {
    good_ = good_ && size <= bytes_.size();
    if (!good_) return false;
    if (size > 0) std::memcpy(data, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return true;
  }
  /// Number of elements that follow; each takes a byte at least.
  size_t count(size_t element_bytes = 1) {
    size_t size = 0;
    get(size);
    good_ = good_ && size <= bytes_.size() / element_bytes;
    return good_ ? size : 0;
  }
  template <PlainNumber T>
  void get(T& value) {
    if (!raw(&value, sizeof(value))) value = T{};
  }
  void get(bool& value) {  // a byte that is neither may be no bool
    uint8_t byte = 0;
    get(byte);
    good_ = good_ && byte <= 1;
    value = good_ && byte != 0;
  }
  void get(std::string& text) {
    text.resize(count());
    raw(text.data(), text.size());
  }
  template <class T>
  void get(std::vector<T>& list) {
    if constexpr (PlainNumber<T>) {
      list.resize(count(sizeof(T)));
      raw(list.data(), list.size() * sizeof(T));
    } else {
      list.resize(count());
      for (T& element : list) get(element);
    }
  }
  template <class K, class V>
  void get(std::map<K, V>& map) {
    for (size_t left = count(); left > 0 && good_; --left) {
      K key;
      get(key);
      get(map[std::move(key)]);
    }
  }
  template <class... T>
  void get(std::variant<T...>& choice) {
    size_t index = 0;
    get(index);
    good_ = good_ && index < sizeof...(T);
    if (good_) get_alternative(choice, index, std::index_sequence_for<T...>());
  }
  template <class... T, size_t... I>
  void get_alternative(std::variant<T...>& choice, size_t index, std::index_sequence<I...>) {
    ((I == index ? get(choice.template emplace<I>()) : void()), ...);
  }
  template <class T>
  void get(std::shared_ptr<T>& pointer) {
    bool exists = false;
    get(exists);
    good_ = good_ && (!exists || depth_ < kMostDepth);
    pointer = good_ && exists ? std::make_shared<T>() : nullptr;
    if (pointer == nullptr) return;
    ++depth_;
    get(*pointer);
    --depth_;
  }
  template <class T>
    requires std::is_class_v<T>
  void get(T& value) {
    fields(*this, value);
  }

  static constexpr int kMostDepth = 16;  // of pointers in pointers: no bytes overrun the stack

  std::string_view bytes_;
  bool good_ = true;
  int depth_ = 0;
};

}  // namespace tandem
