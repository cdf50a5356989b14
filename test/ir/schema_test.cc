// Defaults of lists, among them such that no number of the list's kind holds.
#include "ir/schema.h"

#include <gtest/gtest.h>

#include "base/diagnostic.h"

namespace tandem::ir {
namespace {

Arg default_of(std::string_view type, std::string_view list) {
  const std::string text = "aten::f(" + std::string(type) + " x=" + std::string(list) + ") -> ()";
  return parse_schema(text).params.at(0).default_value.value();
}

TEST(Schema, DefaultsOfLists) {
  EXPECT_EQ(default_of("int[]", "[0, -2]"), Arg(Ints{0, -2}));
  EXPECT_EQ(default_of("float[]", "[0.5, 3]"), Arg(Floats{0.5, 3}));
  EXPECT_EQ(default_of("float[]", "[1e300]"), Arg(Floats{1e300}));
}

TEST(Schema, AFloatIsNoDefaultOfIntegers) {
  for (const char* list : {"[1e300]", "[1, 0.5]", "[-1E19]"})
    EXPECT_THROW(default_of("int[]", list), UserError) << list;
}

}  // namespace
}  // namespace tandem::ir
