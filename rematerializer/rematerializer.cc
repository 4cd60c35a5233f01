// SPDX-License-Identifier: Apache-2.0

#include "rematerializer/rematerializer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

// How a replay comes by the memory of one input.
enum class InputMemory : char {
  kShared,      // the value's own memory, only read
  kHandedOver,  // the value's own memory, given up: nobody else wants the value
  kCopied,      // a private copy, still to be made
};

// A written input whose value nobody else could ask for needs no copy: its memory is scratch.
bool OnlyThisReplayWants(const Use& use) {
  const Value& value = *use.value;
  return !value.is_source() && value.detached() && value.pins == 1 && value.uses == &use &&
         use.next == nullptr;
}

// Whether a replay that is still to come might read a value that no storage holds. A reader whose
// outputs are all there has no need of it.
bool MayBeReadAgain(const Value& value) {
  for (const Use* use = value.uses; use != nullptr; use = use->next) {
    for (const Call::Output& output : use->call->outputs) {
      if (output.value != nullptr && output.value->memory == nullptr) return true;
    }
  }
  return false;
}

// Whether the value's bytes count in a working set: not those of a source that a storage holds.
bool Movable(const Value& value) { return !value.is_source() || value.storage == nullptr; }

// What a replay needs besides its inputs: new outputs, and private copies of what it writes.
Bytes ReplayNeeds(const Call& call) {
  Bytes needs(0);
  for (const Call::Output& output : call.outputs) {
    if (output.value != nullptr && output.from_input < 0) needs += output.value->bytes;
  }
  for (const Use& use : call.inputs) {
    const Value& value = *use.value;
    const bool wanted_by_others = value.uses != &use || use.next != nullptr;
    if (use.written && (value.is_source() || value.storage != nullptr || wanted_by_others)) {
      needs += value.bytes;
    }
  }
  return needs;
}

}  // namespace

uint64_t DigestOf(const void* memory, Bytes bytes) {
  const absl::string_view content(static_cast<const char*>(memory),
                                  static_cast<size_t>(bytes.count()));
  const uint64_t digest = absl::HashOf(content);
  return digest == 0 ? 1 : digest;
}

Bytes Rematerializer::Evict(Value* value) {
  EBB_CHECK(value->pins == 0 && value->memory != nullptr && !value->is_source());
  void* memory = value->memory;
  if (value->storage != nullptr) {
    memory = parts_.host->TakeMemory(value->storage->host);
    if (memory == nullptr) {
      parts_.policy->Exclude(value);
      return Bytes(0);
    }
  }
  if (parts_.verify && !value->call->operation->IsScratch(value->output)) {
    value->digest = DigestOf(memory, value->bytes);
  }
  parts_.graph->TakeMemory(value);
  parts_.graph->AddGarbage(memory);
  ++stats_.evictions;
  stats_.evicted_bytes += value->bytes;
  return value->bytes;
}

Bytes Rematerializer::EvictAtLeast(Bytes bytes) {
  Bytes freed(0);
  while (freed < bytes) {
    Value* victim = parts_.policy->ChooseVictim(MonotonicNow());
    if (victim == nullptr) break;
    freed += Evict(victim);
  }
  return freed;
}

void Rematerializer::Wait(absl::FunctionRef<bool()> until) {
  void* token = nullptr;
  if (parts_.before_wait != nullptr) {
    parts_.mutex->Unlock();
    token = parts_.before_wait();
    parts_.mutex->Lock();
  }
  while (!until()) replay_done_.Wait(parts_.mutex);
  if (parts_.after_wait != nullptr) {
    parts_.mutex->Unlock();
    parts_.after_wait(token);
    parts_.mutex->Lock();
  }
}

void Rematerializer::WaitForReplays(Value* value) {
  while (value->replay_pins > 0) {
    Wait([value] { return value->replay_pins == 0; });
  }
}

