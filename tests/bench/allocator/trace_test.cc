// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/trace.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/allocator/allocator_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/child_process.h"

namespace ebbtide::bench {
namespace {

namespace fs = std::filesystem;

constexpr char kHeader[] = "seq,op,id,bytes,stream,t_us\n";

absl::StatusOr<Trace> Read(const std::string& lines) {
  std::istringstream in(kHeader + lines);
  return ReadTrace("t", in);
}

TEST(TraceTest, EventsBecomeOpsWithSlotsThatAreReused) {
  const absl::StatusOr<Trace> trace = Read(
      "0,a,x,100,7,0\n"
      "1,a,y,50,9,1\n"
      "2,f,x,100,7,2\n"
      "3,a,z,60,7,3\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->ops.size(), 4U);
  EXPECT_EQ(trace->ops[0].bytes, 100);
  EXPECT_EQ(trace->ops[1].stream, 1U);
  EXPECT_EQ(trace->ops[2].bytes, 0);
  EXPECT_EQ(trace->ops[2].slot, trace->ops[0].slot);
  EXPECT_EQ(trace->ops[3].slot, trace->ops[0].slot);
  EXPECT_EQ(trace->ops[3].stream, 0U);
  EXPECT_EQ(trace->slots, 2U);
  EXPECT_EQ(trace->requests, 3);
  EXPECT_EQ(trace->peak_live, 150);
}

TEST(TraceTest, RequestsOfNothingAreLeftOut) {
  const absl::StatusOr<Trace> trace = Read("0,a,x,0,0,0\n1,f,x,0,0,1\n2,a,y,5,0,2\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->ops.size(), 1U);
  EXPECT_EQ(trace->requests, 1);
}

TEST(TraceTest, ImpossibleLinesAreNamed) {
  for (const char* line : {"1,f,y,5,0,1\n", "1,a,x,5,0,1\n", "1,q,y,5,0,1\n", "1,a,y,-5,0,1\n",
                           "1,a,y\n", "1,a,y,five,0,1\n"}) {
    const absl::StatusOr<Trace> trace = Read(std::string("0,a,x,5,0,0\n") + line);
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(trace.status().message()), testing::HasSubstr("t line 3"));
  }
  std::istringstream no_header("0,a,x,5,0,0\n");
  EXPECT_FALSE(ReadTrace("t", no_header).ok());
}

TEST(TraceTest, AFolderAndAnArchiveHoldOneTraceAFile) {
  const fs::path folder = fs::path(testing::TempDir()) / "traces";
  fs::create_directories(folder);
  std::ofstream(folder / "b.csv") << kHeader << "0,a,x,5,0,0\n";
  std::ofstream(folder / "a.csv") << kHeader << "0,a,x,6,0,0\n";
  std::ofstream(folder / "other.txt") << "no trace\n";
  const std::string archive = testing::TempDir() + "/traces.tar";
  ASSERT_EQ(RunChild({"tar", "-cf", archive, "-C", folder.string(), "a.csv", "b.csv"}, {},
                     std::chrono::seconds(60))
                ->exit_status,
            0);
  for (const std::string& path : {folder.string(), archive}) {
    const auto traces = ReadTraces(path);
    ASSERT_TRUE(traces.ok()) << traces.status();
    ASSERT_EQ(traces->size(), 2U);
    EXPECT_EQ((*traces)[0].name, "a");
    EXPECT_EQ((*traces)[0].peak_live, 6);
    EXPECT_EQ((*traces)[1].name, "b");
  }
}

TEST(TraceTest, WhatIsNotThereOrBrokenIsTold) {
  EXPECT_EQ(ReadTraces(testing::TempDir() + "/nothing").status().code(),
            absl::StatusCode::kNotFound);
  const fs::path empty = fs::path(testing::TempDir()) / "empty";
  fs::create_directories(empty);
  EXPECT_EQ(ReadTraces(empty.string()).status().code(), absl::StatusCode::kNotFound);
  const std::string broken = testing::TempDir() + "/broken.tar";
  std::ofstream(broken) << "no archive";
  EXPECT_EQ(ReadTraces(broken).status().code(), absl::StatusCode::kInternal);
}

// Counts what it is asked for, and has memory for two requests.
class TwoRequests : public AllocatorModel {
 public:
  Handle Allocate(int64_t bytes, uint32_t stream) override {
    streams += stream;
    if (live + freed == 2) return 0;
    held += bytes;
    return static_cast<Handle>(++live);
  }
  void Free(Handle) override {
    --live;
    ++freed;
  }
  int64_t peak_held() const override { return held; }
  int64_t driver_calls() const override { return 3; }

  int64_t live = 0;
  int64_t freed = 0;
  int64_t held = 0;
  int64_t streams = 0;
};

TEST(ReplayTraceTest, StopsAtTheRequestThatDoesNotFitAndFreesTheRest) {
  const absl::StatusOr<Trace> trace =
      Read("0,a,x,5,1,0\n1,a,y,6,2,1\n2,f,x,5,1,2\n3,a,z,7,2,3\n4,a,w,8,2,4\n");
  TwoRequests model;
  const Replay replay = ReplayTrace(*trace, &model);
  EXPECT_FALSE(replay.ok);
  EXPECT_EQ(replay.peak_held, 11);
  EXPECT_EQ(replay.driver_calls, 3);
  EXPECT_EQ(model.live, 0);
  EXPECT_EQ(model.streams, 2) << "0, 1 and, of the one that failed, 1";

  TwoRequests one_stream;
  ReplayTrace(*trace, &one_stream, true);
  EXPECT_EQ(one_stream.streams, 0);
}

}  // namespace
}  // namespace ebbtide::bench
