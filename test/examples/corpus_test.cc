// The demo's text: what is dropped, what is held out, and that batches are windows of it.
#include "examples/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "base/diagnostic.h"

namespace tandem::examples {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

std::string numbered_paragraphs(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) text += "p" + std::to_string(i) + "\n\n";
  return text;
}

std::vector<int64_t> counting(int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tandem_corpus_" + std::to_string(::getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  fs::path folder_;
};

TEST(Corpus, DropsRepeatsAndHoldsOutEveryTenth) {
  std::vector<std::string> texts = {"One two,\n three.\n \t\nfour\n",
                                    "ONE TWO\nTHREE\n\n" + numbered_paragraphs(9)};
  Corpus corpus = make_corpus(texts);
  EXPECT_EQ(corpus.files, 2);
  EXPECT_EQ(corpus.repeats, 1);
  EXPECT_EQ(corpus.paragraphs, 11);
  EXPECT_EQ(corpus.text(corpus.training),
            "One two,\n three.\n\nfour\n\np1\n\np2\n\np3\n\np4\n\np5\n\np6\n\np7\n\np9\n\n");
  EXPECT_EQ(corpus.text(corpus.held_out), "p\n\n");  // no training text has an 8
  EXPECT_EQ(corpus.unknown, 1);
}

TEST(Corpus, VocabularyIsSortedBytes) {
  std::vector<std::string> texts = {"ba\xc3\xa9\n"};
  Corpus corpus = make_corpus(texts);
  EXPECT_EQ(corpus.vocabulary, "\nab\xa9\xc3");
  EXPECT_THAT(corpus.training, ElementsAre(2, 1, 4, 3, 0, 0));
}

TEST_F(Folder, SkipsLinksAndCopies) {
  write("b", numbered_paragraphs(10));
  write("a", "first");
  write("c", numbered_paragraphs(10));
  fs::create_symlink(folder_ / "a", folder_ / "d");
  Corpus corpus = load_corpus(folder_.string());
  EXPECT_EQ(corpus.files, 2);
  EXPECT_EQ(corpus.paragraphs, 11);
  EXPECT_EQ(corpus.text(corpus.training).substr(0, 9), "first\n\np1");
}

TEST_F(Folder, ReadsOneFile) {
  write("text", numbered_paragraphs(20));
  Corpus corpus = load_corpus((folder_ / "text").string());
  EXPECT_EQ(corpus.text(corpus.held_out), "p1\n\np2\n\n");  // zeros stand in held-out text only
  EXPECT_EQ(corpus.unknown, 2);
}

TEST_F(Folder, SaysWhatIsMissing) {
  EXPECT_THAT([&] { load_corpus((folder_ / "none").string()); },
              ThrowsMessage<UserError>(HasSubstr("there is no file or folder")));
  write("short", "one paragraph");
  EXPECT_THAT([&] { load_corpus((folder_ / "short").string()); },
              ThrowsMessage<UserError>(HasSubstr("1 distinct paragraphs")));
}

TEST(Corpus, LicensesOfTheSystem) {
  if (!fs::exists(kLicenses)) return;  // other distributions
  Corpus corpus = load_corpus();
  size_t bytes = corpus.training.size() + corpus.held_out.size();
  EXPECT_GT(bytes, 150'000U);
  EXPECT_LT(bytes, 250'000U);
  EXPECT_GT(corpus.held_out.size() * 20, corpus.training.size());
  EXPECT_LT(corpus.vocabulary.size(), 128U);
}

TEST(Batches, SameSeedSameWindows) {
  std::vector<int64_t> tokens = counting(50);
  BatchSampler one(tokens, 4, 8, 7), same(tokens, 4, 8, 7), other(tokens, 4, 8, 8);
  Batch batch = one.next();
  EXPECT_EQ(batch.inputs, same.next().inputs);
  EXPECT_NE(batch.inputs, other.next().inputs);
  EXPECT_NE(batch.inputs, one.next().inputs);
  ASSERT_EQ(batch.inputs.size(), 32U);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(batch.targets[i], batch.inputs[i] + 1);
}

TEST(Batches, EveryStartIsDrawn) {
  std::vector<int64_t> tokens = counting(6);
  BatchSampler sampler(tokens, 100, 4, 1);
  Batch batch = sampler.next();
  std::set<int64_t> starts;
  for (size_t row = 0; row < 100; ++row) starts.insert(batch.inputs[row * 4]);
  EXPECT_THAT(starts, ElementsAre(0, 1));
}

TEST(Batches, EvaluationCoversTheTextInWholeBatches) {
  for (int64_t size : {5, 6, 9, 10, 37, 100}) {
    std::vector<int64_t> tokens = counting(size);
    std::set<int64_t> targets;
    for (const Batch& batch : evaluation_batches(tokens, 3, 4)) {
      EXPECT_EQ(batch.inputs.size(), 12U);
      targets.insert(batch.targets.begin(), batch.targets.end());
    }
    EXPECT_EQ(targets.size(), static_cast<size_t>(size - 1)) << size;
  }
}

TEST(Batches, EvaluationLimitStillSpansTheText) {
  std::vector<int64_t> tokens = counting(1001);
  std::vector<Batch> batches = evaluation_batches(tokens, 2, 10, 2);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].inputs.front(), 0);
  EXPECT_EQ(batches[1].targets.back(), 1000);
}

TEST(Batches, TooShortTextIsAnError) {
  std::vector<int64_t> tokens = counting(8);
  EXPECT_THAT([&] { BatchSampler(tokens, 1, 8, 0); },
              ThrowsMessage<UserError>(HasSubstr("8 tokens hold no window")));
  EXPECT_THAT([&] { evaluation_batches(tokens, 0, 2); },
              ThrowsMessage<UserError>(HasSubstr("must be positive")));
}

}  // namespace
}  // namespace tandem::examples
