// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/manager.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/snapshot_file.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/output_path.h"
#include "base/status_macros.h"
#include "policy/registry.h"
#include "pytorch/backend/wait_hooks.h"
#include "pytorch/cpu_allocator.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

using StorageHandle = c10::weak_intrusive_ptr<c10::StorageImpl>;

// What a snapshot remembers of the past: 12 MiB.
constexpr int64_t kHistoryEvents = 200'000;

thread_local Nanos pressure_time{0};

// Strong references taken under the runtime's mutex, where the last one must not be let go of: that
// would run the storage's destructor, which needs the mutex.
thread_local std::vector<c10::intrusive_ptr<c10::StorageImpl>> deferred_references;

c10::intrusive_ptr<c10::StorageImpl> LockHandle(void* host_storage) {
  auto weak = StorageHandle::reclaim_copy(static_cast<c10::StorageImpl*>(host_storage));
  return weak.lock();
}

void ReleaseHandle(void* host_storage) {
  (void)StorageHandle::reclaim(static_cast<c10::StorageImpl*>(host_storage));
}

CachingAllocator::Options MakeAllocatorOptions(const Options& options) {
  CachingAllocator::Options allocator;
  if (options.check) allocator.check = CheckedBlocks::Options();
  if (!options.snapshot_file.empty()) allocator.history_events = kHistoryEvents;
  return allocator;
}

RuntimeConfig MakeRuntimeConfig(const Options& options, Bytes budget) {
  RuntimeConfig config;
  config.budget = budget;
  config.min_bytes = options.min_bytes;
  config.verify = options.verify;
  config.host_wait = {.before = &LetGoOfInterpreter, .after = &TakeInterpreterBack};
  switch (options.stress.kind) {
    case Stress::Kind::kNone:
      break;
    case Stress::Kind::kEvictAll:
      config.stress_probability = 1;
      config.min_bytes = Bytes(1);
      break;
    case Stress::Kind::kEvictRandom:
      config.stress_probability = options.stress.probability;
      config.stress_seed = options.stress.seed;
      config.min_bytes = Bytes(1);
      break;
  }
  return config;
}

}  // namespace

void BytesLevel::Add(int64_t bytes) {
  const int64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

Manager* Manager::instance_ = nullptr;

Manager::Manager(const Options& options)
    : options_(options),
      min_bytes_(options.min_bytes),
      allocator_(&device_, MakeAllocatorOptions(options)) {
  if (allocator_.history() != nullptr) allocator_.history()->Record(HistoryRing::kAll);
}

absl::Status Manager::Start(const Options& options) {
  EBB_CHECK(instance_ == nullptr);
  std::unique_ptr<Manager> manager(new Manager(options));
  EBB_RETURN_IF_ERROR(manager->Init());
  instance_ = manager.release();
  instance_->RegisterForkHandlers();
  InstallCpuAllocator({
      .allocate = [](size_t bytes) { return instance_->AllocateBlock(bytes); },
      .release = [](BlockHeader* header) { instance_->ReleaseBlock(header); },
      .describe = [](const BlockHeader* header) { return instance_->allocator_.Describe(header); },
  });
  return absl::OkStatus();
}

absl::Status Manager::Init() {
  const bool stressed = options_.stress.kind != Stress::Kind::kNone;
  if (!options_.budget.has_value() && !stressed && !options_.verify) return absl::OkStatus();
  Bytes budget = Bytes::Max();
  if (options_.budget.has_value()) budget = options_.budget->Resolve(MachineMemoryLimit());
  allocator_.set_budget(budget);
  const RuntimeConfig config = MakeRuntimeConfig(options_, budget);
  min_bytes_ = config.min_bytes;
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<EvictionPolicy> policy,
                       MakePolicy(options_.policy, config.min_bytes));
  runtime_ = std::make_unique<Runtime>(config, std::move(policy), this, &replayer_);
  allocator_.SetPressureHandler(
      [this](const MemoryPressure& pressure) { return RelievePressure(pressure); });
  return absl::OkStatus();
}

Nanos Manager::PressureTime() { return pressure_time; }

