// SPDX-License-Identifier: Apache-2.0
#include "tracker/pattern/call_costs.h"

#include <random>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

// Runs `calls` calls that cost about `nanos` each; returns how many were measured.
int Measure(CallCosts* costs, uint64_t signature, int calls, double nanos, std::mt19937* draw) {
  int measured = 0;
  std::normal_distribution<double> scatter(nanos, nanos / 20);
  for (int i = 0; i < calls; ++i) {
    if (!costs->WantsSample(signature)) continue;
    ++measured;
    costs->Add(signature, Nanos(static_cast<int64_t>(scatter(*draw))));
  }
  return measured;
}

TEST(CallCostsTest, WhatWasNeverMeasuredHasNoCost) {
  CallCosts costs(100);
  EXPECT_EQ(costs.CostOf(1), std::nullopt);
  EXPECT_TRUE(costs.WantsSample(1));
  EXPECT_EQ(costs.CostOf(1), std::nullopt);
}

TEST(CallCostsTest, ASteadyCostIsMeasuredRarely) {
  std::mt19937 draw(1);
  CallCosts costs(100);
  EXPECT_LE(Measure(&costs, 5, 10'000, 50'000, &draw), 10'000 / 64 + 20);
  EXPECT_NEAR(static_cast<double>(costs.CostOf(5)->count()), 50'000, 2'500);
}

TEST(CallCostsTest, OnePauseIsSetAside) {
  std::mt19937 draw(2);
  CallCosts costs(100);
  Measure(&costs, 5, 1000, 50'000, &draw);
  const Nanos before = *costs.CostOf(5);
  costs.Add(5, Nanos(50'000'000));
  EXPECT_EQ(costs.CostOf(5), before);
  EXPECT_TRUE(costs.WantsSample(5)) << "the call after a doubtful one is measured";
  costs.Add(5, Nanos(50'000));
  EXPECT_NEAR(static_cast<double>(costs.CostOf(5)->count()), 50'000, 2'500);
}

TEST(CallCostsTest, ADriftIsMeasuredAnew) {
  std::mt19937 draw(3);
  CallCosts costs(100);
  Measure(&costs, 5, 1000, 50'000, &draw);
  // The first of them is met at the next sample, at most kGapMax calls away.
  Measure(&costs, 5, 64 + 8, 150'000, &draw);
  EXPECT_NEAR(static_cast<double>(costs.CostOf(5)->count()), 150'000, 15'000);
  // Slowly, within what counts as scatter, too.
  for (double nanos = 150'000; nanos > 75'000; nanos *= 0.99) Measure(&costs, 5, 64, nanos, &draw);
  EXPECT_NEAR(static_cast<double>(costs.CostOf(5)->count()), 75'000, 11'000);
}

TEST(CallCostsTest, ManySignaturesDisplaceTheOldest) {
  CallCosts costs(64);
  const int64_t bytes = costs.memory_bytes();
  costs.Add(1'000'000, Nanos(7));
  for (uint64_t signature = 0; signature < 10'000; ++signature) {
    costs.Add(signature, Nanos(static_cast<int64_t>(signature)));
    ASSERT_EQ(costs.CostOf(signature), Nanos(static_cast<int64_t>(signature)));
  }
  EXPECT_EQ(costs.CostOf(1'000'000), std::nullopt);
  EXPECT_EQ(costs.memory_bytes(), bytes);
}

}  // namespace
}  // namespace ebbtide
