// SPDX-License-Identifier: Apache-2.0
//
// The recorded programs of the DTR prototype: one folder with a log for each (tracker/dtr_log.h)
// and a manifest.json that names them, or an archive with such a folder, logs/.
//
// Threads: pure functions but for the archive (bench/unpacked_archive.h). Ownership: results are
// the caller's. Programs in another format get a reader of their own that fills a DtrProgram.

#ifndef EBBTIDE_BENCH_POLICY_DTR_PROGRAMS_H_
#define EBBTIDE_BENCH_POLICY_DTR_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/published/schedule.h"

namespace ebbtide::bench {

struct DtrProgram {
  std::string name;
  published::Schedule schedule;
  published::Baseline baseline;
};

// All programs, in the order of the manifest. `path` is the archive or the folder that has logs/.
// Errors: NotFound when a file is missing; InvalidArgument when one is not what it should be;
// Internal when an archive cannot be unpacked.
absl::StatusOr<std::vector<DtrProgram>> ReadDtrPrograms(const std::string& path);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_POLICY_DTR_PROGRAMS_H_
