// SPDX-License-Identifier: Apache-2.0
//
// The words of Ebbtide as data: Storage, Value, Call and Use.
//
// A Storage is one buffer that the host framework owns. A Value is the content of a storage between
// two writes; it never changes, it only gains and loses memory. A Call is one recorded operator
// call: it reads values (each read is a Use) and makes values. A Value without a Call is a source:
// nothing can bring its bytes back once they are gone.
//
// Threads: none of these types locks anything. All of them belong to one Graph (tracker/graph.h),
// and all access happens under the mutex of the runtime that owns the graph.
//
// Ownership: the Graph creates and destroys every object here. Uses hold values: a value stays
// known, with or without memory, as long as its storage lives, a call reads it or somebody holds
// it. A call stays known as long as one of its output values does. Hence the graph is exactly the
// history that live values could need, and it shrinks by itself.
//
// To describe another host's operators, derive from Operation; the tracker never looks inside.

#ifndef EBBTIDE_TRACKER_VALUE_H_
#define EBBTIDE_TRACKER_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"

namespace ebbtide {

struct Call;
struct Storage;
struct Value;

// What the host needs to run a call again. Destroyed without any lock held.
class Operation {
 public:
  virtual ~Operation() = default;
  // The operator's name as its framework spells it, e.g. "aten::relu".
  virtual absl::string_view name() const = 0;
  // Whether an output is (in part) scratch memory, which nobody reads and which another run may
  // leave with other bytes. Verify mode does not compare it.
  virtual bool IsScratch(size_t /*output*/) const { return false; }
};

// One read of a value by a call; a node of the value's list of readers.
struct Use {
  Value* value = nullptr;
  Call* call = nullptr;
  Use* previous = nullptr;
  Use* next = nullptr;
  // The operator writes this argument (declared or silently): a replay must get a private copy.
  bool written = false;
};

struct Value {
  uint64_t id = 0;
  Bytes bytes{0};
  // The call that made it; null for a source.
  Call* call = nullptr;
  // Index into call->outputs.
  uint32_t output = 0;
  // Length of the longest chain of calls down to a source; bounds how much history is kept.
  uint32_t depth = 0;
  // The storage that holds this value now; null once it was overwritten or the storage was dropped.
  Storage* storage = nullptr;
  // Where the bytes are; null while the value is evicted or has no memory. With a storage the host
  // owns this memory, without one ("detached") the runtime does.
  void* memory = nullptr;
  Use* uses = nullptr;
  // Forbids eviction, and keeps the value known.
  uint32_t pins = 0;
  // Those of the pins that a replay in flight holds: a writer has to wait for them.
  uint32_t replay_pins = 0;
  // Keeps the value known without forbidding eviction.
  uint32_t holds = 0;
  uint32_t rebuilds = 0;
  Nanos last_access{0};
  // Set by verify mode when the value left; 0 when nothing was recorded.
  uint64_t digest = 0;
  // The graph has counted it into source_bytes().
  bool counted_as_source = false;
  // Room for the eviction policy: its index of candidates and its node of evicted neighbours.
  int32_t policy_index = -1;
  void* policy_node = nullptr;

  bool is_source() const { return call == nullptr; }
  bool evicted() const { return memory == nullptr && storage != nullptr; }
  bool detached() const { return memory != nullptr && storage == nullptr; }
};

struct Storage {
  uint64_t id = 0;
  Bytes bytes{0};
  Value* value = nullptr;
  // The host's own handle, e.g. a weak reference to a framework object.
  void* host = nullptr;
  // In-place calls recorded since the storage last held a source or a fresh output.
  uint32_t chain = 0;
  // Its address left the program's tensors (numpy, data_ptr, ...): never evicted again, and nothing
  // that is computed from it can be replayed, because its bytes may change unseen.
  bool escaped = false;
};

struct Call {
  // An output either gets memory of its own, or is what the call left in a written input.
  struct Output {
    Value* value = nullptr;
    // Index into inputs of the argument that the call wrote to make this output; -1: fresh memory.
    int32_t from_input = -1;
  };

  uint64_t id = 0;
  std::unique_ptr<Operation> operation;
  // Distinct values, in the order in which the operation refers to them. Never resized after
  // recording, because the readers' lists point into it.
  std::vector<Use> inputs;
  absl::InlinedVector<Output, 2> outputs;
  uint32_t live_outputs = 0;
  // Measured duration of the call itself.
  Nanos cost{0};
  // Room for the eviction policy: the walk that has seen this call last.
  uint64_t policy_mark = 0;
  // A thread is replaying this call now.
  bool replaying = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TRACKER_VALUE_H_
