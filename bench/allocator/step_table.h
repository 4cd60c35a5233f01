// SPDX-License-Identifier: Apache-2.0
//
// What an allocator does to a step of training on the processor: step_ratio.py trains with plain
// PyTorch, with Ebbtide and with each allocator preloaded, all in turn.
//
// Threads: one at a time. Ownership: nothing is kept. Other networks: step_ratio.py.

#ifndef EBBTIDE_BENCH_ALLOCATOR_STEP_TABLE_H_
#define EBBTIDE_BENCH_ALLOCATOR_STEP_TABLE_H_

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/allocator/speed_table.h"
#include "nlohmann/json.hpp"

namespace ebbtide::bench {

// The interpreter of the source tree's own environment, else the one that tools/test makes.
std::string DefaultPython(const std::filesystem::path& source_tree);

struct StepOptions {
  std::string python;
  std::string source_tree;
  std::string library;  // libebbtide.so; empty: what step_ratio.py finds
  bool quick = false;
};

// Prints the table and fills (*json)["step_ratio"][PROGRAM][ALLOCATOR]: the median of the ratio
// to plain PyTorch. Errors: NotFound when there is no interpreter, or none with torch; Internal
// when a measurement failed.
absl::Status PrintStep(const StepOptions& options,
                       const std::vector<PreloadedAllocator>& preloadable, std::ostream& out,
                       nlohmann::ordered_json* json);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_STEP_TABLE_H_
