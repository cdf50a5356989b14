// Reading fields of TOML tables: what is missing, of another type or unknown is a problem at its
// line, and all problems of a text are told at once.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <toml++/toml.h>

#include "base/diagnostic.h"

namespace tandem::quant {

/// The text as a table. UserError where it is no TOML.
toml::table parse_toml(std::string_view text, const std::string& path);

/// In quotes, as a key or a value.
std::string quoted(std::string_view text);

/// One table. Reading a field marks it as known; `finish` tells of fields that nobody asked for.
class TomlFields {
 public:
  /// `table` may be null: every field is missing then.
  TomlFields(const toml::table* table, std::string subject, std::string path, Diagnostics& problems)
      : table_(table), subject_(std::move(subject)), path_(std::move(path)), problems_(&problems) {}

  /// Null where it is missing.
  const toml::node* find(std::string_view key);
  std::string text(std::string_view key, std::string otherwise);
  std::string needed_text(std::string_view key);
  bool boolean(std::string_view key, bool otherwise);
  int64_t integer(std::string_view key, int64_t otherwise);
  double number(std::string_view key, double otherwise);
  /// A number or an array of them; empty where it is missing.
  std::vector<float> numbers(std::string_view key);
  /// A field that is a table; null where it is missing.
  const toml::table* table(std::string_view key);
  const toml::array* array(std::string_view key);
  void finish();
  /// A problem of this table, or of one of its fields.
  void problem(const std::string& text, const toml::node* at = nullptr);

  const std::string& path() const { return path_; }
  Diagnostics& problems() { return *problems_; }

 private:
  template <class T>
  T value(std::string_view key, T otherwise, std::string_view what);

  const toml::table* table_;
  std::string subject_;
  std::string path_;
  Diagnostics* problems_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tandem::quant
