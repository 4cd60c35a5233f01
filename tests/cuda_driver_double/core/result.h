// SPDX-License-Identifier: Apache-2.0
//
// The result codes of the CUDA driver that the double gives, under names of our own and with the
// numbers of the driver's ABI; the CUDA runtime uses the same numbers. They are what the core
// returns instead of a Status, because tests compare them with what a real driver says.
//
// Plain values: any thread, nothing owned. To add one: a line in core/result.inc.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_RESULT_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_RESULT_H_

namespace ebbtide::hollow {

enum class [[nodiscard]] Result : int{
#define RESULT(name, number, driver_name, text) name = number,
#include "tests/cuda_driver_double/core/result.inc"
#undef RESULT
};

// The driver's name for the code ("CUDA_ERROR_OUT_OF_MEMORY"), or null for an unknown one.
const char* ResultName(Result result);

// A short text for people, or null for an unknown code.
const char* ResultText(Result result);

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_RESULT_H_
