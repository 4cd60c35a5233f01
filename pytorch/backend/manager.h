// SPDX-License-Identifier: Apache-2.0
//
// Manager: the one object behind a managed PyTorch process. It owns the CPU device, the caching
// allocator and the runtime, is the runtime's Host, and counts what the report at exit tells.
//
// Two modes: without a budget it observes (it is torch's CPU allocator and counts, nothing else);
// with one it manages (the hook of dispatch_hook.h is armed and values are evicted).
//
// Threads: all methods may be called from any thread. Ownership: made once by Start and never
// destroyed, because torch frees memory until the very end of the process.

#ifndef EBBTIDE_PYTORCH_BACKEND_MANAGER_H_
#define EBBTIDE_PYTORCH_BACKEND_MANAGER_H_

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "allocator/caching_allocator.h"
#include "allocator/host_memory.h"
#include "base/options.h"
#include "base/shared_mutex.h"
#include "pytorch/backend/torch_operation.h"
#include "pytorch/block_header.h"
#include "rematerializer/host.h"
#include "runtime/runtime.h"

namespace ebbtide {

// What the program wants and has wanted of a device, as if nothing was ever evicted.
class BytesLevel {
 public:
  void Add(int64_t bytes);
  void Subtract(int64_t bytes) { now_.fetch_sub(bytes, std::memory_order_relaxed); }
  Bytes now() const { return Bytes(now_.load(std::memory_order_relaxed)); }
  Bytes peak() const { return Bytes(peak_.load(std::memory_order_relaxed)); }
  void RestartPeak() { peak_.store(now_.load()); }

 private:
  std::atomic<int64_t> now_{0};
  std::atomic<int64_t> peak_{0};
};

class Manager : public Host {
 public:
  // Makes the process's manager and torch's CPU allocator out of it. Fails, having changed nothing,
  // if the options cannot be met.
  static absl::Status Start(const Options& options);
  // Null before Start.
  static Manager* Get() { return instance_; }

  const Options& options() const { return options_; }
  bool manages() const { return runtime_ != nullptr; }
  // REQUIRES: manages().
  Runtime& runtime() { return *runtime_; }
  const CachingAllocator& allocator() const { return allocator_; }
  // What living storages hold or would hold, evicted ones counted in.
  const BytesLevel& wanted() const { return wanted_; }
  // What stays in memory because its address was given away.
  const BytesLevel& escaped() const { return escaped_; }
  Bytes min_bytes() const { return min_bytes_; }
  // Whether a call that reads so many bytes may make a storage of at least min_bytes. Hardly any
  // operator makes something large of something tiny, and tiny ones are the many.
  bool MayMakeLarge(int64_t input_bytes) const {
    constexpr int64_t kGrowth = 16;
    return input_bytes * kGrowth >= min_bytes_.count();
  }

  // Storages that torch asks us for, and gives back.
  void* AllocateBlock(size_t bytes);
  void ReleaseBlock(BlockHeader* header);

  // Held for reading from finding a resident block's header to reading its record: an eviction,
  // which takes the block away, waits for that, and so does a rebuild, which gives it one.
  SharedMutex& header_mutex() { return header_mutex_; }

  // The runtime's record of a storage of ours, resident or evicted; null if it has none (yet).
  Storage* RecordOf(const c10::StorageImpl& storage);
  // Makes one if there is none. REQUIRES: the storage is resident and ours.
  Storage* Adopt(c10::StorageImpl& storage, BlockHeader& header);
  // The storage of a record is gone while it was evicted.
  void EvictedGone(Storage* storage);
  // The storage stays in memory from now on, wherever its address may be known.
  void Escape(c10::StorageImpl& storage);

  // Lets go of references to storages that calls of the runtime on this thread left behind. To be
  // called after those that may rebuild, without any lock.
  static void FlushReferences();

  // Throws the error that fits: torch.OutOfMemoryError with the report, or RuntimeError.
  [[noreturn]] void ThrowStatus(const absl::Status& status);

  // The path that an option names, of this process and rank.
  static std::string OutputPath(const std::string& option);

  // Writes the snapshot file if the options want one and none was written yet. No lock may be held.
  void WriteSnapshot();

  void CountCall() { calls_.fetch_add(1, std::memory_order_relaxed); }
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  int64_t out_of_memory_errors() const { return out_of_memory_errors_.load(); }

  // Evictions may start: nothing can read a storage without being seen any more.
  void AllowEvictions() { evictions_allowed_.store(true); }
  bool evictions_allowed() const { return evictions_allowed_.load(std::memory_order_relaxed); }

  // Nothing may ever be evicted in this process: the budget is lifted, so that the program runs as
  // it would without us.
  void GiveUp() { allocator_.set_budget(Bytes::Max()); }

  // True in a child of fork, where OpenMP's threads are missing.
  bool in_forked_child() const { return forked_.load(std::memory_order_relaxed); }

  // Time that the calling thread has spent in making room; part of no operator's own cost.
  static Nanos PressureTime();

  // Host
  absl::StatusOr<void*> AllocateMemory(Bytes bytes) override;
  void FreeMemory(void* memory) override;
  void CopyMemory(void* to, const void* from, Bytes bytes) override;
  void* TakeMemory(void* host_storage) override;
  bool GiveMemory(void* host_storage, void* memory) override;

 private:
  explicit Manager(const Options& options);
  absl::Status Init();
  bool RelievePressure(const MemoryPressure& pressure);
  [[noreturn]] void ThrowOutOfMemory(const std::string& cause);
  std::string Suggestion() const;
  void RegisterForkHandlers();

  static Manager* instance_;

  const Options options_;
  Bytes min_bytes_;
  HostMemory device_;
  CachingAllocator allocator_;
  TorchReplayer replayer_;
  std::unique_ptr<Runtime> runtime_;
  SharedMutex header_mutex_;
  BytesLevel wanted_;
  BytesLevel escaped_;
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> out_of_memory_errors_{0};
  std::atomic<bool> evictions_allowed_{false};
  std::atomic<bool> forked_{false};
  std::atomic<bool> snapshot_written_{false};
};

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_MANAGER_H_