bool Manager::RelievePressure(const MemoryPressure& pressure) {
  if (!evictions_allowed()) return false;
  const Nanos start = MonotonicNow();
  const bool freed = runtime_->RelievePressure(pressure.shortfall);
  pressure_time += MonotonicNow() - start;
  return freed;
}

void* Manager::AllocateBlock(size_t bytes) {
  absl::StatusOr<void*> block = allocator_.Allocate(Bytes(static_cast<int64_t>(bytes)));
  if (!block.ok()) {
    if (InReplay() && absl::IsResourceExhausted(block.status())) {
      // The call that waits for the replay will report it.
      TORCH_CHECK_WITH(OutOfMemoryError, false, block.status().message());
    }
    ThrowStatus(block.status());
  }
  if (!InReplay()) wanted_.Add(static_cast<int64_t>(bytes - kBlockHeaderBytes));
  return *block;
}

void Manager::ReleaseBlock(BlockHeader* header) {
  auto* storage = static_cast<Storage*>(header->record.load(std::memory_order_acquire));
  if ((header->flags.load(std::memory_order_relaxed) & kBlockEscaped) != 0) {
    escaped_.Subtract(static_cast<int64_t>(header->bytes));
  }
  bool kept = false;
  if (storage != nullptr) {
    wanted_.Subtract(storage->bytes.count());
    void* const handle = storage->host;
    // The header goes with the memory, so it must be whole again before the runtime can pass it on.
    header->record.store(nullptr, std::memory_order_relaxed);
    header->magic = BlockHeader::kMagic;
    kept = runtime_->Drop(storage);
    ReleaseHandle(handle);
  } else if (!InReplay()) {
    wanted_.Subtract(static_cast<int64_t>(header->bytes));
  }
  if (!kept) allocator_.Free(header);
}

Storage* Manager::RecordOf(const c10::StorageImpl& storage) {
  ReaderLock lock(&header_mutex_);
  if (BlockHeader* header = HeaderOf(storage)) {
    return static_cast<Storage*>(header->record.load(std::memory_order_acquire));
  }
  return static_cast<Storage*>(RecordOfEvicted(storage));
}

Storage* Manager::Adopt(c10::StorageImpl& storage, BlockHeader& header) {
  if (void* known = header.record.load(std::memory_order_acquire)) {
    return static_cast<Storage*>(known);
  }
  void* const handle =
      StorageHandle(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage)).release();
  void* const payload = reinterpret_cast<char*>(&header) + kBlockHeaderBytes;
  Storage* record =
      runtime_->Adopt(&header.record, handle, Bytes(static_cast<int64_t>(header.bytes)), payload);
  if (record->host != handle) ReleaseHandle(handle);
  return record;
}

void Manager::EvictedGone(Storage* storage) {
  wanted_.Subtract(storage->bytes.count());
  void* const handle = storage->host;
  runtime_->Drop(storage);
  ReleaseHandle(handle);
}

void Manager::Escape(c10::StorageImpl& storage) {
  if (Storage* record = RecordOf(storage)) {
    if (!record->escaped) {
      const absl::Status status = runtime_->Escape(record);
      FlushReferences();
      if (!status.ok()) ThrowStatus(status);
    }
  }
  if (BlockHeader* header = HeaderOf(storage)) {
    const uint32_t flags = header->flags.fetch_or(kBlockEscaped, std::memory_order_relaxed);
    if ((flags & kBlockEscaped) == 0) escaped_.Add(static_cast<int64_t>(header->bytes));
  }
}

void Manager::ThrowStatus(const absl::Status& status) {
  const std::string text(status.message());
  if (absl::IsResourceExhausted(status)) ThrowOutOfMemory(text);
  TORCH_CHECK(false, "ebbtide: ", text);
}

void Manager::ThrowOutOfMemory(const std::string& cause) {
  out_of_memory_errors_.fetch_add(1, std::memory_order_relaxed);
  WriteSnapshot();
  std::vector<std::string> lines;
  if (manages()) lines = runtime_->HolderLines(escaped_.now());
  lines.push_back(Suggestion());
  TORCH_CHECK_WITH(OutOfMemoryError, false, WithLines(cause, lines));
}

