// SPDX-License-Identifier: Apache-2.0

#include "runtime/runtime.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {

Runtime::Runtime(const RuntimeConfig& config, std::unique_ptr<EvictionPolicy> policy, Host* host,
                 OpReplayer* replayer)
    : config_(config),
      policy_(std::move(policy)),
      host_(host),
      graph_(policy_.get()),
      rematerializer_({.mutex = &mutex_,
                       .graph = &graph_,
                       .policy = policy_.get(),
                       .replayer = replayer,
                       .host = host,
                       .verify = config.verify,
                       .host_wait = config.host_wait}),
      turns_(&mutex_, config.host_wait, config.patience),
      stress_random_(config.stress_seed) {}

Runtime::~Runtime() {
  MutexLock lock(&mutex_);
  rematerializer_.FreeGarbage();
}

Storage* Runtime::Adopt(std::atomic<void*>* slot, void* host_storage, Bytes bytes, void* memory) {
  MutexLock lock(&mutex_);
  if (void* known = slot->load(std::memory_order_relaxed)) return static_cast<Storage*>(known);
  Storage* storage = graph_.AddStorage(host_storage, bytes, memory);
  storage->value->last_access = MonotonicNow();
  slot->store(storage, std::memory_order_release);
  return storage;
}

bool Runtime::Drop(Storage* storage) {
  MutexLock lock(&mutex_);
  Value* value = storage->value;
  const bool source = value->is_source() && value->memory != nullptr && value->uses != nullptr;
  const bool kept = graph_.DropStorage(storage);
  if (source && value->pins == 0 && value->holds == 0 && !WorthKeeping(value)) Settle(value);
  rematerializer_.FreeGarbage();
  return kept;
}

void Runtime::Settle(Value* source) {
  graph_.Hold(source);
  graph_.AddGarbage(graph_.TakeMemory(source));
  graph_.Lose(source);
  graph_.Unhold(source);
}

// Keeping a source's bytes lets the values that were made from it leave. That must be more than
// what is kept, or nothing is won: a momentum buffer that was made from a gradient would keep a
// gradient for each step.
bool Runtime::WorthKeeping(Value* source) const {
  const Bytes enough = source->bytes * 4;
  return graph_.BytesThatDependOn(source, enough) >= enough;
}

void Runtime::SettleWhatDoesNotPay() {
  const std::vector<Value*> retained(graph_.retained().begin(), graph_.retained().end());
  for (Value* value : retained) {
    // Settling one may have settled or freed others.
    if (!graph_.retained().contains(value) || value->pins > 0 || value->holds > 0) continue;
    if (!WorthKeeping(value)) Settle(value);
  }
}

absl::Status Runtime::BringBack(Value* value, absl::Span<Value* const> pinned) {
  // While this thread waits, another may overwrite the value's storage together with what the value
  // was made from. Then it cannot come back, and nobody asks for it any more.
  const auto lost = [value] {
    return value->is_source() && value->memory == nullptr && value->storage == nullptr;
  };
  if (value->memory != nullptr || lost()) return absl::OkStatus();
  if (config_.budget != Bytes::Max()) {
    const Bytes needed = rematerializer_.WorkingSet(*value, pinned) + graph_.source_bytes() -
                         graph_.retained_bytes();
    if (needed > config_.budget) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rebuilding a value of ", FormatBytes(value->bytes), " needs at least ",
          FormatBytes(needed), " at once, the budget is ", FormatBytes(config_.budget)));
    }
  }
  absl::Status status = rematerializer_.Rebuild(value);
  return lost() ? absl::OkStatus() : status;
}

absl::Status Runtime::PinOne(Argument* argument, std::vector<Value*>* pinned) {
  const Nanos now = MonotonicNow();
  for (;;) {
    Value* value = argument->storage->value;
    if (argument->read != value) {
      graph_.Pin(value);
      graph_.Read(value, now);
      if (argument->read != nullptr) graph_.Unpin(argument->read);
      argument->read = value;
      pinned->push_back(value);
    }
    EBB_RETURN_IF_ERROR(BringBack(value, *pinned));
    // Another thread may have written the storage while this one waited.
    if (argument->storage->value == value) return absl::OkStatus();
  }
}

