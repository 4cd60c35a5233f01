// SPDX-License-Identifier: Apache-2.0

#include "allocator/trace_replay.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ebbtide {

ReplayResult Replay(const AllocationTrace& trace,
                    absl::FunctionRef<absl::StatusOr<void*>(const AllocationEvent&)> allocate,
                    absl::FunctionRef<void(void*, const AllocationEvent&)> free) {
  ReplayResult result;
  Bytes live;
  std::vector<void*> blocks(static_cast<size_t>(trace.allocations), nullptr);
  for (const AllocationEvent& event : trace.events) {
    void*& block = blocks[static_cast<size_t>(event.id)];
    if (event.kind == AllocationEvent::Kind::kAllocate) {
      absl::StatusOr<void*> fresh = allocate(event);
      if (!fresh.ok()) {
        ++result.failures;
        continue;
      }
      ++result.allocations;
      block = *fresh;
      live += event.bytes;
      result.peak_live = std::max(result.peak_live, live);
    } else if (block != nullptr) {
      free(std::exchange(block, nullptr), event);
      ++result.frees;
      live -= event.bytes;
    }
  }
  for (const AllocationEvent& event : trace.events) {
    if (event.kind == AllocationEvent::Kind::kFree) continue;
    void*& block = blocks[static_cast<size_t>(event.id)];
    if (block != nullptr) free(std::exchange(block, nullptr), event);
  }
  return result;
}

}  // namespace ebbtide
