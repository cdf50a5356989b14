// Patterns fit what they say and nothing else: arguments in both orders, values that are named
// twice, readers, attributes, defaults. Rules change what fits, say why they do not, and leave the
// rest as it was.
#include "ir/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/opdef.h"

namespace tandem::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Rewriting : public ::testing::Test {
 protected:
  /// The one graph of inputs %x, %y and %z.
  Graph& graph(const std::string& body) {
    module_ = parse_module("graph @g(%x: f32[4], %y: f32[4], %z: f32[4]) {\n" + body + "\n}\n",
                           ops::op_table());
    return *module_->graphs()[0];
  }

  bool fits(const Pattern& pattern, const std::string& body) {
    match_ = {};
    Node& last = *graph(body).last();
    return matches(pattern, last, match_, &reason_);
  }

  std::string rewritten(const std::vector<Rule>& rules, const std::string& body,
                        const RewriteOptions& options = {}) {
    Graph& changed = graph(body);
    RewriteOptions listening = options;
    listening.declined = [&](const Node& node, const std::string& reason) {
      declined_.push_back(node.op->name() + ": " + reason);
    };
    Rewriter(rules).run(changed, listening);
    return to_string(changed);
  }

  std::unique_ptr<Module> module_;
  Match match_;
  std::string reason_;
  std::vector<std::string> declined_;
};

bool is_two(const Arg& arg) { return arg == Arg(sym::Expr(2)); }
bool is_unary(const Node& node) { return node.args.size() == 1; }

TEST_F(Rewriting, ACommutativeCallFitsBothWays) {
  const Pattern pattern =
      call("aten::mul.Tensor", {call("aten::exp", {keep("inner")}), keep("other")}).commutes();
  for (const char* product : {"aten.mul.Tensor(%0, %y)", "aten.mul.Tensor(%y, %0)"}) {
    ASSERT_TRUE(fits(pattern, std::string("%0 = aten.exp(%x)\n%1 = ") + product + "\nreturn %1"));
    EXPECT_EQ(match_.value("inner")->name, "x");
    EXPECT_EQ(match_.value("other")->name, "y");
  }
  EXPECT_FALSE(fits(pattern, "%0 = aten.sin(%x)\n%1 = aten.mul.Tensor(%0, %y)\nreturn %1"));
  const Pattern ordered =
      call("aten::mul.Tensor", {call("aten::exp", {keep("inner")}), keep("other")});
  EXPECT_FALSE(fits(ordered, "%0 = aten.exp(%x)\n%1 = aten.mul.Tensor(%y, %0)\nreturn %1"));
}

/// (a * b) - a: which factor is `a` shows only outside of the product.
TEST_F(Rewriting, AChoiceMayTurnOutWrongLater) {
  const Pattern pattern = call(
      "aten::sub.Tensor", {call("aten::mul.Tensor", {keep("a"), keep("b")}).commutes(), keep("a")});
  for (const char* product : {"aten.mul.Tensor(%x, %y)", "aten.mul.Tensor(%y, %x)"}) {
    ASSERT_TRUE(fits(pattern,
                     std::string("%0 = ") + product + "\n%1 = aten.sub.Tensor(%0, %x)\nreturn %1"));
    EXPECT_EQ(match_.value("a")->name, "x");
    EXPECT_EQ(match_.value("b")->name, "y");
  }
  EXPECT_FALSE(
      fits(pattern, "%0 = aten.mul.Tensor(%x, %y)\n%1 = aten.sub.Tensor(%0, %z)\nreturn %1"));
}

TEST_F(Rewriting, OneNameIsOneValue) {
  const Pattern pattern = call("aten::where", {anything(), keep("x"), keep("x")});
  const std::string condition = "%0 = aten.gt.Scalar(%x, 0)\n";
  EXPECT_TRUE(fits(pattern, condition + "%1 = aten.where.self(%0, %y, %y)\nreturn %1"));
  EXPECT_FALSE(fits(pattern, condition + "%1 = aten.where.self(%0, %y, %z)\nreturn %1"));
}