absl::Status Runtime::PinArguments(absl::Span<Argument> arguments) {
  const Nanos now = MonotonicNow();
  bool missing = false;
  // First everything that is there, so that a rebuild cannot push it out.
  for (Argument& argument : arguments) {
    if (argument.storage == nullptr) continue;
    argument.read = argument.storage->value;
    graph_.Pin(argument.read);
    graph_.Read(argument.read, now);
    pinned_ += argument.read->bytes;
    missing |= argument.read->memory == nullptr;
  }
  largest_pinned_ = std::max(largest_pinned_, pinned_);
  return missing ? PinMissing(arguments) : absl::OkStatus();
}

absl::Status Runtime::PinMissing(absl::Span<Argument> arguments) {
  std::vector<Value*> pinned;
  for (const Argument& argument : arguments) {
    if (argument.read != nullptr) pinned.push_back(argument.read);
  }
  for (Argument& argument : arguments) {
    if (argument.storage != nullptr) EBB_RETURN_IF_ERROR(PinOne(&argument, &pinned));
  }
  return absl::OkStatus();
}

absl::Status Runtime::BeginCall(absl::Span<Argument> arguments) {
  MutexLock lock(&mutex_);
  turns_.Begin();
  for (;;) {
    absl::Status status = PinArguments(arguments);
    if (status.ok()) status = PrepareWrites(arguments);
    if (!status.ok()) Release(arguments);
    rematerializer_.FreeGarbage();
    if (status.ok()) return status;
    // What others have pinned may be what is missing.
    if (absl::IsResourceExhausted(status) && turns_.WaitForAnother()) continue;
    turns_.End();
    return status;
  }
}

absl::StatusOr<void*> Runtime::CopyOf(const Value& value) {
  const void* const from = value.memory;
  const Bytes bytes = value.bytes;
  mutex_.Unlock();
  absl::StatusOr<void*> copy = host_->AllocateMemory(bytes);
  if (copy.ok()) host_->CopyMemory(*copy, from, bytes);
  mutex_.Lock();
  return copy;
}

// A write ends a value. A value with a call can be made again, and a source that nobody reads is
// not missed; what remains are sources that recorded calls read. Small ones are copied. For the
// others, evicted values that depend on them are rebuilt now, or the source is copied where they do
// not fit.
absl::Status Runtime::PrepareWrites(absl::Span<Argument> arguments) {
  std::vector<Argument*> written;
  for (Argument& argument : arguments) {
    if (argument.written && argument.storage != nullptr) written.push_back(&argument);
  }
  if (written.empty()) return absl::OkStatus();
  std::vector<void*> copies(written.size(), nullptr);
  std::vector<Value*> kept;
  absl::Status status;
  // While this thread waits for a replay that reads what it is about to write, others may evict
  // more dependents, or write the same: only a round without a wait is final.
  for (bool waited = true; waited && status.ok();) {
    status = SaveDependents(written, &copies, &kept);
    waited = false;
    for (size_t i = 0; i < written.size() && status.ok(); ++i) {
      Argument* const argument = written[i];
      if (argument->storage->value != argument->read) {
        if (copies[i] != nullptr) graph_.AddGarbage(std::exchange(copies[i], nullptr));
        status = PinMissing(absl::MakeSpan(argument, 1));
      } else if (argument->read->replay_pins > 0) {
        rematerializer_.WaitForReplays(argument->read);
      } else {
        continue;
      }
      waited = true;
    }
  }
  if (status.ok()) {
    for (size_t i = 0; i < written.size(); ++i) {
      Displace(written[i], std::exchange(copies[i], nullptr));
    }
    for (Argument* argument : written) {
      Value* old = argument->read;
      const bool lost = old->is_source() && old->memory == nullptr;
      if (lost && old->uses != nullptr) graph_.Lose(old);
    }
  }
  for (void* copy : copies) {
    if (copy != nullptr) graph_.AddGarbage(copy);
  }
  for (Value* value : kept) graph_.Unpin(value);
  return status;
}

