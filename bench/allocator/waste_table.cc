// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/waste_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "bench/allocator/allocator_model.h"
#include "bench/allocator/async_model.h"
#include "bench/allocator/ebbtide_model.h"
#include "bench/allocator/expandable_model.h"
#include "bench/allocator/native_model.h"

namespace ebbtide::bench {
namespace {

constexpr double kMiB = 1 << 20;
constexpr int64_t kUnlimited = int64_t{1} << 40;

struct Column {
  const char* name;
  std::unique_ptr<AllocatorModel> (*make)(int64_t limit);
};

template <typename Model>
std::unique_ptr<AllocatorModel> Make(int64_t limit) {
  return std::make_unique<Model>(limit);
}

constexpr std::array<Column, 4> kColumns = {{
    {"ebbtide", Make<EbbtideModel>},
    {"native", Make<NativeModel>},
    {"expandable", Make<ExpandableModel>},
    {"async", Make<AsyncModel>},
}};

// What an independent simulation of PyTorch's two allocators held for the same traces, in MiB, all
// requests taken for those of one stream.
struct Figure {
  const char* trace;
  int64_t native;
  int64_t expandable;
};

constexpr Figure kFigures[] = {
    {"dtr-inceptionv4", 13130, 10780},
    {"dtr-tv_densenet121", 11794, 10552},
    {"dtr-unet", 9020, 8224},
    {"dtr-resnet32", 10174, 9604},
    {"dtr-transformer", 9586, 9428},
    {"dtr-lstm", 5438, 5390},
    {"dtr-treelstm", 192, 190},
    {"dtr-unroll_gan", 242, 242},
    {"kineto-resnet50_num_workers_0-worker0.1623143089861", 3196, 2682},
    {"hta-df_index_resolver", 2640, 2518},
    {"torch-kkaitlyn111-memory_files-memory_ctx128_fullstep", 45154, 39978},
    {"torch-kkaitlyn111-memory_files-memory_ctx256_fullstep_", 45098, 40774},
    {"torch-kkaitlyn111-memory_files-memory_ctx512_fullstep_", 46948, 40028},
    {"torch-MAGMA27-memory_snapshot", 12336, 12316},
};

Replay RunOne(const Trace& trace, const Column& column, int64_t limit, bool one_stream = false) {
  const std::unique_ptr<AllocatorModel> model = column.make(limit);
  return ReplayTrace(trace, model.get(), one_stream);
}

double Waste(const Trace& trace, const Replay& replay) {
  return 1.0 - static_cast<double>(trace.peak_live) / replay.peak_held;
}

// The middle value; of an even number of values the upper one of the two.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void PrintHead(std::ostream& out, absl::string_view first) {
  out << absl::StrFormat("%-66s", first);
  for (const Column& column : kColumns) out << absl::StrFormat(" %10s", column.name);
  out << '\n';
}

void PrintFigures(const std::vector<Trace>& traces, std::ostream& out) {
  out << "\nthe models beside an independent simulation of the same rules, MiB (theirs, ours)\n";
  double worst = 0;
  for (const Figure& figure : kFigures) {
    const auto trace = std::find_if(traces.begin(), traces.end(),
                                    [&](const Trace& each) { return each.name == figure.trace; });
    if (trace == traces.end()) continue;
    const double native = RunOne(*trace, kColumns[1], kUnlimited, true).peak_held / kMiB;
    const double expandable = RunOne(*trace, kColumns[2], kUnlimited, true).peak_held / kMiB;
    worst = std::max({worst, std::abs(native / figure.native - 1),
                      std::abs(expandable / figure.expandable - 1)});
    out << absl::StrFormat("%-66s native %6d %6.0f  expandable %6d %6.0f\n", figure.trace,
                           figure.native, native, figure.expandable, expandable);
  }
  out << absl::StrFormat("largest difference %.2f %%\n\n", 100 * worst) << std::flush;
}

}  // namespace

void PrintWaste(const std::vector<Trace>& traces, std::ostream& out, nlohmann::ordered_json* json) {
  std::array<std::vector<double>, kColumns.size()> wastes;
  std::string calls;
  out << "waste: 1 - peak live / peak held, no limit on either\n";
  PrintHead(out, absl::StrFormat("%-54s %11s", "", "live MiB"));
  for (const Trace& trace : traces) {
    out << absl::StrFormat("%-54s %11.1f", trace.name.substr(0, 54), trace.peak_live / kMiB);
    calls += absl::StrFormat("%-66s", trace.name.substr(0, 66));
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const Replay replay = RunOne(trace, kColumns[i], kUnlimited);
      const double waste = Waste(trace, replay);
      const double per_thousand = 1e3 * replay.driver_calls / trace.requests;
      wastes[i].push_back(waste);
      out << absl::StrFormat(" %8.2f %%", 100 * waste);
      calls += absl::StrFormat(" %10.1f", per_thousand);
      (*json)["waste"][trace.name][kColumns[i].name] = waste;
      (*json)["driver_calls"][trace.name][kColumns[i].name] = per_thousand;
    }
    out << '\n';
    calls += '\n';
  }
  out << absl::StrFormat("%-66s", "median");
  for (const auto& each : wastes) out << absl::StrFormat(" %8.2f %%", 100 * Median(each));
  out << absl::StrFormat("\n%-66s", "worst");
  for (const auto& each : wastes) {
    out << absl::StrFormat(" %8.2f %%", 100 * *std::max_element(each.begin(), each.end()));
  }
  out << "\n\ndriver calls per thousand requests\n";
  PrintHead(out, "");
  out << calls;
  PrintFigures(traces, out);
}

void PrintTight(const std::vector<Trace>& traces, std::ostream& out, nlohmann::ordered_json* json) {
  out << "tight: at most 102 % of peak live held\n";
  PrintHead(out, "");
  for (const Trace& trace : traces) {
    out << absl::StrFormat("%-66s", trace.name.substr(0, 66));
    for (const Column& column : kColumns) {
      const bool ok = RunOne(trace, column, trace.peak_live * 51 / 50).ok;
      out << absl::StrFormat(" %10s", ok ? "ok" : "oom");
      if (&column == &kColumns[0]) (*json)["tight"][trace.name] = ok ? "ok" : "oom";
    }
    out << '\n';
  }
  out << '\n' << std::flush;
}

}  // namespace ebbtide::bench
