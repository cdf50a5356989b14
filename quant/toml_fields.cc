// The reader of TOML gives places; problems carry them.
#include "quant/toml_fields.h"

#include <fmt/format.h>

namespace tandem::quant {

toml::table parse_toml(std::string_view text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw UserError(std::string(error.description()),
                    fmt::format("{}:{}", path, error.source().begin.line));
  }
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (c == '"' || c == '\\') result += '\\';
    result += is_control ? fmt::format("\\u{:04x}", static_cast<int>(c)) : std::string(1, c);
  }
  return result + "\"";
}

void TomlFields::problem(const std::string& text, const toml::node* at) {
  const toml::node* place = at != nullptr ? at : table_;
  problems_->add(
      fmt::format("{}: {}", subject_, text),
      place == nullptr ? path_ : fmt::format("{}:{}", path_, place->source().begin.line));
}

const toml::node* TomlFields::find(std::string_view key) {
  known_.emplace(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

template <class T>
T TomlFields::value(std::string_view key, T otherwise, std::string_view what) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const std::optional<T> value = node->value<T>();
  if (!value) problem(fmt::format("'{}' must be {}", key, what), node);
  return value.value_or(otherwise);
}

std::string TomlFields::text(std::string_view key, std::string otherwise) {
  return value<std::string>(key, std::move(otherwise), "a text");
}

std::string TomlFields::needed_text(std::string_view key) {
  if (find(key) == nullptr) problem(fmt::format("'{}' is missing", key));
  return text(key, "");
}

bool TomlFields::boolean(std::string_view key, bool otherwise) {
  return value<bool>(key, otherwise, "true or false");
}

int64_t TomlFields::integer(std::string_view key, int64_t otherwise) {
  return value<int64_t>(key, otherwise, "an integer");
}

double TomlFields::number(std::string_view key, double otherwise) {
  return value<double>(key, otherwise, "a number");
}

std::vector<float> TomlFields::numbers(std::string_view key) {
  const toml::node* node = find(key);
  std::vector<float> found;
  if (node == nullptr) return found;
  const toml::array* many = node->as_array();
  const size_t count = many == nullptr ? 1 : many->size();
  for (size_t i = 0; i < count; ++i) {
    const toml::node& element = many == nullptr ? *node : (*many)[i];
    const std::optional<double> number = element.value<double>();
    if (!number) problem(fmt::format("'{}' must be a number, or numbers", key), &element);
    found.push_back(static_cast<float>(number.value_or(0)));
  }
  return found;
}

const toml::table* TomlFields::table(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return nullptr;
  if (node->as_table() == nullptr) problem(fmt::format("'{}' must be a table", key), node);
  return node->as_table();
}

const toml::array* TomlFields::array(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return nullptr;
  if (node->as_array() == nullptr) problem(fmt::format("'{}' must be an array", key), node);
  return node->as_array();
}

void TomlFields::finish() {
  if (table_ == nullptr) return;
  for (const auto& [key, node] : *table_)
    if (known_.count(key.str()) == 0)
      problem(fmt::format("there is no field '{}'", key.str()), &node);
}

}  // namespace tandem::quant