absl::Status Rematerializer::Push(Value* value, std::vector<Frame>* stack) {
  while (value->memory == nullptr) {
    Call* call = value->call;
    if (call == nullptr) {
      return absl::InternalError(
          absl::StrCat("value ", value->id, " has neither memory nor a call that could make it"));
    }
    if (!call->replaying) {
      call->replaying = true;
      stack->push_back({call});
      // What the call reads must look fresh before the first of it is rebuilt, or the policy would
      // evict one input to make room for the next.
      const Nanos now = MonotonicNow();
      for (const Use& use : call->inputs) parts_.graph->Read(use.value, now);
      return absl::OkStatus();
    }
    // The call may be gone once the other thread is through, the value is pinned by the caller.
    Wait([value] {
      return value->memory != nullptr || value->call == nullptr || !value->call->replaying;
    });
  }
  return absl::OkStatus();
}

void Rematerializer::Pop(std::vector<Frame>* stack) {
  const Frame frame = stack->back();
  stack->pop_back();
  frame.call->replaying = false;
  // The call lives as long as one of its outputs does, and the caller pins one of them.
  for (size_t i = 0; i < frame.pinned; ++i) {
    Value* value = frame.call->inputs[i].value;
    --value->replay_pins;
    // What was made on the way goes as soon as it has been read, as it did the first time. Kept as
    // a candidate it would look fresh, and push out what the program waits for.
    const bool on_the_way = value->detached() && !value->is_source() && value->pins == 1;
    if (on_the_way && !MayBeReadAgain(*value)) {
      parts_.graph->AddGarbage(parts_.graph->TakeMemory(value));
    }
    parts_.graph->Unpin(value);
  }
  replay_done_.SignalAll();
}

absl::Status Rematerializer::Rebuild(Value* target) {
  EBB_CHECK(target->pins > 0);
  absl::Status status;
  std::vector<Frame> stack;
  while (target->memory == nullptr && status.ok()) {
    status = Push(target, &stack);
    while (!stack.empty() && status.ok()) {
      Frame& top = stack.back();
      if (top.pinned > 0 && top.call->inputs[top.pinned - 1].value->memory == nullptr) {
        status = Push(top.call->inputs[top.pinned - 1].value, &stack);
      } else if (top.pinned < top.call->inputs.size()) {
        Value* input = top.call->inputs[top.pinned++].value;
        parts_.graph->Pin(input);
        ++input->replay_pins;
      } else {
        status = Replay(top.call);
        Pop(&stack);
        FreeGarbage();
      }
    }
    while (!stack.empty()) Pop(&stack);
  }
  return status;
}

absl::Status Rematerializer::RunUnlocked(const Call& call, absl::Span<void*> inputs,
                                         absl::Span<const char> how, absl::Span<void*> outputs,
                                         std::vector<void*>* scratch) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<InputMemory>(how[i]) != InputMemory::kCopied) continue;
    const Bytes bytes = call.inputs[i].value->bytes;
    EBB_ASSIGN_OR_RETURN(void* copy, parts_.host->AllocateMemory(bytes));
    parts_.host->CopyMemory(copy, inputs[i], bytes);
    scratch->push_back(copy);
    inputs[i] = copy;
  }
  return parts_.replayer->Replay(call, inputs, outputs);
}

absl::Status Rematerializer::Replay(Call* call) {
  const size_t n = call->inputs.size();
  absl::InlinedVector<void*, 8> inputs(n);
  absl::InlinedVector<char, 8> how(n, static_cast<char>(InputMemory::kShared));
  std::vector<void*> scratch;
  for (size_t i = 0; i < n; ++i) {
    Use& use = call->inputs[i];
    inputs[i] = use.value->memory;
    if (!use.written) continue;
    if (OnlyThisReplayWants(use)) {
      how[i] = static_cast<char>(InputMemory::kHandedOver);
      scratch.push_back(parts_.graph->TakeMemory(use.value));
    } else {
      how[i] = static_cast<char>(InputMemory::kCopied);
    }
  }
  absl::InlinedVector<void*, 4> outputs(call->outputs.size(), nullptr);
  parts_.mutex->Unlock();
  const Nanos start = MonotonicNow();
  absl::Status status =
      RunUnlocked(*call, absl::MakeSpan(inputs), how, absl::MakeSpan(outputs), &scratch);
  const Nanos elapsed = MonotonicNow() - start;
  parts_.mutex->Lock();
  ++stats_.recomputed_calls;
  stats_.recompute_time += elapsed;
  if (status.ok()) {
    for (size_t j = 0; j < outputs.size(); ++j) {
      const int32_t from = call->outputs[j].from_input;
      if (from < 0) continue;
      outputs[j] = inputs[static_cast<size_t>(from)];
      scratch.erase(std::find(scratch.begin(), scratch.end(), outputs[j]));
    }
    status = Install(call, absl::MakeSpan(outputs));
  }
  for (void* memory : scratch) parts_.graph->AddGarbage(memory);
  for (void* memory : outputs) {
    if (memory != nullptr) parts_.graph->AddGarbage(memory);
  }
  return status;
}

