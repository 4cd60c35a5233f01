// SPDX-License-Identifier: Apache-2.0
//
// OpReplayer: runs a recorded call again. One of the four variation points of Ebbtide.
//
// A replay must give, bit for bit, what the call gave, and must change nothing that the program can
// see: not its storages, not its random generators, not its modes. It may read every input; it may
// write exactly those whose Use says `written`, which are private copies.
//
// Threads: called without any lock held, possibly for different calls at the same time. Ownership:
// the memory of outputs passes to the caller; inputs stay the caller's.
//
// To support another host, implement this and Host, and instantiate
// tests/rematerializer/op_replayer_conformance.h.

#ifndef EBBTIDE_REMATERIALIZER_OP_REPLAYER_H_
#define EBBTIDE_REMATERIALIZER_OP_REPLAYER_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tracker/value.h"

namespace ebbtide {

class OpReplayer {
 public:
  virtual ~OpReplayer() = default;

  // inputs[i] is where the bytes of call.inputs[i].value are. On success outputs[j] is new memory
  // of the size of call.outputs[j] where that output is wanted (call.outputs[j].value is not null
  // and from_input is -1), and may be set or null elsewhere. On failure all outputs are null:
  // ResourceExhausted if memory was missing, Internal if the call did not do what it did before.
  // `call` is not changed by anybody meanwhile, except that outputs[j].value may become null.
  virtual absl::Status Replay(const Call& call, absl::Span<void* const> inputs,
                              absl::Span<void*> outputs) = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_REMATERIALIZER_OP_REPLAYER_H_
