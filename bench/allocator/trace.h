// SPDX-License-Identifier: Apache-2.0
//
// Recorded sequences of allocations and frees, as the benchmarks replay them. A file has one line
// for each event, `seq,op,id,bytes,stream,t_us` with op `a` or `f`, under a header line; a folder
// or a tar archive (what GNU tar reads) holds one file for each trace, NAME.csv.
//
// Threads: pure functions but for the archive, which is unpacked by a child process into a folder
// of its own, gone again at return. Ownership: the result is the caller's. Another format gets a
// reader of its own that fills a Trace.

#ifndef EBBTIDE_BENCH_ALLOCATOR_TRACE_H_
#define EBBTIDE_BENCH_ALLOCATOR_TRACE_H_

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ebbtide::bench {

// A request when `bytes` is positive, else the free of what the request of that slot got. A slot
// is in use by one block at a time and reused after its free, so slots are as many as there were
// blocks live at once.
struct TraceOp {
  int64_t bytes = 0;
  uint32_t slot = 0;
  uint32_t stream = 0;  // numbered from 0 in the order of first appearance
};

struct Trace {
  std::string name;
  std::vector<TraceOp> ops;
  uint32_t slots = 0;
  int64_t requests = 0;
  int64_t peak_live = 0;  // the most requested bytes that were live at once

  // Adds an event and keeps the sums. `*live` is the sum of live bytes, the caller's to keep.
  void Add(TraceOp op, int64_t size, int64_t* live);
};

// Reads one trace. Requests of no bytes, and their frees, are left out: they get no block.
// Errors: InvalidArgument with the number of the line that is none.
absl::StatusOr<Trace> ReadTrace(const std::string& name, std::istream& in);

// All traces of a folder or an archive, in the order of their names.
// Errors: NotFound when there is nothing at `path` or no trace in it; those of ReadTrace; Internal
// when an archive cannot be unpacked.
absl::StatusOr<std::vector<Trace>> ReadTraces(const std::string& path);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_ALLOCATOR_TRACE_H_
