// SPDX-License-Identifier: Apache-2.0
//
// A random walk over a PolicyFixture, for tests that compare every decision of a policy with the
// definition of its score.
//
// For one thread; owns nothing, and leaves the fixture as the walk's last step did. A policy whose
// definition is about more than these steps needs a walk of its own.

#ifndef EBBTIDE_TESTS_POLICY_RANDOM_WALK_H_
#define EBBTIDE_TESTS_POLICY_RANDOM_WALK_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/policy/policy_fixture.h"

namespace ebbtide {

// Calls, reads, returns and evictions that `seed` decides. `on_victim` is told of each victim
// before it is evicted, `on_return` of each evicted value before it comes back. Returns the number
// of victims.
inline int WalkAtRandom(PolicyFixture* fixture, uint32_t seed,
                        const std::function<void(Value* victim, int64_t now)>& on_victim,
                        const std::function<void(Value* value)>& on_return) {
  std::mt19937 random(seed);
  std::vector<Storage*> all = {fixture->Source(1000)};
  int victims = 0;
  for (int64_t now = 1; now < 1800; ++now) {
    Storage* any = all[random() % all.size()];
    if (random() % 5 < 2 && all.size() < 150) {
      Storage* near = all[all.size() - 1 - random() % std::min<size_t>(all.size(), 5)];
      std::vector<Storage*> inputs = {any};
      if (near != any) inputs.push_back(near);
      all.push_back(fixture->Made(inputs, 1 + random() % 1000, random() % 1000, now));
    } else if (random() % 3 == 0) {
      if (any->value->memory == nullptr) {
        on_return(any->value);
        fixture->Return(any->value);
      }
      fixture->graph().Read(any->value, Nanos(now));
    } else if (Value* victim = fixture->policy().ChooseVictim(Nanos(now)); victim != nullptr) {
      on_victim(victim, now);
      ++victims;
      fixture->Evict(victim);
    }
  }
  return victims;
}

// Fails unless `victim` has the least score of all candidates.
inline void ExpectLeastScore(PolicyFixture* fixture, const Value& victim,
                             const std::function<double(const Value&)>& score) {
  double least = score(victim);
  for (const Value* value : fixture->policy().candidates()) least = std::min(least, score(*value));
  EXPECT_NEAR(score(victim), least, least * 1e-9) << "value " << victim.id;
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_POLICY_RANDOM_WALK_H_
