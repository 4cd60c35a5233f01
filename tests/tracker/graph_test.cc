// SPDX-License-Identifier: Apache-2.0

#include "tracker/graph.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using testing::Test;

int operations_alive = 0;

class CountedOperation : public Operation {
 public:
  CountedOperation() { ++operations_alive; }
  ~CountedOperation() override { --operations_alive; }
  absl::string_view name() const override { return "counted"; }
};

// Writes down what it is told.
class Listener : public ValueListener {
 public:
  void OnMemoryGained(Value* value) override { Add("gained", value); }
  void OnMemoryLost(Value* value) override { Add("lost", value); }
  void OnRecorded(Value* value) override { Add("recorded", value); }
  void OnSettled(Value* value) override { Add("settled", value); }
  void OnRead(Value* value) override { Add("read", value); }
  void OnForgotten(Value* value) override {
    Add("forgotten", value);
    EXPECT_EQ(value->uses, nullptr);
  }
  int count(const std::string& what) { return counts_[what]; }

 private:
  void Add(const std::string& what, Value*) { ++counts_[what]; }
  std::map<std::string, int> counts_;
};

class GraphTest : public Test {
 protected:
  static constexpr Bytes kBytes{64};

  // Addresses only; the graph never looks behind them.
  void* Address() { return reinterpret_cast<void*>(next_address_ += 64); }
  Storage* Source() { return graph_.AddStorage(nullptr, kBytes, Address()); }
  Call* Record(std::vector<Value*> inputs, std::vector<Value*> outputs, bool written = false) {
    std::vector<Graph::Input> in;
    std::vector<Graph::Output> out;
    for (Value* value : inputs) in.push_back({value, written});
    for (Value* value : outputs) out.push_back({value, -1});
    return graph_.Record(std::make_unique<CountedOperation>(), in, out, Nanos(1));
  }
  // A storage whose value a call made from `inputs`.
  Storage* Made(std::vector<Value*> inputs) {
    Storage* storage = Source();
    EXPECT_NE(Record(inputs, {storage->value}), nullptr);
    return storage;
  }
  void Evict(Storage* storage) { graph_.TakeMemory(storage->value); }
  size_t Freed() { return graph_.TakeGarbage().memory.size(); }

  uintptr_t next_address_ = 0x1000;
  Listener listener_;
  Graph graph_{&listener_};
};

TEST_F(GraphTest, ASourceKeepsNothingBehind) {
  Storage* storage = Source();
  EXPECT_EQ(graph_.source_bytes(), kBytes);
  EXPECT_FALSE(graph_.DropStorage(storage));
  EXPECT_EQ(graph_.live_values(), 0u);
  EXPECT_EQ(graph_.source_bytes(), Bytes(0));
  EXPECT_EQ(listener_.count("forgotten"), 1);
  EXPECT_EQ(Freed(), 0u) << "its memory is the caller's";
}

TEST_F(GraphTest, ADroppedSourceIsRetainedAsLongAsACallReadsIt) {
  Storage* source = Source();
  Storage* made = Made({source->value});
  EXPECT_TRUE(graph_.DropStorage(source));
  EXPECT_EQ(graph_.retained_bytes(), kBytes);
  EXPECT_EQ(graph_.retained().size(), 1u);
  EXPECT_FALSE(graph_.DropStorage(made));
  EXPECT_EQ(graph_.retained_bytes(), Bytes(0));
  EXPECT_EQ(Freed(), 1u) << "the retained source's memory";
  EXPECT_EQ(graph_.live_values(), 0u);
  EXPECT_EQ(graph_.live_calls(), 0u);
  EXPECT_EQ(operations_alive, 0);
}

TEST_F(GraphTest, ADroppedValueWithACallLosesItsMemoryButStaysKnown) {
  Storage* source = Source();
  Storage* middle = Made({source->value});
  Storage* last = Made({middle->value});
  EXPECT_FALSE(graph_.DropStorage(middle));
  EXPECT_EQ(graph_.live_values(), 3u);
  EXPECT_EQ(listener_.count("lost"), 1);
  graph_.DropStorage(last);
  EXPECT_EQ(graph_.live_values(), 1u);
  graph_.DropStorage(source);
}

