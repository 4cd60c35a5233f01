// SPDX-License-Identifier: Apache-2.0

#include "runtime/buffer_session.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "policy/registry.h"

namespace ebbtide {

struct Buffer::State {
  BufferSession* session;
  Bytes bytes;
  void* memory;  // null while evicted
  std::atomic<void*> storage{nullptr};

  ~State() {
    bool kept = false;
    if (void* known = storage.load()) {
      kept = session->runtime_->Drop(static_cast<Storage*>(known));
    }
    if (!kept) session->allocator_->Free(memory);
  }
};

Bytes Buffer::bytes() const { return state_->bytes; }

class BufferSession::BufferHost : public Host {
 public:
  explicit BufferHost(CachingAllocator* allocator) : allocator_(allocator) {}

  absl::StatusOr<void*> AllocateMemory(Bytes bytes) override {
    return allocator_->Allocate(bytes);
  }
  void FreeMemory(void* memory) override { allocator_->Free(memory); }
  void CopyMemory(void* to, const void* from, Bytes bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes.count()));
  }
  void* TakeMemory(void* host_storage) override {
    return std::exchange(static_cast<Buffer::State*>(host_storage)->memory, nullptr);
  }
  bool GiveMemory(void* host_storage, void* memory) override {
    static_cast<Buffer::State*>(host_storage)->memory = memory;
    return true;
  }

 private:
  CachingAllocator* const allocator_;
};

BufferSession::BufferSession(CachingAllocator* allocator, uint64_t random_seed)
    : allocator_(allocator), random_(random_seed) {}

absl::StatusOr<std::unique_ptr<BufferSession>> BufferSession::Create(CachingAllocator* allocator,
                                                                     Options options) {
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<EvictionPolicy> policy,
                       MakePolicy(options.policy, options.runtime.min_bytes));
  options.runtime.budget = allocator->budget();
  std::unique_ptr<BufferSession> session(new BufferSession(allocator, options.random_seed));
  session->host_ = std::make_unique<BufferHost>(allocator);
  session->replayer_ = std::make_unique<ClosureReplayer>(session->host_.get());
  session->runtime_ = std::make_unique<Runtime>(options.runtime, std::move(policy),
                                                session->host_.get(), session->replayer_.get());
  Runtime* runtime = session->runtime_.get();
  allocator->SetPressureHandler([runtime](const MemoryPressure& pressure) {
    return runtime->RelievePressure(pressure.shortfall);
  });
  return session;
}

BufferSession::~BufferSession() { allocator_->SetPressureHandler(nullptr); }

absl::StatusOr<Buffer> BufferSession::NewBuffer(Bytes bytes) {
  if (bytes <= Bytes(0)) return absl::InvalidArgumentError("a buffer has at least one byte");
  // It has no call behind it that could make it again.
  EBB_ASSIGN_OR_RETURN(void* memory, allocator_->Allocate(bytes, {.stays = true}));
  auto state = std::make_shared<Buffer::State>();
  state->session = this;
  state->bytes = bytes;
  state->memory = memory;
  return Buffer(std::move(state));
}

Storage* BufferSession::StorageOf(const Buffer& buffer) {
  Buffer::State* state = buffer.state_.get();
  // Once it is known, its memory may be exchanged by another thread at any time: don't look at it.
  if (void* known = state->storage.load(std::memory_order_acquire)) {
    return static_cast<Storage*>(known);
  }
  return runtime_->Adopt(&state->storage, state, state->bytes, state->memory);
}

absl::StatusOr<std::vector<Buffer>> BufferSession::Run(const BufferOperation& operation) {
  std::vector<Runtime::Argument> arguments;
  // Where an argument stands among the distinct ones; a write covers earlier reads of the same.
  const auto place = [&](const Buffer& buffer, bool written) {
    Storage* storage = StorageOf(buffer);
    size_t i = 0;
    while (i < arguments.size() && arguments[i].storage != storage) ++i;
    if (i == arguments.size()) arguments.push_back({.storage = storage});
    arguments[i].written |= written;
    arguments[i].preserve |= written && !operation.outputs.empty();
    return i;
  };
  std::vector<size_t> reads;
  std::vector<size_t> writes;
  for (const Buffer& buffer : operation.reads) reads.push_back(place(buffer, false));
  for (const Buffer& buffer : operation.writes) writes.push_back(place(buffer, true));
  std::vector<Buffer> outputs;
  std::vector<void*> made;
  EBB_RETURN_IF_ERROR(runtime_->BeginCall(absl::MakeSpan(arguments)));
  for (Bytes bytes : operation.outputs) {
    absl::StatusOr<Buffer> output = NewBuffer(bytes);
    if (!output.ok()) {
      runtime_->AbortCall(absl::MakeSpan(arguments));
      return output.status();
    }
    made.push_back(output->state_->memory);
    outputs.push_back(*std::move(output));
  }
  std::vector<const void*> read_at;
  std::vector<void*> write_at;
  for (const Buffer& buffer : operation.reads) read_at.push_back(buffer.state_->memory);
  for (const Buffer& buffer : operation.writes) write_at.push_back(buffer.state_->memory);
  const std::mt19937_64 before = random_;
  const Nanos start = MonotonicNow();
  absl::Status status = operation.kernel({read_at, write_at, made, random_});
  const Nanos cost = MonotonicNow() - start;
  if (!status.ok()) {
    runtime_->AbortCall(absl::MakeSpan(arguments));
    return status;
  }
  std::vector<Storage*> storages;
  for (const Buffer& output : outputs) storages.push_back(StorageOf(output));
  std::unique_ptr<Operation> closure;
  if (operation.replayable) {
    closure = std::make_unique<ClosureOperation>(
        ClosureOperation::Parts{.name = operation.name,
                                .kernel = operation.kernel,
                                .outputs = operation.outputs,
                                .reads = std::move(reads),
                                .writes = std::move(writes),
                                .random = before});
  }
  runtime_->EndCall(absl::MakeSpan(arguments), std::move(closure), storages, cost);
  return outputs;
}

absl::Status BufferSession::Read(const Buffer& buffer, absl::FunctionRef<void(const void*)> visit) {
  EBB_ASSIGN_OR_RETURN(Value* value, runtime_->Pin(StorageOf(buffer)));
  visit(buffer.state_->memory);
  runtime_->Unpin(value);
  return absl::OkStatus();
}

absl::Status BufferSession::Write(const Buffer& buffer, absl::FunctionRef<void(void*)> visit) {
  Runtime::Argument argument{.storage = StorageOf(buffer), .written = true};
  EBB_RETURN_IF_ERROR(runtime_->BeginCall(absl::MakeSpan(&argument, 1)));
  visit(buffer.state_->memory);
  runtime_->EndCall(absl::MakeSpan(&argument, 1), nullptr, {}, Nanos(0));
  return absl::OkStatus();
}

absl::StatusOr<void*> BufferSession::Escape(const Buffer& buffer) {
  EBB_RETURN_IF_ERROR(runtime_->Escape(StorageOf(buffer)));
  return buffer.state_->memory;
}

}  // namespace ebbtide
