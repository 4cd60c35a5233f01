// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/allocator_model.h"

#include <utility>
#include <vector>

namespace ebbtide::bench {

Replay ReplayTrace(const Trace& trace, AllocatorModel* model, bool one_stream) {
  std::vector<AllocatorModel::Handle> blocks(trace.slots, 0);
  Replay replay;
  replay.ok = true;
  for (const TraceOp& op : trace.ops) {
    AllocatorModel::Handle& block = blocks[op.slot];
    if (op.bytes == 0) {
      model->Free(std::exchange(block, 0));
      continue;
    }
    block = model->Allocate(op.bytes, one_stream ? 0 : op.stream);
    if (block == 0) {
      replay.ok = false;
      break;
    }
  }
  replay.peak_held = model->peak_held();
  replay.driver_calls = model->driver_calls();
  for (const AllocatorModel::Handle block : blocks) {
    if (block != 0) model->Free(block);
  }
  return replay;
}

}  // namespace ebbtide::bench
