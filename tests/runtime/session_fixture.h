// SPDX-License-Identifier: Apache-2.0
//
// SessionFixture: a BufferSession over test memory with operators whose results are easy to
// predict, for the tests of the runtime's rules.
//
// Each buffer holds one 64-bit word over and over, so that a torn or stale buffer shows. For one
// thread unless a test says otherwise; the fixture owns session, allocator and memory.

#ifndef EBBTIDE_TESTS_RUNTIME_SESSION_FIXTURE_H_
#define EBBTIDE_TESTS_RUNTIME_SESSION_FIXTURE_H_

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/buffer_session.h"
#include "tests/runtime/arena_memory.h"

namespace ebbtide {

class SessionFixture : public testing::Test {
 protected:
  static constexpr int64_t kBytes = 32 << 10;
  static constexpr size_t kWords = kBytes / sizeof(uint64_t);

  // Small buffers may leave, nothing is copied, and whatever can leave does so after each call.
  static RuntimeConfig EvictAll() {
    RuntimeConfig config;
    config.min_bytes = Bytes(4097);
    config.copy_limit = Bytes(0);
    config.stress_probability = 1;
    return config;
  }
  static RuntimeConfig Calm() {
    RuntimeConfig config = EvictAll();
    config.stress_probability = 0;
    return config;
  }

  void Start(const RuntimeConfig& config, Bytes budget = Bytes::Max()) {
    allocator_ = std::make_unique<CachingAllocator>(&arena_, CachingAllocator::Options{budget});
    auto session = BufferSession::Create(allocator_.get(), {.runtime = config, .policy = "lru"});
    ASSERT_TRUE(session.ok());
    session_ = *std::move(session);
  }

  // What every word of a buffer holds.
  using Word = uint64_t;

  Buffer Source(Word word, int64_t bytes = kBytes) {
    auto buffer = session_->NewBuffer(Bytes(bytes));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    Write(*buffer, word);
    return *std::move(buffer);
  }
  void Write(const Buffer& buffer, Word word) {
    const auto status = session_->Write(buffer, [&](void* memory) {
      Fill(memory, static_cast<size_t>(buffer.bytes().count()) / sizeof(Word), word);
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  // The word that the buffer holds; fails the test if its words differ.
  Word Read(const Buffer& buffer) {
    Word word = 0;
    const auto status = session_->Read(buffer, [&](const void* memory) {
      const auto* words = static_cast<const Word*>(memory);
      word = words[0];
      for (size_t i = 1; i < static_cast<size_t>(buffer.bytes().count()) / sizeof(Word); ++i) {
        if (words[i] != word) ADD_FAILURE() << "torn at word " << i;
      }
    });
    EXPECT_TRUE(status.ok()) << status;
    return word;
  }

  // A new buffer: sum of the inputs' words plus `add`. Counts its runs in runs_.
  absl::StatusOr<Buffer> TryAdd(std::vector<Buffer> reads, Word add, int64_t bytes = kBytes) {
    auto made = session_->Run({.name = "add",
                               .reads = std::move(reads),
                               .outputs = {Bytes(bytes)},
                               .kernel = [this, add, bytes](const KernelArguments& a) {
                                 ++runs_;
                                 if (on_add_) on_add_();
                                 Word sum = add;
                                 for (const void* read : a.reads) sum += First(read);
                                 Fill(a.outputs[0], static_cast<size_t>(bytes) / sizeof(Word), sum);
                                 return absl::OkStatus();
                               }});
    if (!made.ok()) return made.status();
    return (*made)[0];
  }
  Buffer Add(std::vector<Buffer> reads, Word add, int64_t bytes = kBytes) {
    auto made = TryAdd(std::move(reads), add, bytes);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : Buffer();
  }
  // In place: each target's words times `factor`, plus the inputs' words.
  void Scale(std::vector<Buffer> targets, Word factor, std::vector<Buffer> reads = {}) {
    const auto made = session_->Run({.name = "scale",
                                     .reads = std::move(reads),
                                     .writes = std::move(targets),
                                     .kernel = [this, factor](const KernelArguments& a) {
                                       ++runs_;
                                       for (void* target : a.writes) {
                                         Word word = First(target) * factor;
                                         for (const void* read : a.reads) word += First(read);
                                         Fill(target, kWords, word);
                                       }
                                       return absl::OkStatus();
                                     }});
    EXPECT_TRUE(made.ok()) << made.status();
  }

  static Word First(const void* memory) { return *static_cast<const Word*>(memory); }
  static void Fill(void* memory, size_t words, Word word) {
    for (size_t i = 0; i < words; ++i) static_cast<Word*>(memory)[i] = word;
  }

  RuntimeStats stats() { return session_->runtime().stats(); }
  int64_t replays() { return stats().rematerializer.recomputed_calls; }

  std::atomic<int> runs_{0};
  // Called while the operator of Add runs.
  std::function<void()> on_add_;
  ArenaMemory arena_;
  std::unique_ptr<CachingAllocator> allocator_;
  std::unique_ptr<BufferSession> session_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_RUNTIME_SESSION_FIXTURE_H_
