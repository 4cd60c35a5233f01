// SPDX-License-Identifier: Apache-2.0

#include "allocator/snapshot_pickle.h"

#include <algorithm>

#include "allocator/pickle_writer.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

struct Totals {
  Bytes allocated, active, requested;
};

Totals AddUp(const SegmentPicture& segment) {
  Totals totals;
  for (const BlockPicture& block : segment.blocks) {
    if (block.state == BlockState::kInactive) continue;
    totals.active += block.size;
    totals.requested += block.requested;
    if (block.state == BlockState::kActiveAllocated) totals.allocated += block.size;
  }
  return totals;
}

void WriteFrames(PickleWriter* pickle) { pickle->Key("frames").BeginList().EndList(); }

void WriteBlock(const BlockPicture& block, PickleWriter* pickle) {
  pickle->BeginDict();
  pickle->Key("address").Unsigned(block.address);
  pickle->Key("size").Int(block.size.count());
  pickle->Key("requested_size").Int(block.requested.count());
  pickle->Key("state").String(Word(block.state));
  WriteFrames(pickle);
  pickle->EndDict();
}

void WriteSegment(const SegmentPicture& segment, PickleWriter* pickle) {
  const Totals totals = AddUp(segment);
  pickle->BeginDict();
  pickle->Key("device").Int(segment.device);
  pickle->Key("address").Unsigned(segment.address);
  pickle->Key("total_size").Int(segment.size.count());
  pickle->Key("allocated_size").Int(totals.allocated.count());
  pickle->Key("active_size").Int(totals.active.count());
  pickle->Key("requested_size").Int(totals.requested.count());
  pickle->Key("stream").Unsigned(segment.stream);
  pickle->Key("segment_type").String(Word(segment.type));
  pickle->Key("segment_pool_id").IntPair(segment.pool.first, segment.pool.second);
  pickle->Key("is_expandable").Bool(segment.expandable);
  WriteFrames(pickle);
  pickle->Key("blocks").BeginList();
  for (const BlockPicture& block : segment.blocks) WriteBlock(block, pickle);
  pickle->EndList().EndDict();
}

void WriteEvent(const HistoryEvent& event, PickleWriter* pickle) {
  pickle->BeginDict();
  pickle->Key("action").String(Word(event.action));
  pickle->Key(event.action == HistoryAction::kOom ? "device_free" : "addr").Unsigned(event.address);
  pickle->Key("size").Int(event.size.count());
  pickle->Key("stream").Unsigned(event.stream);
  pickle->Key("time_us").Int(event.time_us);
  WriteFrames(pickle);
  pickle->EndDict();
}

void WriteTraces(const Snapshot& snapshot, PickleWriter* pickle) {
  // The viewer looks up the list of each device that has a segment.
  int devices = 1;
  for (const SegmentPicture& segment : snapshot.segments) {
    devices = std::max(devices, segment.device + 1);
  }
  for (const HistoryEvent& event : snapshot.history) devices = std::max(devices, event.device + 1);
  pickle->BeginList();
  for (int device = 0; device < devices; ++device) {
    pickle->BeginList();
    for (const HistoryEvent& event : snapshot.history) {
      if (event.device == device) WriteEvent(event, pickle);
    }
    pickle->EndList();
  }
  pickle->EndList();
}

}  // namespace

absl::StatusOr<std::string> SnapshotToPickle(const Snapshot& snapshot) {
  EBB_RETURN_IF_ERROR(ValidateSnapshot(snapshot));
  std::string bytes;
  PickleWriter pickle(&bytes);
  pickle.BeginDict();
  pickle.Key("segments").BeginList();
  for (const SegmentPicture& segment : snapshot.segments) WriteSegment(segment, &pickle);
  pickle.EndList();
  pickle.Key("device_traces");
  WriteTraces(snapshot, &pickle);
  pickle.Key("allocator_settings").BeginDict();
  for (const auto& [name, value] : snapshot.settings) pickle.Key(name).String(value);
  pickle.EndDict();
  pickle.Key("external_annotations").BeginList().EndList();
  pickle.EndDict().Finish();
  return bytes;
}

}  // namespace ebbtide
