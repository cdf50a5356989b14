// Comments are read line by line. A smaller graph keeps some results and the lines that they are
// made of, never part of a line: its numbers obey the same bounds.
#include "test/property/annotated.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/diagnostic.h"

namespace tandem::property {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Names behind each '%'.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at)) {
    const size_t end = std::min(
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", at + 1), text.size());
    names.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return names;
}

struct Line {
  std::vector<std::string> results;
  std::vector<std::string> operands;
  bool writes = false;
};

bool is_call(const std::string& line) {
  return line.starts_with("  %") && line.find(" = ") != std::string::npos;
}

Line parsed(const std::string& line) {
  const size_t middle = line.find(" = ");
  const std::string call = line.substr(middle, line.find(';') - middle);
  return {names_in(line.substr(0, middle)), names_in(call),
          call.find("aten.copy_(") != std::string::npos};
}

void read_comment(const std::string& line, Annotated& found) {
  std::istringstream words(line.substr(1));
  std::string kind;
  std::string name;
  words >> kind;
  if (kind == "gradients") found.has_gradients = true;
  if (kind == "large") found.is_large = true;
  if (kind == "has" && std::getline(words >> std::ws, name)) found.features.insert(name);
  std::array<int64_t, 2> sizes{};
  if (kind == "run" && words >> name >> sizes[0] >> sizes[1]) found.symbols[name] = sizes;
  Numbers numbers;
  if (kind == "data" && words >> name >> numbers.low >> numbers.high >> numbers.step)
    found.data[name] = numbers;
}

void read_call(const std::string& text, Annotated& found) {
  const Line line = parsed(text);
  if (text.find(';') == std::string::npos) throw UserError("a line says nothing of its error");
  std::istringstream errors(text.substr(text.find(';') + 1));
  for (const std::string& name : line.results) {
    double error = 0;
    if (!(errors >> error)) throw UserError("a line says nothing of its error");
    found.errors[name] = error;
    if (!line.writes) found.values.push_back(name);
  }
  if (line.writes) found.written.push_back(line.operands[0]);
}

/// Drops inputs that nothing reads, but for those that give a symbol its value.
std::string head_for(const std::string& head, const std::set<std::string>& read) {
  const size_t open = head.find('(');
  const size_t close = head.rfind(')');
  std::string inputs;
  for (size_t at = open; at < close;) {
    const size_t next = std::min(head.find(", %", at + 1), close);
    const size_t begin = head.find('%', at);
    const std::string input = head.substr(begin, next - begin);
    if (read.count(names_in(input)[0]) != 0 || input.ends_with(": f32[s0]") ||
        input.ends_with(": f32[s1]") || input.ends_with(": f32[s2]") ||
        input.ends_with(": f32[s3]"))
      inputs += (inputs.empty() ? "" : ", ") + input;
    at = next;
  }
  return head.substr(0, open + 1) + inputs + head.substr(close);
}

/// What the outputs are made of.
std::string slice(const std::string& text, const std::vector<std::string>& outputs,
                  bool keeps_writes) {
  const std::vector<std::string> lines = lines_of(text);
  std::set<std::string> read(outputs.begin(), outputs.end());
  std::vector<bool> kept(lines.size(), true);
  for (size_t i = lines.size(); i-- > 0;) {
    if (!is_call(lines[i])) continue;
    const Line line = parsed(lines[i]);
    kept[i] = (line.writes && keeps_writes) ||
              std::ranges::any_of(line.results,
                                  [&](const std::string& name) { return read.count(name) != 0; });
    if (kept[i]) read.insert(line.operands.begin(), line.operands.end());
  }
  std::string sliced;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!kept[i]) continue;
    const bool is_head = lines[i].starts_with("graph ");
    const bool is_return = lines[i].starts_with("  return ");
    sliced += is_head ? head_for(lines[i], read) : lines[i];
    if (is_return) sliced.resize(sliced.size() - lines[i].size());
    if (is_return) {
      sliced += "  return ";
      for (size_t k = 0; k < outputs.size(); ++k) sliced += (k == 0 ? "%" : ", %") + outputs[k];
    }
    sliced += "\n";
  }
  return sliced;
}

}  // namespace

Annotated annotated(const std::string& text) {
  Annotated found;
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(";")) read_comment(line, found);
    if (is_call(line)) read_call(line, found);
    if (line.starts_with("  return ")) found.outputs = names_in(line);
  }
  if (found.outputs.empty()) throw UserError("a graph without results");
  return found;
}

std::string with_outputs(const std::string& text, const std::vector<std::string>& outputs) {
  const size_t at = text.find("  return ");
  std::string all = "  return ";
  for (size_t i = 0; i < outputs.size(); ++i) all += (i == 0 ? "%" : ", %") + outputs[i];
  return text.substr(0, at) + all + text.substr(text.find('\n', at));
}

std::vector<std::string> smaller(const std::string& text) {
  const Annotated whole = annotated(text);
  std::vector<std::string> found;
  const auto add = [&](const std::vector<std::string>& outputs, bool writes) {
    if (outputs.empty()) return;
    std::string sliced = slice(text, outputs, writes);
    if (sliced.size() < text.size() && std::ranges::find(found, sliced) == found.end())
      found.push_back(std::move(sliced));
  };
  const bool writes = !whole.written.empty();
  if (whole.has_gradients) {  // the loss stays
    add({whole.outputs[0]}, false);
    return found;
  }
  for (const std::string& value : whole.values) add({value}, false);
  for (const std::string& value : whole.values)
    if (writes) add({value}, true);
  for (size_t i = 0; i < whole.outputs.size(); ++i) {
    std::vector<std::string> fewer = whole.outputs;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    add(fewer, true);
    add(fewer, false);
  }
  std::ranges::stable_sort(found, {}, [](const std::string& each) { return each.size(); });
  return found;
}

}  // namespace tandem::property
