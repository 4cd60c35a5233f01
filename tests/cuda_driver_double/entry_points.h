// SPDX-License-Identifier: Apache-2.0
//
// The driver's functions that the double has, as C functions under their own names. Tests that link
// the double call them from here; everybody else finds them in libcuda.so.1.
//
// Threads: any, as with the driver. Ownership: as the driver says. To add one: a line in
// entry_points.inc, which abi_check.cc compares with the toolkit's header, and its definition.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_ENTRY_POINTS_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_ENTRY_POINTS_H_

#include <cstddef>
#include <cstdint>

#include "tests/cuda_driver_double/cuda_abi.h"

namespace ebbtide::hollow {

extern "C" {
#define ENTRY(name, needs, parameters) [[gnu::visibility("default")]] Result name parameters;
#include "tests/cuda_driver_double/entry_points.inc"
#undef ENTRY
}

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_ENTRY_POINTS_H_
