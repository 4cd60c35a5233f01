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

// Bounds the packer's work on one plan to some 15 ms, of the thread whose request was the last of
// an iteration.
constexpr int64_t kPlanSteps = 5'000'000;

}  // namespace

void Arena::StartPlanning() {
  EBB_CHECK(planned_ == nullptr && IsEmpty());
  heaps_.emplace_back(ledger_, static_cast<HeapOwner*>(this));
  by_gain_.push_back(&heaps_[2]);
  planned_ = std::make_unique<PlannedPlacement>();
}

void* Arena::AllocatePlanning(size_t rounded, Heap::End end, int64_t asked, Shortage* shortage) {
  std::optional<PlannedPlacement::Problem> problem;
  void* address = nullptr;
  {
    Lock lock(mutex_);
    PlannedPlacement::Request request{-1, std::nullopt};
    if (end == Heap::End::kLow) {  // what stays is no part of an iteration
      // Of the same size as the one that did not fit: most likely it is that one again.
      const bool again = rounded == unserved_size_;
      request = again ? unserved_ : planned_->Place(static_cast<int64_t>(rounded));
      if (again) unserved_size_ = 0;
    }
    if (request.begins || (partial_ && request.offset.has_value())) PrepareRegion();
    Block* block = request.offset.has_value() ? TryPlace(request, rounded) : nullptr;
    if (block == nullptr) block = FindBlock(rounded, end, shortage);
    if (block == nullptr) {
      if (request.token < 0) return nullptr;
      if (unserved_size_ > 0) {  // nobody came back for that one
        planned_->Freed(unserved_.token, static_cast<int64_t>(unserved_size_));
      }
      unserved_ = request;
      unserved_size_ = rounded;
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
  Shortage shortage;
  if (block != nullptr && partial_ && !CommitInBudget(&heap, block, &shortage)) {
    heap.Abandon(block);
    block = nullptr;
  }
  if (block != nullptr) {
    ++large_.planned;
  } else {
    planned_->Missed();
  }
  return block;
}

// Called at the start of an iteration, where the least is live; where the region is but addresses,
// also on the way. Otherwise what is free makes room for it, and what only becomes free during the
// first iteration with it follows at the start of the second.
void Arena::PrepareRegion() {
  Heap& heap = heaps_[2];
  const auto bytes = static_cast<size_t>(planned_->height());
  if (bytes == 0) return;
  const bool fits = heap.region_size() >= bytes;
  if (!partial_ && (!fits || region_is_new_)) {
    region_is_new_ = false;
    int calls = INT_MAX;
    const uint64_t quiet = Quiet();
    for (Heap* each : by_gain_) {
      if (each != &heap || !fits) each->GiveBack(INT64_MAX, quiet, &calls);
    }
  }
  // Where that fails all places are missed, and the next iteration tries again.
  if (!fits) region_is_new_ = heap.AddRegion(bytes).ok();
}

void Arena::Learn(const PlannedPlacement::Problem& problem) {
  PlacementPlan plan = PlanPlacements(
      problem.requests,
      {.alignment = static_cast<int64_t>(Heap::kAlignment), .max_steps = kPlanSteps});
  Lock lock(mutex_);
  planned_->Adopt(problem, std::move(plan));
}

}  // namespace ebbtide