// What rebuilds left behind becomes sources once its origin is overwritten, and stays for as long
// as something evicted needs it. Some of that makes the next rebuild cheap, or possible at all;
// more than the program's own sources is memory that nothing can free.
void Runtime::EvictLeftBehind(const std::vector<Value*>& written) {
  const std::vector<Value*> left_behind = graph_.DetachedDependents(written);
  Bytes kept = graph_.retained_bytes();
  for (const Value* value : left_behind) kept += value->bytes;
  if (kept <= graph_.source_bytes() - graph_.retained_bytes()) return;
  for (Value* value : left_behind) rematerializer_.Evict(value);
}

absl::Status Runtime::SaveDependents(const std::vector<Argument*>& written,
                                     std::vector<void*>* copies, std::vector<Value*>* kept) {
  for (size_t i = 0; i < written.size(); ++i) {
    const Value& value = *written[i]->read;
    const bool read_again = value.uses != nullptr || written[i]->preserve;
    if (value.is_source() && read_again && value.bytes <= config_.copy_limit &&
        (*copies)[i] == nullptr) {
      EBB_ASSIGN_OR_RETURN((*copies)[i], CopyOf(value));
    }
  }
  // Pressure from other threads may evict more dependents while this one rebuilds some: repeat.
  for (;;) {
    std::vector<Value*> sources;
    // A written value with a call can be made again, unless what it was made from is written too.
    std::vector<Value*> leaving;
    Bytes source_bytes(0);
    for (size_t i = 0; i < written.size(); ++i) {
      Value* value = written[i]->read;
      leaving.push_back(value);
      if (!value->is_source() || value->uses == nullptr || (*copies)[i] != nullptr) continue;
      sources.push_back(value);
      source_bytes += value->bytes;
    }
    EvictLeftBehind(sources);
    const std::vector<Value*> evicted = graph_.EvictedDependents(sources, leaving);
    if (evicted.empty()) return absl::OkStatus();
    Bytes evicted_bytes(0);
    for (Value* value : evicted) evicted_bytes += value->bytes;
    absl::Status status;
    // Rebuilt, the dependents become sources; copied, the sources stay for as long as they do. The
    // program will most likely read the dependents soon (an optimizer that writes one parameter is
    // about to read every gradient), so they are rebuilt if that leaves room for the largest call.
    const Bytes afterwards = graph_.source_bytes() + evicted_bytes + largest_pinned_;
    if (evicted_bytes <= source_bytes || afterwards <= config_.budget) {
      for (Value* value : evicted) {
        graph_.Pin(value);
        kept->push_back(value);
      }
      std::vector<Value*> pinned = leaving;
      pinned.insert(pinned.end(), kept->begin(), kept->end());
      for (Value* value : evicted) {
        if (status.ok()) status = BringBack(value, pinned);
      }
      if (status.ok()) continue;
      if (!absl::IsResourceExhausted(status)) return status;
      for (Value* value : *kept) graph_.Unpin(value);
      kept->clear();
    }
    for (size_t i = 0; i < written.size(); ++i) {
      Value* value = written[i]->read;
      if (!value->is_source() || value->uses == nullptr || (*copies)[i] != nullptr) continue;
      EBB_ASSIGN_OR_RETURN((*copies)[i], CopyOf(*value));
    }
  }
}

void Runtime::Displace(Argument* argument, void* copy) {
  Value* old = graph_.Displace(argument->storage, copy);  // held from here on
  argument->fresh = argument->storage->value;
  graph_.Pin(argument->fresh);
  graph_.Unpin(old);
}

