// SPDX-License-Identifier: Apache-2.0
//
// What a program asked of its allocator, in order: the common form of logs from several sources, to
// be replayed on any allocator (trace_replay.h). A trace is whole in itself: every free has its
// allocation before it, no block is freed twice, and nothing has size 0. What a log says beyond
// that is left out and counted.
//
// Plain values and pure functions: safe on any thread, nothing is owned. For a log in another
// format, give its lines to a TraceBuilder.

#ifndef EBBTIDE_ALLOCATOR_ALLOCATION_TRACE_H_
#define EBBTIDE_ALLOCATOR_ALLOCATION_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "allocator/rmm_csv.h"
#include "allocator/snapshot.h"
#include "allocator/stream_order.h"
#include "base/bytes.h"

namespace ebbtide {

struct AllocationEvent {
  enum class Kind : uint8_t { kAllocate, kFree };

  Kind kind = Kind::kAllocate;
  int64_t id = 0;  // the allocation's number in the trace, from 0; in a free, what it frees
  Bytes bytes;     // of the allocation, at least 1; the same in its free
  StreamId stream = kDefaultStream;  // on which it happens: a free may name another one
  int64_t thread = 0;
  int64_t time_us = 0;  // since a start that differs from source to source
  friend bool operator==(const AllocationEvent&, const AllocationEvent&) = default;
};

struct AllocationTrace {
  std::vector<AllocationEvent> events;
  int64_t allocations = 0;
  Bytes peak_live;         // the most bytes that were asked for and not yet freed
  int64_t left_out = 0;    // frees of blocks that the log does not know, and what has size 0
  int64_t unanswered = 0;  // allocations that had failed where the log was written
};

// Makes a trace out of a log that names blocks by keys, such as addresses, which it uses again.
class TraceBuilder {
 public:
  // The event's id is ignored. Errors: InvalidArgument for a key that is live, a negative size, or
  // more live bytes than any machine has.
  absl::Status Allocate(uint64_t key, AllocationEvent event);

  // The event's id and bytes are ignored. A key that is not live is left out and counted.
  void Free(uint64_t key, AllocationEvent event);

  bool IsLive(uint64_t key) const { return live_.contains(key); }

  // What was given until now. Ends the builder.
  AllocationTrace Build() &&;

  AllocationTrace& trace() { return trace_; }

 private:
  AllocationTrace trace_;
  Bytes live_bytes_;
  absl::flat_hash_map<uint64_t, size_t> live_;  // to the allocation's place in trace_.events
};

// Blocks of a PyTorch snapshot that were there before its history began: their allocations can be
// put before everything else, or they and their frees be left out.
enum class EarlierBlocks { kInclude, kLeaveOut };

// Each reads one source. A block is freed where the program gives it back (free_requested), not
// where the allocator found out that its streams are done.
// Errors: InvalidArgument, as TraceBuilder's, with the number of the event.
absl::StatusOr<AllocationTrace> TraceFromRmm(absl::Span<const RmmEvent> events);
absl::StatusOr<AllocationTrace> TraceFromSnapshot(const Snapshot& snapshot, int device,
                                                  EarlierBlocks earlier);

// CSV with the header seq,op,id,bytes,stream,t_us; `op` is a for allocate or f for free, an id any
// word without a comma, the rest numbers.
// Errors: InvalidArgument with the number of the line.
absl::StatusOr<AllocationTrace> TraceFromCsv(absl::string_view text);

// Reads a file in any of the three formats, which it knows by their beginnings; of a snapshot, the
// first device with a history, with earlier blocks. Errors: also NotFound.
absl::StatusOr<AllocationTrace> ReadTraceFile(const std::string& path);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_ALLOCATION_TRACE_H_
