// SPDX-License-Identifier: Apache-2.0
//
// What the machine shows to a heuristic, and when. The rules of whole programs are tested with
// PublishedSimulator.

#include "policy/published/machine.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide::published {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Writes down what it is told; the smaller the storage's number, the sooner it leaves.
class Witness : public Heuristic {
 public:
  Quotient Value(const MemoryView&, StorageId id) override { return {id + 1, 1}; }
  void OnEvicted(const MemoryView& view, StorageId id) override {
    EXPECT_FALSE(view.storages[id].in_memory) << "told after the fact";
    events.push_back(absl::StrCat("-", id));
    last = view;
  }
  void OnReturned(const MemoryView& view, absl::Span<const StorageId> ids) override {
    for (const StorageId id : ids) {
      EXPECT_TRUE(view.storages[id].in_memory) << "told after the fact";
      events.push_back(absl::StrCat("+", id));
    }
    last = view;
  }

  std::vector<std::string> events;
  MemoryView last;
};

// x; a, b = f(x, x); v = view(a)
class MachineTest : public testing::Test {
 protected:
  MachineTest() {
    ScheduleBuilder builder;
    builder.Compute(5, {}, {{10, -1}});
    builder.Compute(7, {0, 0}, {{20, -1}, {30, -1}});
    builder.Compute(2, {1}, {{0, 0}});
    schedule_ = builder.Finish();
  }

  Schedule schedule_;
  Witness witness_;
};

TEST_F(MachineTest, ALinkedResultIsANeighbourWithoutMemoryAtItsFullCost) {
  Machine machine(&schedule_, &witness_, 100);
  machine.Link(0);
  machine.Run(0, /*is_first=*/true);
  EXPECT_THAT(witness_.last.storages[0].children, IsEmpty());
  machine.Link(1);
  machine.Release(0);
  EXPECT_THAT(witness_.events, ElementsAre("+0", "-0"));
  EXPECT_THAT(witness_.last.storages[0].children, ElementsAre(1, 2)) << "each once";
  EXPECT_THAT(witness_.last.storages[2].parents, ElementsAre(0));
  EXPECT_FALSE(witness_.last.storages[1].in_memory);
  EXPECT_EQ(witness_.last.storages[1].cost, 7) << "the operator's whole cost for each result";
  EXPECT_EQ(witness_.last.storages[2].cost, 7);
}

TEST_F(MachineTest, AnAliasRaisesTheCostWhenItIsLinkedAndIsNoNeighbourOfItself) {
  Machine machine(&schedule_, &witness_, 100);
  for (const OpId op : {0, 1, 2}) machine.Link(op);
  machine.Run(0, true);
  EXPECT_EQ(witness_.last.storages[1].cost, 9);
  EXPECT_EQ(witness_.last.storages[2].cost, 7);
  EXPECT_THAT(witness_.last.storages[1].children, IsEmpty());
  EXPECT_THAT(witness_.last.storages[1].parents, ElementsAre(0));
}

TEST_F(MachineTest, ARunOfAnAliasReturnsNothing) {
  Machine machine(&schedule_, &witness_, 100);
  for (const OpId op : {0, 1, 2}) machine.Link(op);
  machine.Run(0, true);
  machine.Run(1, true);
  machine.Run(3, true);
  EXPECT_THAT(witness_.events, ElementsAre("+0", "+2", "+1")) << "the wanted result last";
  EXPECT_TRUE(machine.IsDefined(3));
  EXPECT_EQ(machine.clock(), 1 + 5 + 7 + 2);
  EXPECT_EQ(machine.rebuild_cost(), 0);
  EXPECT_EQ(machine.peak_bytes(), 60);
}

TEST_F(MachineTest, AnEvictionUndefinesAllTensorsOfAStorageAndARunOnlyTheOneItMakes) {
  Machine machine(&schedule_, &witness_, 60);
  for (const OpId op : {0, 1, 2}) machine.Link(op);
  for (const TensorId tensor : {0, 1, 3}) machine.Run(tensor, true);
  machine.Lock(0);
  EXPECT_TRUE(machine.MakeRoom(1)) << "storage 0 is locked, so storage 1 leaves";
  EXPECT_FALSE(machine.IsDefined(1));
  EXPECT_FALSE(machine.IsDefined(3));
  EXPECT_EQ(machine.evaluations(), 2);
  machine.Run(1, false);
  EXPECT_TRUE(machine.IsDefined(1));
  EXPECT_FALSE(machine.IsDefined(3)) << "the view has to be made again by itself";
  EXPECT_EQ(machine.rebuild_cost(), 7);
  EXPECT_EQ(machine.peak_bytes(), 90) << "40 and both results, before the double of one is dropped";
  EXPECT_TRUE(machine.MakeRoom(0)) << "and 60 after it";
  EXPECT_EQ(machine.evaluations(), 2);
}

TEST_F(MachineTest, LocksAreCounted) {
  Machine machine(&schedule_, &witness_, 10);
  machine.Link(0);
  machine.Run(0, true);
  machine.Lock(0);
  machine.Lock(0);
  machine.Unlock(0);
  EXPECT_FALSE(machine.MakeRoom(1));
  machine.Unlock(0);
  machine.Pin(0);
  machine.Pin(0);
  EXPECT_FALSE(machine.MakeRoom(1));
  machine.Release(0);
  EXPECT_TRUE(machine.IsDefined(0)) << "pinned is for good";
}

}  // namespace
}  // namespace ebbtide::published
