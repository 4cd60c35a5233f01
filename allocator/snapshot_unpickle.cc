// SPDX-License-Identifier: Apache-2.0
//
// The reading half of snapshot_pickle.h.

#include <limits>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "allocator/pickle_reader.h"
#include "allocator/snapshot_pickle.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

using Value = Pickle::Value;

// A value of the file, where it stands there, and how many more elements and entries may be looked
// at: as many as the file has bytes. Honest files stay far below that; but lists that share their
// elements, and these theirs, could keep a reader busy for ever.
class Record {
 public:
  Record(Value value, std::string place, int64_t* left)
      : value_(value), place_(std::move(place)), left_(left) {}

  absl::Status Error(absl::string_view key, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("snapshot: ", place_, ".", key, ": ", what));
  }

  std::optional<Value> Find(absl::string_view key) const { return value_.Find(key); }

  // A number; `absent` when there is none.
  absl::StatusOr<int64_t> Int(absl::string_view key, std::optional<int64_t> absent) const {
    const std::optional<Value> found = Find(key);
    if (!found.has_value() && absent.has_value()) return *absent;
    if (!found.has_value()) return Error(key, "is missing");
    const std::optional<int64_t> number = found->AsInt();
    if (!number.has_value()) return Error(key, "is no integer");
    return *number;
  }

  absl::StatusOr<Bytes> Size(absl::string_view key, std::optional<int64_t> absent) const {
    EBB_ASSIGN_OR_RETURN(const int64_t count, Int(key, absent));
    if (count < 0) return Error(key, "is negative");
    return Bytes(count);
  }

  absl::string_view String(absl::string_view key) const {
    const std::optional<Value> found = Find(key);
    return found.has_value() ? found->AsString().value_or("") : "";
  }

  // Reads the elements of this list, one after the other.
  absl::Status ForEach(absl::FunctionRef<absl::Status(const Record&, int64_t)> read) const {
    if (value_.kind() != Pickle::Kind::kList && value_.kind() != Pickle::Kind::kTuple) {
      return absl::InvalidArgumentError(absl::StrCat("snapshot: ", place_, " is no list"));
    }
    for (int64_t i = 0; i < value_.size(); ++i) {
      *left_ -= 1 + value_.at(i).size();
      if (*left_ < 0) return absl::InvalidArgumentError("snapshot: lists share their elements");
      EBB_RETURN_IF_ERROR(read(Record(value_.at(i), absl::StrCat(place_, "[", i, "]"), left_), i));
    }
    return absl::OkStatus();
  }

  // The same for the list under a key; when there is none, there is nothing to do.
  absl::Status ForEach(absl::string_view key,
                       absl::FunctionRef<absl::Status(const Record&, int64_t)> read) const {
    const std::optional<Value> list = Find(key);
    if (!list.has_value()) return absl::OkStatus();
    return Record(*list, absl::StrCat(place_, ".", key), left_).ForEach(read);
  }

 private:
  const Value value_;
  const std::string place_;
  int64_t* const left_;
};