std::string Manager::OutputPath(const std::string& option) {
  const char* rank = std::getenv("RANK");
  return ExpandOutputPath(option, getpid(), rank == nullptr ? "0" : rank);
}

void Manager::WriteSnapshot() {
  if (options_.snapshot_file.empty() || snapshot_written_.exchange(true)) return;
  const std::string path = OutputPath(options_.snapshot_file);
  const absl::Status status = WriteSnapshotFile(allocator_.TakeSnapshot(), path);
  if (!status.ok()) EBB_WARN("the snapshot file was not written: %s", status.message());
}

std::string Manager::Suggestion() const {
  if (!options_.budget.has_value()) {
    return "Suggestion: set EBBTIDE_BUDGET (or ebbtide run --budget) below the machine's memory, "
           "so that tensors leave memory before it is exhausted.";
  }
  if (min_bytes_ > Bytes(4 << 10)) {
    return absl::StrCat(
        "Suggestion: raise the budget, use a smaller batch, or set "
        "EBBTIDE_MIN_BYTES below ",
        min_bytes_.count(), " so that smaller tensors can leave as well.");
  }
  return "Suggestion: raise the budget or use a smaller batch: what one operator reads and writes, "
         "and what cannot be made again, must fit at once.";
}

absl::StatusOr<void*> Manager::AllocateMemory(Bytes bytes) {
  EBB_ASSIGN_OR_RETURN(void* block,
                       allocator_.Allocate(bytes + Bytes(static_cast<int64_t>(kBlockHeaderBytes))));
  return InitBlock(block, static_cast<size_t>(bytes.count()));
}

void Manager::FreeMemory(void* memory) {
  FlushReferences();
  BlockHeader* header = HeaderOfPayload(memory);
  header->magic = BlockHeader::kFreed;
  allocator_.Free(header);
}

void Manager::FlushReferences() {
  if (deferred_references.empty()) return;
  // A destructor that runs here may come back to this list.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> references;
  references.swap(deferred_references);
}

void Manager::CopyMemory(void* to, const void* from, Bytes bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes.count()));
}

void* Manager::TakeMemory(void* host_storage) {
  c10::intrusive_ptr<c10::StorageImpl> storage = LockHandle(host_storage);
  if (storage == nullptr) return nullptr;
  void* memory = nullptr;
  BlockHeader* header = HeaderOf(*storage);
  // A storage that cannot be resized has given its address away (numpy does that).
  if (header != nullptr && storage->resizable()) {
    WriterLock lock(&header_mutex_);
    void* const record = header->record.exchange(nullptr);
    memory = ebbtide::TakeMemory(*storage, record);
  }
  deferred_references.push_back(std::move(storage));
  return memory;
}

bool Manager::GiveMemory(void* host_storage, void* memory) {
  c10::intrusive_ptr<c10::StorageImpl> storage = LockHandle(host_storage);
  if (storage == nullptr) return false;
  BlockHeader* header = HeaderOfPayload(memory);
  header->record.store(RecordOfEvicted(*storage), std::memory_order_release);
  header->flags.store(0, std::memory_order_relaxed);
  {
    WriterLock lock(&header_mutex_);
    ebbtide::GiveMemory(*storage, memory);
  }
  Arm(*storage);
  deferred_references.push_back(std::move(storage));
  return true;
}

void Manager::RegisterForkHandlers() {
  pthread_atfork(
      [] {
        if (instance_->manages()) instance_->runtime_->LockForFork();
        // No other thread may be reading a header, or the child's evictions would wait for it.
        instance_->header_mutex_.Lock();
        instance_->allocator_.LockForFork();
      },
      [] {
        instance_->allocator_.UnlockAfterFork();
        instance_->header_mutex_.Unlock();
        if (instance_->manages()) instance_->runtime_->UnlockAfterFork();
      },
      [] {
        instance_->forked_.store(true);
        instance_->replayer_.UseNewThreads();
        instance_->allocator_.UnlockAfterFork();
        instance_->header_mutex_.UnlockInChild();
        if (instance_->manages()) instance_->runtime_->UnlockAfterFork();
      });
}

}  // namespace ebbtide
