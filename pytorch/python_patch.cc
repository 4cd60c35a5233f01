// SPDX-License-Identifier: Apache-2.0
#include "pytorch/python_patch.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ebbtide {
namespace {

// Bits of a method's calling convention, as the C API numbers them.
constexpr int kVarargs = 0x01;
constexpr int kKeywords = 0x02;
constexpr int kNoArguments = 0x04;
constexpr int kOneArgument = 0x08;
constexpr int kCoexist = 0x40;
constexpr int kFastcall = 0x80;
constexpr int kKnownFlags =
    kVarargs | kKeywords | kNoArguments | kOneArgument | kCoexist | kFastcall;

// The C API's PyMethodDef, part of Python's stable ABI.
struct MethodDef {
  const char* name;
  PythonCall::Function function;
  int flags;
  const char* doc;
};

struct Replacement {
  PythonCall::Function original = nullptr;
  int flags = 0;
  int mode = 0;
  MethodDef definition{};
};

std::array<Replacement, kMostPythonTargets> g_replacements;
void* (*g_around)(const PythonCall& call) = nullptr;

// Python tells functions apart by their address, so each needs a C function of its own. It reads
// four argument registers, whichever of them the convention fills, and passes all of them on.
template <size_t kIndex>
void* Replaced(void* a, void* b, void* c, void* d) {
  const Replacement& replacement = g_replacements[kIndex];
  return g_around(
      PythonCall{replacement.original, replacement.flags, replacement.mode, {a, b, c, d}});
}

template <size_t... kIndex>
constexpr auto MakeFunctions(std::index_sequence<kIndex...>) {
  return std::array<PythonCall::Function, sizeof...(kIndex)>{&Replaced<kIndex>...};
}
constexpr auto kFunctions = MakeFunctions(std::make_index_sequence<kMostPythonTargets>());

void*& WordAt(void* object, size_t offset) {
  return *reinterpret_cast<void**>(static_cast<char*>(object) + offset);
}

// Where an object keeps its function: `definition` points to a MethodDef, or `function` to a
// function pointer; one of them is null.
struct Slot {
  void** definition = nullptr;
  void** function = nullptr;
};

// Layouts of CPython's descrobject.h and methodobject.h. All descriptors start with their type,
// name and qualified name.
Slot FindSlot(const PythonApi& api, void* object, size_t head) {
  constexpr size_t kWord = sizeof(void*);
  void* type = WordAt(object, head - kWord);
  if (type == api.PyMethodDescr_Type) return {&WordAt(object, head + 3 * kWord), nullptr};
  if (type == api.PyWrapperDescr_Type) return {nullptr, &WordAt(object, head + 4 * kWord)};
  if (type == api.PyCFunction_Type) return {&WordAt(object, head), nullptr};
  return {};
}

absl::Status CheckSlot(const Slot& slot, size_t index) {
  if (slot.definition == nullptr && slot.function == nullptr) {
    return absl::UnimplementedError(absl::StrCat("function ", index, " is of an unknown kind"));
  }
  if (slot.function != nullptr) return absl::OkStatus();
  const auto* definition = static_cast<const MethodDef*>(*slot.definition);
  if (definition == nullptr || definition->name == nullptr || definition->function == nullptr ||
      (definition->flags & ~kKnownFlags) != 0) {
    return absl::UnimplementedError(absl::StrCat("function ", index, " is defined in a new way"));
  }
  return absl::OkStatus();
}

void Replace(const Slot& slot, size_t index, int mode) {
  Replacement& replacement = g_replacements[index];
  replacement.mode = mode;
  if (slot.function != nullptr) {
    replacement.original = reinterpret_cast<PythonCall::Function>(*slot.function);
    *slot.function = reinterpret_cast<void*>(kFunctions[index]);
    return;
  }
  replacement.definition = *static_cast<const MethodDef*>(*slot.definition);
  replacement.original = replacement.definition.function;
  replacement.flags = replacement.definition.flags;
  replacement.definition.function = kFunctions[index];
  *slot.definition = &replacement.definition;
}

}  // namespace

void ForEachArgument(const PythonApi& api, const PythonCall& call,
                     absl::FunctionRef<void(void* object)> visit) {
  visit(call.words[0]);
  if ((call.flags & kFastcall) != 0) {
    void* const* objects = static_cast<void* const*>(call.words[1]);
    // The highest bit is the callee's to use; names of keywords follow their values' count.
    auto count = reinterpret_cast<uintptr_t>(call.words[2]) & (UINTPTR_MAX >> 1);
    if ((call.flags & kKeywords) != 0 && call.words[3] != nullptr) {
      count += static_cast<uintptr_t>(api.PyTuple_Size(call.words[3]));
    }
    for (uintptr_t i = 0; i < count; ++i) visit(objects[i]);
    return;
  }
  if ((call.flags & kOneArgument) != 0) visit(call.words[1]);
  if ((call.flags & kVarargs) == 0) return;
  for (ptrdiff_t i = 0; i < api.PyTuple_Size(call.words[1]); ++i) {
    visit(api.PyTuple_GetItem(call.words[1], i));
  }
  if ((call.flags & kKeywords) == 0 || call.words[2] == nullptr) return;
  ptrdiff_t position = 0;
  void* key = nullptr;
  void* value = nullptr;
  while (api.PyDict_Next(call.words[2], &position, &key, &value) != 0) visit(value);
}

absl::Status PatchPython(const PythonApi& api, const PythonTarget* targets, size_t count,
                         size_t head, void* (*around)(const PythonCall& call)) {
  if (count > kMostPythonTargets) return absl::InternalError("too many functions to replace");
  std::vector<Slot> slots;
  for (size_t i = 0; i < count; ++i) {
    slots.push_back(FindSlot(api, targets[i].object, head));
    if (absl::Status status = CheckSlot(slots.back(), i); !status.ok()) return status;
  }
  g_around = around;
  for (size_t i = 0; i < count; ++i) Replace(slots[i], i, targets[i].mode);
  return absl::OkStatus();
}

}  // namespace ebbtide
