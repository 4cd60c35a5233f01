// SPDX-License-Identifier: Apache-2.0

#include "allocator/allocation_trace.h"

#include <cstdlib>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "allocator/snapshot_pickle.h"
#include "allocator/trace_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;
using Kind = AllocationEvent::Kind;
using testing::HasSubstr;

// Kind, id and bytes of each event, as text: "a0:100 f0:100".
std::string Shape(const AllocationTrace& trace) {
  std::string shape;
  for (const AllocationEvent& event : trace.events) {
    absl::StrAppend(&shape, shape.empty() ? "" : " ", event.kind == Kind::kFree ? "f" : "a",
                    event.id, ":", event.bytes.count());
  }
  return shape;
}

AllocationEvent Asked(int64_t bytes) { return {.bytes = Bytes(bytes)}; }

TEST(TraceBuilderTest, KeysAreUsedAgainAndIdsAreNot) {
  TraceBuilder builder;
  ASSERT_TRUE(builder.Allocate(7, Asked(100)).ok());
  ASSERT_TRUE(builder.Allocate(8, Asked(50)).ok());
  EXPECT_TRUE(builder.IsLive(7));
  builder.Free(7, Asked(3));
  EXPECT_FALSE(builder.IsLive(7));
  ASSERT_TRUE(builder.Allocate(7, Asked(20)).ok());
  builder.Free(7, {});
  builder.Free(7, {});                              // again
  builder.Free(9, {});                              // never allocated
  ASSERT_TRUE(builder.Allocate(0, Asked(0)).ok());  // nothing asked
  EXPECT_EQ(builder.Allocate(8, Asked(1)).message(), "block 8 is handed out while in use");
  EXPECT_THAT(builder.Allocate(1, Asked(-1)).message(), HasSubstr("negative"));
  EXPECT_THAT(builder.Allocate(1, {.bytes = Bytes::Max()}).message(), HasSubstr("any machine"));
  const AllocationTrace trace = std::move(builder).Build();
  EXPECT_EQ(Shape(trace), "a0:100 a1:50 f0:100 a2:20 f2:20");
  EXPECT_EQ(trace.allocations, 3);
  EXPECT_EQ(trace.peak_live, 150_B);
  EXPECT_EQ(trace.left_out, 3);
}

TEST(AllocationTraceTest, FromRmmKeepsStreamsAndThreads) {
  using Action = RmmEvent::Action;
  const std::vector<RmmEvent> events = {{1, 10, Action::kAllocate, 0x100, 64_B, 2},
                                        {1, 11, Action::kAllocateFailure, 0, 1_GiB, 2},
                                        {5, 12, Action::kFree, 0x100, 64_B, 3}};
  AllocationTrace trace = TraceFromRmm(events).value();
  ASSERT_EQ(Shape(trace), "a0:64 f0:64");
  EXPECT_EQ(trace.events[0], (AllocationEvent{Kind::kAllocate, 0, 64_B, 2, 1, 10}));
  EXPECT_EQ(trace.events[1], (AllocationEvent{Kind::kFree, 0, 64_B, 3, 5, 12}));
  EXPECT_EQ(trace.unanswered, 1);
  EXPECT_THAT(TraceFromRmm({events[0], events[0]}).status().message(),
              HasSubstr("RMM event 2: block 256"));
}

// A history that begins in the middle: of three blocks that were there before, one is given back
// during it, one stays, and one only finished being freed.
Snapshot Window() {
  Snapshot snapshot;
  SegmentPicture segment;
  segment.address = 0x1000;
  segment.size = 3_KiB;
  segment.stream = 4;
  segment.blocks = {{0x1000, 1_KiB, 1000_B, BlockState::kActiveAllocated},
                    {0x1400, 1_KiB, 900_B, BlockState::kActiveAllocated},
                    {0x1800, 1_KiB, 0_B, BlockState::kInactive}};
  snapshot.segments = {segment};
  const auto add = [&](HistoryAction action, uint64_t address, Bytes size, int device = 0) {
    const auto time = static_cast<int64_t>(100 + snapshot.history.size());
    snapshot.history.push_back({action, device, 4, address, size, time});
  };
  add(HistoryAction::kFreeCompleted, 0x1800, 5_B);
  add(HistoryAction::kSegmentAlloc, 0x1000, 3_KiB);
  add(HistoryAction::kAlloc, 0x9000, 77_B, 1);
  add(HistoryAction::kFreeRequested, 0x1400, 800_B);
  add(HistoryAction::kFreeCompleted, 0x1400, 800_B);
  add(HistoryAction::kAlloc, 0x1400, 900_B);
  add(HistoryAction::kAlloc, 0x1800, 30_B);
  add(HistoryAction::kFreeRequested, 0x1800, 30_B);
  add(HistoryAction::kOom, 0, 1_GiB);
  return snapshot;
}

