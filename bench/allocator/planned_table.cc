// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/planned_table.h"

#include <algorithm>
#include <array>
#include <ostream>

#include "absl/strings/str_format.h"
#include "bench/allocator/ebbtide_model.h"

namespace ebbtide::bench {
namespace {

constexpr int kIterations = 8;
constexpr int64_t kUnlimited = int64_t{1} << 40;

// A trace with the request of each free, and the requests that are never freed.
struct Program {
  explicit Program(const Trace& trace) : ops(trace.ops), request(ops.size()), stays(ops.size()) {
    std::vector<size_t> latest(trace.slots);
    std::vector<bool> live(trace.slots);
    for (size_t i = 0; i < ops.size(); ++i) {
      live[ops[i].slot] = ops[i].bytes > 0;
      if (ops[i].bytes > 0) latest[ops[i].slot] = i;
      request[i] = latest[ops[i].slot];
    }
    for (uint32_t slot = 0; slot < trace.slots; ++slot) {
      if (live[slot]) stays[latest[slot]] = true;
    }
  }
  const std::vector<TraceOp>& ops;
  std::vector<size_t> request;
  std::vector<bool> stays;
};

struct Outcome {
  double waste = 0;
  double calls = 0;    // per thousand requests
  double planned = 0;  // part of the requests
};

// The last of several iterations.
Outcome RunSteady(const Program& program, const EbbtideModel::Kind& kind) {
  EbbtideModel model(kUnlimited, kind);
  std::vector<AllocatorModel::Handle> blocks(program.ops.size());
  int64_t live = 0, peak_live = 0, requests = 0, calls = 0, planned = 0;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    model.allocator().ResetPeaks();
    peak_live = live;
    requests = 0;
    calls = model.driver_calls();
    planned = model.allocator().stats().planned;
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const TraceOp& op = program.ops[i];
      const size_t request = program.request[i];
      if (op.bytes == 0) {
        model.Free(blocks[request]);
        live -= program.ops[request].bytes;
      } else if (iteration == 0 || !program.stays[i]) {
        blocks[i] = model.Allocate(op.bytes, op.stream);
        live += op.bytes;
        peak_live = std::max(peak_live, live);
        ++requests;
      }
    }
  }
  const double of_requests = 1.0 / static_cast<double>(std::max<int64_t>(requests, 1));
  return {1.0 - static_cast<double>(peak_live) / static_cast<double>(model.peak_held()),
          1e3 * of_requests * static_cast<double>(model.driver_calls() - calls),
          of_requests * static_cast<double>(model.allocator().stats().planned - planned)};
}

}  // namespace

void PrintPlanned(const std::vector<Trace>& traces, std::ostream& out,
                  nlohmann::ordered_json* json) {
  out << absl::StrFormat("planned: iteration %d of a trace that repeats itself\n", kIterations)
      << absl::StrFormat("%-54s %27s %43s\n", "", "waste %: parts, whole",
                         "driver calls per 1000: parts, whole")
      << absl::StrFormat("%-54s %6s %6s %6s %6s %9s %6s %6s %6s %8s\n", "plan", "off", "on", "off",
                         "on", "off", "on", "off", "on", "placed");
  std::array<std::vector<double>, 4> wastes;
  for (const Trace& trace : traces) {
    const Program program(trace);
    std::array<Outcome, 4> outcomes;
    for (int i = 0; i < 4; ++i) {
      const bool whole = i >= 2, plans = i % 2 == 1;
      outcomes[i] = RunSteady(program, {.whole = whole, .planned = plans});
      wastes[i].push_back(outcomes[i].waste);
      (*json)["planned"][trace.name][whole ? "whole" : "parts"][plans ? "on" : "off"] = {
          {"waste", outcomes[i].waste}, {"driver_calls", outcomes[i].calls}};
    }
    out << absl::StrFormat("%-54s", trace.name.substr(0, 54));
    for (const Outcome& each : outcomes) out << absl::StrFormat(" %6.2f", 100 * each.waste);
    out << "   ";
    for (const Outcome& each : outcomes) out << absl::StrFormat(" %6.1f", each.calls);
    out << absl::StrFormat(" %6.0f %%\n", 100 * outcomes[3].planned) << std::flush;
  }
  out << absl::StrFormat("%-54s", "median");
  for (std::vector<double>& each : wastes) {
    std::nth_element(each.begin(), each.begin() + each.size() / 2, each.end());
    out << absl::StrFormat(" %6.2f", 100 * each[each.size() / 2]);
  }
  out << "\n\n" << std::flush;
}

}  // namespace ebbtide::bench
