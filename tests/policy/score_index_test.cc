// SPDX-License-Identifier: Apache-2.0

#include "policy/score_index.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

// Values with a cost per byte that the test sets, and an index of them.
class ScoreIndexTest : public testing::Test {
 protected:
  struct Known {
    Value value;
    double least;  // the bound that the index is given
    double cost;   // the true one
    bool inside = false;
  };

  Known* Add(double least, double cost, int64_t read) {
    Known& known = all_.emplace_back();
    known.value.id = all_.size();
    known.value.last_access = Nanos(read);
    known.least = least;
    known.cost = cost;
    Insert(&known);
    return &known;
  }

  void Insert(Known* known) {
    index_.Add(&known->value, known->least);
    known->inside = true;
  }

  void Remove(Known* known) {
    index_.Remove(&known->value);
    known->inside = false;
  }

  // What the search finds; the cost is counted in parts of its least bound, as a walk would.
  Value* Search(int64_t now) {
    return index_.Search(Nanos(now), [this](const Value& value, double limit) {
      ++examined_;
      const Known& known = all_[value.id - 1];
      double counted = known.least;
      while (counted <= limit && counted < known.cost) {
        counted = std::min(counted + known.least, known.cost);
      }
      return counted;
    });
  }

  static double Score(const Known& known, int64_t now) {
    return known.cost /
           static_cast<double>(std::max<int64_t>(now - known.value.last_access.count(), 1));
  }

  // By looking at all.
  Value* Scan(int64_t now) {
    Known* best = nullptr;
    for (Known& known : all_) {
      if (!known.inside || known.value.pins > 0) continue;
      if (best == nullptr || Score(known, now) < Score(*best, now)) best = &known;
    }
    return best == nullptr ? nullptr : &best->value;
  }

  std::deque<Known> all_;
  ScoreIndex index_;
  int64_t examined_ = 0;
};

TEST_F(ScoreIndexTest, NothingIsFoundInNothing) {
  EXPECT_EQ(Search(1), nullptr);
  Remove(Add(1, 1, 0));
  EXPECT_EQ(Search(1), nullptr);
}

TEST_F(ScoreIndexTest, CheapAndStaleIsFirst) {
  Add(2, 2, 50);
  Known* cheap = Add(1, 1, 50);
  EXPECT_EQ(Search(100), &cheap->value);
  Known* old = Add(2, 2, -100);
  EXPECT_EQ(Search(100), &old->value);
}

TEST_F(ScoreIndexTest, OfEqualOnesTheOldestIsFound) {
  Known* first = Add(3, 3, 10);
  Add(3, 3, 10);
  Add(1.5, 1.5, 55);
  EXPECT_EQ(Search(100), &first->value);
}

// Scores that are equal but for rounding: neither may be looked at for ever.
TEST_F(ScoreIndexTest, ASearchEndsWhateverRoundingDoes) {
  for (int64_t stale = 1; stale < 200; ++stale) {
    for (int64_t bytes = 1; bytes < 50; ++bytes) {
      const double weight = 1.0 / static_cast<double>(bytes);
      Known* one = Add(weight / 7, weight, -stale);
      Known* other = Add(weight / 5, weight * (1 + 1e-16), -stale);
      EXPECT_NE(Search(0), nullptr);
      Remove(one);
      Remove(other);
    }
  }
}

TEST_F(ScoreIndexTest, ABoundFarBelowTheCostMisleadsNobody) {
  Add(1, 1e6, 0);
  Known* honest = Add(1000, 1000, 0);
  EXPECT_EQ(Search(10), &honest->value);
}

TEST_F(ScoreIndexTest, PinnedOnesAreFoundLater) {
  Known* cheap = Add(1, 1, 0);
  Known* dear = Add(9, 9, 0);
  cheap->value.pins = 1;
  EXPECT_EQ(Search(10), &dear->value);
  cheap->value.pins = 0;
  EXPECT_EQ(Search(10), &cheap->value);
}

TEST_F(ScoreIndexTest, AReadNeedsNoCall) {
  Known* first = Add(1, 1, 0);
  Known* second = Add(1, 1, 1);
  EXPECT_EQ(Search(10), &first->value);
  first->value.last_access = Nanos(9);
  EXPECT_EQ(Search(10), &second->value);
}

TEST_F(ScoreIndexTest, ACostThatFellIsSeenOnceItWasSaid) {
  Known* falls = Add(1, 100, 0);
  Known* other = Add(50, 50, 0);
  EXPECT_EQ(Search(10), &other->value);
  falls->cost = 1;
  index_.Forget(&falls->value);
  EXPECT_EQ(Search(10), &falls->value);
  falls->cost = 100;
  EXPECT_EQ(Search(10), &other->value);
  falls->cost = 2;
  index_.ForgetAll();
  EXPECT_EQ(Search(10), &falls->value);
}

TEST_F(ScoreIndexTest, ExtremeWeightsHaveAPlace) {
  Known* least = Add(1e-30, 1e-30, 0);
  Add(1e30, 1e30, 0);
  EXPECT_EQ(Search(10), &least->value);
  Remove(least);
  EXPECT_NE(Search(10), nullptr);
}

// Whatever joins, leaves, is read, grows dearer or cheaper: a search finds what a scan finds.
TEST_F(ScoreIndexTest, FindsWhatAScanFinds) {
  std::mt19937 random(7);
  const auto weight = [&] { return std::exp2(static_cast<double>(random() % 2000) / 100 - 10); };
  for (int64_t now = 0; now < 4000; ++now) {
    const uint32_t step = random() % 16;
    if (step < 4 || all_.empty()) {
      const double least = weight();
      Add(least, least * (random() % 3 == 0 ? 1 + weight() : 1), now);
      continue;
    }
    Known& any = all_[random() % all_.size()];
    if (step < 6) {
      any.inside ? Remove(&any) : Insert(&any);
    } else if (step < 9) {
      any.value.last_access = Nanos(now);
    } else if (step < 10) {
      any.cost = any.least * (1 + weight());
      if (any.inside) index_.Forget(&any.value);
    } else if (step < 11) {
      any.value.pins = 1 - any.value.pins;
    } else {
      ASSERT_EQ(Search(now), Scan(now)) << "step " << now;
    }
  }
}

// Among many, few are looked at, also when their bounds say little at first.
TEST_F(ScoreIndexTest, LooksAtFew) {
  std::mt19937 random(7);
  constexpr int kValues = 50'000;
  for (int i = 0; i < kValues; ++i) {
    const double least = 1 + random() % 1'000'000;
    Add(least, least * (i % 10 == 0 ? 1000 : 1), i);
  }
  Search(kValues);
  examined_ = 0;
  constexpr int kSearches = 1000;
  for (int i = 0; i < kSearches; ++i) {
    Value* found = Search(kValues + i);
    Remove(&all_[found->id - 1]);
  }
  EXPECT_LT(examined_, 100 * kSearches);
}

}  // namespace
}  // namespace ebbtide
