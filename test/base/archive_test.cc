// Bytes that are cut off or damaged must be noticed: caches read files that anything may have
// happened to. So every prefix of a good archive is read too.
#include "base/archive.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

struct Leaf {
  int32_t number = 0;
  std::string text;
  bool operator==(const Leaf&) const = default;
};
template <class A>
void fields(A& archive, Leaf& leaf) {
  auto& [number, text] = leaf;
  archive(number, text);
}

struct Tree {
  std::vector<Leaf> leaves;
  std::vector<double> numbers;
  std::vector<std::variant<Leaf, int64_t>> choices;
  std::shared_ptr<Tree> inner;
  bool flag = false;
};
template <class A>
void fields(A& archive, Tree& tree) {
  auto& [leaves, numbers, choices, inner, flag] = tree;
  archive(leaves, numbers, choices, inner, flag);
}

Tree example() {
  Tree tree;
  tree.leaves = {{1, "one"}, {2, ""}};
  tree.numbers = {0.5, -1.0};
  tree.choices = {Leaf{3, "three"}, int64_t{4}};
  tree.inner = std::make_shared<Tree>();
  tree.inner->numbers = {7};
  return tree;
}

std::string bytes_of(Tree tree) {
  ArchiveWriter writer;
  fields(writer, tree);
  return writer.take();
}

bool reads(std::string_view bytes, Tree& tree) {
  ArchiveReader reader(bytes);
  fields(reader, tree);
  return reader.is_complete();
}

TEST(Archive, GivesBackWhatWasWritten) {
  Tree read;
  ASSERT_TRUE(reads(bytes_of(example()), read));
  EXPECT_EQ(read.leaves, example().leaves);
  EXPECT_EQ(read.numbers, example().numbers);
  EXPECT_EQ(read.choices, example().choices);
  ASSERT_NE(read.inner, nullptr);
  EXPECT_EQ(read.inner->numbers, std::vector<double>{7});
  EXPECT_EQ(read.inner->inner, nullptr);
}

TEST(Archive, TakesNoBytesThatEndEarlyOrLate) {
  const std::string bytes = bytes_of(example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Tree read;
    EXPECT_FALSE(reads(std::string_view(bytes).substr(0, size), read)) << size;
  }
  Tree read;
  EXPECT_FALSE(reads(bytes + "x", read));
}

TEST(Archive, TakesNoCountThatTheBytesCannotHold) {
  std::string bytes = bytes_of(example());
  bytes[7] = '\x7f';  // the first list has 2^62 elements
  Tree read;
  EXPECT_FALSE(reads(bytes, read));
}

TEST(Archive, TakesNoFlagThatIsNeither) {
  std::string bytes = bytes_of(example());
  bytes.back() = '\1';
  Tree read;
  EXPECT_TRUE(reads(bytes, read));
  EXPECT_TRUE(read.flag);
  bytes.back() = '\x7f';
  EXPECT_FALSE(reads(bytes, read));
}

TEST(Archive, OverrunsNoStackByPointersInPointers) {
  std::string bytes;
  for (int i = 0; i < 200'000; ++i) bytes += std::string(24, '\0') + '\1';
  Tree read;
  EXPECT_FALSE(reads(bytes, read));
}

}  // namespace
}  // namespace tandem
