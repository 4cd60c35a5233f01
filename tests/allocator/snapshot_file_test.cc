// SPDX-License-Identifier: Apache-2.0

#include "allocator/snapshot_file.h"

#include <fstream>
#include <iterator>

#include "allocator/allocation_trace.h"
#include "allocator/caching_allocator.h"
#include "allocator/simulated_device.h"
#include "allocator/snapshot_pickle.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SnapshotFileTest : public testing::Test {
 protected:
  SnapshotFileTest() : allocator_(&device_, {.budget = 64_MiB, .history_events = 1000}) {
    allocator_.history()->Record(HistoryRing::kAll);
  }

  SimulatedDevice device_{{}};
  CachingAllocator allocator_;
};

TEST_F(SnapshotFileTest, APickleHoldsSegmentsAndHistory) {
  void* block = *allocator_.Allocate(5_MiB);
  const std::string path = testing::TempDir() + "snapshot.pickle";
  ASSERT_TRUE(WriteSnapshotFile(allocator_.TakeSnapshot(), path).ok());
  const absl::StatusOr<Snapshot> read = SnapshotFromPickle(Read(path));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->segments.size(), 1u);
  EXPECT_FALSE(read->history.empty());
  allocator_.Free(block);
}

TEST_F(SnapshotFileTest, ACsvCanBeReplayed) {
  void* a = *allocator_.Allocate(5_MiB);
  void* b = *allocator_.Allocate(100_B);
  allocator_.Free(a);
  EXPECT_FALSE(allocator_.Allocate(100_MiB).ok());
  const std::string path = testing::TempDir() + "snapshot.csv";
  ASSERT_TRUE(WriteSnapshotFile(allocator_.TakeSnapshot(), path).ok());
  const absl::StatusOr<std::vector<RmmEvent>> events = ParseRmmCsv(Read(path));
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->size(), 4u);
  EXPECT_EQ((*events)[1].size, 100_B);
  EXPECT_EQ((*events)[2].action, RmmEvent::Action::kFree);
  EXPECT_EQ((*events)[2].size, 5_MiB);
  EXPECT_EQ((*events)[3].action, RmmEvent::Action::kAllocateFailure);
  EXPECT_TRUE(TraceFromRmm(*events).ok());
  allocator_.Free(b);
}

// The ring forgets: what it still remembers must not begin with frees of unknown blocks.
TEST_F(SnapshotFileTest, AFreeWhoseAllocationIsForgottenIsLeftOut) {
  void* old = *allocator_.Allocate(5_MiB);
  allocator_.history()->Clear();
  allocator_.Free(old);
  EXPECT_TRUE(RmmEventsOf(allocator_.TakeSnapshot()).empty());
}

TEST_F(SnapshotFileTest, AFileThatCannotBeWrittenIsAnErrorWithItsName) {
  const absl::Status status = WriteSnapshotFile(allocator_.TakeSnapshot(), "/no/such/folder/x");
  EXPECT_NE(status.message().find("/no/such/folder/x: No such file"), std::string::npos) << status;
}

}  // namespace
}  // namespace ebbtide
