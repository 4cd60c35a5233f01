// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/capture.h"

#include <algorithm>
#include <utility>

namespace ebbtide::hollow {

void Capture::Join(const std::shared_ptr<Stream>& stream, const Clock& before) {
  if (!clocks.contains(stream->id)) streams.push_back(stream);
  Merge(before, &clocks[stream->id]);
}

void Capture::Add(const Stream& stream, Operation operation) {
  ++clocks[stream.id][stream.id];
  graph->operations.push_back(std::move(operation));
}

bool Capture::IsJoined() const {
  const Clock& seen = clocks.at(origin);
  return std::all_of(clocks.begin(), clocks.end(), [&seen](const auto& entry) {
    const auto& [id, clock] = entry;
    const auto own = clock.find(id);
    if (own == clock.end()) return true;  // it joined and did nothing
    const auto waited = seen.find(id);
    return waited != seen.end() && waited->second >= own->second;
  });
}

}  // namespace ebbtide::hollow