TEST(AllocationTraceTest, FromSnapshotWithAndWithoutWhatWasThereBefore) {
  const AllocationTrace all = TraceFromSnapshot(Window(), 0, EarlierBlocks::kInclude).value();
  EXPECT_EQ(Shape(all), "a0:800 a1:1000 f0:800 a2:900 a3:30 f3:30");
  EXPECT_EQ(all.events[1].stream, 4u);
  EXPECT_EQ(all.events[1].time_us, 100);
  EXPECT_EQ(all.peak_live, 1930_B);
  EXPECT_EQ(all.left_out, 0);
  EXPECT_EQ(all.unanswered, 1);
  const AllocationTrace window = TraceFromSnapshot(Window(), 0, EarlierBlocks::kLeaveOut).value();
  EXPECT_EQ(Shape(window), "a0:900 a1:30 f1:30");
  EXPECT_EQ(window.left_out, 1);
  EXPECT_EQ(Shape(TraceFromSnapshot(Window(), 1, EarlierBlocks::kInclude).value()), "a0:77");
}

constexpr absl::string_view kHeader = "seq,op,id,bytes,stream,t_us\n";

TEST(AllocationTraceTest, FromCsvWithWordsAsIds) {
  const AllocationTrace trace =
      TraceFromCsv(absl::StrCat(kHeader, "0,a,x7,100,783658,5\n1,a,8,1,0,6\r\n2,f,x7,100,1,7\n"))
          .value();
  ASSERT_EQ(Shape(trace), "a0:100 a1:1 f0:100");
  EXPECT_EQ(trace.events[0].stream, 783658u);
  EXPECT_EQ(trace.events[2].stream, 1u);
  EXPECT_EQ(trace.events[2].time_us, 7);
}

TEST(AllocationTraceTest, ErrorsNameTheLine) {
  const auto error = [](absl::string_view lines) {
    return std::string(TraceFromCsv(absl::StrCat(kHeader, lines)).status().message());
  };
  EXPECT_THAT(TraceFromCsv("").status().message(), HasSubstr("line 1"));
  EXPECT_THAT(TraceFromCsv("a\n").status().message(), HasSubstr("is expected: a"));
  EXPECT_THAT(error("0,a,1,1,0,0\n0,a,1,1,0\n"), HasSubstr("line 3: not six columns"));
  EXPECT_THAT(error("0,a,1,x,0,0\n"), HasSubstr("line 2: not six columns of numbers"));
  EXPECT_THAT(error("0,a,,1,0,0\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("0,g,1,1,0,0\n"), HasSubstr("line 2: not a or f: g"));
  EXPECT_THAT(error("0,a,1,1,0,0\n0,a,1,1,0,0\n"), HasSubstr("line 3: block 0 is handed out"));
  EXPECT_THAT(error("\n0,a,1,1,0,0\n"), HasSubstr("line 2"));
}

TEST(AllocationTraceTest, AFileIsKnownByItsBeginning) {
  const std::string path = absl::StrCat(testing::TempDir(), "/trace_file");
  const auto shape = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    const absl::StatusOr<AllocationTrace> trace = ReadTraceFile(path);
    return trace.ok() ? Shape(*trace) : std::string(trace.status().message());
  };
  EXPECT_EQ(shape(absl::StrCat(kHeader, "0,a,1,9,0,0\n")), "a0:9");
  EXPECT_EQ(shape(FormatRmmCsv({RmmEvent{.pointer = 1, .size = 8_B}})), "a0:8");
  Snapshot second_device = Window();
  for (SegmentPicture& segment : second_device.segments) segment.device = 1;
  for (HistoryEvent& event : second_device.history) event.device = 1;
  EXPECT_EQ(shape(SnapshotToPickle(second_device).value()),
            "a0:800 a1:1000 a2:77 f0:800 a3:900 a4:30 f4:30");
  EXPECT_THAT(shape("nonsense"), HasSubstr("line 1"));
  EXPECT_TRUE(absl::IsNotFound(ReadTraceFile(path + ".none").status()));
}

TEST(TraceReplayTest, FailuresAreCountedAndTheirFreesSkipped) {
  const AllocationTrace trace =
      TraceFromCsv(absl::StrCat(kHeader,
                                "0,a,1,100,0,0\n1,a,2,5000,0,0\n2,a,3,200,1,0\n"
                                "3,f,2,5000,0,0\n4,f,1,100,7,0\n5,a,4,50,0,0\n"))
          .value();
  std::map<void*, int64_t> live;
  std::vector<StreamId> freed_on;
  const ReplayResult result = Replay(
      trace,
      [&](const AllocationEvent& event) -> absl::StatusOr<void*> {
        if (event.bytes > 1000_B) return absl::ResourceExhaustedError("too large");
        void* block = malloc(static_cast<size_t>(event.bytes.count()));
        live[block] = event.bytes.count();
        return block;
      },
      [&](void* block, const AllocationEvent& event) {
        ASSERT_EQ(live[block], event.bytes.count());
        freed_on.push_back(event.stream);
        live.erase(block);
        free(block);
      });
  EXPECT_EQ(result.allocations, 3);
  EXPECT_EQ(result.frees, 1);
  EXPECT_EQ(result.failures, 1);
  EXPECT_EQ(result.peak_live, 300_B);
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(freed_on, (std::vector<StreamId>{7, 1, 0}));  // the last two after the end
}

}  // namespace
}  // namespace ebbtide
