// SPDX-License-Identifier: Apache-2.0
//
// ScoreIndex: finds the value with the least score of the form
//
//     cost(v) / (bytes(v) x staleness(v)),   staleness = now - last read
//
// without a look at all of them. A cost that needs a walk of the graph, and a staleness that
// changes with every read and every moment, cannot be kept in order. What is kept are two bounds: a
// weight that the cost per byte is not below, and a time that the last read is not before. Values
// of about the same weight lie in one bucket, oldest first, so that the bounds of a bucket's
// members grow. A search always goes on with the least bound of all buckets, asks for that value's
// true score, corrects its bounds, and ends once no bound is below the best score: the result is
// the exact minimum.
//
// Both bounds may go out of date in one direction for free. A value that is read needs no call, nor
// does one whose cost grew. Only where a cost may have fallen the owner must say so (Forget).
//
// Threads: not synchronised. Ownership: none of the values; each must be removed before it dies.
// value->policy_node belongs to the index while the value is in it.

#ifndef EBBTIDE_POLICY_SCORE_INDEX_H_
#define EBBTIDE_POLICY_SCORE_INDEX_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "tracker/value.h"

namespace ebbtide {

class ScoreIndex {
 public:
  // Counts a value's cost per byte. May stop at a number above `limit` that the cost is not below.
  using Weigh = absl::FunctionRef<double(const Value& value, double limit)>;

  ScoreIndex();

  // `weight`: a lower bound of the value's cost per byte that holds whatever happens; positive.
  // O(log n), as is Remove.
  void Add(Value* value, double weight);
  void Remove(Value* value);

  // What searches have learned of the value's cost may hold no longer.
  void Forget(Value* value);
  // The same for all values. O(those of which something is known).
  void ForgetAll();

  // The value with the least score at `now` that is not pinned; of equal ones, the oldest by id.
  // Null if there is none. `weigh` must not change the index.
  Value* Search(Nanos now, Weigh weigh);

 private:
  struct Node {
    Value* value;
    double least_weight;  // as given to Add
    double weight;
    Nanos last_access;  // that of its place
    size_t bucket;
    size_t learned;  // its place in learned_, kNowhere while weight is least_weight
    uint64_t seen;   // the search that has met it last
  };
  // A node's place in its bucket.
  struct Place {
    Nanos last_access;
    uint64_t id;
    Node* node;
    bool operator<(const Place& other) const {
      return last_access != other.last_access ? last_access < other.last_access : id < other.id;
    }
  };
  using Bucket = absl::btree_set<Place>;
  // What a search may look at next: a bucket from a place on, all with at least this bound, or a
  // single value of which it has learned that much.
  struct Cursor {
    double bound;
    size_t bucket;  // kNowhere for a single value
    Place at;
    bool operator<(const Cursor& other) const { return bound > other.bound; }
  };
  static constexpr size_t kNowhere = SIZE_MAX;

  static size_t BucketOf(double weight);
  static double LeastWeightIn(size_t bucket);
  static Place PlaceOf(Node* node) { return {node->last_access, node->value->id, node}; }
  void Enter(Node* node);
  void Leave(Node* node);
  void SetWeight(Node* node, double weight);
  // Puts a cursor on the first place from `next` on, having brought the places of values that were
  // read since up to date. No cursor at the bucket's end.
  void Push(size_t bucket, const Place& next, Nanos now);

  // Learns more of a value that a search has met.
  void Examine(Node* node, Nanos now, Weigh weigh);

  std::vector<Bucket> buckets_;
  // Buckets that are not empty, and where each is in that list.
  std::vector<size_t> used_;
  std::vector<size_t> place_in_used_;
  // Nodes with a weight above their least.
  std::vector<Node*> learned_;
  std::deque<Node> nodes_;
  std::vector<Node*> free_nodes_;
  // Of a search, kept for their memory.
  std::vector<Cursor> heap_;
  uint64_t searches_ = 0;
  Value* best_ = nullptr;
  double best_score_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_POLICY_SCORE_INDEX_H_
