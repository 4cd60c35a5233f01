// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "runtime/closure.h"
#include "tests/rematerializer/op_replayer_conformance.h"

namespace ebbtide {
namespace {

class MallocHost : public Host {
 public:
  absl::StatusOr<void*> AllocateMemory(Bytes bytes) override {
    if (exhausted) return absl::ResourceExhaustedError("no more");
    ++blocks;
    return std::malloc(static_cast<size_t>(bytes.count()));
  }
  void FreeMemory(void* memory) override {
    --blocks;
    std::free(memory);
  }
  void CopyMemory(void* to, const void* from, Bytes bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes.count()));
  }
  void* TakeMemory(void*) override { return nullptr; }
  bool GiveMemory(void*, void*) override { return false; }

  std::atomic<int64_t> blocks{0};
  std::atomic<bool> exhausted{false};
};

class ClosureSubject : public ReplayerSubject {
 public:
  ClosureSubject() {
    Record("pure", {"ab", "cd"}, {}, {"abcd"}, {});
    Record("two outputs", {"xyz"}, {}, {"xyz", "xyz!"}, {});
    Record("in place", {"r"}, {"w1"}, {}, {"w1+r"});
    Record("silently written", {"r"}, {"s1"}, {"s1r"}, {});
    Random();
  }

  OpReplayer& replayer() override { return replayer_; }
  const std::vector<RecordedCall>& calls() override { return recorded_; }
  std::string ProgramState() override { return std::to_string(std::mt19937_64(random_)()); }
  void* NewMemory(const std::string& content) override {
    void* memory = *host_.AllocateMemory(Bytes(kSize));
    std::memcpy(memory, Padded(content).data(), kSize);
    return memory;
  }
  std::string Content(const void* memory, size_t bytes) override {
    return std::string(static_cast<const char*>(memory), bytes);
  }
  void FreeMemory(void* memory) override { host_.FreeMemory(memory); }
  int64_t BlocksInUse() override { return host_.blocks; }
  void SetExhausted(bool exhausted) override { host_.exhausted = exhausted; }

 private:
  static constexpr size_t kSize = 16;

  static std::string Padded(std::string content) {
    content.resize(kSize, '.');
    return content;
  }

  Value* NewValue() {
    values_.emplace_back();
    values_.back().bytes = Bytes(kSize);
    return &values_.back();
  }

  // A kernel that writes fixed contents, if its inputs are what they were.
  void Record(std::string what, std::vector<std::string> reads, std::vector<std::string> writes,
              std::vector<std::string> outputs, std::vector<std::string> written_outputs) {
    const Kernel kernel = [=](const KernelArguments& a) {
      const auto holds = [](const void* memory, const std::string& content) {
        return std::memcmp(memory, Padded(content).data(), kSize) == 0;
      };
      for (size_t i = 0; i < reads.size(); ++i) {
        if (!holds(a.reads[i], reads[i])) return absl::InternalError("other input");
      }
      for (size_t i = 0; i < writes.size(); ++i) {
        if (!holds(a.writes[i], writes[i])) return absl::InternalError("other written input");
        const std::string now = i < written_outputs.size() ? written_outputs[i] : "scribble";
        std::memcpy(a.writes[i], Padded(now).data(), kSize);
      }
      for (size_t j = 0; j < outputs.size(); ++j) {
        std::memcpy(a.outputs[j], Padded(outputs[j]).data(), kSize);
      }
      return absl::OkStatus();
    };
    Add(std::move(what), kernel, reads, writes, outputs, written_outputs);
  }

  void Random() {
    const Kernel kernel = [](const KernelArguments& a) {
      const uint64_t draws[] = {a.random(), a.random()};
      std::memcpy(a.outputs[0], draws, sizeof(draws));
      return absl::OkStatus();
    };
    std::mt19937_64 engine = random_;
    const uint64_t draws[] = {engine(), engine()};
    Add("random", kernel, {}, {}, {std::string(reinterpret_cast<const char*>(draws), kSize)}, {});
  }

  void Add(std::string what, const Kernel& kernel, const std::vector<std::string>& reads,
           const std::vector<std::string>& writes, const std::vector<std::string>& outputs,
           const std::vector<std::string>& written_outputs) {
    ClosureOperation::Parts parts{.name = what,
                                  .kernel = kernel,
                                  .outputs = std::vector<Bytes>(outputs.size(), Bytes(kSize)),
                                  .reads = {},
                                  .writes = {},
                                  .random = random_};
    RecordedCall recorded{.what = std::move(what), .call = nullptr, .inputs = {}, .outputs = {}};
    calls_.emplace_back();
    Call& call = calls_.back();
    for (const std::string& read : reads) {
      parts.reads.push_back(recorded.inputs.size());
      recorded.inputs.push_back(Padded(read));
      call.inputs.push_back({.value = NewValue(), .call = &call, .written = false});
    }
    for (const std::string& write : writes) {
      parts.writes.push_back(recorded.inputs.size());
      recorded.inputs.push_back(Padded(write));
      call.inputs.push_back({.value = NewValue(), .call = &call, .written = true});
    }
    for (const std::string& output : outputs) {
      recorded.outputs.push_back(Padded(output));
      call.outputs.push_back({NewValue(), -1});
    }
    for (size_t i = 0; i < written_outputs.size(); ++i) {
      recorded.outputs.push_back(Padded(written_outputs[i]));
      call.outputs.push_back({NewValue(), static_cast<int32_t>(reads.size() + i)});
    }
    call.operation = std::make_unique<ClosureOperation>(std::move(parts));
    recorded.call = &call;
    recorded_.push_back(std::move(recorded));
  }

  MallocHost host_;
  ClosureReplayer replayer_{&host_};
  std::mt19937_64 random_{42};
  std::deque<Value> values_;
  std::deque<Call> calls_;
  std::vector<RecordedCall> recorded_;
};

std::unique_ptr<ReplayerSubject> MakeClosureSubject() { return std::make_unique<ClosureSubject>(); }

INSTANTIATE_TEST_SUITE_P(Closure, OpReplayerConformanceTest,
                         testing::Values(&MakeClosureSubject));

}  // namespace
}  // namespace ebbtide
