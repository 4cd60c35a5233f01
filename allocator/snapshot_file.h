// SPDX-License-Identifier: Apache-2.0
//
// A snapshot as a file, in the format that the name asks for: RMM's CSV (rmm_csv.h) of the history
// if it ends in ".csv", which replay tools read; else PyTorch's pickle (snapshot_pickle.h) of
// everything, which PyTorch's memory viewer opens.
//
// Pure functions but for the file: safe on any thread, nothing is owned.

#ifndef EBBTIDE_ALLOCATOR_SNAPSHOT_FILE_H_
#define EBBTIDE_ALLOCATOR_SNAPSHOT_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "allocator/rmm_csv.h"
#include "allocator/snapshot.h"

namespace ebbtide {

// The allocations, frees and failed requests of the history, oldest first, in UTC. A free tells the
// size that was asked for; one whose allocation the history no longer remembers is left out, since
// a replay could not free what it never allocated.
std::vector<RmmEvent> RmmEventsOf(const Snapshot& snapshot);

// Replaces the file. Errors: InvalidArgument for a snapshot with gaps (ValidateSnapshot); Unknown
// with the system's words when the file cannot be written.
absl::Status WriteSnapshotFile(const Snapshot& snapshot, const std::string& path);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_SNAPSHOT_FILE_H_
