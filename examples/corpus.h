// The text that the demos learn from, as tokens, and how batches are drawn from it. One token is
// one byte.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tandem::examples {

/// The licences that every Debian system carries.
inline constexpr const char* kLicenses = "/usr/share/common-licenses";

struct Corpus {
  std::string
      vocabulary;  // distinct bytes of the training text, ascending; token t is vocabulary[t]
  std::vector<int64_t> training;  // every token is in [0, vocabulary.size())
  std::vector<int64_t> held_out;
  int64_t files = 0;
  int64_t paragraphs = 0;  // kept, held-out ones included
  int64_t repeats = 0;     // paragraphs dropped because an equal one came before
  int64_t unknown =
      0;  // held-out bytes left out: no training text has them, so no token stands for them

  /// Text of tokens.
  std::string text(std::span<const int64_t> tokens) const;
};

/// The distinct files of a folder (name order, without symbolic links, byte-equal files once), or
/// one file. Blank lines separate paragraphs; a paragraph equal to an earlier one but for case,
/// spaces and punctuation is dropped; every tenth of the rest is held out. Throws UserError when
/// the path cannot be read or holds too little text.
Corpus load_corpus(const std::string& path = kLicenses);
/// The same for texts already read.
Corpus make_corpus(std::span<const std::string> texts);

/// Row-major [batch, context] each; targets[b, t] is the token that follows inputs[b, t] in the
/// text.
struct Batch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
};

/// Windows at uniformly random places of `tokens` (which must stay alive): the same seed gives the
/// same batches.
class BatchSampler {
 public:
  /// UserError when `tokens` hold no window, that is fewer than context + 1 of them.
  BatchSampler(std::span<const int64_t> tokens, int64_t batch, int64_t context, uint64_t seed);
  Batch next();

 private:
  std::span<const int64_t> tokens_;
  int64_t batch_;
  int64_t context_;
  std::mt19937_64 random_;
};

/// Windows that cover `tokens` once, in order: as many whole batches as that takes, evenly spaced,
/// so that neighbours overlap a little where the text is no multiple. At most `limit` batches (0:
/// no limit), still spread over the whole text. UserError when `tokens` hold no window.
std::vector<Batch> evaluation_batches(std::span<const int64_t> tokens, int64_t batch,
                                      int64_t context, int64_t limit = 0);

}  // namespace tandem::examples
