// SPDX-License-Identifier: Apache-2.0
//
// FailureInjector counts the calls to a simulated driver and makes the Nth fail: of one kind or of
// any, once or from then on. Running a load once for every N walks every error path of what stands
// on the driver, as SQLite does with its memory allocator (https://www.sqlite.org/testing.html).
//
// Thread-safe: one lock, under which nothing is called. Ownership: SimulatedDevice owns one;
// SimulatedStreams shares it, so that "any call" counts both.

#ifndef EBBTIDE_ALLOCATOR_FAILURE_INJECTOR_H_
#define EBBTIDE_ALLOCATOR_FAILURE_INJECTOR_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "absl/status/status.h"

namespace ebbtide {

// The calls that may fail.
enum class DriverCall { kReserve, kCommit, kDecommit, kMove, kUnreserve, kRecord };
inline constexpr int kDriverCalls = 6;

class FailureInjector {
 public:
  // Makes call number `n` from now (1 is the next) fail, and with `for_ever` all later ones too.
  // 0 means never. Takes the place of what was asked for before, whatever its kind.
  void FailAt(int64_t n, bool for_ever = false) { Plan(std::nullopt, n, for_ever); }

  // The same, counting and failing only calls of one kind.
  void FailAt(DriverCall kind, int64_t n, bool for_ever = false) { Plan(kind, n, for_ever); }

  // Counts a call. Errors: ResourceExhausted when it is one that is to fail.
  absl::Status Count(DriverCall kind);

  // Calls so far, failed ones included.
  int64_t calls() const;
  int64_t calls(DriverCall kind) const;

 private:
  void Plan(std::optional<DriverCall> kind, int64_t n, bool for_ever);
  int64_t Counted(std::optional<DriverCall> kind) const;

  mutable std::mutex mutex_;
  std::array<int64_t, kDriverCalls> calls_{};
  std::optional<DriverCall> kind_;  // none is any
  int64_t fail_at_ = 0;             // absolute number among calls of kind_, 0 is never
  bool for_ever_ = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_FAILURE_INJECTOR_H_
