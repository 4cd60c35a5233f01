// SPDX-License-Identifier: Apache-2.0
//
// Closures as operators: what a kernel is given, how a call of one is remembered, and the
// OpReplayer that runs it again. Part of runtime/buffer_session.h; on its own for hosts with
// buffers of their own.
//
// Threads: a ClosureOperation never changes, and a ClosureReplayer may replay any number of calls
// at once. Ownership: an operation owns copies of the kernel and of the engine; the replayer
// borrows the host.

#ifndef EBBTIDE_RUNTIME_CLOSURE_H_
#define EBBTIDE_RUNTIME_CLOSURE_H_

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "rematerializer/host.h"
#include "rematerializer/op_replayer.h"

namespace ebbtide {

// What a kernel works on.
struct KernelArguments {
  absl::Span<const void* const> reads;
  absl::Span<void* const> writes;
  absl::Span<void* const> outputs;
  std::mt19937_64& random;
};

using Kernel = std::function<absl::Status(const KernelArguments&)>;

// A recorded call of a kernel.
class ClosureOperation : public Operation {
 public:
  struct Parts {
    std::string name;
    Kernel kernel;
    // Sizes of the outputs on memory of their own, which come first among the call's outputs.
    std::vector<Bytes> outputs;
    // Indices into the call's inputs, in the kernel's order.
    std::vector<size_t> reads;
    std::vector<size_t> writes;
    // The engine as it was before the call.
    std::mt19937_64 random;
  };

  explicit ClosureOperation(Parts parts);
  absl::string_view name() const override { return parts_.name; }
  const std::vector<Bytes>& outputs() const { return parts_.outputs; }

  // Runs the kernel on `inputs`, which are as Call::inputs. Returns the kernel's status.
  absl::Status Run(absl::Span<void* const> inputs, absl::Span<void* const> outputs) const;

 private:
  const Parts parts_;
};

// Replays calls whose operation is a ClosureOperation, with memory from the host.
class ClosureReplayer : public OpReplayer {
 public:
  explicit ClosureReplayer(Host* host) : host_(host) {}
  absl::Status Replay(const Call& call, absl::Span<void* const> inputs,
                      absl::Span<void*> outputs) override;

 private:
  Host* const host_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_RUNTIME_CLOSURE_H_
