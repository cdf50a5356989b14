// The file is a comment and a program: input for `tandem opt`, `schedule` and `run`.
#include "driver/reproducer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem::driver {
namespace {

std::string as_comment(std::string_view text) {
  std::string comment = "; ";
  for (const char c : text) {
    comment += c;
    if (c == '\n') comment += "; ";
  }
  return comment + "\n";
}

/// Path of a new empty file of this user alone; empty where none can be made.
std::string new_file() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return "";
  std::string path = (folder / "tandem-bug-XXXXXX.tir").string();
  const int file = mkstemps(path.data(), 4);
  if (file < 0) return "";
  close(file);
  return path;
}

std::string write_reproducer(const InternalError& error, std::string_view program) {
  std::string path = new_file();
  if (path.empty()) return "";
  std::ofstream file(path);
  file << as_comment(error.what());
  if (!error.context().empty()) file << as_comment(error.context());
  file << program;
  file.close();
  return file ? path : "";
}

}  // namespace

void throw_with_reproducer(const InternalError& error, std::string_view program) {
  const std::string path = write_reproducer(error, program);
  std::string text = fmt::format("{}\nThis is a bug of Tandem, not of the program.", error.what());
  if (!path.empty()) text += fmt::format(" Please report it with {}, which repeats it.", path);
  throw InternalError(text, error.context());
}

}  // namespace tandem::driver