TEST_F(Rewriting, WhatIsKnownBeforeHolds) {
  const Pattern pattern = call("aten::add.Tensor", {keep("value"), keep("other")}).commutes();
  Graph& sum = graph("%0 = aten.add.Tensor(%x, %y)\nreturn %0");
  EXPECT_TRUE(matches(pattern, *sum.last(), match_.knows("value", sum.inputs()[1])));
  EXPECT_EQ(match_.value("other")->name, "x");
  Match other;
  EXPECT_FALSE(matches(pattern, *sum.last(), other.knows("value", sum.inputs()[2])));
}

TEST_F(Rewriting, AnOverloadIsNamedOrAny) {
  const std::string by_number = "%0 = aten.mul.Scalar(%x, 2)\nreturn %0";
  EXPECT_TRUE(fits(call("aten::mul", {keep("x"), arg_that(is_two)}), by_number));
  EXPECT_FALSE(fits(call("aten::mul.Tensor", {keep("x"), arg_that(is_two)}), by_number));
  EXPECT_FALSE(fits(call("aten::mul", {keep("x"), keep("y")}), by_number));  // 2 is no value
  EXPECT_TRUE(fits(any_call({"aten::add", "aten::mul"}), by_number));
  EXPECT_FALSE(fits(any_call({"aten::add", "aten::sub"}), by_number));
}

TEST_F(Rewriting, AttributesAreCompared) {
  const std::string scaled = "%0 = aten.sub.Tensor(%x, %y, alpha=2)\nreturn %0";
  const std::string plain = "%0 = aten.sub.Tensor(%x, %y, alpha=1.0)\nreturn %0";
  const Pattern unsaid = call("aten::sub", {keep("x"), keep("y")});
  EXPECT_FALSE(fits(unsaid, scaled));
  EXPECT_EQ(reason_, "its alpha is 2");
  EXPECT_TRUE(fits(unsaid, plain));  // its default, as another kind of number
  const Pattern doubled =
      call("aten::sub", {keep("x"), keep("y"), equal_to(sym::Expr(2)).of("alpha")});
  EXPECT_TRUE(fits(doubled, scaled));
  EXPECT_FALSE(fits(doubled, plain));
  EXPECT_TRUE(fits(call("aten::sub", {keep("x")}).whatever_else(), scaled));
  EXPECT_FALSE(fits(call("aten::sub", {keep("x"), keep("y"), anything().of("beta")}), plain));
}

TEST_F(Rewriting, ReadersAreCounted) {
  const Pattern pattern =
      call("aten::neg", {call("aten::exp", {keep("x")}).read_once("exp has other readers")});
  EXPECT_TRUE(fits(pattern, "%0 = aten.exp(%x)\n%1 = aten.neg(%0)\nreturn %1"));
  EXPECT_FALSE(fits(pattern, "%0 = aten.exp(%x)\n%1 = aten.neg(%0)\nreturn %1, %0"));
  EXPECT_EQ(reason_, "exp has other readers");
}

TEST_F(Rewriting, WhatDoesNotFitLeavesTheMatchAlone) {
  Graph& product = graph("%0 = aten.mul.Tensor(%x, %y)\nreturn %0");
  const Pattern pattern =
      call("aten::mul.Tensor", {keep("a"), call("aten::exp", {keep("b")}).or_else("no exp")});
  match_.knows("z", product.inputs()[2]);
  EXPECT_FALSE(matches(pattern, *product.last(), match_, &reason_));
  EXPECT_EQ(reason_, "no exp");
  EXPECT_TRUE(match_.owned().empty());
  EXPECT_EQ(match_.value("z")->name, "z");
  EXPECT_FALSE(matches(call("aten::exp", {keep("a")}), *product.last(), match_, &reason_));
  EXPECT_EQ(reason_, "");  // no candidate
}

std::vector<Rule> negations() {
  return {{call("aten::neg", {call("aten::neg", {keep("x")})}), kept("x")}};
}

TEST_F(Rewriting, ARuleGivesAValueThatIsThere) {
  EXPECT_THAT(rewritten(negations(),
                        "%0 = aten.neg(%x)\n%1 = aten.neg(%0)\n%2 = aten.exp(%1)\n"
                        "return %2"),
              HasSubstr("aten.exp(%x)"));
  const std::string alone = "%0 = aten.neg(%x)\n%1 = aten.exp(%0)\nreturn %1";
  EXPECT_EQ(rewritten(negations(), alone), to_string(graph(alone)));
}

