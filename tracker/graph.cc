// SPDX-License-Identifier: Apache-2.0

#include "tracker/graph.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

// Nothing can ask for this value again.
bool IsDead(const Value& value) {
  return value.storage == nullptr && value.uses == nullptr && value.pins == 0 && value.holds == 0;
}

bool IsAwaited(const Value& value) {
  return value.memory == nullptr && (value.storage != nullptr || value.pins > 0);
}

}  // namespace

void Graph::WalkDependents(absl::Span<Value* const> values,
                           absl::FunctionRef<Walk(Value* made)> visit) {
  std::vector<Value*> work(values.begin(), values.end());
  absl::flat_hash_set<const Call*> seen;
  while (!work.empty()) {
    Value* value = work.back();
    work.pop_back();
    for (Use* use = value->uses; use != nullptr; use = use->next) {
      if (!seen.insert(use->call).second) continue;
      for (const Call::Output& output : use->call->outputs) {
        if (output.value == nullptr) continue;
        const Walk next = visit(output.value);
        if (next == Walk::kNoFurther) return;
        if (next == Walk::kThrough) work.push_back(output.value);
      }
    }
  }
}

Graph::Graph(ValueListener* listener) : listener_(listener) { EBB_CHECK(listener != nullptr); }

Graph::~Graph() {
  while (!storages_.empty()) DropStorage(*storages_.begin());
}

Value* Graph::NewValue(Bytes bytes, Storage* storage, void* memory) {
  auto* value = new Value;
  value->id = next_id_++;
  value->bytes = bytes;
  value->storage = storage;
  value->memory = memory;
  ++live_values_;
  return value;
}

Storage* Graph::AddStorage(void* host, Bytes bytes, void* memory) {
  auto* storage = new Storage;
  storage->id = next_id_++;
  storage->bytes = bytes;
  storage->host = host;
  storage->value = NewValue(bytes, storage, memory);
  UpdateSource(storage->value);
  storages_.insert(storage);
  listener_->OnMemoryGained(storage->value);
  return storage;
}

bool Graph::DropStorage(Storage* storage) {
  Value* value = storage->value;
  value->storage = nullptr;
  storages_.erase(storage);
  delete storage;
  void* const memory = value->memory;
  if (memory == nullptr) {
    listener_->OnDropped(value);
    CollectFrom(value);
    return false;
  }
  // A pinned value's memory may be in use by a replay, and a source that is read again has no other
  // home. What a call can make again is not worth its bytes.
  const bool keep = value->pins > 0 || (value->is_source() && value->uses != nullptr);
  if (!keep) {
    value->memory = nullptr;
    listener_->OnMemoryLost(value);
  }
  UpdateSource(value);
  CollectFrom(value);
  return keep;
}

Value* Graph::Displace(Storage* storage, void* copy) {
  Value* old = storage->value;
  EBB_CHECK(old->memory != nullptr);
  Value* fresh = NewValue(storage->bytes, storage, old->memory);
  fresh->last_access = old->last_access;
  storage->value = fresh;
  old->storage = nullptr;
  old->memory = copy;
  Hold(old);
  if (copy == nullptr) listener_->OnMemoryLost(old);
  UpdateSource(old);
  UpdateSource(fresh);
  listener_->OnMemoryGained(fresh);
  return old;
}

void Graph::LinkUse(Use* use) {
  Value* value = use->value;
  use->previous = nullptr;
  use->next = value->uses;
  if (value->uses != nullptr) value->uses->previous = use;
  value->uses = use;
}

void Graph::UnlinkUse(Use* use) {
  if (use->previous != nullptr) {
    use->previous->next = use->next;
  } else {
    use->value->uses = use->next;
  }
  if (use->next != nullptr) use->next->previous = use->previous;
}

Call* Graph::Record(std::unique_ptr<Operation> operation, absl::Span<const Input> inputs,
                    absl::Span<const Output> outputs, Nanos cost) {
  uint32_t depth = 0;
  for (const Input& input : inputs) {
    if (input.value->memory == nullptr && input.value->is_source()) {
      garbage_.operations.push_back(std::move(operation));
      return nullptr;
    }
    depth = std::max(depth, input.value->depth);
  }
  auto* call = new Call;
  call->id = next_id_++;
  call->operation = std::move(operation);
  call->cost = cost;
  call->inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    call->inputs[i].value = inputs[i].value;
    call->inputs[i].call = call;
    call->inputs[i].written = inputs[i].written;
    LinkUse(&call->inputs[i]);
    UpdateSource(inputs[i].value);
  }
  ++live_calls_;
  for (const Output& output : outputs) {
    Value* value = output.value;
    if (value == nullptr) {
      call->outputs.push_back({});
      continue;
    }
    ++call->live_outputs;
    EBB_CHECK(value->is_source() && value->memory != nullptr);
    value->call = call;
    value->output = static_cast<uint32_t>(call->outputs.size());
    value->depth = depth + 1;
    call->outputs.push_back({value, output.from_input});
    UpdateSource(value);
    listener_->OnRecorded(value);
  }
  EBB_CHECK(call->live_outputs > 0);
  return call;
}

