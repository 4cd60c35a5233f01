// SPDX-License-Identifier: Apache-2.0
//
// What a managed process tells at its end: a few lines on stderr and, if asked for, the statistics
// file (its format is part of docs/options.md).
//
// Threads: once, at exit. A forked child writes its file but no lines.

#ifndef EBBTIDE_PYTORCH_BACKEND_EXIT_REPORT_H_
#define EBBTIDE_PYTORCH_BACKEND_EXIT_REPORT_H_

#include <string>

#include "base/clock.h"
#include "pytorch/backend/manager.h"

namespace ebbtide {

struct ProcessFacts {
  std::string torch_version;
  Nanos started{0};
};

// The text of the statistics file.
std::string StatisticsJson(const Manager& manager, const ProcessFacts& facts);

// The summary, at most ten lines.
std::string Summary(const Manager& manager, const ProcessFacts& facts);

// Writes both as the options say.
void WriteExitReport(Manager& manager, const ProcessFacts& facts);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_EXIT_REPORT_H_
