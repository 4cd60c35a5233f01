// SPDX-License-Identifier: Apache-2.0
//
// BufferSession: Ebbtide for C++ programs. Buffers of plain bytes, operators as closures over them.
//
//     auto session = BufferSession::Create(&allocator, {});
//     auto x = (*session)->NewBuffer(Bytes(n));              // a source: fill it by Write
//     auto y = (*session)->Run({.name = "square", .reads = {*x}, .outputs = {Bytes(n)},
//                               .kernel = [](const KernelArguments& a) { ... }});
//
// A kernel must be a function of the bytes that it reads and of the random engine, and must write
// nothing but what it is given to write: then any buffer that it made may leave memory and come
// back bit for bit. It may be run again at any later time, so what it captures must live on. Part
// of a buffer is addressed by arithmetic inside the kernel; a buffer is evicted as a whole. Kernels
// that write past their buffers are found with CachingAllocator::Options::check.
//
// Threads: a session may be used from several threads at once, each buffer from one at a time as
// with any unsynchronised data; kernels that draw random numbers must then not run at the same
// time. Ownership: a Buffer keeps its bytes alive as a shared pointer does, and must be gone before
// its session. The allocator outlives the session, which takes over its pressure handler.

#ifndef EBBTIDE_RUNTIME_BUFFER_SESSION_H_
#define EBBTIDE_RUNTIME_BUFFER_SESSION_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "allocator/caching_allocator.h"
#include "base/bytes.h"
#include "runtime/closure.h"
#include "runtime/runtime.h"

namespace ebbtide {

class BufferSession;

// A managed buffer; copies refer to the same bytes.
class Buffer {
 public:
  Buffer() = default;
  explicit operator bool() const { return state_ != nullptr; }
  Bytes bytes() const;

 private:
  friend class BufferSession;
  struct State;
  explicit Buffer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct BufferOperation {
  std::string name = {};
  std::vector<Buffer> reads = {};
  // Read and written in place.
  std::vector<Buffer> writes = {};
  // Sizes of the buffers that it makes.
  std::vector<Bytes> outputs = {};
  // Is given the buffers above in their order.
  Kernel kernel = {};
  // False for what must not be run twice (it sends, logs, counts): its results are sources.
  bool replayable = true;
};

class BufferSession {
 public:
  struct Options {
    RuntimeConfig runtime;
    std::string policy = "ebb";
    uint64_t random_seed = 5489;
  };

  // InvalidArgument if there is no such policy. runtime.budget is set from the allocator's.
  static absl::StatusOr<std::unique_ptr<BufferSession>> Create(CachingAllocator* allocator,
                                                               Options options);
  ~BufferSession();

  // A buffer whose bytes come from outside. ResourceExhausted if the budget does not allow it,
  // InvalidArgument if it is empty.
  absl::StatusOr<Buffer> NewBuffer(Bytes bytes);

  // Runs an operator now and returns its outputs. ResourceExhausted if the budget does not allow
  // it: nothing has run then. A failing kernel's status is returned; what it was to write may hold
  // anything.
  absl::StatusOr<std::vector<Buffer>> Run(const BufferOperation& operation);

  // Lets `visit` look at (Read) or change (Write) the bytes, which are in memory meanwhile.
  absl::Status Read(const Buffer& buffer, absl::FunctionRef<void(const void*)> visit);
  absl::Status Write(const Buffer& buffer, absl::FunctionRef<void(void*)> visit);

  // Returns where the bytes are, for code that keeps the address: from now on they stay there, and
  // may be changed through it at any time, until the last copy of `buffer` is gone.
  absl::StatusOr<void*> Escape(const Buffer& buffer);

  Runtime& runtime() { return *runtime_; }
  // The engine that kernels draw from; its state is part of a call.
  std::mt19937_64& random() { return random_; }

 private:
  friend class Buffer;
  class BufferHost;

  explicit BufferSession(CachingAllocator* allocator, uint64_t random_seed);
  Storage* StorageOf(const Buffer& buffer);

  CachingAllocator* const allocator_;
  std::unique_ptr<BufferHost> host_;
  std::unique_ptr<ClosureReplayer> replayer_;
  std::unique_ptr<Runtime> runtime_;
  std::mt19937_64 random_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_RUNTIME_BUFFER_SESSION_H_