TEST_F(GraphTest, ACallIsForgottenWithItsLastOutput) {
  Storage* source = Source();
  Storage* a = Source();
  Storage* b = Source();
  Record({source->value}, {a->value, nullptr, b->value});
  EXPECT_EQ(b->value->output, 2u);
  graph_.DropStorage(a);
  EXPECT_EQ(graph_.live_calls(), 1u);
  graph_.DropStorage(b);
  EXPECT_EQ(graph_.live_calls(), 0u);
  EXPECT_EQ(source->value->uses, nullptr);
  graph_.DropStorage(source);
}

TEST_F(GraphTest, OperationsAreDestroyedByWhoeverTakesTheGarbage) {
  Storage* source = Source();
  Storage* made = Made({source->value});
  graph_.DropStorage(made);
  EXPECT_EQ(operations_alive, 1) << "not under the lock";
  EXPECT_TRUE(graph_.has_garbage());
  graph_.TakeGarbage();
  EXPECT_EQ(operations_alive, 0);
  EXPECT_FALSE(graph_.has_garbage());
  graph_.DropStorage(source);
}

TEST_F(GraphTest, DisplaceSplitsContentFromStorage) {
  Storage* storage = Made({});
  Value* old = storage->value;
  void* const memory = old->memory;
  EXPECT_EQ(graph_.Displace(storage, nullptr), old);
  EXPECT_NE(storage->value, old);
  EXPECT_EQ(storage->value->memory, memory);
  EXPECT_TRUE(storage->value->is_source());
  EXPECT_EQ(old->memory, nullptr);
  EXPECT_EQ(old->storage, nullptr);
  graph_.Unhold(old);
  EXPECT_EQ(graph_.live_values(), 1u);
  graph_.DropStorage(storage);
}

TEST_F(GraphTest, ACopyOfADisplacedSourceIsRetained) {
  Storage* source = Source();
  Storage* made = Made({source->value});
  Value* old = graph_.Displace(source, Address());
  graph_.Unhold(old);
  EXPECT_EQ(graph_.retained_bytes(), kBytes);
  EXPECT_EQ(graph_.source_bytes(), kBytes * 2);
  graph_.DropStorage(made);
  EXPECT_EQ(Freed(), 1u);
  EXPECT_EQ(graph_.source_bytes(), kBytes);
  graph_.DropStorage(source);
}

TEST_F(GraphTest, RecordRefusesAnInputThatIsGone) {
  Storage* source = Source();
  Storage* output = Source();
  Value* old = graph_.Displace(source, nullptr);
  EXPECT_EQ(Record({old}, {output->value}), nullptr);
  EXPECT_TRUE(output->value->is_source());
  EXPECT_EQ(old->uses, nullptr);
  graph_.Unhold(old);
  graph_.TakeGarbage();
  EXPECT_EQ(operations_alive, 0);
  graph_.DropStorage(output);
  graph_.DropStorage(source);
}

TEST_F(GraphTest, EvictedDependentsAreFoundThroughValuesWithoutMemory) {
  Storage* source = Source();
  Storage* middle = Made({source->value});
  Storage* last = Made({middle->value});
  Storage* other = Made({source->value});
  EXPECT_TRUE(graph_.EvictedDependents({&source->value, 1}).empty());
  Evict(last);
  EXPECT_TRUE(graph_.EvictedDependents({&source->value, 1}).empty()) << "middle is in memory";
  graph_.DropStorage(middle);
  EXPECT_EQ(graph_.EvictedDependents({&source->value, 1}), std::vector<Value*>({last->value}));
  Evict(other);
  EXPECT_EQ(graph_.EvictedDependents({&source->value, 1}).size(), 2u);
  for (Storage* storage : {source, last, other}) graph_.DropStorage(storage);
}

TEST_F(GraphTest, EvictedDependentsAreFoundThroughValuesThatAreAboutToLeave) {
  Storage* source = Source();
  Storage* middle = Made({source->value});
  Storage* last = Made({middle->value});
  Evict(last);
  Value* const both[] = {source->value, middle->value};
  EXPECT_EQ(graph_.EvictedDependents({&source->value, 1}, both),
            std::vector<Value*>({last->value}));
  for (Storage* storage : {source, middle, last}) graph_.DropStorage(storage);
}

TEST_F(GraphTest, LoseSettlesWhatHasMemoryAndLosesTheRest) {
  Storage* source = Source();
  Storage* direct = Made({source->value});
  Storage* middle = Made({source->value});
  Storage* last = Made({middle->value});
  graph_.DropStorage(middle);
  Value* old = graph_.Displace(source, nullptr);
  graph_.Lose(old);
  EXPECT_TRUE(direct->value->is_source());
  EXPECT_TRUE(last->value->is_source()) << "through the value in between, which is lost";
  EXPECT_EQ(listener_.count("settled"), 2);
  EXPECT_EQ(graph_.live_calls(), 0u);
  graph_.Unhold(old);
  EXPECT_EQ(graph_.live_values(), 3u);
  EXPECT_EQ(graph_.source_bytes(), kBytes * 3);
  for (Storage* storage : {source, direct, last}) graph_.DropStorage(storage);
}

