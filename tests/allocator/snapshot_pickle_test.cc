// SPDX-License-Identifier: Apache-2.0
//
// Run with a file name, it writes the example there instead of testing: snapshot_pickle_test.py has
// it do so, and looks at the file with Python's own reader.

#include "allocator/snapshot_pickle.h"

#include <fstream>
#include <random>

#include "allocator/pickle_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;
using std::string_literals::operator""s;
using testing::HasSubstr;

// Two devices, two streams, every state and every action, and more events than a portion of a list.
Snapshot Example() {
  Snapshot snapshot;
  snapshot.segments = {{.address = 0x7f0000000000,
                        .size = 20_MiB,
                        .device = 0,
                        .stream = 0,
                        .pool = {},
                        .type = SegmentType::kLarge,
                        .expandable = true,
                        .blocks = {{0x7f0000000000, 4_MiB, 3_MiB, BlockState::kActiveAllocated},
                                   {0x7f0000400000, 6_MiB, 6_MiB, BlockState::kActiveAwaitingFree},
                                   {0x7f0000a00000, 10_MiB, 0_B, BlockState::kInactive}}},
                       {.address = 0x7f1000000000,
                        .size = 2_MiB,
                        .device = 1,
                        .stream = 0x5581aa00,
                        .pool = {1, 7},
                        .type = SegmentType::kSmall,
                        .expandable = false,
                        .blocks = {{0x7f1000000000, 512_B, 100_B, BlockState::kActiveAllocated},
                                   {0x7f1000000200, 2_MiB - 512_B, 0_B, BlockState::kInactive}}}};
  int64_t time = 1'700'000'000'000'000;
  const auto add = [&](HistoryAction action, uint64_t address, Bytes size, int device = 0) {
    snapshot.history.push_back({action, device, device == 1 ? StreamId{0x5581aa00} : StreamId{0},
                                address, size, time += 10});
  };
  add(HistoryAction::kSegmentMap, 0x7f0000000000, 20_MiB);
  add(HistoryAction::kSegmentAlloc, 0x7f1000000000, 2_MiB, 1);
  add(HistoryAction::kAlloc, 0x7f1000000000, 100_B, 1);
  add(HistoryAction::kAlloc, 0x7f0000000000, 3_MiB);
  add(HistoryAction::kAlloc, 0x7f0000400000, 6_MiB);
  add(HistoryAction::kFreeRequested, 0x7f0000400000, 6_MiB);
  for (int i = 0; i < 600; ++i) {
    add(HistoryAction::kAlloc, 0x7f0000a00000, Bytes(1000 + i));
    add(HistoryAction::kFreeRequested, 0x7f0000a00000, Bytes(1000 + i));
    add(HistoryAction::kFreeCompleted, 0x7f0000a00000, Bytes(1000 + i));
  }
  add(HistoryAction::kSegmentAlloc, 0x7f2000000000, 2_MiB);
  add(HistoryAction::kSegmentFree, 0x7f2000000000, 2_MiB);
  add(HistoryAction::kSegmentMap, 0x7f0001400000, 2_MiB);
  add(HistoryAction::kSegmentUnmap, 0x7f0001400000, 2_MiB);
  add(HistoryAction::kOom, 3 << 20, 64_MiB);
  add(HistoryAction::kSnapshot, 0, 0_B);
  snapshot.settings = {{"backend", "ebbtide"}, {"budget", "64.00 MiB"}};
  return snapshot;
}

// History in the order of the file: by device.
std::vector<HistoryEvent> ByDevice(std::vector<HistoryEvent> history) {
  std::stable_sort(
      history.begin(), history.end(),
      [](const HistoryEvent& a, const HistoryEvent& b) { return a.device < b.device; });
  return history;
}

TEST(SnapshotPickleTest, AllComesBack) {
  const Snapshot example = Example();
  const Snapshot read = SnapshotFromPickle(SnapshotToPickle(example).value()).value();
  EXPECT_EQ(read.segments, example.segments);
  EXPECT_EQ(read.history, ByDevice(example.history));
  EXPECT_EQ(read.settings, example.settings);
}

TEST(SnapshotPickleTest, AnEmptyPictureIsOneToo) {
  const Snapshot read = SnapshotFromPickle(SnapshotToPickle({}).value()).value();
  EXPECT_TRUE(read.segments.empty());
  EXPECT_TRUE(read.history.empty());
}

TEST(SnapshotPickleTest, APictureThatDoesNotAddUpIsNotWritten) {
  const auto error = [](auto change) {
    Snapshot snapshot = Example();
    change(&snapshot);
    EXPECT_EQ(SnapshotToPickle(snapshot).status(), ValidateSnapshot(snapshot));
    return std::string(ValidateSnapshot(snapshot).message());
  };
  EXPECT_EQ(error([](Snapshot*) {}), "");
  EXPECT_THAT(error([](Snapshot* s) { s->segments[0].size += 1_B; }),
              HasSubstr("segment 0x7f0000000000: its blocks do not fill it"));
  EXPECT_THAT(error([](Snapshot* s) { s->segments[1].blocks[1].address += 1; }),
              HasSubstr("does not begin where one ended"));
  EXPECT_THAT(error([](Snapshot* s) { s->segments[1].blocks[0].requested = 513_B; }),
              HasSubstr("smaller than what was asked for"));
  EXPECT_THAT(error([](Snapshot* s) { s->segments[1].blocks[0].size = 0_B; }),
              HasSubstr("no size"));
  EXPECT_THAT(error([](Snapshot* s) { s->segments[1].device = -1; }), HasSubstr("negative"));
  EXPECT_THAT(error([](Snapshot* s) { s->history[0].device = -1; }), HasSubstr("no device"));
}

