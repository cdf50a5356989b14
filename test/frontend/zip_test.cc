// Archives that are right, cut off, compressed or no archives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "frontend/zip_reader.h"
#include "test/frontend/files.h"

namespace tandem::frontend {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class Zip : public testing::Test {
 protected:
  ZipReader open(const std::string& content) {
    return ZipReader(std::make_shared<MappedFile>(folder_.write("a.zip", content)));
  }
  void expect_error(const std::string& content, const std::string& text) {
    EXPECT_THAT([&] { open(content); }, ThrowsMessage<UserError>(HasSubstr(text)));
  }
  void expect_entry_error(const std::string& content, const std::string& text) {
    ZipReader zip = open(content);
    EXPECT_THAT([&] { zip.bytes("a"); }, ThrowsMessage<UserError>(HasSubstr(text)));
  }
  TemporaryFolder folder_;
};

TEST_F(Zip, ReadsStoredEntries) {
  ZipReader zip = open(make_zip({{"b/x", "hello"}, {"b/", ""}, {"a", ""}}));
  EXPECT_EQ(zip.entries().size(), 2U);
  EXPECT_EQ(as_text(zip.bytes("b/x")), "hello");
  EXPECT_EQ(as_text(zip.bytes("a")), "");
  EXPECT_TRUE(zip.contains("a"));
  EXPECT_FALSE(zip.contains("b/"));
  EXPECT_THAT([&] { zip.bytes("c"); },
              ThrowsMessage<UserError>(HasSubstr("there is no entry \"c\"")));
}

TEST_F(Zip, ReadsSixtyFourBitSizesAndComments) {
  ZipReader zip = open(make_zip({{"a", "hello", 0, 0, true}}, "a comment"));
  EXPECT_EQ(as_text(zip.bytes("a")), "hello");
}

TEST_F(Zip, EmptyArchive) { EXPECT_TRUE(open(make_zip({})).entries().empty()); }

TEST_F(Zip, RefusesCompressedAndEncryptedEntries) {
  expect_entry_error(make_zip({{"a", "xx", 8}}), "entry \"a\" is compressed (method 8)");
  expect_entry_error(make_zip({{"a", "xx", 0, 1}}), "entry \"a\" is encrypted");
}

TEST_F(Zip, CompressedEntriesDoNotHideOthers) {
  EXPECT_EQ(as_text(open(make_zip({{"a", "xx", 8}, {"b", "yy"}})).bytes("b")), "yy");
}

TEST_F(Zip, RefusesWhatIsNoArchive) {
  expect_error("", "0 bytes are too few");
  expect_error("short", "5 bytes are too few");
  expect_error(std::string(100, 'x'), "is no zip archive");
}

TEST_F(Zip, RefusesCutOffFilesAtEveryLength) {
  std::string whole = make_zip({{"a", "hello"}, {"b", "world"}});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(open(whole.substr(0, size)), UserError) << size;
  expect_error(whole.substr(0, 60), "the file is cut off");
}

TEST_F(Zip, RefusesMissingFrontPart) {
  std::string whole = make_zip({{"a", std::string(100, 'x')}});
  EXPECT_THROW(open(whole.substr(50)).bytes("a"), UserError);
}

TEST_F(Zip, SurvivesEveryDamagedByte) {
  std::string whole = make_zip({{"a", "hello", 0, 0, true}, {"b", "world"}});
  for (size_t at = 0; at < whole.size(); ++at)
    for (int value : {0, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      try {
        ZipReader zip = open(damaged);
        for (const std::pair<const std::string, ZipReader::Entry>& entry : zip.entries())
          EXPECT_LE(zip.bytes(entry.first).size(), whole.size());
      } catch (const UserError&) {
      }
    }
}

TEST_F(Zip, RefusesTwoEntriesOfOneName) {
  expect_error(make_zip({{"a", "1"}, {"a", "2"}}), "entry \"a\" is there twice");
}

TEST(MappedFile, SaysWhatIsWrong) {
  EXPECT_THAT([] { MappedFile("/nowhere/at/all"); },
              ThrowsMessage<UserError>(HasSubstr("cannot read /nowhere/at/all: No such file")));
  EXPECT_THAT([] { MappedFile("/tmp"); },
              ThrowsMessage<UserError>(HasSubstr("/tmp is no regular file")));
}

}  // namespace
}  // namespace tandem::frontend
