// SPDX-License-Identifier: Apache-2.0
// What the virtual devices say that they are.

#include <cstdio>
#include <cstring>

#include "tests/cuda_driver_double/call.h"

namespace ebbtide::hollow {
namespace {

struct Attribute {
  int number;  // of the driver's CUdevice_attribute
  int value;
};

// The shape of a present data center device, where the shape matters to nobody here.
constexpr Attribute kAttributes[] = {
    {1, 1024},         // threads of a block
    {2, 1024},         // ... x
    {3, 1024},         // ... y
    {4, 64},           // ... z
    {5, 2147483647},   // blocks of a grid, x
    {6, 65535},        // ... y
    {7, 65535},        // ... z
    {8, 49152},        // shared memory of a block
    {9, 65536},        // constant memory
    {10, 32},          // warp size
    {11, 2147483647},  // pitch
    {12, 65536},       // registers of a block
    {13, 1980000},     // clock, kHz
    {14, 512},         // texture alignment
    {15, 1},           // copies while kernels run
    {16, 132},         // multiprocessors
    {17, 0},           // no limit on a kernel's time
    {18, 0},           // not integrated
    {19, 1},           // can map host memory
    {20, 0},           // compute mode: default
    {31, 1},           // concurrent kernels
    {32, 1},           // error correction
    {34, 0},           // PCI device
    {35, 0},           // no TCC
    {36, 2619000},     // memory clock, kHz
    {37, 5120},        // memory bus, bits
    {38, 52428800},    // L2 cache
    {39, 2048},        // threads of a multiprocessor
    {40, 3},           // copy engines
    {41, 1},           // unified addressing
    {50, 0},           // PCI domain
    {51, 32},          // texture pitch alignment
    {75, 9},           // compute capability, major
    {76, 0},           // ... minor
    {78, 1},           // stream priorities
    {81, 233472},      // shared memory of a multiprocessor
    {82, 65536},       // registers of a multiprocessor
    {83, 0},           // no managed memory: the double has none
    {86, 0},           // no native host atomics
    {88, 0},           // no access to pageable memory
    {89, 0},           // no concurrent managed access
    {90, 1},           // compute preemption
    {91, 1},           // host pointers of registered memory are good on the device
    {95, 1},           // cooperative launch
    {97, 232448},      // shared memory of a block, opted in
    {99, 1},           // host memory can be registered
    {102, 1},          // virtual memory management
    {103, 1},          // memory handles as file descriptors
    {104, 0},          // ... not as Windows handles
    {105, 0},          // ... nor its older ones
    {106, 32},         // blocks of a multiprocessor
    {107, 0},          // no compressible memory
    {110, 1},          // RDMA to mapped memory
    {113, 1},          // read-only host memory can be registered
    {115, 1},          // memory pools
    {116, 1},          // RDMA
    {119, 0},          // pools cannot be shared
    {124, 0},          // no DMA-BUF
    {125, 0},          // no events between processes
    {128, 0},          // no fabric handles
    {132, 0},          // no multicast
    {141, 0},          // no handles of host memory
};

constexpr int kPciBusAttribute = 33;
constexpr int kFirstPciBus = 0x1b;

}  // namespace

Result cuDeviceGet(DeviceOrdinal* device, int ordinal) {
  return Call(EntryPoint::cuDeviceGet, [&](Machine& machine) {
    if (device == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, ordinal)) return Result::kInvalidDevice;
    *device = ordinal;
    return Result::kSuccess;
  });
}

Result cuDeviceGetCount(int* count) {
  return Call(EntryPoint::cuDeviceGetCount, [&](Machine& machine) {
    if (count == nullptr) return Result::kInvalidValue;
    *count = static_cast<int>(machine.devices.size());
    return Result::kSuccess;
  });
}

Result cuDeviceGetName(char* name, int length, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceGetName, [&](Machine& machine) {
    if (name == nullptr || length <= 0) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    std::snprintf(name, length, "Ebbtide Virtual GPU %d", device);
    return Result::kSuccess;
  });
}

Result cuDeviceGetUuid(DeviceUuid* uuid, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceGetUuid, [&](Machine& machine) {
    if (uuid == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    *uuid = {.bytes = "ebbtide double"};
    uuid->bytes[15] = static_cast<char>(device);
    return Result::kSuccess;
  });
}

Result cuDeviceGetUuid_v2(DeviceUuid* uuid, DeviceOrdinal device) {
  return cuDeviceGetUuid(uuid, device);
}

Result cuDeviceGetAttribute(int* value, int attribute, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceGetAttribute, [&](Machine& machine) {
    if (value == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    if (attribute == kPciBusAttribute) {
      *value = kFirstPciBus + device;
      return Result::kSuccess;
    }
    for (const Attribute& each : kAttributes) {
      if (each.number != attribute) continue;
      *value = each.value;
      return Result::kSuccess;
    }
    return Result::kInvalidValue;
  });
}

Result cuDeviceTotalMem_v2(size_t* bytes, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceTotalMem_v2, [&](Machine& machine) {
    if (bytes == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    *bytes = machine.devices[device].account->capacity;
    return Result::kSuccess;
  });
}

Result cuDeviceGetPCIBusId(char* text, int length, DeviceOrdinal device) {
  return Call(EntryPoint::cuDeviceGetPCIBusId, [&](Machine& machine) {
    if (text == nullptr || length < 13) return Result::kInvalidValue;
    if (!IsDevice(machine, device)) return Result::kInvalidDevice;
    std::snprintf(text, length, "0000:%02X:00.0", kFirstPciBus + device);
    return Result::kSuccess;
  });
}

Result cuDeviceCanAccessPeer(int* can, DeviceOrdinal device, DeviceOrdinal peer) {
  return Call(EntryPoint::cuDeviceCanAccessPeer, [&](Machine& machine) {
    if (can == nullptr) return Result::kInvalidValue;
    if (!IsDevice(machine, device) || !IsDevice(machine, peer)) return Result::kInvalidDevice;
    *can = device == peer ? 0 : 1;
    return Result::kSuccess;
  });
}

}  // namespace ebbtide::hollow