// As an early PyTorch wrote it: no addresses of blocks, no times, no pools, and stacks.
std::string OldFile(const char* state, int64_t block_size) {
  std::string bytes;
  PickleWriter pickle(&bytes);
  pickle.BeginDict();
  pickle.Key("segments").BeginList().BeginDict();
  pickle.Key("address").Int(0x10000).Key("total_size").Int(2048).Key("stream").Int(-5);
  pickle.Key("blocks").BeginList();
  pickle.BeginDict().Key("size").Int(block_size).Key("state").String(state).EndDict();
  pickle.BeginDict().Key("size").Int(1024).Key("state").String("inactive");
  pickle.Key("requested_size").Int(9999).EndDict();  // what it held last
  pickle.EndList().EndDict().EndList();
  pickle.Key("device_traces").BeginList().BeginList().EndList().BeginList();
  pickle.BeginDict().Key("action").String("user_defined").Key("addr").String("?").EndDict();
  pickle.BeginDict().Key("action").String("alloc").Key("addr").Int(0x10000);
  pickle.Key("size").Int(7).Key("frames").BeginList().None().EndList().EndDict();
  pickle.EndList().EndList();
  pickle.Key("allocator_settings").BeginDict();
  pickle.Key("max_split_size").Int(-1).Key("expandable_segments").Bool(true).EndDict();
  pickle.EndDict().Finish();
  return bytes;
}

TEST(SnapshotPickleTest, OlderFilesAreFilledIn) {
  const Snapshot read = SnapshotFromPickle(OldFile("active_awaiting_free", 1024)).value();
  EXPECT_TRUE(ValidateSnapshot(read).ok());
  ASSERT_EQ(read.segments.size(), 1u);
  const std::vector<BlockPicture>& blocks = read.segments[0].blocks;
  EXPECT_EQ(read.segments[0].stream, static_cast<StreamId>(-5));
  EXPECT_EQ(blocks[0].state, BlockState::kActiveAwaitingFree);
  EXPECT_EQ(blocks[0].requested, 1024_B);
  EXPECT_EQ(blocks[1].address, 0x10400u);
  EXPECT_EQ(blocks[1].requested, 0_B);
  ASSERT_EQ(read.history.size(), 1u);
  EXPECT_EQ(read.history[0].device, 1);
  EXPECT_EQ(read.history[0].size, 7_B);
  EXPECT_EQ(read.settings[0].second, "-1");
  EXPECT_EQ(read.settings[1].second, "True");
}

TEST(SnapshotPickleTest, ErrorsNameThePlace) {
  EXPECT_THAT(SnapshotFromPickle(OldFile("melted", 1)).status().message(),
              HasSubstr("file.segments[0].blocks[0].state: 'melted' is unknown"));
  EXPECT_THAT(SnapshotFromPickle(OldFile("inactive", -1)).status().message(),
              HasSubstr("file.segments[0].blocks[0].size: is negative"));
  EXPECT_THAT(SnapshotFromPickle("abc").status().message(), HasSubstr("not a pickle"));
  std::string bytes;
  PickleWriter(&bytes).BeginDict().Key("a").Int(1).EndDict().Finish();
  EXPECT_THAT(SnapshotFromPickle(bytes).status().message(), HasSubstr("'segments'"));
  bytes.clear();
  PickleWriter(&bytes).BeginDict().Key("segments").Int(1).EndDict().Finish();
  EXPECT_THAT(SnapshotFromPickle(bytes).status().message(), HasSubstr("file.segments is no list"));
}

TEST(SnapshotPickleTest, ListsThatShareTheirElementsEndTheReading) {
  // {'segments': [], 'device_traces': [t, t, ...]} with one list t of 1,000 times one event.
  std::string bytes = "\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](]q\0("s;
  bytes += "}(X\x06\0\0\0actionX\x05\0\0\0allocuq\x01"s;
  for (int i = 0; i < 1000; ++i) bytes += "h\x01";
  bytes += "e";
  for (int i = 0; i < 1000; ++i) bytes += "h\0"s;
  bytes += "eu.";
  EXPECT_THAT(SnapshotFromPickle(bytes).status().message(), HasSubstr("share their elements"));
}

TEST(SnapshotPickleTest, DamagedFilesNeverCrash) {
  std::mt19937 random(3);
  Snapshot small = Example();
  small.history.resize(8);
  const std::string whole = SnapshotToPickle(small).value();
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    for (int j = 0; j < 3; ++j) bytes[random() % bytes.size()] = static_cast<char>(random());
    accepted += SnapshotFromPickle(bytes).ok() ? 1 : 0;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 20'000);
}

}  // namespace
}  // namespace ebbtide

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 2) {
    std::ofstream file(argv[1], std::ios::binary);
    file << ebbtide::SnapshotToPickle(ebbtide::Example()).value();
    return file.flush() ? 0 : 1;
  }
  return RUN_ALL_TESTS();
}
