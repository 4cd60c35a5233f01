// SPDX-License-Identifier: Apache-2.0

#include "policy/score_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "policy/eviction_policy.h"

namespace ebbtide {
namespace {

// Buckets per doubling of the weight: few buckets to start a search from, and little to examine in
// vain in each.
constexpr double kPerOctave = 4;
// Weights are nanoseconds a byte: from one for 2^64 bytes to 2^64 for one.
constexpr double kOctaves = 64;
constexpr auto kBuckets = static_cast<size_t>(2 * kOctaves * kPerOctave);
// How far a value's cost is counted beyond what is known of it, before others get their turn.
constexpr double kStep = 4;
// A bound has to stay one when it is rounded.
constexpr double kSlack = 1e-9;

}  // namespace

ScoreIndex::ScoreIndex() : buckets_(kBuckets), place_in_used_(kBuckets, kNowhere) {}

size_t ScoreIndex::BucketOf(double weight) {
  const double place = (std::log2(weight) + kOctaves) * kPerOctave;
  return static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(kBuckets - 1)));
}

double ScoreIndex::LeastWeightIn(size_t bucket) {
  if (bucket == 0) return 0;
  return std::exp2(static_cast<double>(bucket) / kPerOctave - kOctaves) * (1 - kSlack);
}

void ScoreIndex::Enter(Node* node) {
  Bucket& bucket = buckets_[node->bucket];
  if (bucket.empty()) {
    place_in_used_[node->bucket] = used_.size();
    used_.push_back(node->bucket);
  }
  bucket.insert(PlaceOf(node));
}

void ScoreIndex::Leave(Node* node) {
  Bucket& bucket = buckets_[node->bucket];
  bucket.erase(PlaceOf(node));
  if (!bucket.empty()) return;
  const size_t place = std::exchange(place_in_used_[node->bucket], kNowhere);
  used_[place] = used_.back();
  used_.pop_back();
  if (place < used_.size()) place_in_used_[used_[place]] = place;
}

void ScoreIndex::SetWeight(Node* node, double weight) {
  if (weight > node->least_weight && node->learned == kNowhere) {
    node->learned = learned_.size();
    learned_.push_back(node);
  } else if (weight <= node->least_weight && node->learned != kNowhere) {
    const size_t place = std::exchange(node->learned, kNowhere);
    learned_[place] = learned_.back();
    learned_.pop_back();
    if (place < learned_.size()) learned_[place]->learned = place;
  }
  node->weight = weight;
  const size_t bucket = BucketOf(weight);
  if (bucket == node->bucket) return;
  Leave(node);
  node->bucket = bucket;
  Enter(node);
}

void ScoreIndex::Add(Value* value, double weight) {
  EBB_CHECK(weight > 0) << "weight " << weight;
  if (free_nodes_.empty()) free_nodes_.push_back(&nodes_.emplace_back());
  Node* node = free_nodes_.back();
  free_nodes_.pop_back();
  *node = {value, weight, weight, value->last_access, BucketOf(weight), kNowhere, 0};
  value->policy_node = node;
  Enter(node);
}

void ScoreIndex::Remove(Value* value) {
  auto* node = static_cast<Node*>(std::exchange(value->policy_node, nullptr));
  SetWeight(node, node->least_weight);
  Leave(node);
  free_nodes_.push_back(node);
}

void ScoreIndex::Forget(Value* value) {
  auto* node = static_cast<Node*>(value->policy_node);
  if (node->learned != kNowhere) SetWeight(node, node->least_weight);
}

void ScoreIndex::ForgetAll() {
  while (!learned_.empty()) SetWeight(learned_.back(), learned_.back()->least_weight);
}

void ScoreIndex::Push(size_t bucket_number, const Place& next, Nanos now) {
  Bucket& bucket = buckets_[bucket_number];
  for (;;) {
    const auto found = bucket.lower_bound(next);
    if (found == bucket.end()) return;
    Node* node = found->node;
    if (node->value->last_access == node->last_access) {
      const double bound = LeastWeightIn(bucket_number) / Staleness(node->last_access, now);
      heap_.push_back({bound, bucket_number, *found});
      std::push_heap(heap_.begin(), heap_.end());
      return;
    }
    bucket.erase(found);
    node->last_access = node->value->last_access;
    bucket.insert(PlaceOf(node));
  }
}

// Each time round, either the value is decided or more is known of it than before: what ties and
// rounding do to the numbers cannot keep a search from ending.
void ScoreIndex::Examine(Node* node, Nanos now, Weigh weigh) {
  const double stale = Staleness(node->last_access, now);
  const double best = best_score_ * stale;
  const double limit = std::min(best, node->weight * kStep);
  const double weight = weigh(*node->value, limit);
  if (weight > node->weight) SetWeight(node, weight);
  if (weight > best) return;
  const double score = weight / stale;
  if (weight > limit) {
    heap_.push_back({score * (1 - kSlack), kNowhere, PlaceOf(node)});
    std::push_heap(heap_.begin(), heap_.end());
  } else if (score < best_score_ ||
             (best_ != nullptr && score == best_score_ && node->value->id < best_->id)) {
    best_ = node->value;
    best_score_ = score;
  }
}

Value* ScoreIndex::Search(Nanos now, Weigh weigh) {
  ++searches_;
  heap_.clear();
  best_ = nullptr;
  best_score_ = std::numeric_limits<double>::infinity();
  for (size_t bucket : used_) Push(bucket, {Nanos::min(), 0, nullptr}, now);
  while (!heap_.empty() && heap_.front().bound <= best_score_) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Cursor cursor = heap_.back();
    heap_.pop_back();
    Node* node = cursor.at.node;
    if (cursor.bucket == kNowhere) {
      Examine(node, now, weigh);
      continue;
    }
    const double bound = node->weight / Staleness(node->last_access, now) * (1 - kSlack);
    if (node->value->pins == 0 && node->seen != searches_ && bound <= best_score_) {
      node->seen = searches_;
      Examine(node, now, weigh);
    }
    Push(cursor.bucket, {cursor.at.last_access, cursor.at.id + 1, nullptr}, now);
  }
  return best_;
}

}  // namespace ebbtide
