// The op table is total, its schemas are PyTorch's word for word, and schema text that is none is
// refused with the column. In-place and out= variants are derived by us, so they are compared like
// the rest.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/diagnostic.h"
#include "ops/opdef.h"

namespace tandem::ops {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::string describe(const ir::Param& param) {
  std::string text = fmt::format("{} type {}", param.name, static_cast<int>(param.type));
  if (param.list_size > 0) text += fmt::format("[{}]", param.list_size);
  if (param.optional) text += " optional";
  if (param.element_optional) text += " of optionals";
  if (param.keyword_only) text += " keyword";
  if (!param.alias.empty()) text += " alias" + std::string(param.mutates ? "!" : "");
  // PyTorch prints memory formats as numbers, and nothing reads ours.
  bool is_format = param.type == ir::ParamType::memory_format;
  if (param.default_value && !is_format) text += " = " + ir::to_string(*param.default_value);
  return text;
}

/// Everything that a schema says, one part a line; alias sets by mark only, as "a" and "b" are
/// arbitrary.
std::string describe(const ir::Schema& schema) {
  std::string text = schema.full_name() + "\n";
  for (const ir::Param& param : schema.params) text += "  " + describe(param) + "\n";
  for (const ir::Schema::Result& result : schema.results)
    text += fmt::format("  -> type {}{}{}\n", static_cast<int>(result.type),
                        result.alias.empty() ? "" : " alias", result.mutates ? "!" : "");
  return text;
}

/// PyTorch's schema texts by full name, "aten::add.Tensor".
const std::map<std::string, std::string>& torch_schemas() {
  static const std::map<std::string, std::string> kSchemas = [] {
    std::map<std::string, std::string> schemas;
    std::ifstream file(TANDEM_SOURCE_DIR "/test/ops/torch_schemas.txt");
    for (std::string line; std::getline(file, line);)
      schemas[line.substr(0, line.find('('))] = line;
    return schemas;
  }();
  return kSchemas;
}

TEST(OpTable, IsTotal) { EXPECT_THAT(check_table(op_table()), IsEmpty()); }

TEST(OpTable, SchemasArePyTorchs) {
  int compared = 0;
  for (const ir::Op& op : op_table().ops()) {
    std::string name = op.schema.full_name();
    bool is_torch = name.starts_with("aten::") || name.starts_with("quantized_decomposed::") ||
                    name.starts_with("torchao::");
    if (!is_torch) continue;
    std::map<std::string, std::string>::const_iterator torch = torch_schemas().find(name);
    if (torch == torch_schemas().end()) {
      ADD_FAILURE() << "PyTorch has no " << name << ", or torch_schemas.py must run again";
      continue;
    }
    EXPECT_EQ(describe(op.schema), describe(ir::parse_schema(torch->second))) << torch->second;
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST(OpTable, VariantsKnowWhatTheyDeriveFrom) {
  for (const ir::Op& op : op_table().ops()) {
    if (op.functional == nullptr) continue;
    EXPECT_TRUE(op.mutates()) << op.name();
    EXPECT_FALSE(op.functional->mutates()) << op.name();
    EXPECT_EQ(op.def, op.functional->def) << op.name();
    EXPECT_GE(op.schema.params.size(), op.functional->schema.params.size()) << op.name();
  }
}

TEST(OpTable, FindsBothSpellings) {
  const ir::Op* add = op_table().find("aten.add.Tensor");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(op_table().find("aten::add.Tensor"), add);
  EXPECT_EQ(op_table().find("aten.exp.default"), op_table().find("aten.exp"));
  EXPECT_EQ(op_table().find("aten.add"), nullptr);
  EXPECT_EQ(op_table().find(""), nullptr);
}

TEST(Schema, EveryPart) {
  ir::Schema schema = ir::parse_schema(
      "ns::op_x.over_load(Tensor(a!) self, Tensor? t, Tensor?[] many, SymInt[2] s=1, float[] f=[1, "
      "0.5], "
      "int[1]? dim=None, *, Scalar alpha=1, bool flag=True, str mode=\"mean\", float eps=1e-05, "
      "ScalarType? dtype=None, ScalarType out=6) -> (Tensor(a!) first, Tensor[] rest)");
  EXPECT_EQ(schema.full_name(), "ns::op_x.over_load");
  EXPECT_EQ(schema.dotted_name(), "ns.op_x.over_load");
  ASSERT_EQ(schema.params.size(), 12U);
  EXPECT_TRUE(schema.params[0].mutates);
  EXPECT_EQ(schema.params[0].alias, "a");
  EXPECT_TRUE(schema.params[1].optional);
  EXPECT_TRUE(schema.params[2].element_optional);
  EXPECT_FALSE(schema.params[2].optional);
  EXPECT_EQ(*schema.params[3].default_value, ir::Arg(ir::Ints{1, 1}));
  EXPECT_EQ(*schema.params[4].default_value, ir::Arg(ir::Floats{1, 0.5}));
  EXPECT_EQ(*schema.params[5].default_value, ir::Arg(ir::None{}));
  EXPECT_TRUE(schema.params[5].optional);
  EXPECT_FALSE(schema.params[5].keyword_only);
  EXPECT_TRUE(schema.params[6].keyword_only);
  EXPECT_EQ(*schema.params[6].default_value, ir::Arg(sym::Expr(1)));
  EXPECT_EQ(*schema.params[7].default_value, ir::Arg(true));
  EXPECT_EQ(*schema.params[8].default_value, ir::Arg(std::string("mean")));
  EXPECT_EQ(*schema.params[9].default_value, ir::Arg(1e-05));
  EXPECT_EQ(*schema.params[11].default_value, ir::Arg(DType::f32));
  ASSERT_EQ(schema.results.size(), 2U);
  EXPECT_EQ(schema.results[0].name, "first");
  EXPECT_EQ(schema.results[1].type, ir::ParamType::tensor_list);
  EXPECT_EQ(schema.find("eps"), 9);
  EXPECT_EQ(schema.find("none"), -1);
  EXPECT_TRUE(schema.mutates_anything());
  EXPECT_FALSE(schema.is_view());
  EXPECT_TRUE(ir::parse_schema("a::v(Tensor(a) self) -> Tensor(a)").is_view());
}

void expect_error(const std::string& schema, const std::string& text) {
  EXPECT_THAT([&] { ir::parse_schema(schema); }, ThrowsMessage<UserError>(HasSubstr(text)))
      << schema;
}

TEST(Schema, ErrorsNameTheColumn) {
  expect_error("", "expected a name at column 1");
  expect_error("a::f", "expected `(` at column 5");
  expect_error("a::f(", "expected a name at column 6");
  expect_error("a::f(Tensor x", "column 14");
  expect_error("a::f(Tensor x)", "expected `->` at column 15");
  expect_error("a::f(Tensor x) ->", "expected a name at column 18");
  expect_error("a::f(Tensr x) -> Tensor", "unknown type");
  expect_error("a::f(Tensor(a! x) -> Tensor", "expected `)`");
  expect_error("a::f(Tensor[ x) -> Tensor", "expected `]`");
  expect_error("a::f(str[] x) -> Tensor", "no list of that type");
  expect_error("a::f(Tensor x) -> Tensor, Tensor", "text after the end");
  expect_error("a::f(Tensor x) -> (Tensor", "expected");
}

}  // namespace
}  // namespace tandem::ops
