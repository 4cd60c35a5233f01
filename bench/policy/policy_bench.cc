// SPDX-License-Identifier: Apache-2.0
//
// One eviction decision at 1,000 and 100,000 candidates, for each policy: the choice alone, and the
// whole cycle of choosing, losing the memory and getting it back (what keeps the indexes up to
// date).

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "policy/registry.h"
#include "tests/policy/policy_fixture.h"

namespace ebbtide {
namespace {

// A network-like graph: each value reads the one before and one a little further back.
std::unique_ptr<PolicyFixture> Grow(absl::string_view policy, int64_t candidates) {
  auto fixture = std::make_unique<PolicyFixture>(*MakePolicy(policy, Bytes(1)));
  std::mt19937 random(1);
  std::vector<Storage*> made = {fixture->Source(1000), fixture->Source(1000)};
  for (int64_t i = 0; i < candidates; ++i) {
    Storage* const before = made.back();
    const size_t back = random() % std::min<size_t>(made.size() - 1, 20);
    Storage* const further = made[made.size() - 2 - back];
    made.push_back(fixture->Made({before, further}, 1000 + random() % 1'000'000,
                                 1000 + random() % 100'000, i));
  }
  return fixture;
}

void Choose(benchmark::State& state, const std::string& policy) {
  auto fixture = Grow(policy, state.range(0));
  int64_t now = state.range(0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(fixture->policy().ChooseVictim(Nanos(++now)));
  }
}

// A tenth of the values is gone at any time; what leaves comes back as the oldest of these.
void Cycle(benchmark::State& state, const std::string& policy) {
  auto fixture = Grow(policy, state.range(0));
  int64_t now = state.range(0);
  std::vector<Value*> gone(static_cast<size_t>(state.range(0) / 10));
  const auto evict = [&] {
    Value* victim = fixture->policy().ChooseVictim(Nanos(++now));
    fixture->Evict(victim);
    return victim;
  };
  // Which ones go at first does not matter: without asking.
  for (size_t i = 0; i < gone.size(); ++i) {
    gone[i] = fixture->policy().candidates()[i * 7 % fixture->policy().candidates().size()];
    fixture->Evict(gone[i]);
  }
  size_t next = 0;
  for (auto _ : state) {
    Value* victim = evict();
    fixture->graph().Read(gone[next], Nanos(now));
    fixture->Return(gone[next]);
    gone[next] = victim;
    next = (next + 1) % gone.size();
  }
}

int RegisterAll() {
  for (absl::string_view name : PolicyNames()) {
    const std::string policy(name);
    for (const int64_t candidates : {1'000, 100'000}) {
      benchmark::RegisterBenchmark(("Choose/" + policy).c_str(), Choose, policy)->Arg(candidates);
      benchmark::RegisterBenchmark(("Cycle/" + policy).c_str(), Cycle, policy)->Arg(candidates);
    }
  }
  return 0;
}

const int registered = RegisterAll();

}  // namespace
}  // namespace ebbtide
