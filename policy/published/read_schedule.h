// SPDX-License-Identifier: Apache-2.0
//
// Turns a recorded log (tracker/dtr_log.h) into a Schedule, by the published simulator's rules:
//
//   constant      an operator without cost and arguments; its result is pinned at once and for good
//   call          an operator
//   mutate        an operator that makes one new tensor for each one written, as large as the whole
//                 storage; the written names are bound to the new tensors and the old ones
//                 released. Other names of an old tensor keep it.
//   copy          one more name, and one more hold
//   copy from     the destination's old tensor is released, then the source's is held once more
//   release       one hold less. The name stays bound. A name that was bound only before the log's
//                 START is ignored.
//   end of log    a pin for each name, in the order in which names were first bound, whose tensor
//   is
//                 still held by any name: what the program keeps must be in memory at the end.
//
// Threads: a pure function but for the log. Ownership: the result is the caller's. Another format
// gets a function of its own beside this one.

#ifndef EBBTIDE_POLICY_PUBLISHED_READ_SCHEDULE_H_
#define EBBTIDE_POLICY_PUBLISHED_READ_SCHEDULE_H_

#include "absl/status/statusor.h"
#include "policy/published/schedule.h"
#include "tracker/dtr_log.h"

namespace ebbtide::published {

// Reads the log to its end.
// Errors: those of DtrLog::Next; InvalidArgument, with the line, for an argument or a source that
// names nothing, an operator without results, and for a log so large that sums over it would
// overflow (2^48 ns of operators, 2^60 bytes of tensors or 2^30 tensors).
absl::StatusOr<Schedule> ReadSchedule(DtrLog* log);

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_READ_SCHEDULE_H_