void Graph::UpdateSource(Value* value) {
  const bool retained = value->is_source() && value->detached();
  if (retained) {
    if (retained_.insert(value).second) retained_bytes_ += value->bytes;
  } else if (!retained_.empty() && retained_.erase(value) > 0) {
    retained_bytes_ -= value->bytes;
  }
  const bool counted = value->is_source() && value->memory != nullptr;
  if (counted != value->counted_as_source) {
    value->counted_as_source = counted;
    source_bytes_ += counted ? value->bytes : value->bytes * -1;
  }
}

void Graph::Destroy(Value* value, std::vector<Value*>* dead) {
  listener_->OnForgotten(value);
  if (value->memory != nullptr) garbage_.memory.push_back(std::exchange(value->memory, nullptr));
  UpdateSource(value);
  if (Call* call = value->call; call != nullptr) {
    call->outputs[value->output].value = nullptr;
    if (--call->live_outputs == 0) ForgetCall(call, dead);
  }
  --live_values_;
  delete value;
}

void Graph::ForgetCall(Call* call, std::vector<Value*>* dead) {
  EBB_CHECK(!call->replaying);
  for (Use& use : call->inputs) {
    UnlinkUse(&use);
    if (IsDead(*use.value)) dead->push_back(use.value);
  }
  garbage_.operations.push_back(std::move(call->operation));
  --live_calls_;
  delete call;
}

void Graph::CollectFrom(Value* value) {
  if (!IsDead(*value)) return;
  // Only losing its last use makes a value dead here, which happens once: no value comes up twice.
  std::vector<Value*> dead = {value};
  while (!dead.empty()) {
    Value* next = dead.back();
    dead.pop_back();
    Destroy(next, &dead);
  }
}

void Graph::Lose(Value* value) {
  std::vector<Value*> lost = {value};
  Hold(value);
  while (!lost.empty()) {
    Value* source = lost.back();
    lost.pop_back();
    EBB_CHECK(source->is_source() && source->memory == nullptr);
    while (source->uses != nullptr) {
      Call* call = source->uses->call;
      for (Call::Output& output : call->outputs) {
        Value* made = output.value;
        if (made == nullptr) continue;
        made->call = nullptr;
        made->depth = 0;
        if (made->memory != nullptr) {
          listener_->OnSettled(made);
          UpdateSource(made);
        } else {
          EBB_CHECK(made->storage == nullptr && made->replay_pins == 0);
          Hold(made);
          lost.push_back(made);
        }
      }
      std::vector<Value*> dead;
      ForgetCall(call, &dead);
      for (Value* v : dead) CollectFrom(v);
    }
    Unhold(source);
  }
}

std::vector<Value*> Graph::EvictedDependents(absl::Span<Value* const> values,
                                             absl::Span<Value* const> leaving) const {
  std::vector<Value*> found;
  WalkDependents(values, [&](Value* made) {
    if (std::find(leaving.begin(), leaving.end(), made) != leaving.end()) return Walk::kThrough;
    if (made->memory != nullptr) return Walk::kPast;
    if (!IsAwaited(*made)) return Walk::kThrough;
    found.push_back(made);
    return Walk::kPast;
  });
  return found;
}

std::vector<Value*> Graph::DetachedDependents(absl::Span<Value* const> values) const {
  std::vector<Value*> found;
  WalkDependents(values, [&](Value* made) {
    if (made->memory == nullptr) return Walk::kThrough;
    if (!made->detached() || made->pins > 0) return Walk::kPast;
    found.push_back(made);
    return Walk::kThrough;
  });
  return found;
}

Bytes Graph::BytesThatDependOn(Value* source, Bytes enough) const {
  Bytes bytes(0);
  WalkDependents(absl::MakeConstSpan(&source, 1), [&](Value* made) {
    if (made->memory != nullptr) {
      bytes += made->bytes;
    } else if (IsAwaited(*made)) {
      bytes = Bytes::Max();
    } else {
      return Walk::kThrough;
    }
    return bytes < enough ? Walk::kPast : Walk::kNoFurther;
  });
  return bytes;
}

void Graph::GiveMemory(Value* value, void* memory) {
  EBB_CHECK(value->memory == nullptr && memory != nullptr);
  value->memory = memory;
  UpdateSource(value);
  listener_->OnMemoryGained(value);
}

void* Graph::TakeMemory(Value* value) {
  EBB_CHECK(value->memory != nullptr);
  void* memory = std::exchange(value->memory, nullptr);
  UpdateSource(value);
  listener_->OnMemoryLost(value);
  return memory;
}

void Graph::Read(Value* value, Nanos now) {
  value->last_access = now;
  listener_->OnRead(value);
}

void Graph::Unpin(Value* value) {
  EBB_CHECK(value->pins > 0);
  --value->pins;
  CollectFrom(value);
}

void Graph::Unhold(Value* value) {
  EBB_CHECK(value->holds > 0);
  --value->holds;
  CollectFrom(value);
}

Garbage Graph::TakeGarbage() { return std::exchange(garbage_, Garbage()); }

}  // namespace ebbtide