TEST_F(GraphTest, ALostValueMayStillBePinned) {
  Storage* source = Source();
  Storage* made = Made({source->value});
  Value* const made_old = made->value;
  graph_.Pin(made_old);
  Value* source_old = graph_.Displace(source, nullptr);
  graph_.Displace(made, nullptr);
  graph_.Lose(source_old);
  EXPECT_TRUE(made_old->is_source());
  graph_.Unhold(source_old);
  graph_.Unhold(made_old);
  graph_.Unpin(made_old);
  EXPECT_EQ(graph_.live_values(), 2u);
  graph_.DropStorage(source);
  graph_.DropStorage(made);
}

TEST_F(GraphTest, APinKeepsTheMemoryOfADroppedStorage) {
  Storage* storage = Source();
  Value* value = storage->value;
  graph_.Pin(value);
  EXPECT_TRUE(graph_.DropStorage(storage));
  EXPECT_TRUE(value->detached());
  EXPECT_EQ(Freed(), 0u);
  graph_.Unpin(value);
  EXPECT_EQ(Freed(), 1u);
  EXPECT_EQ(graph_.live_values(), 0u);
}

TEST_F(GraphTest, DepthIsTheLongestChain) {
  Storage* source = Source();
  Storage* a = Made({source->value});
  Storage* b = Made({a->value, source->value});
  EXPECT_EQ(source->value->depth, 0u);
  EXPECT_EQ(a->value->depth, 1u);
  EXPECT_EQ(b->value->depth, 2u);
  for (Storage* storage : {source, a, b}) graph_.DropStorage(storage);
}

TEST_F(GraphTest, AChainOfAHundredThousandCallsNeedsNoStack) {
  Storage* source = Source();
  Storage* last = source;
  for (int i = 0; i < 100'000; ++i) {
    Storage* next = Made({last->value});
    if (last != source) graph_.DropStorage(last);
    last = next;
  }
  Evict(last);
  EXPECT_EQ(graph_.EvictedDependents({&source->value, 1}).size(), 1u);
  graph_.DropStorage(last);
  EXPECT_EQ(graph_.live_values(), 1u);
  EXPECT_EQ(graph_.live_calls(), 0u);
  graph_.DropStorage(source);
}

// After any sequence of drops all is forgotten, and the sums of bytes are those of a recount.
TEST_F(GraphTest, SumsAddUpOnARandomWalk) {
  std::mt19937 random(7);
  std::vector<Storage*> live;
  const auto any = [&] { return live[random() % live.size()]; };
  for (int i = 0; i < 20'000; ++i) {
    const unsigned what = random() % 10;
    if (live.size() < 2 || what == 0) {
      live.push_back(Source());
    } else if (what < 5) {
      Value* a = any()->value;
      Value* b = any()->value;
      std::vector<Value*> inputs = {a};
      if (a != b) inputs.push_back(b);
      live.push_back(Made(inputs));
    } else if (what < 6 && !any()->value->is_source()) {
      Storage* storage = any();
      if (storage->value->memory != nullptr && !storage->value->is_source()) Evict(storage);
    } else {
      std::swap(live[random() % live.size()], live.back());
      graph_.DropStorage(live.back());
      live.pop_back();
    }
    if (i % 64 != 0) continue;
    Bytes sources = graph_.retained_bytes();
    EXPECT_EQ(graph_.retained_bytes(), kBytes * static_cast<int64_t>(graph_.retained().size()));
    for (Storage* storage : live) {
      if (storage->value->is_source()) sources += storage->bytes;
    }
    ASSERT_EQ(graph_.source_bytes(), sources);
    graph_.TakeGarbage();
  }
  for (Storage* storage : live) graph_.DropStorage(storage);
  EXPECT_EQ(graph_.live_values(), 0u);
  EXPECT_EQ(graph_.live_calls(), 0u);
  EXPECT_EQ(graph_.source_bytes(), Bytes(0));
  graph_.TakeGarbage();
  EXPECT_EQ(operations_alive, 0);
}

}  // namespace
}  // namespace ebbtide
