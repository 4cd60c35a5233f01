// SPDX-License-Identifier: Apache-2.0
// The driver as a whole: its start, its version, its errors' names, its functions' addresses.

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

struct Function {
  const char* name;
  void* address;
};

const Function kFunctions[] = {
#define ENTRY(name, needs, parameters) {#name, reinterpret_cast<void*>(&name)},
#include "tests/cuda_driver_double/entry_points.inc"
#undef ENTRY
};

// Where a symbol has several versions here, the release that brought the newer one. All others are
// older than every driver of today.
struct Release {
  absl::string_view name;
  int version;
};
constexpr Release kReleases[] = {
    {"cuGetProcAddress_v2", 12000}, {"cuCtxGetDevice_v2", 13000},
    {"cuCtxSynchronize_v2", 13000}, {"cuEventElapsedTime_v2", 12080},
    {"cuDeviceGetUuid_v2", 11040},  {"cuStreamGetCaptureInfo_v3", 12030},
};

int ReleaseOf(absl::string_view name) {
  for (const Release& release : kReleases) {
    if (release.name == name) return release.version;
  }
  return 0;
}

// The newest version of `symbol` that a program made for `cuda_version` may have.
ProcAddressResult FindFunction(absl::string_view symbol, int cuda_version, void** address) {
  ProcAddressResult result = ProcAddressResult::kNotFound;
  absl::string_view best;
  *address = nullptr;
  for (const Function& function : kFunctions) {
    const absl::string_view name = function.name;
    if (name != symbol && WithoutVersion(name) != symbol) continue;
    if (ReleaseOf(name) > cuda_version) {
      if (*address == nullptr) result = ProcAddressResult::kVersionNotSufficient;
    } else if (*address == nullptr || name > best) {
      best = name;
      *address = function.address;
      result = ProcAddressResult::kFound;
    }
  }
  return result;
}

constexpr uint64_t kLegacyStreamFlag = 1;

}  // namespace

Result cuInit(unsigned flags) {
  return Call(EntryPoint::cuInit, [&](Machine& machine) {
    if (flags != 0) return Result::kInvalidValue;
    if (machine.configuration().devices == 0) return Result::kNoDevice;
    machine.Initialize();
    return Result::kSuccess;
  });
}

Result cuDriverGetVersion(int* version) {
  return Call(EntryPoint::cuDriverGetVersion, [&](Machine& machine) {
    if (version == nullptr) return Result::kInvalidValue;
    *version = machine.configuration().driver_version;
    return Result::kSuccess;
  });
}

Result cuGetErrorName(Result error, const char** name) {
  return Call(EntryPoint::cuGetErrorName, [&](Machine&) {
    if (name == nullptr) return Result::kInvalidValue;
    *name = ResultName(error);
    return *name == nullptr ? Result::kInvalidValue : Result::kSuccess;
  });
}

Result cuGetErrorString(Result error, const char** text) {
  return Call(EntryPoint::cuGetErrorString, [&](Machine&) {
    if (text == nullptr) return Result::kInvalidValue;
    *text = ResultText(error);
    return *text == nullptr ? Result::kInvalidValue : Result::kSuccess;
  });
}

Result cuGetProcAddress(const char* symbol, void** function, int cuda_version, uint64_t flags) {
  return Call(EntryPoint::cuGetProcAddress, [&](Machine&) {
    if (symbol == nullptr || function == nullptr || flags > kLegacyStreamFlag) {
      return Result::kInvalidValue;
    }
    return FindFunction(symbol, cuda_version, function) == ProcAddressResult::kFound
               ? Result::kSuccess
               : Result::kNotFound;
  });
}

Result cuGetProcAddress_v2(const char* symbol, void** function, int cuda_version, uint64_t flags,
                           ProcAddressResult* status) {
  return Call(EntryPoint::cuGetProcAddress_v2, [&](Machine&) {
    if (symbol == nullptr || function == nullptr) return Result::kInvalidValue;
    // Forms of the functions for per-thread default streams are not here.
    if (flags > kLegacyStreamFlag) return Result::kInvalidValue;
    const ProcAddressResult found = FindFunction(symbol, cuda_version, function);
    if (status != nullptr) *status = found;
    return found == ProcAddressResult::kFound ? Result::kSuccess : Result::kNotFound;
  });
}

}  // namespace ebbtide::hollow
