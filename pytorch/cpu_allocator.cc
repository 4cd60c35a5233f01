// SPDX-License-Identifier: Apache-2.0
#include "pytorch/cpu_allocator.h"

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace ebbtide {
namespace {

// Above every priority that torch or an extension is known to use.
constexpr uint8_t kPriority = 255;

CpuMemory g_memory{nullptr, nullptr, nullptr};
// Bytes that torch holds, for its profiler. Not used for any decision of ours.
std::atomic<int64_t> g_reported_bytes{0};

void ReportToProfiler(void* payload, int64_t change) {
  const int64_t total = g_reported_bytes.fetch_add(change, std::memory_order_relaxed) + change;
  if (__builtin_expect(c10::memoryProfilingEnabled(), false)) {
    c10::reportMemoryUsageToProfiler(payload, change, static_cast<size_t>(total), 0,
                                     c10::Device(c10::DeviceType::CPU));
  }
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return MakeCpuDataPtr(nullptr);
    void* payload = InitBlock(g_memory.allocate(bytes + kBlockHeaderBytes), bytes);
    ReportToProfiler(payload, static_cast<int64_t>(bytes));
    return MakeCpuDataPtr(payload);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &ReleaseCpuBlock; }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

}  // namespace

void InstallCpuAllocator(const CpuMemory& memory) {
  g_memory = memory;
  // Never destroyed: storages outlive static destructors.
  static CpuAllocator* const allocator = new CpuAllocator;
  c10::SetAllocator(c10::DeviceType::CPU, allocator, kPriority);
}

c10::DataPtr MakeCpuDataPtr(void* payload) {
  return c10::DataPtr(payload, payload, &ReleaseCpuBlock, c10::Device(c10::DeviceType::CPU));
}

void ReleaseCpuBlock(void* payload) {
  if (payload == nullptr) return;
  BlockHeader* header = HeaderOfPayload(payload);
  EBB_CHECK(header->IsIntact())
      << "torch released a CPU block twice, or the bytes before it were overwritten\n"
      << g_memory.describe(header);
  header->magic = BlockHeader::kFreed;
  ReportToProfiler(payload, -static_cast<int64_t>(header->bytes));
  g_memory.release(header);
}

}  // namespace ebbtide
