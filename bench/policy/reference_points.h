// SPDX-License-Identifier: Apache-2.0
//
// Points of the curves that the published DTR simulator gives, one JSON object a line:
// `model, h, ratio, status, overhead`, where `h` is its heuristic's name and further fields are
// ignored. They are what bench/policy/reference.cc holds our simulator to.
//
// Threads: pure functions but for the stream. Ownership: results are the caller's.

#ifndef EBBTIDE_BENCH_POLICY_REFERENCE_POINTS_H_
#define EBBTIDE_BENCH_POLICY_REFERENCE_POINTS_H_

#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ebbtide::bench {

struct ReferencePoint {
  std::string model;    // as the logs' manifest names it
  std::string policy;   // a name of policy/published/heuristics.h
  double ratio = 0;     // budget over the baseline's peak
  std::string status;   // ok, OOM or THRASH
  double overhead = 0;  // time over the baseline's time, at the end or where the run failed
};

// `name` stands in front of the messages of errors.
// Errors: InvalidArgument, with the line, where a field is missing or of the wrong type; and when
// there is no point at all.
absl::StatusOr<std::vector<ReferencePoint>> ReadReferencePoints(const std::string& name,
                                                                std::istream& in);

// Whether a run with this result counts as the same: the same status, and an overhead within 0.1 %.
bool Matches(const ReferencePoint& point, const std::string& status, double overhead);

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_POLICY_REFERENCE_POINTS_H_
