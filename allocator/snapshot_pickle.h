// SPDX-License-Identifier: Apache-2.0
//
// Snapshots as the files that PyTorch writes with torch.cuda.memory._dump_snapshot: its viewer
// (pytorch.org/memory_viz) and its scripts (torch/cuda/_memory_viz.py) open what is written here,
// and what PyTorch wrote can be read here, to be looked at or replayed.
//
// The file is a pickle of one dictionary:
//
//     segments            a list of {device, address, total_size, allocated_size, active_size,
//                         requested_size, stream, segment_type, segment_pool_id, is_expandable,
//                         frames, blocks: a list of {address, size, requested_size, state, frames}}
//     device_traces       for each device a list of {action, addr, size, stream, time_us, frames};
//                         an "oom" has device_free in place of addr
//     allocator_settings  name and value
//     external_annotations  empty
//
// Frames are Python stacks, of which an allocator knows nothing: they are written as empty lists,
// and not read.
//
// Pure functions: safe on any thread, nothing is owned.

#ifndef EBBTIDE_ALLOCATOR_SNAPSHOT_PICKLE_H_
#define EBBTIDE_ALLOCATOR_SNAPSHOT_PICKLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "allocator/snapshot.h"

namespace ebbtide {

// The bytes of the file. Errors: InvalidArgument where ValidateSnapshot finds one, because the
// viewer shows wrong addresses, or nothing, for a picture with gaps.
absl::StatusOr<std::string> SnapshotToPickle(const Snapshot& snapshot);

// Reads the bytes of such a file, from this or another version of PyTorch: what older ones did not
// write is filled in, events and keys of other kinds are skipped. The result is what the file says,
// which ValidateSnapshot may find fault with. Errors: InvalidArgument with the place in the file.
absl::StatusOr<Snapshot> SnapshotFromPickle(std::string bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SNAPSHOT_PICKLE_H_
