// SPDX-License-Identifier: Apache-2.0
//
// How an arena plans: it tells PlannedPlacement of its requests, tries the places that come back
// and computes a plan when there is an iteration to plan.

#include <climits>
#include <optional>
#include <utility>

#include "allocator/arena.h"
#include "allocator/placement_plan.h"
#include "base/check.h"

namespace ebbtide {
namespace {

// Bounds the packer's work on one plan to some 20 ms, of the thread whose request was the last of
// an iteration.
constexpr int64_t kPlanSteps = 3'000'000;

}  // namespace

void Arena::StartPlanning() {
  EBB_CHECK(planned_ == nullptr && IsEmpty());
  heaps_.emplace_back(ledger_, static_cast<HeapOwner*>(this));
  by_gain_.push_back(&heaps_[2]);
  planned_ = std::make_unique<PlannedPlacement>();
}

void* Arena::AllocatePlanning(size_t size, size_t alignment, Heap::End end, int64_t asked,
                              Shortage* shortage) {
  std::optional<PlannedPlacement::Problem> problem;
  void* address = nullptr;
  {
    Lock lock(mutex_);
    PlannedPlacement::Request request{-1, std::nullopt};
    // What stays is no part of an iteration, and a plan knows one alignment.
    if (end == Heap::End::kLow && alignment == Heap::kAlignment) {
      // Of the same size as the one that did not fit: most likely it is that one again.
      const bool again = size == unserved_size_;
      request = again ? unserved_ : planned_->Place(static_cast<int64_t>(size));
      if (again) unserved_size_ = 0;
    }
    if (request.begins || (partial_ && request.offset.has_value())) PrepareRegion(request.begins);
    Block* block = request.offset.has_value() ? TryPlace(request, size) : nullptr;
    if (block == nullptr) block = FindBlock(size, alignment, end, shortage);
    if (block == nullptr) {
      if (request.token < 0) return nullptr;
      if (unserved_size_ > 0) {  // nobody came back for that one
        planned_->Freed(unserved_.token, static_cast<int64_t>(unserved_size_));
      }
      unserved_ = request;
      unserved_size_ = size;
      return nullptr;
    }
    block->request = request.token;
    address = HandOut(block, asked);
    problem = planned_->TakeProblem();
  }
  if (problem.has_value()) Learn(*problem);
  return address;
}

// The block in its place, or nullptr when that is not free or its memory cannot be had.
Block* Arena::TryPlace(const PlannedPlacement::Request& request, size_t size) {
  Heap& heap = heaps_[2];
  const uintptr_t begin = heap.region_begin() + *request.offset;
  Block* block = nullptr;
  if (begin + size <= heap.region_begin() + heap.region_size()) {
    // Slabs lie in no region, and of other heaps' blocks nothing but the heap may be looked at.
    const uintptr_t word = pages_->FindAtOrBefore(begin, *request.offset);
    const bool is_block = word != 0 && SmallCache::SlabOf(word) == nullptr;
    const auto* below = is_block ? reinterpret_cast<const Block*>(word) : nullptr;
    if (below != nullptr && below->heap != &heap) below = nullptr;
    block = heap.CarveAt(begin, size, below);
  }
  if (block != nullptr && partial_) {
    Shortage shortage;
    const int64_t moved = ledger_->moved_bytes;
    if (!CommitInBudget(&heap, block, &shortage)) {
      heap.Abandon(block);
      block = nullptr;
    }
    // What goes to a new region goes there once: no sign that the limit is too tight.
    if (region_is_new_) ledger_->moved_bytes -= ledger_->moved_bytes - moved;
  }
  if (block != nullptr) {
    ++planned_blocks_;
  } else {
    planned_->Missed();
  }
  return block;
}

// Called at the start of an iteration, where the least is live; where the region is but addresses,
// also on the way.
void Arena::PrepareRegion(bool begins) {
  Heap& heap = heaps_[2];
  const auto bytes = static_cast<size_t>(planned_->height());
  if (begins && region_is_new_) {
    region_is_new_ = false;
    if (!partial_) GiveBackUnplanned();  // what became free in the first iteration with it
  }
  if (bytes == 0 || heap.region_size() >= bytes) return;
  if (!partial_) {
    // Where blocks that stay hold the segments of those that came and went, a plan is no gain.
    const uint64_t quiet = Quiet();
    int64_t free = 0;
    for (const Heap& each : heaps_) free += each.CountReleasable(quiet);
    if (free < static_cast<int64_t>(bytes)) return;
    GiveBackUnplanned();
    int calls = INT_MAX;
    heap.GiveBack(INT64_MAX, quiet, &calls);
  }
  // Where that fails all places are missed, and the next iteration tries again.
  region_is_new_ = heap.AddRegion(bytes).ok();
}

// The small and large heaps' cache: blocks in their places leave it without use.
void Arena::GiveBackUnplanned() {
  int calls = INT_MAX;
  const uint64_t quiet = Quiet();
  for (int i : {0, 1}) heaps_[i].GiveBack(INT64_MAX, quiet, &calls);
}

void Arena::Learn(const PlannedPlacement::Problem& problem) {
  PlacementPlan plan = PlanPlacements(
      problem.requests,
      {.alignment = static_cast<int64_t>(Heap::kAlignment), .max_steps = kPlanSteps});
  Lock lock(mutex_);
  planned_->Adopt(problem, std::move(plan));
}

}  // namespace ebbtide