TEST_F(Rewriting, ARuleMakesNodesInPlaceOfOthers) {
  const Replacement twice = [](Builder& builder, const Match& match) {
    return builder.call("aten.mul.Scalar", {match.value("x"), sym::Expr(2)})->results[0];
  };
  const std::vector<Rule> rules{
      {call("aten::add", {call("aten::alias", {keep("x")}).read_once(), keep("x")}), twice}};
  const std::string text = rewritten(
      rules, "%0 = aten.alias(%x)\n%1 = aten.add.Tensor(%0, %x) loc(\"model.py:7\")\nreturn %1");
  EXPECT_THAT(text, HasSubstr("aten.mul.Scalar(%x, 2) loc(\"model.py:7\")"));
  EXPECT_EQ(text.find("aten.alias"), std::string::npos);  // read once, so it went along
  EXPECT_EQ(text.find("aten.add"), std::string::npos);
}

TEST_F(Rewriting, APreconditionRefusesWithItsReason) {
  std::vector<Rule> rules = negations();
  rules[0].why_not = [](const Match& match) {
    return match.value("x")->name == "y" ? "y keeps its signs" : "";
  };
  const std::string text = rewritten(rules,
                                     "%0 = aten.neg(%x)\n%1 = aten.neg(%0)\n%2 = aten.neg(%y)\n"
                                     "%3 = aten.neg(%2)\n%4 = aten.mul.Tensor(%1, %3)\nreturn %4");
  EXPECT_THAT(text, HasSubstr("aten.mul.Tensor(%x, %"));
  EXPECT_THAT(declined_, ElementsAre("aten.neg: y keeps its signs"));
}

TEST_F(Rewriting, TheFirstRuleThatChangesANodeHasIt) {
  const Replacement nothing = [](Builder&, const Match&) -> Value* { return nullptr; };
  const std::vector<Rule> rules{{node_that(is_unary), nothing},
                                {call("aten::exp", {keep("x")}), kept("x")},
                                {call("aten::exp", {anything()}), nothing}};
  EXPECT_THAT(rewritten(rules, "%0 = aten.exp(%x)\n%1 = aten.sin(%0)\nreturn %1"),
              HasSubstr("aten.sin(%x)"));
}

TEST_F(Rewriting, AValueOfAnotherTypeTakesNoPlace) {
  const std::vector<Rule> rules{
      {any_call({"aten::unsqueeze", "aten::_to_copy"}),
       [](Builder&, const Match& match) { return std::get<Value*>(match.root().args[0]); }}};
  for (const char* op : {"aten.unsqueeze(%x, 0)", "aten._to_copy(%x, dtype=f64)"}) {
    const std::string body = std::string("%0 = ") + op + "\n%1 = aten.exp(%0)\nreturn %1";
    EXPECT_EQ(rewritten(rules, body), to_string(graph(body))) << op;
  }
}

TEST_F(Rewriting, OtherResultsThatAreReadKeepTheirNode) {
  const std::vector<Rule> rules{{call("aten::sort", {keep("x")}), kept("x")}};
  const std::string both = "%0, %1 = aten.sort(%x)\n%2 = aten.exp(%0)\nreturn %2, %1";
  EXPECT_EQ(rewritten(rules, both), to_string(graph(both)));
  EXPECT_THAT(rewritten(rules, "%0, %1 = aten.sort(%x)\n%2 = aten.exp(%0)\nreturn %2"),
              HasSubstr("aten.exp(%x)"));
}

TEST_F(Rewriting, WhoRunsItMayForbid) {
  const std::string body = "%0 = aten.neg(%x)\n%1 = aten.neg(%0)\nreturn %1";
  const RewriteOptions no{.declined = {}, .allows = [](const Value&, const Value& value) {
                            return value.node != nullptr;
                          }};
  EXPECT_EQ(rewritten(negations(), body, no), to_string(graph(body)));
}

TEST_F(Rewriting, TheStrongerPolicyStays) {
  Graph& twice = graph(
      "%0 = aten.exp(%x)\n%1 = aten.neg(%0)\n%2 = aten.neg(%1) {must_save}\n"
      "%3 = aten.sin(%2)\nreturn %3");
  Rewriter(negations()).run(twice);
  EXPECT_EQ(twice.first()->policy, RecomputePolicy::must_save);
}

}  // namespace
}  // namespace tandem::ir
