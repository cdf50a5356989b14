// Text that is on every Debian machine, so that a demo needs no download. Licences quote each other
// at length: without dropping repeats, held-out paragraphs would stand word for word in the
// training text and the held-out loss would measure memory. Repeats are found by a key of letters
// and digits alone, as line breaks and quotes differ between versions. Order is by name and
// position only, and the generator is the standard's, so every machine with the same files sees the
// same batches.
#include "examples/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/diagnostic.h"

namespace tandem::examples {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kHoldOutEvery = 10;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw UserError(fmt::format("[corpus] cannot read {}", path.string()));
  return text.str();
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && !entry.is_symlink()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> distinct_texts(const fs::path& folder) {
  std::vector<std::string> texts;
  for (const fs::path& path : files_of(folder)) {
    std::string text = read_text(path);
    if (std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(std::move(text));
  }
  return texts;
}

bool is_blank(std::string_view line) {
  return std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return std::isspace(c) != 0; });
}

std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs;
  bool inside = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (is_blank(line)) {
      inside = false;
    } else if (inside) {
      paragraphs.back() += "\n" + line;
    } else {
      paragraphs.push_back(line);
      inside = true;
    }
  }
  return paragraphs;
}

/// Letters and digits in lower case; bytes of other alphabets as they are.
std::string key_of(const std::string& paragraph) {
  std::string key;
  for (unsigned char c : paragraph)
    if (std::isalnum(c) != 0 || c >= 0x80) key += static_cast<char>(std::tolower(c));
  return key;
}

std::string distinct_bytes(const std::string& text) {
  std::set<unsigned char> bytes(text.begin(), text.end());
  return {bytes.begin(), bytes.end()};
}

constexpr int64_t kNoToken = -1;

std::array<int64_t, 256> token_table(const std::string& vocabulary) {
  std::array<int64_t, 256> table;
  table.fill(kNoToken);
  for (size_t token = 0; token < vocabulary.size(); ++token)
    table[static_cast<unsigned char>(vocabulary[token])] = static_cast<int64_t>(token);
  return table;
}

std::vector<int64_t> tokens_of(const std::string& text, const std::array<int64_t, 256>& table,
                               int64_t& unknown) {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  for (unsigned char c : text) {
    if (table[c] == kNoToken)
      ++unknown;
    else
      tokens.push_back(table[c]);
  }
  return tokens;
}

void check_window(size_t tokens, int64_t batch, int64_t context) {
  if (batch < 1 || context < 1)
    throw UserError(
        fmt::format("[corpus] batch {} and context {} must be positive", batch, context));
  if (static_cast<int64_t>(tokens) <= context)
    throw UserError(fmt::format("[corpus] {} tokens hold no window of context {} and one target",
                                tokens, context));
}

void append_window(Batch& batch, std::span<const int64_t> tokens, int64_t start, int64_t context) {
  std::span<const int64_t> window =
      tokens.subspan(static_cast<size_t>(start), static_cast<size_t>(context) + 1);
  batch.inputs.insert(batch.inputs.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
}

}  // namespace

std::string Corpus::text(std::span<const int64_t> tokens) const {
  std::string result;
  for (int64_t token : tokens) result += vocabulary.at(static_cast<size_t>(token));
  return result;
}

Corpus make_corpus(std::span<const std::string> texts) {
  Corpus corpus;
  std::set<std::string> seen;
  std::string training, held_out;
  for (const std::string& text : texts)
    for (const std::string& paragraph : paragraphs_of(text)) {
      if (!seen.insert(key_of(paragraph)).second) {
        ++corpus.repeats;
        continue;
      }
      bool held = ++corpus.paragraphs % kHoldOutEvery == 0;
      (held ? held_out : training) += paragraph + "\n\n";
    }
  corpus.files = static_cast<int64_t>(texts.size());
  corpus.vocabulary = distinct_bytes(training);
  std::array<int64_t, 256> table = token_table(corpus.vocabulary);
  corpus.training = tokens_of(training, table, corpus.unknown);
  corpus.held_out = tokens_of(held_out, table, corpus.unknown);
  return corpus;
}

Corpus load_corpus(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw UserError(fmt::format("[corpus] there is no file or folder {}", path));
  std::vector<std::string> texts;
  if (fs::is_directory(path, error))
    texts = distinct_texts(path);
  else
    texts.push_back(read_text(path));
  Corpus corpus = make_corpus(texts);
  if (corpus.held_out.empty())
    throw UserError(fmt::format(
        "[corpus] {} has {} distinct paragraphs (blank lines separate them); {} are needed", path,
        corpus.paragraphs, kHoldOutEvery));
  return corpus;
}

BatchSampler::BatchSampler(std::span<const int64_t> tokens, int64_t batch, int64_t context,
                           uint64_t seed)
    : tokens_(tokens), batch_(batch), context_(context), random_(seed) {
  check_window(tokens.size(), batch, context);
}

Batch BatchSampler::next() {
  Batch batch;
  // Not std::uniform_int_distribution, which differs between libraries. The remainder's bias is
  // below 2^-40.
  uint64_t starts = tokens_.size() - static_cast<uint64_t>(context_);
  for (int64_t row = 0; row < batch_; ++row)
    append_window(batch, tokens_, static_cast<int64_t>(random_() % starts), context_);
  return batch;
}

std::vector<Batch> evaluation_batches(std::span<const int64_t> tokens, int64_t batch,
                                      int64_t context, int64_t limit) {
  check_window(tokens.size(), batch, context);
  int64_t last = static_cast<int64_t>(tokens.size()) - context - 1;  // start of the last window
  int64_t windows = last / context + 1 + (last % context == 0 ? 0 : 1);
  int64_t count = (windows + batch - 1) / batch;
  if (limit > 0) count = std::min(count, limit);
  int64_t steps = std::max<int64_t>(1, count * batch - 1);
  std::vector<Batch> batches(static_cast<size_t>(count));
  for (int64_t w = 0; w < count * batch; ++w)
    append_window(batches[static_cast<size_t>(w / batch)], tokens, last * w / steps, context);
  return batches;
}

}  // namespace tandem::examples