absl::Status Rematerializer::Install(Call* call, absl::Span<void*> outputs) {
  for (size_t j = 0; j < outputs.size(); ++j) {
    Value* value = call->outputs[j].value;
    if (value == nullptr || value->memory != nullptr) continue;
    if (value->storage == nullptr && value->pins == 0 && !MayBeReadAgain(*value)) continue;
    void* const memory = outputs[j];
    if (memory == nullptr) {
      return absl::InternalError(
          absl::StrCat(call->operation->name(), " gave no output ", j, " when it was run again"));
    }
    if (value->digest != 0 && value->digest != DigestOf(memory, value->bytes)) {
      return absl::InternalError(absl::StrCat("verify: ", call->operation->name(),
                                              " gave other bytes when it was run again (output ", j,
                                              ", ", value->bytes.count(), " bytes)"));
    }
    if (value->storage != nullptr) {
      if (!parts_.host->GiveMemory(value->storage->host, memory)) {
        return absl::CancelledError("the storage that waited for the value is gone");
      }
      ++stats_.rebuilds;
      ++value->rebuilds;
    }
    if (value->digest != 0) ++stats_.verified;
    outputs[j] = nullptr;
    parts_.graph->GiveMemory(value, memory);
  }
  return absl::OkStatus();
}

Bytes Rematerializer::WorkingSet(const Value& value, absl::Span<Value* const> pinned_values) const {
  struct Step {
    const Call* call;
    size_t pinned = 0;
  };
  if (value.memory != nullptr || value.is_source()) return Bytes(0);
  absl::flat_hash_set<const Call*> done;
  absl::flat_hash_map<const Value*, int> pins;
  Bytes pinned(0);
  for (const Value* v : pinned_values) {
    if (v->memory == nullptr || !Movable(*v)) continue;
    if (pins[v]++ == 0) pinned += v->bytes;
  }
  Bytes peak(0);
  const auto there = [&](const Value& v) { return v.memory != nullptr || done.contains(v.call); };
  std::vector<Step> stack = {{value.call}};
  while (!stack.empty()) {
    Step& top = stack.back();
    if (top.pinned < top.call->inputs.size()) {
      const Value& input = *top.call->inputs[top.pinned++].value;
      if (!Movable(input)) continue;
      const bool first = pins[&input]++ == 0;
      if (!there(input)) {
        stack.push_back({input.call});
      } else if (first) {
        pinned += input.bytes;
      }
      continue;
    }
    peak = std::max(peak, pinned + ReplayNeeds(*top.call));
    if (done.insert(top.call).second) {
      for (const Call::Output& output : top.call->outputs) {
        if (output.value == nullptr || output.value->memory != nullptr) continue;
        if (pins.contains(output.value)) pinned += output.value->bytes;
      }
    }
    for (const Use& use : top.call->inputs) {
      if (!Movable(*use.value) || --pins[use.value] > 0) continue;
      pins.erase(use.value);
      pinned -= use.value->bytes;
    }
    stack.pop_back();
  }
  return peak;
}

void Rematerializer::FreeGarbage() {
  while (parts_.graph->has_garbage()) {
    Garbage garbage = parts_.graph->TakeGarbage();
    parts_.mutex->Unlock();
    for (void* memory : garbage.memory) parts_.host->FreeMemory(memory);
    garbage.operations.clear();
    parts_.mutex->Lock();
  }
}

}  // namespace ebbtide
