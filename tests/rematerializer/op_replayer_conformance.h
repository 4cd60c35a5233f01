// SPDX-License-Identifier: Apache-2.0
//
// What every OpReplayer must do. To run it on yours, derive from ReplayerSubject: record some calls
// of your host's operators (at least one of each kind that it has: pure, several outputs, in place,
// with a silently written argument, random), and instantiate the suite with a factory:
//
//     INSTANTIATE_TEST_SUITE_P(Mine, OpReplayerConformanceTest, testing::Values(&MakeMySubject));
//
// For one thread, except where a test starts its own. The subject owns calls, memory and replayer.

#ifndef EBBTIDE_TESTS_REMATERIALIZER_OP_REPLAYER_CONFORMANCE_H_
#define EBBTIDE_TESTS_REMATERIALIZER_OP_REPLAYER_CONFORMANCE_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rematerializer/op_replayer.h"

namespace ebbtide {

// A recorded call and the bytes that it read and made.
struct RecordedCall {
  std::string what;
  Call* call = nullptr;
  std::vector<std::string> inputs;    // content of call->inputs
  std::vector<std::string> outputs;   // content of call->outputs
};

class ReplayerSubject {
 public:
  virtual ~ReplayerSubject() = default;
  virtual OpReplayer& replayer() = 0;
  virtual const std::vector<RecordedCall>& calls() = 0;
  // Everything that the program could see a replay change: generators, modes, ...
  virtual std::string ProgramState() = 0;
  // Memory of the host that holds `content`.
  virtual void* NewMemory(const std::string& content) = 0;
  virtual std::string Content(const void* memory, size_t bytes) = 0;
  virtual void FreeMemory(void* memory) = 0;
  // Blocks of the host's memory that are in use.
  virtual int64_t BlocksInUse() = 0;
  // While true, the host has no more memory for a replay.
  virtual void SetExhausted(bool exhausted) = 0;
};

class OpReplayerConformanceTest
    : public testing::TestWithParam<std::unique_ptr<ReplayerSubject> (*)()> {
 protected:
  struct Replayed {
    absl::Status status;
    std::vector<std::string> inputs;   // content afterwards
    std::vector<std::string> outputs;  // empty where there is none
  };

  // Replays on fresh copies of the inputs, as the rematerializer does, and frees everything again.
  Replayed Replay(const RecordedCall& recorded) {
    std::vector<void*> inputs;
    for (const std::string& content : recorded.inputs) {
      inputs.push_back(subject_->NewMemory(content));
    }
    std::vector<void*> outputs(recorded.call->outputs.size(), nullptr);
    Replayed result;
    result.status = subject_->replayer().Replay(*recorded.call, inputs, absl::MakeSpan(outputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      result.inputs.push_back(subject_->Content(inputs[i], recorded.inputs[i].size()));
    }
    for (size_t j = 0; j < outputs.size(); ++j) {
      const int32_t from = recorded.call->outputs[j].from_input;
      const void* const memory = from < 0 ? outputs[j] : inputs[static_cast<size_t>(from)];
      result.outputs.push_back(
          memory == nullptr ? "" : subject_->Content(memory, recorded.outputs[j].size()));
      if (!result.status.ok()) {
        EXPECT_EQ(outputs[j], nullptr) << recorded.what;
      }
    }
    for (void* memory : inputs) subject_->FreeMemory(memory);
    for (void* memory : outputs) {
      if (memory != nullptr) subject_->FreeMemory(memory);
    }
    return result;
  }

  const std::unique_ptr<ReplayerSubject> subject_ = GetParam()();
};

TEST_P(OpReplayerConformanceTest, GivesTheBytesOfTheCallEachTime) {
  ASSERT_GE(subject_->calls().size(), 3u);
  for (int round = 0; round < 3; ++round) {
    for (const RecordedCall& recorded : subject_->calls()) {
      const Replayed result = Replay(recorded);
      EXPECT_TRUE(result.status.ok()) << recorded.what << ": " << result.status;
      EXPECT_EQ(result.outputs, recorded.outputs) << recorded.what << ", round " << round;
    }
  }
}

TEST_P(OpReplayerConformanceTest, WritesOnlyWhatIsMarkedAsWritten) {
  for (const RecordedCall& recorded : subject_->calls()) {
    const Replayed result = Replay(recorded);
    for (size_t i = 0; i < recorded.inputs.size(); ++i) {
      if (recorded.call->inputs[i].written) continue;
      EXPECT_EQ(result.inputs[i], recorded.inputs[i]) << recorded.what << ", input " << i;
    }
  }
}

TEST_P(OpReplayerConformanceTest, ChangesNothingThatTheProgramSees) {
  const std::string before = subject_->ProgramState();
  for (const RecordedCall& recorded : subject_->calls()) {
    Replay(recorded);
    EXPECT_EQ(subject_->ProgramState(), before) << recorded.what;
  }
}

TEST_P(OpReplayerConformanceTest, KeepsNoMemory) {
  for (const RecordedCall& recorded : subject_->calls()) {
    const int64_t before = subject_->BlocksInUse();
    Replay(recorded);
    EXPECT_EQ(subject_->BlocksInUse(), before) << recorded.what;
  }
}

TEST_P(OpReplayerConformanceTest, LeavesOutOutputsThatNobodyWants) {
  for (const RecordedCall& recorded : subject_->calls()) {
    for (Call::Output& output : recorded.call->outputs) {
      Value* const value = std::exchange(output.value, nullptr);
      const int64_t before = subject_->BlocksInUse();
      EXPECT_TRUE(Replay(recorded).status.ok()) << recorded.what;
      EXPECT_EQ(subject_->BlocksInUse(), before) << recorded.what;
      output.value = value;
    }
  }
}

TEST_P(OpReplayerConformanceTest, FailsCleanlyWithoutMemory) {
  const std::string state = subject_->ProgramState();
  for (const RecordedCall& recorded : subject_->calls()) {
    bool allocates = false;
    for (const Call::Output& output : recorded.call->outputs) allocates |= output.from_input < 0;
    if (!allocates) continue;
    const int64_t before = subject_->BlocksInUse();
    std::vector<void*> inputs;
    for (const std::string& content : recorded.inputs) {
      inputs.push_back(subject_->NewMemory(content));
    }
    std::vector<void*> outputs(recorded.call->outputs.size(), nullptr);
    subject_->SetExhausted(true);
    const absl::Status status =
        subject_->replayer().Replay(*recorded.call, inputs, absl::MakeSpan(outputs));
    subject_->SetExhausted(false);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << recorded.what << ": " << status;
    for (void* memory : outputs) EXPECT_EQ(memory, nullptr) << recorded.what;
    for (void* memory : inputs) subject_->FreeMemory(memory);
    EXPECT_EQ(subject_->BlocksInUse(), before) << recorded.what;
    EXPECT_EQ(subject_->ProgramState(), state) << recorded.what;
    EXPECT_EQ(Replay(recorded).outputs, recorded.outputs) << recorded.what << ", afterwards";
  }
}

TEST_P(OpReplayerConformanceTest, SeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int round = 0; round < 10; ++round) {
        for (const RecordedCall& recorded : subject_->calls()) {
          EXPECT_EQ(Replay(recorded).outputs, recorded.outputs) << recorded.what;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_REMATERIALIZER_OP_REPLAYER_CONFORMANCE_H_
