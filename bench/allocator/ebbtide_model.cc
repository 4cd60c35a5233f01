// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/ebbtide_model.h"

namespace ebbtide::bench {
namespace {

using namespace ebbtide::literals;

}  // namespace

EbbtideModel::EbbtideModel(int64_t budget, const Kind& kind)
    : device_({.capacity = 1_TiB,
               .granularity = 2_MiB,
               .large_piece = kind.whole ? 2_MiB : 20_MiB,
               .partial_decommit = !kind.whole,
               .move = !kind.whole}),
      counter_(&device_),
      allocator_(&counter_, {.budget = Bytes(budget), .planned = kind.planned}) {}

// The allocator does not tell streams apart: all of a trace is one stream to it.
AllocatorModel::Handle EbbtideModel::Allocate(int64_t bytes, uint32_t stream) {
  // No streams are queued: what is freed on one is quiet at once.
  const absl::StatusOr<void*> block = allocator_.Allocate(Bytes(bytes), {.stream = stream});
  return block.ok() ? reinterpret_cast<Handle>(*block) : 0;
}

void EbbtideModel::Free(Handle block) { allocator_.Free(reinterpret_cast<void*>(block)); }

int64_t EbbtideModel::peak_held() const { return allocator_.stats().peak_held.count(); }

}  // namespace ebbtide::bench
