// SPDX-License-Identifier: Apache-2.0
//
// Runtime: the state machine between a host framework and the layers below.
//
// The host brackets every operator with BeginCall and EndCall (or AbortCall when it threw), and
// says when a storage appears, is dropped or has its address taken. The runtime makes sure that
// what an operator reads is in memory while it runs, remembers what is needed to run it again, and
// evicts when the allocator is under pressure. Every rule by which results stay exact is kept here.
//
// Threads: all methods may be called from any thread; one mutex guards all state and is never held
// while an operator or the host's own code (other than Host::TakeMemory and GiveMemory) runs.
// Ownership: the runtime owns what it knows of the program. Host and OpReplayer are borrowed and
// must outlive it. Storages are handed out as pointers that stay valid until Drop.
//
// A trainer in C++ has its own buffers managed by runtime/buffer_session.h, which is the smallest
// host.

#ifndef EBBTIDE_RUNTIME_RUNTIME_H_
#define EBBTIDE_RUNTIME_RUNTIME_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "policy/eviction_policy.h"
#include "rematerializer/host.h"
#include "rematerializer/host_wait.h"
#include "rematerializer/op_replayer.h"
#include "rematerializer/rematerializer.h"
#include "runtime/turns.h"
#include "tracker/graph.h"

namespace ebbtide {

struct RuntimeConfig {
  // Limit on what may be held; used to notice a rebuild that cannot fit before it starts.
  Bytes budget = Bytes::Max();
  // Smallest storage that is evicted. Smaller ones count as sources: keeping their bytes is cheaper
  // than keeping the history that could make them again.
  Bytes min_bytes{16 << 10};
  // Compare the digest of every value that comes back with the one it left with.
  bool verify = false;
  // For tests: after every call evict each candidate with this probability, whatever the budget.
  double stress_probability = 0;
  uint64_t stress_seed = 0;
  // A value at the end of a longer chain of calls becomes a source, so that history stays bounded
  // in programs that never overwrite what they computed from.
  uint32_t max_depth = 10'000;
  // As many in-place calls on one storage are remembered; the next makes its content a source.
  uint32_t max_chain = 16;
  // Sources up to this size are copied before they are overwritten, if a recorded call reads them.
  Bytes copy_limit{64 << 10};
  // Around every wait for another thread.
  HostWait host_wait = {};
  // How long a call that is out of memory waits for calls of other threads to end.
  Nanos patience = std::chrono::seconds(5);
};

struct RuntimeStats {
  RematerializerStats rematerializer;
  Bytes largest_pinned{0};
  Bytes source_bytes{0};
  Bytes retained_bytes{0};
  Bytes candidate_bytes{0};
  Bytes escaped_bytes{0};
  int64_t recorded_calls = 0;
  size_t live_values = 0;
  size_t live_calls = 0;
};

class Runtime {
 public:
  // One storage that a call touches. The host fills `storage` and `written`, and keeps the struct
  // from BeginCall to EndCall; the rest is the runtime's.
  struct Argument {
    // Null: the host has not told the runtime of it yet (it may, by Adopt, before EndCall, unless
    // the call writes it).
    Storage* storage = nullptr;
    bool written = false;
    // The call has outputs on storages of their own besides what it writes here, so that its old
    // content will be needed to make them again.
    bool preserve = false;
    Value* read = nullptr;
    Value* fresh = nullptr;
  };

  // `policy` decides; `host` and `replayer` carry out.
  Runtime(const RuntimeConfig& config, std::unique_ptr<EvictionPolicy> policy, Host* host,
          OpReplayer* replayer);
  ~Runtime();

  // Makes a storage known whose content is a source. `slot` is where the host keeps the result (so
  // that two threads that meet the same storage agree on one); `host_storage` becomes Storage::host
  // if it is new.
  Storage* Adopt(std::atomic<void*>* slot, void* host_storage, Bytes bytes, void* memory);

  // The program let go of the storage. True: its memory is the runtime's from now on; false: it
  // stays the host's to free (there is none if it was evicted).
  bool Drop(Storage* storage);

  // A call is about to run: rebuilds and pins what it touches, and saves what it is about to
  // destroy. Arguments must be distinct. On error nothing is pinned: ResourceExhausted if the
  // budget does not allow it, Internal if a replay went wrong; then the call must not run.
  absl::Status BeginCall(absl::Span<Argument> arguments);

  // The call has run and took `cost`. `operation` is what can run it again, with the arguments'
  // order as its inputs; null if it must not be run again. `outputs` are the storages that it made,
  // in the operation's order; null for those that the host does not want to tell of (too small
  // ones).
  void EndCall(absl::Span<Argument> arguments, std::unique_ptr<Operation> operation,
               absl::Span<Storage* const> outputs, Nanos cost);

  // The call failed; what it was to write may hold anything.
  void AbortCall(absl::Span<Argument> arguments);

  // Brings the storage's content into memory and keeps it there until Unpin.
  absl::StatusOr<Value*> Pin(Storage* storage);
  void Unpin(Value* value);

  // The storage's address is known outside the host's tensors from now on: it stays in memory, and
  // what was computed from it is either safe already or is made safe before this returns.
  absl::Status Escape(Storage* storage);

  // Memory is short by `bytes`. Evicts; true if anything was given back. Must not be called with a
  // lock held that Host::FreeMemory takes.
  bool RelievePressure(Bytes bytes);

  RuntimeStats stats() const;
  // For the out-of-memory report: who holds what, a line each. `escaped` are the bytes that stay in
  // memory because the host gave their address away, those that the runtime never saw included.
  std::vector<std::string> HolderLines(Bytes escaped) const;

  // Around fork: the state must be whole in the child.
  void LockForFork() { mutex_.Lock(); }
  void UnlockAfterFork() { mutex_.Unlock(); }

 private:
  absl::Status PinArguments(absl::Span<Argument> arguments) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PinMissing(absl::Span<Argument> arguments) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PinOne(Argument* argument, std::vector<Value*>* pinned)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `pinned` is what the caller keeps in memory meanwhile.
  absl::Status BringBack(Value* value, absl::Span<Value* const> pinned)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PrepareWrites(absl::Span<Argument> arguments) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SaveDependents(const std::vector<Argument*>& written, std::vector<void*>* copies,
                              std::vector<Value*>* kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EvictLeftBehind(const std::vector<Value*>& written) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<void*> CopyOf(const Value& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Displace(Argument* argument, void* copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Leaves `operation` alone if there is nothing to record.
  void Record(absl::Span<Argument> arguments, std::unique_ptr<Operation>* operation,
              absl::Span<Storage* const> outputs, Nanos cost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(absl::Span<Argument> arguments) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Stress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets go of a retained source; what was made from it becomes sources.
  void Settle(Value* source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WorthKeeping(Value* source) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleWhatDoesNotPay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Bytes SettleRetained(Bytes bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RuntimeConfig config_;
  mutable Mutex mutex_;
  const std::unique_ptr<EvictionPolicy> policy_;
  Host* const host_;
  Graph graph_;
  Rematerializer rematerializer_;
  Turns turns_;
  std::mt19937_64 stress_random_;
  Bytes pinned_{0};
  Bytes largest_pinned_{0};
  int64_t recorded_calls_ = 0;
  int64_t pressure_rounds_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_RUNTIME_RUNTIME_H_
