// SPDX-License-Identifier: Apache-2.0
//
// Ebbtide's own allocator behind the interface of the models: over a simulated GPU with granules of
// 2 MiB whose memory is never what is short, so that the budget alone decides.
//
// Threads: one at a time. Ownership: it owns its device. See allocator_model.h.

#ifndef EBBTIDE_BENCH_ALLOCATOR_EBBTIDE_MODEL_H_
#define EBBTIDE_BENCH_ALLOCATOR_EBBTIDE_MODEL_H_

#include <cstdint>

#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "bench/allocator/allocator_model.h"
#include "bench/allocator/driver_call_counter.h"

namespace ebbtide::bench {

class EbbtideModel : public AllocatorModel {
 public:
  struct Kind {
    bool whole = false;    // memory comes and goes in whole segments only
    bool planned = false;  // places are planned ahead
  };

  // Never holds more than `budget` bytes.
  explicit EbbtideModel(int64_t budget) : EbbtideModel(budget, Kind()) {}
  EbbtideModel(int64_t budget, const Kind& kind);

  Handle Allocate(int64_t bytes, uint32_t stream) override;
  void Free(Handle block) override;
  int64_t peak_held() const override;
  int64_t driver_calls() const override { return counter_.calls(); }

  CachingAllocator& allocator() { return allocator_; }

 private:
  SimulatedDevice device_;
  DriverCallCounter counter_;
  CachingAllocator allocator_;
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_EBBTIDE_MODEL_H_
