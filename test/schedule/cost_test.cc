// The cost model: what is counted where, and what candidates of compute_at are told.
#include "schedule/cost.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/opdef.h"
#include "schedule/schedule.h"

namespace tandem::schedule {
namespace {

Target small_machine() {
  Target target;
  target.cores = 2;
  target.l2_bytes = 1 << 20;
  target.l3_bytes = 32 << 20;
  return target;
}

TEST(Cost, SharedDataComesFromTheSmallestCacheThatHoldsIt) {
  const Target target = small_machine();
  Cost small;
  count_shared(small, target, 1 << 20, 100);
  EXPECT_EQ(small.l2, 50);  // the other core wrote half of it
  EXPECT_EQ(small.l3, 50);
  Cost large;
  count_shared(large, target, (1 << 20) + 1, 100);
  EXPECT_EQ(large.l2, 0);
  EXPECT_EQ(large.l3, 100);
  Cost huge;
  count_shared(huge, target, (16 << 20) + 1, 100);
  EXPECT_EQ(huge.l3, 0);
  EXPECT_EQ(huge.memory, 100);
}

TEST(Cost, ScratchIsItsCoresOwn) {
  const Target target = small_machine();
  Cost cost;
  count_scratch(cost, target, 1 << 20, 100);
  EXPECT_EQ(cost.l2, 100);
  count_scratch(cost, target, 8 << 20, 100);
  EXPECT_EQ(cost.l3, 100);
  count_scratch(cost, target, (8 << 20) + 1, 100);
  EXPECT_EQ(cost.memory, 100);
}

TEST(Cost, TheLastRoundOfTasksLeavesCoresIdle) {
  const Target target = small_machine();
  const auto slack = [&](double tasks) {
    Cost cost;
    cost.memory = 1e6;
    const double work = 2 * microseconds(cost, target);  // of one core
    count_slack(cost, target, tasks);
    return cost.slack / work;
  };
  EXPECT_NEAR(slack(1), 0.5, 1e-9);
  EXPECT_NEAR(slack(2), 0, 1e-9);
  EXPECT_NEAR(slack(3), 2.0 / 3 - 0.5, 1e-9);
  EXPECT_NEAR(slack(0), 0.5, 1e-9);  // of none as of one
}

TEST(Cost, ASymbolIsAMiddlingNumberInItsRange) {
  sym::Pool pool;
  const Target target = small_machine();
  const sym::Expr batch = pool.symbol("b");
  EXPECT_EQ(count_of(batch * 4, target), 512);
  EXPECT_EQ(count_of(sym::Expr(7), target), 7);
  EXPECT_EQ(count_of(sym::Expr(0), target), 0);
}

std::string attention(int rows, int keys) {
  return "graph @f(%q: f32[1, " + std::to_string(rows) + ", 64], %k: f32[1, 64, " +
         std::to_string(keys) + "], %v: f32[1, " + std::to_string(keys) + R"(, 64]) {
  %s = aten.bmm(%q, %k)
  %m = aten.amax(%s, [2], true)
  %d = aten.sub.Tensor(%s, %m)
  %e = aten.exp(%d)
  %o = aten.bmm(%e, %v)
  return %o
})";
}

std::string why_not_one(const std::string& text, const std::string& a, const std::string& b) {
  const std::unique_ptr<ir::Module> module = ir::parse_module(text, ops::op_table());
  return why(*module->graphs()[0], small_machine(), std::vector<std::string>{a, b});
}

TEST(ComputeAt, RowsInHandAreOneKernel) {
  EXPECT_NE(why_not_one(attention(2048, 512), "s", "o").find("they share a kernel"),
            std::string::npos);
}

TEST(ComputeAt, WhatCostsMoreTogetherSaysBothCosts) {
  // Two blocks of rows, each of which would copy all keys and values from beyond its cache.
  const std::string text = why_not_one(attention(64, 4500), "s", "o");
  EXPECT_NE(text.find("apart they cost less\n  apart "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  together "), std::string::npos) << text;
  EXPECT_NE(text.find(" launches"), std::string::npos) << text;
}

TEST(Routes, AProductSaysWhatTheLibraryAndLoopsCost) {
  const std::string text = why_not_one(attention(2048, 512), "s", "o");
  EXPECT_NE(text.find("library declined: "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  apart "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  together "), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem::schedule
