// SPDX-License-Identifier: Apache-2.0
//
// Rematerializer: carries out what a policy decides. It evicts values and brings evicted values
// back by running their calls again.
//
// A rebuild works on an explicit stack of calls, so that its depth is bounded by memory and not by
// the thread's stack. Each call on the stack pins the inputs it has already got; what was rebuilt
// on the way stays in memory as a candidate until the budget takes it.
//
// Threads: every method REQUIRES the mutex given to the constructor, and Rebuild releases it while
// operators run. Several threads may rebuild at once: a call is replayed by one of them, the others
// wait for it. No cycle of waits can arise, because a thread only waits for calls that make
// ancestors of what it is rebuilding itself.
//
// Ownership: borrows everything it is given; all of it must outlive this object.

#ifndef EBBTIDE_REMATERIALIZER_REMATERIALIZER_H_
#define EBBTIDE_REMATERIALIZER_REMATERIALIZER_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "policy/eviction_policy.h"
#include "rematerializer/host.h"
#include "rematerializer/op_replayer.h"
#include "tracker/graph.h"

namespace ebbtide {

struct RematerializerStats {
  int64_t evictions = 0;
  Bytes evicted_bytes{0};
  // Evicted values of live storages that came back.
  int64_t rebuilds = 0;
  // Replays, those of ancestors included.
  int64_t recomputed_calls = 0;
  Nanos recompute_time{0};
  int64_t verified = 0;
};

class Rematerializer {
 public:
  struct Parts {
    Mutex* mutex;
    Graph* graph;
    EvictionPolicy* policy;
    OpReplayer* replayer;
    Host* host;
    // Compare a digest of every value that comes back with the one it left with.
    bool verify = false;
    // Called around every wait for another thread, without the mutex (e.g. to let go of an
    // interpreter lock that the other thread may need). Both may be null.
    void* (*before_wait)() = nullptr;
    void (*after_wait)(void* token) = nullptr;
  };

  explicit Rematerializer(const Parts& parts) : parts_(parts) {}

  // Evicts one candidate. Returns the bytes that it gave back, zero if the host refused.
  Bytes Evict(Value* value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  // Evicts what the policy names until at least `bytes` are given back or there is nothing left.
  // Returns what was given back. The memory is freed when the garbage is (FreeGarbage).
  Bytes EvictAtLeast(Bytes bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  // Brings `value` back if it has no memory. REQUIRES: the caller pins it. ResourceExhausted if the
  // budget does not allow it, Internal if a replay gave something else than the original call.
  absl::Status Rebuild(Value* value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  // A lower bound of the memory that rebuilding `value` needs at once: the largest sum over the
  // chain of what has to be in memory while one call runs. Values in memory outside of that can
  // leave, except what the caller has `pinned`. Sources that a storage holds are in memory anyway
  // and are not counted.
  Bytes WorkingSet(const Value& value, absl::Span<Value* const> pinned) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  // Waits until no replay reads `value`, which the caller is about to overwrite.
  void WaitForReplays(Value* value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  // Frees what has become useless; releases the mutex while doing so.
  void FreeGarbage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  const RematerializerStats& stats() const { return stats_; }

 private:
  struct Frame {
    Call* call;
    size_t pinned = 0;  // how many of the call's inputs this frame has pinned
  };

  // Starts on the call that makes `value`, or waits while another thread replays it.
  absl::Status Push(Value* value, std::vector<Frame>* stack)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);
  // Ends the top frame: lets go of its inputs and of its call.
  void Pop(std::vector<Frame>* stack) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);
  absl::Status Replay(Call* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);
  // Makes the private copies that `how` asks for, then runs the call.
  absl::Status RunUnlocked(const Call& call, absl::Span<void*> inputs, absl::Span<const char> how,
                           absl::Span<void*> outputs, std::vector<void*>* scratch);
  // Gives outputs to the values that wait for them; what it used is null in `outputs` afterwards.
  absl::Status Install(Call* call, absl::Span<void*> outputs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);
  void Wait(absl::FunctionRef<bool()> until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(parts_.mutex);

  const Parts parts_;
  CondVar replay_done_;
  RematerializerStats stats_;
};

// Digest of a value's bytes for verify mode; never zero.
uint64_t DigestOf(const void* memory, Bytes bytes);

}  // namespace ebbtide

#endif  // EBBTIDE_REMATERIALIZER_REMATERIALIZER_H_
