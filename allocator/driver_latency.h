// SPDX-License-Identifier: Apache-2.0
//
// DriverLatency is what the calls of a driver cost that put memory behind addresses. A piece is
// created, mapped and made accessible, and later unmapped, each by a call of its own whose cost
// hardly depends on the size of the piece: that is why large pieces pay. SimulatedDevice charges
// these costs to its virtual clock.
//
// The figures are averages over 4096 pieces of 2 MiB on one thread, from the sample output in
// benchmarks/bench_vmm/README.md of https://github.com/ovg-project/kvcached. It has no figure for
// releasing a piece or for giving addresses back: both are free here. On other machines, and with
// several threads or a busy device, calls may be many times slower; measure before you trust one.
//
// Plain values: safe on any thread, owns nothing. For another machine, fill in what you measured.

#ifndef EBBTIDE_ALLOCATOR_DRIVER_LATENCY_H_
#define EBBTIDE_ALLOCATOR_DRIVER_LATENCY_H_

#include "base/clock.h"

namespace ebbtide {

struct DriverLatency {
  Nanos reserve{0};     // addresses, of any size
  Nanos create{0};      // per piece
  Nanos map{0};         // per piece
  Nanos set_access{0};  // per piece
  Nanos unmap{0};       // per piece

  // An A100 of 80 GB, where making a piece dominates.
  static constexpr DriverLatency A100() {
    return {.reserve = Nanos(19'000),
            .create = Nanos(193'320),
            .map = Nanos(1'450),
            .set_access = Nanos(35'990),
            .unmap = Nanos(25'630)};
  }

  // The second machine of the same page (its device is not named), where access does.
  static constexpr DriverLatency QuickCreate() {
    return {.reserve = Nanos(9'000),
            .create = Nanos(7'600),
            .map = Nanos(1'050),
            .set_access = Nanos(20'800),
            .unmap = Nanos(11'500)};
  }

  // All calls are free.
  static constexpr DriverLatency None() { return {}; }

  constexpr Nanos Commit() const { return create + map + set_access; }  // per piece
  constexpr Nanos Decommit() const { return unmap; }                    // per piece
  constexpr Nanos Move() const { return unmap + map + set_access; }     // per piece
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_DRIVER_LATENCY_H_