template <typename Enum>
std::optional<Enum> FromWord(absl::string_view word, int count) {
  for (int i = 0; i < count; ++i) {
    if (word == Word(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

absl::StatusOr<BlockPicture> ReadBlock(const Record& record, uint64_t address) {
  BlockPicture block;
  const absl::string_view word = record.String("state");
  std::optional<BlockState> state = FromWord<BlockState>(word, 3);
  if (word == "active_awaiting_free") state = BlockState::kActiveAwaitingFree;
  if (!state.has_value()) return record.Error("state", absl::StrCat("'", word, "' is unknown"));
  block.state = *state;
  EBB_ASSIGN_OR_RETURN(block.size, record.Size("size", std::nullopt));
  // PyTorch 2.0 and before wrote no address.
  EBB_ASSIGN_OR_RETURN(const int64_t at, record.Int("address", static_cast<int64_t>(address)));
  block.address = static_cast<uint64_t>(at);
  if (block.state != BlockState::kInactive) {  // a free one may still say what it held last
    EBB_ASSIGN_OR_RETURN(block.requested, record.Size("requested_size", block.size.count()));
  }
  return block;
}

absl::StatusOr<int> ReadDevice(const Record& record) {
  EBB_ASSIGN_OR_RETURN(const int64_t device, record.Int("device", 0));
  if (device < 0 || device > std::numeric_limits<int>::max() - 1) {
    return record.Error("device", "is no device");
  }
  return static_cast<int>(device);
}

absl::StatusOr<SegmentPicture> ReadSegment(const Record& record) {
  SegmentPicture segment;
  EBB_ASSIGN_OR_RETURN(const int64_t address, record.Int("address", std::nullopt));
  segment.address = static_cast<uint64_t>(address);
  EBB_ASSIGN_OR_RETURN(segment.size, record.Size("total_size", std::nullopt));
  EBB_ASSIGN_OR_RETURN(segment.device, ReadDevice(record));
  EBB_ASSIGN_OR_RETURN(const int64_t stream, record.Int("stream", 0));
  segment.stream = static_cast<StreamId>(stream);
  if (record.String("segment_type") == Word(SegmentType::kSmall))
    segment.type = SegmentType::kSmall;
  if (const auto expandable = record.Find("is_expandable"); expandable.has_value()) {
    segment.expandable = expandable->AsBool().value_or(false);
  }
  const auto pool = record.Find("segment_pool_id");
  if (pool.has_value() && pool->kind() == Pickle::Kind::kTuple && pool->size() == 2) {
    segment.pool = {pool->at(0).AsInt().value_or(0), pool->at(1).AsInt().value_or(0)};
  }
  uint64_t end = segment.address;
  EBB_RETURN_IF_ERROR(record.ForEach("blocks", [&](const Record& each, int64_t) -> absl::Status {
    EBB_ASSIGN_OR_RETURN(BlockPicture block, ReadBlock(each, end));
    end = block.address + static_cast<uint64_t>(block.size.count());
    segment.blocks.push_back(block);
    return absl::OkStatus();
  }));
  return segment;
}

absl::Status ReadEvent(const Record& record, int device, Snapshot* snapshot) {
  const absl::string_view word = record.String("action");
  if (word.empty()) return record.Error("action", "is missing");
  const std::optional<HistoryAction> action = FromWord<HistoryAction>(word, kHistoryActions);
  if (!action.has_value()) return absl::OkStatus();  // an annotation of the program's own
  HistoryEvent event;
  event.action = *action;
  event.device = device;
  const bool oom = *action == HistoryAction::kOom;
  EBB_ASSIGN_OR_RETURN(const int64_t address, record.Int(oom ? "device_free" : "addr", 0));
  event.address = static_cast<uint64_t>(address);
  EBB_ASSIGN_OR_RETURN(event.size, record.Size("size", 0));
  EBB_ASSIGN_OR_RETURN(const int64_t stream, record.Int("stream", 0));
  event.stream = static_cast<StreamId>(stream);
  EBB_ASSIGN_OR_RETURN(event.time_us, record.Int("time_us", 0));
  snapshot->history.push_back(event);
  return absl::OkStatus();
}

absl::Status ReadTraces(const Record& root, Snapshot* snapshot) {
  return root.ForEach("device_traces", [&](const Record& trace, int64_t device) {
    return trace.ForEach([&](const Record& event, int64_t) {
      return ReadEvent(event, static_cast<int>(device), snapshot);
    });
  });
}

void ReadSettings(const Record& root, Snapshot* snapshot) {
  const std::optional<Value> settings = root.Find("allocator_settings");
  if (!settings.has_value() || settings->kind() != Pickle::Kind::kDict) return;
  for (int64_t i = 0; i < settings->size(); ++i) {
    const auto [name, value] = settings->entry(i);
    std::string text(value.AsString().value_or(""));
    if (const auto number = value.AsInt()) text = absl::StrCat(*number);
    if (const auto real = value.AsFloat()) text = absl::StrCat(*real);
    if (const auto flag = value.AsBool()) text = *flag ? "True" : "False";
    snapshot->settings.emplace_back(name.AsString().value_or(""), std::move(text));
  }
}

}  // namespace

absl::StatusOr<Snapshot> SnapshotFromPickle(std::string bytes) {
  auto left = static_cast<int64_t>(bytes.size());
  EBB_ASSIGN_OR_RETURN(const std::unique_ptr<const Pickle> pickle, Pickle::Parse(std::move(bytes)));
  const Record root(pickle->root(), "file", &left);
  if (!root.Find("segments").has_value()) {
    return absl::InvalidArgumentError(
        "snapshot: the file is no dictionary with the key 'segments'");
  }
  Snapshot snapshot;
  EBB_RETURN_IF_ERROR(root.ForEach("segments", [&](const Record& record, int64_t) -> absl::Status {
    EBB_ASSIGN_OR_RETURN(SegmentPicture segment, ReadSegment(record));
    snapshot.segments.push_back(std::move(segment));
    return absl::OkStatus();
  }));
  EBB_RETURN_IF_ERROR(ReadTraces(root, &snapshot));
  ReadSettings(root, &snapshot);
  return snapshot;
}

}  // namespace ebbtide
