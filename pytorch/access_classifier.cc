// SPDX-License-Identifier: Apache-2.0
#include "pytorch/access_classifier.h"

#include <c10/core/StorageImpl.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace ebbtide {
namespace {

enum class Module { kTorch, kRuntime, kInterpreter, kKernel, kForeign };

// The loaded file that holds `address`, or null. Lock free, unlike dladdr, so it may run under
// the loader's lock.
const link_map* ModuleOf(void* address) {
  dl_find_object found;
  if (_dl_find_object(address, &found) != 0) return nullptr;
  return found.dlfo_link_map;
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0: the whole name.
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

struct Surroundings {
  const link_map* self = nullptr;  // The file that this code is part of.
  const link_map* interpreter =
      nullptr;                // The file that holds the Python interpreter; null in a C++ program.
  std::string torch_folder;   // ".../torch/", from ".../torch/lib/libc10.so".
  std::string kernel_folder;  // Where torch.compile writes its kernels, if the program says so.
};

Surroundings Look() {
  Surroundings around;
  around.self = ModuleOf(reinterpret_cast<void*>(&ClassifyCaller));
  if (void* symbol = dlsym(RTLD_DEFAULT, "PyEval_EvalCode")) around.interpreter = ModuleOf(symbol);
  if (const link_map* c10 = ModuleOf(reinterpret_cast<void*>(&c10::GetStorageImplCreate))) {
    std::string path = c10->l_name;
    for (int levels = 0; levels < 2; ++levels) {
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
    if (!path.empty()) around.torch_folder = path + "/";
  }
  if (const char* folder = std::getenv("TORCHINDUCTOR_CACHE_DIR")) around.kernel_folder = folder;
  return around;
}

Module ClassifyModule(const link_map* module, const Surroundings& around) {
  if (module == nullptr) return Module::kForeign;
  if (module == around.self) return Module::kTorch;
  if (module == around.interpreter) return Module::kInterpreter;
  const std::string_view path = module->l_name;
  if (path.empty()) return Module::kForeign;  // The program itself.
  const std::string_view name = BaseName(path);
  if (!around.torch_folder.empty() && StartsWith(path, around.torch_folder)) return Module::kTorch;
  if (StartsWith(name, "libebbtide") || StartsWith(name, "libgomp") ||
      StartsWith(name, "libstdc++") || StartsWith(name, "libgcc_s") ||
      StartsWith(name, "libc.so") || StartsWith(name, "libffi") || StartsWith(name, "_ctypes.")) {
    return Module::kRuntime;
  }
  if (!around.kernel_folder.empty() && StartsWith(path, around.kernel_folder))
    return Module::kKernel;
  if (path.find("/torchinductor_") != std::string_view::npos) return Module::kKernel;
  return Module::kForeign;
}

struct Walk {
  const Surroundings* around;
  Caller caller = Caller::kForeign;
};

_Unwind_Reason_Code Visit(_Unwind_Context* context, void* argument) {
  auto* walk = static_cast<Walk*>(argument);
  int before_call = 0;
  uintptr_t address = _Unwind_GetIPInfo(context, &before_call);
  if (address == 0) return _URC_END_OF_STACK;
  if (before_call == 0) --address;  // The call itself, not the instruction behind it.
  switch (ClassifyModule(ModuleOf(reinterpret_cast<void*>(address)), *walk->around)) {
    case Module::kTorch:
    case Module::kRuntime:
      return _URC_NO_REASON;
    case Module::kInterpreter:
      walk->caller = Caller::kTorch;
      return _URC_END_OF_STACK;
    case Module::kKernel:
      walk->caller = Caller::kKernel;
      return _URC_END_OF_STACK;
    case Module::kForeign:
      break;
  }
  return _URC_END_OF_STACK;
}

}  // namespace

Caller ClassifyCaller() {
  static const Surroundings around = Look();
  Walk walk{&around};
  _Unwind_Backtrace(&Visit, &walk);
  return walk.caller;
}

}  // namespace ebbtide
