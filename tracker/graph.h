// SPDX-License-Identifier: Apache-2.0
//
// Graph: everything that Ebbtide knows of what the program did.
//
// It owns storages, values and calls (tracker/value.h) and keeps them consistent: which value a
// storage holds, which calls could make which value again, and which of that history is still of
// use. It decides nothing (policy/) and moves no bytes (rematerializer/). What has become useless,
// the memory of detached values and the operations of forgotten calls, is put into a Garbage list
// that the owner frees after it has let go of its lock, because freeing may run the host's code.
//
// Threads: not synchronised; the runtime's mutex guards it. Nothing here recurses along the graph,
// so that chains of any length are fine.
//
// To follow what happens to values (a policy does), implement ValueListener.

#ifndef EBBTIDE_TRACKER_GRAPH_H_
#define EBBTIDE_TRACKER_GRAPH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tracker/value.h"

namespace ebbtide {

// Told of every change that matters to a decision. All calls come under the runtime's mutex.
class ValueListener {
 public:
  virtual ~ValueListener() = default;
  // The value has memory now: it was made, or it was rebuilt.
  virtual void OnMemoryGained(Value* value) = 0;
  // The value has no memory any more, but stays known: evicted, overwritten or dropped.
  virtual void OnMemoryLost(Value* value) = 0;
  // The storage of a value without memory is gone: nobody waits for the value any more.
  virtual void OnDropped(Value* /*value*/) {}
  // The value got a call (it can be rebuilt from now on).
  virtual void OnRecorded(Value* value) = 0;
  // The value lost its call and became a source; it has memory.
  virtual void OnSettled(Value* value) = 0;
  // The value was read; value->last_access is already new.
  virtual void OnRead(Value* value) = 0;
  // The value is about to be destroyed.
  virtual void OnForgotten(Value* value) = 0;
};

// What the owner has to free once its lock is released.
struct Garbage {
  std::vector<void*> memory;
  std::vector<std::unique_ptr<Operation>> operations;
};

class Graph {
 public:
  struct Input {
    Value* value;
    bool written;
  };
  struct Output {
    Value* value;        // null: the call has this output, but nobody will ask for it
    int32_t from_input;  // as Call::Output::from_input
  };

  // `listener` must outlive the graph.
  explicit Graph(ValueListener* listener);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // A storage that holds a source of `bytes` bytes at `memory`.
  Storage* AddStorage(void* host, Bytes bytes, void* memory);

  // The program let go of the storage. If its value is still needed and nothing can make it again,
  // the memory is kept (the value becomes detached) and true is returned: the graph owns it now.
  // Otherwise the memory stays the caller's to free.
  bool DropStorage(Storage* storage);

  // The storage is about to be written: its value stops being the storage's content, and a new
  // source with the same memory takes its place. Returns the old value, held once (Unhold it). If
  // `copy` is not null it becomes the old value's memory; it is the graph's from then on.
  Value* Displace(Storage* storage, void* copy);

  // Remembers a call. Every output value must be a source with memory, and there must be one.
  // Returns null, and remembers nothing, if an input could not be brought back (a source without
  // memory).
  Call* Record(std::unique_ptr<Operation> operation, absl::Span<const Input> inputs,
               absl::Span<const Output> outputs, Nanos cost);

  // The value's bytes are gone for good: calls that read it can never run again. Their outputs with
  // memory become sources, those without are lost in turn. REQUIRES: no storage's evicted value
  // depends on it (EvictedDependents is empty) and it has neither call nor memory. A pin does not
  // keep a value from being lost whose storage was overwritten.
  void Lose(Value* value);

  // Values that somebody waits for (a live storage holds them, or they are pinned), that have no
  // memory now, and whose rebuild would read one of `values`, directly or through other values
  // without memory. Each such path ends at the first value found. The values in `leaving` are about
  // to lose their memory and their storage: paths go on through them.
  std::vector<Value*> EvictedDependents(absl::Span<Value* const> values,
                                        absl::Span<Value* const> leaving = {}) const;

  // Values without a storage and without pins that have memory and were made from one of `values`,
  // directly or through values that have none or are such themselves: what a rebuild of others left
  // behind.
  std::vector<Value*> DetachedDependents(absl::Span<Value* const> values) const;

  // What keeping the bytes of `source` makes possible: the bytes of values in memory that could
  // leave only because it is there (they are read from it directly or through values without
  // memory). Bytes::Max() if something that is awaited, but not in memory, depends on it. Stops
  // counting at `enough`.
  Bytes BytesThatDependOn(Value* source, Bytes enough) const;

  // Memory comes and goes. Lost memory is the caller's to free.
  void GiveMemory(Value* value, void* memory);
  void* TakeMemory(Value* value);

  void Read(Value* value, Nanos now);
  void Pin(Value* value) { ++value->pins; }
  void Unpin(Value* value);
  void Hold(Value* value) { ++value->holds; }
  void Unhold(Value* value);

  // Sources without a storage whose bytes are kept because a call reads them.
  const absl::flat_hash_set<Value*>& retained() const { return retained_; }
  Bytes retained_bytes() const { return retained_bytes_; }

  // Bytes of all sources with memory: what no eviction by recompute can free.
  Bytes source_bytes() const { return source_bytes_; }

  // All storages that live now, for reports.
  const absl::flat_hash_set<Storage*>& storages() const { return storages_; }
  size_t live_values() const { return live_values_; }
  size_t live_calls() const { return live_calls_; }

  // Adds memory that was taken from a value, or that a replay left over.
  void AddGarbage(void* memory) { garbage_.memory.push_back(memory); }
  // Hands over what there is to free. REQUIRES: called under the lock, freed after it.
  Garbage TakeGarbage();
  bool has_garbage() const { return !garbage_.memory.empty() || !garbage_.operations.empty(); }

 private:
  // How a walk goes on from a value that it has met.
  enum class Walk { kThrough, kPast, kNoFurther };
  // Meets what calls made from `values`, each call once, in no particular order.
  static void WalkDependents(absl::Span<Value* const> values,
                             absl::FunctionRef<Walk(Value* made)> visit);
  Value* NewValue(Bytes bytes, Storage* storage, void* memory);
  // Keeps retained_ and source_bytes_ right after a change of call, memory or storage.
  void UpdateSource(Value* value);
  // Destroys `value` if nothing needs it, then whatever only it needed.
  void CollectFrom(Value* value);
  void Destroy(Value* value, std::vector<Value*>* dead);
  // Destroys a call; values that only it needed are appended to `dead`.
  void ForgetCall(Call* call, std::vector<Value*>* dead);
  static void LinkUse(Use* use);
  static void UnlinkUse(Use* use);

  ValueListener* const listener_;
  absl::flat_hash_set<Storage*> storages_;
  absl::flat_hash_set<Value*> retained_;
  Bytes retained_bytes_{0};
  Bytes source_bytes_{0};
  Garbage garbage_;
  uint64_t next_id_ = 1;
  size_t live_values_ = 0;
  size_t live_calls_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TRACKER_GRAPH_H_
