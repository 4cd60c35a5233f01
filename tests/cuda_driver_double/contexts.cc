// SPDX-License-Identifier: Apache-2.0
// Primary contexts and each thread's stack of current ones. Others than primary contexts, which a
// library beside the CUDA runtime should not make, are not here.

#include <algorithm>

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

// A context that captures must not be waited for as a whole.
Result Synchronize(Machine& machine, int device) {
  bool capturing = false;
  for (const std::weak_ptr<Capture>& each : machine.captures) {
    const std::shared_ptr<Capture> capture = each.lock();
    if (capture == nullptr) continue;
    capture->invalidated = true;
    capturing = true;
  }
  if (capturing) return Result::kCaptureUnsupported;
  machine.work->RunDevice(device);
  machine.work->LearnDevice(device);
  return machine.devices[device].broken;
}

Result MakeCurrent(Machine& machine, ContextHandle context, bool replace) {
  std::vector<int>& stack = CurrentThread(machine).contexts;
  if (replace && !stack.empty()) stack.pop_back();
  if (context == ContextHandle{}) return replace ? Result::kSuccess : Result::kInvalidContext;
  const int device = DeviceOf(machine, context);
  if (device < 0) return Result::kInvalidContext;
  if (!machine.HasContext(device)) return Result::kContextIsDestroyed;
  stack.push_back(device);
  return Result::kSuccess;
}

}  // namespace

Result cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceOrdinal device) {
  return Call(EntryPoint::cuDevicePrimaryCtxRetain, [&](Machine& machine) {
    if (context == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    if (machine.devices[device].broken != Result::kSuccess) return machine.devices[device].broken;
    if (++machine.devices[device].context_references == 1) OpenLegacyStream(machine, device);
    *context = ContextOf(device);
    return Result::kSuccess;
  });
}

Result cuDevicePrimaryCtxRelease_v2(DeviceOrdinal device) {
  return Call(EntryPoint::cuDevicePrimaryCtxRelease_v2, [&](Machine& machine) {
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    if (!machine.HasContext(device)) return Result::kInvalidContext;
    if (machine.devices[device].context_references == 1) {
      machine.DestroyContext(device);
    } else {
      --machine.devices[device].context_references;
    }
    return Result::kSuccess;
  });
}

Result cuDevicePrimaryCtxSetFlags_v2(DeviceOrdinal device, unsigned flags) {
  return Call(EntryPoint::cuDevicePrimaryCtxSetFlags_v2, [&](Machine& machine) {
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    machine.devices[device].context_flags = flags;
    return Result::kSuccess;
  });
}

Result cuDevicePrimaryCtxGetState(DeviceOrdinal device, unsigned* flags, int* active) {
  return Call(EntryPoint::cuDevicePrimaryCtxGetState, [&](Machine& machine) {
    if (flags == nullptr || active == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    *flags = machine.devices[device].context_flags;
    *active = machine.HasContext(device) ? 1 : 0;
    return Result::kSuccess;
  });
}

Result cuDevicePrimaryCtxReset_v2(DeviceOrdinal device) {
  return Call(EntryPoint::cuDevicePrimaryCtxReset_v2, [&](Machine& machine) {
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    machine.DestroyContext(device);
    return Result::kSuccess;
  });
}

Result cuCtxGetCurrent(ContextHandle* context) {
  return Call(EntryPoint::cuCtxGetCurrent, [&](Machine& machine) {
    if (context == nullptr) return Result::kInvalidValue;
    const std::vector<int>& stack = CurrentThread(machine).contexts;
    *context = stack.empty() ? ContextHandle{} : ContextOf(stack.back());
    return Result::kSuccess;
  });
}

Result cuCtxSetCurrent(ContextHandle context) {
  return Call(EntryPoint::cuCtxSetCurrent,
              [&](Machine& machine) { return MakeCurrent(machine, context, /*replace=*/true); });
}

Result cuCtxPushCurrent_v2(ContextHandle context) {
  return Call(EntryPoint::cuCtxPushCurrent_v2,
              [&](Machine& machine) { return MakeCurrent(machine, context, /*replace=*/false); });
}

Result cuCtxPopCurrent_v2(ContextHandle* context) {
  return Call(EntryPoint::cuCtxPopCurrent_v2, [&](Machine& machine) {
    std::vector<int>& stack = CurrentThread(machine).contexts;
    if (stack.empty()) return Result::kInvalidContext;
    if (context != nullptr) *context = ContextOf(stack.back());
    stack.pop_back();
    return Result::kSuccess;
  });
}

Result cuCtxGetDevice(DeviceOrdinal* device) {
  return Call(EntryPoint::cuCtxGetDevice, [&](Machine& machine) {
    if (device == nullptr) return Result::kInvalidValue;
    *device = CurrentDevice(machine);
    return Result::kSuccess;
  });
}

Result cuCtxGetDevice_v2(DeviceOrdinal* device, ContextHandle context) {
  return Call(EntryPoint::cuCtxGetDevice_v2, [&](Machine& machine) {
    if (device == nullptr) return Result::kInvalidValue;
    const int number = DeviceOf(machine, context);
    if (number < 0 || !machine.HasContext(number)) return Result::kInvalidContext;
    *device = number;
    return Result::kSuccess;
  });
}

Result cuCtxSynchronize() {
  return Call(EntryPoint::cuCtxSynchronize,
              [](Machine& machine) { return Synchronize(machine, CurrentDevice(machine)); });
}

Result cuCtxSynchronize_v2(ContextHandle context) {
  return Call(EntryPoint::cuCtxSynchronize_v2, [&](Machine& machine) {
    const int device = DeviceOf(machine, context);
    if (device < 0 || !machine.HasContext(device)) return Result::kInvalidContext;
    return Synchronize(machine, device);
  });
}

Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return Call(EntryPoint::cuCtxGetStreamPriorityRange, [&](Machine&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return Result::kSuccess;
  });
}

Result cuCtxEnablePeerAccess(ContextHandle peer, unsigned flags) {
  return Call(EntryPoint::cuCtxEnablePeerAccess, [&](Machine& machine) {
    const int device = DeviceOf(machine, peer);
    if (flags != 0) return Result::kInvalidValue;
    if (device < 0 || !machine.HasContext(device)) return Result::kInvalidContext;
    if (device == CurrentDevice(machine)) return Result::kInvalidContext;
    return machine.EnablePeer(CurrentDevice(machine), device);
  });
}

Result cuCtxDisablePeerAccess(ContextHandle peer) {
  return Call(EntryPoint::cuCtxDisablePeerAccess, [&](Machine& machine) {
    const int device = DeviceOf(machine, peer);
    if (device < 0) return Result::kInvalidContext;
    return machine.DisablePeer(CurrentDevice(machine), device);
  });
}

}  // namespace ebbtide::hollow