void Runtime::Record(absl::Span<Argument> arguments, std::unique_ptr<Operation>* operation,
                     absl::Span<Storage* const> outputs, Nanos cost) {
  absl::InlinedVector<Graph::Input, 8> inputs;
  absl::InlinedVector<Graph::Output, 4> made;
  uint32_t depth = 0;
  for (Argument& argument : arguments) {
    if (argument.storage == nullptr || argument.storage->escaped) return;
    if (argument.read == nullptr) {
      EBB_CHECK(!argument.written);
      argument.read = argument.storage->value;
      graph_.Pin(argument.read);
      pinned_ += argument.read->bytes;
    }
    // Another thread wrote it meanwhile: nobody knows what the call has read.
    const Value* const now = argument.fresh != nullptr ? argument.fresh : argument.read;
    if (argument.storage->value != now) return;
    depth = std::max(depth, argument.read->depth);
    inputs.push_back({argument.read, argument.written});
  }
  if (depth >= config_.max_depth) return;
  bool wanted = false;
  for (Storage* storage : outputs) {
    const bool large = storage != nullptr && storage->bytes >= config_.min_bytes;
    made.push_back({large ? storage->value : nullptr, -1});
    wanted |= large;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    Storage* storage = argument.storage;
    if (argument.fresh == nullptr) continue;
    // Who pinned the old content has the address of the new one too: it may not leave.
    if (argument.read->pins > argument.read->replay_pins) continue;
    const bool known = !argument.read->is_source() || argument.read->memory != nullptr;
    if (!known || storage->bytes < config_.min_bytes || storage->chain >= config_.max_chain) {
      storage->chain = 0;
      continue;
    }
    // A source that is updated in place (a parameter) stays a source: remembering the update would
    // tie it to every step before.
    if (argument.read->is_source()) continue;
    ++storage->chain;
    made.push_back({argument.fresh, static_cast<int32_t>(i)});
    wanted = true;
  }
  if (!wanted) return;
  if (graph_.Record(std::move(*operation), inputs, made, cost) != nullptr) ++recorded_calls_;
}

void Runtime::Release(absl::Span<Argument> arguments) {
  for (Argument& argument : arguments) {
    if (argument.read == nullptr) continue;
    pinned_ -= argument.read->bytes;
    if (argument.fresh != nullptr) {
      graph_.Unpin(argument.fresh);
      graph_.Unhold(argument.read);
    } else {
      graph_.Unpin(argument.read);
    }
    argument.read = argument.fresh = nullptr;
  }
}

void Runtime::EndCall(absl::Span<Argument> arguments, std::unique_ptr<Operation> operation,
                      absl::Span<Storage* const> outputs, Nanos cost) {
  {
    MutexLock lock(&mutex_);
    const Nanos now = outputs.empty() ? Nanos(0) : MonotonicNow();
    for (Storage* storage : outputs) {
      if (storage != nullptr) graph_.Read(storage->value, now);
    }
    if (operation != nullptr) Record(arguments, &operation, outputs, cost);
    Release(arguments);
    turns_.End();
    if (config_.stress_probability > 0) Stress();
    rematerializer_.FreeGarbage();
  }
  // An operation that was not recorded is destroyed here, without the lock.
}

void Runtime::AbortCall(absl::Span<Argument> arguments) {
  MutexLock lock(&mutex_);
  Release(arguments);
  turns_.End();
  rematerializer_.FreeGarbage();
}

void Runtime::Stress() {
  std::vector<Value*> victims;
  std::bernoulli_distribution leaves(config_.stress_probability);
  for (Value* value : policy_->candidates()) {
    if (value->pins == 0 && leaves(stress_random_)) victims.push_back(value);
  }
  for (Value* value : victims) rematerializer_.Evict(value);
}

