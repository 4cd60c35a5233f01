// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/op_info.h"

#include <ATen/core/function_schema.h>
#include <pthread.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace ebbtide {
namespace {

absl::string_view NamespaceOf(absl::string_view name) { return name.substr(0, name.find(':')); }

// Above autograd such an operator is taken apart before it reaches the hook; without autograd (in
// inference mode) it arrives whole and must be let through to its parts.
bool IsComposite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

void ReadSchema(const c10::FunctionSchema& schema, OpInfo* info) {
  info->arguments = schema.arguments().size();
  info->returns = schema.returns().size();
  for (size_t i = 0; i < info->arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (written) {
      if (i < 64) {
        info->written |= uint64_t{1} << i;
      } else {
        info->replayable = false;
      }
    }
    const c10::Type* type = argument.type().get();
    if (type->str() == "Generator" || type->str() == "Generator?") {
      info->generator_argument = static_cast<int>(i);
    }
  }
  for (const c10::Argument& returned : schema.returns()) {
    const bool written = returned.alias_info() != nullptr && returned.alias_info()->isWrite();
    if (!written) info->makes_outputs = true;
  }
}

OpInfo MakeInfo(const c10::OperatorHandle& op) {
  OpInfo info;
  info.name = op.operator_name().name;
  const absl::string_view space = NamespaceOf(info.name);
  info.collective = IsCollectiveNamespace(space);
  info.replayable = IsTrustedNamespace(space);
  ReadSchema(op.schema(), &info);
  // Somebody else's operator: a wrong schema is no reason for wrong bytes.
  if (!info.replayable && space != "prims" && space != "profiler") info.written = ~uint64_t{0};
  info.random = op.hasTag(at::Tag::nondeterministic_seeded) || info.generator_argument >= 0;
  info.composite = IsComposite(op);
  if (const OpRow* row = FindOpRow(info.name); row != nullptr) {
    info.written |= row->silently_written;
    if (row->only_if_argument >= 0) {
      info.conditionally_written = row->silently_written;
      info.only_if_argument = row->only_if_argument;
    }
    info.scratch_results = row->scratch_results;
    info.scratch_arguments = row->scratch_arguments;
    info.keeps_addresses = row->keeps_addresses;
    info.uninitialised = row->uninitialised;
    if (row->never_replayed) info.replayable = false;
  }
  return info;
}

Mutex infos_mutex;

// A child of fork() must not find it locked by a thread that it does not have.
[[maybe_unused]] const int infos_fork_safe = pthread_atfork(
    [] { infos_mutex.Lock(); }, [] { infos_mutex.Unlock(); }, [] { infos_mutex.Unlock(); });

// Schemas are heap objects of the dispatcher, so that their address names the operator.
const OpInfo& SharedInfo(const c10::OperatorHandle& op) {
  static auto* const infos = new absl::flat_hash_map<const void*, std::unique_ptr<OpInfo>>;
  MutexLock lock(&infos_mutex);
  std::unique_ptr<OpInfo>& info = (*infos)[&op.schema()];
  if (info == nullptr || info->name != op.operator_name().name) {
    // An info that is replaced may still be in use: it is kept.
    (void)info.release();
    info = std::make_unique<OpInfo>(MakeInfo(op));
  }
  return *info;
}

}  // namespace

const OpInfo& InfoOf(const c10::OperatorHandle& op) {
  struct Entry {
    const void* schema = nullptr;
    const OpInfo* info = nullptr;
  };
  // On the heap: thread-local room for a library that is loaded late is scarce.
  static thread_local const auto recent = std::make_unique<std::array<Entry, 256>>();
  const void* const schema = &op.schema();
  Entry& entry = (*recent)[reinterpret_cast<uintptr_t>(schema) / 64 % recent->size()];
  if (entry.schema != schema || entry.info->name != op.operator_name().name) {
    entry = {schema, &SharedInfo(op)};
  }
  return *entry.info;
}

}  // namespace ebbtide