absl::StatusOr<Value*> Runtime::Pin(Storage* storage) {
  MutexLock lock(&mutex_);
  Argument argument{.storage = storage};
  absl::Status status = PinMissing(absl::MakeSpan(&argument, 1));
  if (!status.ok() && argument.read != nullptr) graph_.Unpin(argument.read);
  rematerializer_.FreeGarbage();
  if (!status.ok()) return status;
  return argument.read;
}

void Runtime::Unpin(Value* value) {
  MutexLock lock(&mutex_);
  graph_.Unpin(value);
  rematerializer_.FreeGarbage();
}

absl::Status Runtime::Escape(Storage* storage) {
  Argument argument{.storage = storage, .written = true};
  EBB_RETURN_IF_ERROR(BeginCall(absl::MakeSpan(&argument, 1)));
  MutexLock lock(&mutex_);
  storage->escaped = true;
  policy_->Exclude(storage->value);
  Release(absl::MakeSpan(&argument, 1));
  turns_.End();
  rematerializer_.FreeGarbage();
  return absl::OkStatus();
}

// The last resort: bytes of dropped sources are kept only so that values computed from them could
// be made again. Where all of those are in memory, they can become sources themselves instead.
Bytes Runtime::SettleRetained(Bytes bytes) {
  Bytes freed(0);
  while (freed < bytes) {
    Value* found = nullptr;
    for (Value* value : graph_.retained()) {
      if (value->pins > 0 || value->holds > 0) continue;
      if (found != nullptr && found->bytes >= value->bytes) continue;
      if (graph_.EvictedDependents(absl::MakeConstSpan(&value, 1)).empty()) found = value;
    }
    if (found == nullptr) break;
    freed += found->bytes;
    Settle(found);
  }
  return freed;
}

bool Runtime::RelievePressure(Bytes bytes) {
  MutexLock lock(&mutex_);
  // What paid when it was dropped may no longer do so. Looking costs, so only now and then, and
  // only if it could give back something that matters.
  constexpr int64_t kRoundsBetweenLooks = 64;
  const bool matters = graph_.retained_bytes() >= graph_.source_bytes() / 8;
  if (matters && pressure_rounds_++ % kRoundsBetweenLooks == 0) SettleWhatDoesNotPay();
  Bytes freed = rematerializer_.EvictAtLeast(bytes);
  if (freed < bytes) freed += SettleRetained(bytes - freed);
  rematerializer_.FreeGarbage();
  return freed > Bytes(0) || turns_.WaitForAnother();
}

RuntimeStats Runtime::stats() const {
  MutexLock lock(&mutex_);
  RuntimeStats stats;
  stats.rematerializer = rematerializer_.stats();
  stats.largest_pinned = largest_pinned_;
  stats.source_bytes = graph_.source_bytes();
  stats.retained_bytes = graph_.retained_bytes();
  stats.candidate_bytes = policy_->candidate_bytes();
  for (const Storage* storage : graph_.storages()) {
    if (storage->escaped) stats.escaped_bytes += storage->bytes;
  }
  stats.recorded_calls = recorded_calls_;
  stats.live_values = graph_.live_values();
  stats.live_calls = graph_.live_calls();
  return stats;
}

std::vector<std::string> Runtime::HolderLines(Bytes escaped) const {
  const RuntimeStats now = stats();
  Bytes pinned;
  {
    MutexLock lock(&mutex_);
    pinned = pinned_;
  }
  return {
      absl::StrCat("pinned by operators that are running: ", FormatBytes(pinned)),
      absl::StrCat("cannot be made again (parameters, optimizer state, inputs): ",
                   FormatBytes(now.source_bytes),
                   ", of which kept for rebuilding others: ", FormatBytes(now.retained_bytes)),
      absl::StrCat("address known outside (numpy, data_ptr, ...): ", FormatBytes(escaped)),
      absl::StrCat("could still be evicted: ", FormatBytes(now.candidate_bytes)),
      absl::StrCat("evicted so far: ", now.rematerializer.evictions, " times, ",
                   FormatBytes(now.rematerializer.evicted_bytes)),
  };
}

}  // namespace ebbtide
