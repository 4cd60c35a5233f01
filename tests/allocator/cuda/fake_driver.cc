// SPDX-License-Identifier: Apache-2.0

#include "tests/allocator/cuda/fake_driver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ebbtide {
namespace {

FakeDriver* g_current = nullptr;

constexpr uintptr_t kFirstStreamHandle = 16;

}  // namespace

// The functions themselves. Each holds the lock from its first line on.
struct FakeFunctions {
  static FakeDriver& D() { return *g_current; }

#define EBB_FAKE_ENTER(name)                              \
  std::lock_guard<std::recursive_mutex> lock(D().mutex_); \
  if (const CuResult failure = D().Enter(name); failure != kCuSuccess) return failure

  static CuResult Init(unsigned int) {
    EBB_FAKE_ENTER("cuInit");
    return kCuSuccess;
  }
  static CuResult DriverGetVersion(int* version) {
    EBB_FAKE_ENTER("cuDriverGetVersion");
    *version = 13000;
    return kCuSuccess;
  }
  static CuResult GetErrorName(CuResult error, const char** text) {
    static const std::map<CuResult, const char*> names = {
        {kCuErrorOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
        {kCuErrorIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {kCuErrorInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
        {kCuErrorInvalidValue, "CUDA_ERROR_INVALID_VALUE"}};
    const auto found = names.find(error);
    *text = found == names.end() ? nullptr : found->second;
    return found == names.end() ? kCuErrorInvalidValue : kCuSuccess;
  }
  static CuResult GetErrorString(CuResult error, const char** text) {
    const CuResult result = GetErrorName(error, text);
    if (result == kCuSuccess) *text = "text of the driver";
    return result;
  }
  static CuResult DeviceGet(CuDevice* device, int ordinal) {
    EBB_FAKE_ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= D().options_.devices) return kCuErrorInvalidDevice;
    *device = ordinal;
    return kCuSuccess;
  }
  static CuResult DeviceGetName(char* name, int size, CuDevice) {
    EBB_FAKE_ENTER("cuDeviceGetName");
    if (size > 0) *name = 0;
    return kCuSuccess;
  }
  static CuResult DeviceGetAttribute(int* value, int attribute, CuDevice) {
    EBB_FAKE_ENTER("cuDeviceGetAttribute");
    *value = static_cast<int>(D().options_.attributes.count(attribute));
    return kCuSuccess;
  }
  static CuResult DeviceTotalMem(size_t* bytes, CuDevice) {
    EBB_FAKE_ENTER("cuDeviceTotalMem");
    *bytes = D().options_.memory;
    return kCuSuccess;
  }
  static CuResult DeviceCanAccessPeer(int* can, CuDevice, CuDevice) {
    EBB_FAKE_ENTER("cuDeviceCanAccessPeer");
    *can = D().options_.peers;
    return kCuSuccess;
  }

  static CuResult PrimaryCtxRetain(CuContext* context, CuDevice device) {
    EBB_FAKE_ENTER("cuDevicePrimaryCtxRetain");
    *context = D().PrimaryContext(device);
    ++D().retained_;
    return kCuSuccess;
  }
  static CuResult PrimaryCtxRelease(CuDevice) {
    EBB_FAKE_ENTER("cuDevicePrimaryCtxRelease");
    --D().retained_;
    return kCuSuccess;
  }
  static CuResult CtxPushCurrent(CuContext context) {
    EBB_FAKE_ENTER("cuCtxPushCurrent");
    FakeDriver::ContextStack().push_back(context);
    return kCuSuccess;
  }
  static CuResult CtxPopCurrent(CuContext* context) {
    std::lock_guard<std::recursive_mutex> lock(D().mutex_);
    if (const CuResult failure = D().Enter("cuCtxPopCurrent", true)) return failure;
    auto& stack = FakeDriver::ContextStack();
    if (stack.empty()) return kCuErrorInvalidContext;
    *context = stack.back();
    stack.pop_back();
    return kCuSuccess;
  }
  static CuResult CtxSynchronize() {
    EBB_FAKE_ENTER("cuCtxSynchronize");
    if (FakeDriver::ContextStack().empty()) return kCuErrorInvalidContext;
    if (D().AnyCapturing(false)) {
      D().capture_broken_ = true;
      return kCuErrorStreamCaptureUnsupported;
    }
    D().FinishAllWork();
    return kCuSuccess;
  }
  static CuResult ExchangeCaptureMode(int* mode) {
    std::lock_guard<std::recursive_mutex> lock(D().mutex_);
    if (const CuResult failure = D().Enter("cuThreadExchangeStreamCaptureMode", true)) {
      return failure;
    }
    std::swap(*mode, FakeDriver::CaptureMode());
    return kCuSuccess;
  }

  static CuResult MemAlloc(CuDevicePtr* address, size_t size) {
    EBB_FAKE_ENTER("cuMemAlloc");
    if (FakeDriver::ContextStack().empty()) return kCuErrorInvalidContext;
    if (const CuResult failure = D().Unsafe()) return failure;
    if (size > static_cast<size_t>(D().options_.memory - D().bytes_)) return kCuErrorOutOfMemory;
    *address = D().next_address_ + D().options_.alloc_offset;
    D().next_address_ += size + (size_t{64} << 20);
    D().allocations_[*address] = static_cast<int64_t>(size);
    D().Take(static_cast<int64_t>(size));
    return kCuSuccess;
  }
  static CuResult MemFree(CuDevicePtr address) {
    EBB_FAKE_ENTER("cuMemFree");
    if (FakeDriver::ContextStack().empty()) return kCuErrorInvalidContext;
    if (const CuResult failure = D().Unsafe()) return failure;
    const auto found = D().allocations_.find(address);
    if (found == D().allocations_.end()) return kCuErrorInvalidValue;
    D().bytes_ -= found->second;
    D().allocations_.erase(found);
    return kCuSuccess;
  }

  static CuResult Granularity(size_t* granularity, const CuMemAllocationProp*, int) {
    EBB_FAKE_ENTER("cuMemGetAllocationGranularity");
    *granularity = D().options_.granularity;
    return kCuSuccess;
  }
  static CuResult AddressReserve(CuDevicePtr* address, size_t size, size_t alignment, CuDevicePtr,
                                 unsigned long long) {
    EBB_FAKE_ENTER("cuMemAddressReserve");
    if (size == 0 || size % D().options_.granularity != 0) return kCuErrorInvalidValue;
    if (size > (size_t{1} << 47)) return kCuErrorOutOfMemory;
    if (alignment % D().options_.granularity != 0) return kCuErrorInvalidValue;
    *address = D().next_address_;  // ranges adjoin each other, which must not confuse anybody
    D().next_address_ += size;
    D().reservations_[*address] = static_cast<int64_t>(size);
    return kCuSuccess;
  }
  static CuResult AddressFree(CuDevicePtr address, size_t size) {
    EBB_FAKE_ENTER("cuMemAddressFree");
    const auto found = D().reservations_.find(address);
    if (found == D().reservations_.end()) return kCuErrorInvalidValue;
    if (found->second != static_cast<int64_t>(size)) return kCuErrorInvalidValue;
    const auto mapped = D().mappings_.lower_bound(address);
    if (mapped != D().mappings_.end() && mapped->first < address + size)
      return kCuErrorInvalidValue;
    D().reservations_.erase(found);
    return kCuSuccess;
  }
  static CuResult MemCreate(CuMemHandle* handle, size_t size, const CuMemAllocationProp* properties,
                            unsigned long long) {
    EBB_FAKE_ENTER("cuMemCreate");
    if (const CuResult failure = D().Unsafe()) return failure;
    if (size == 0 || size % D().options_.granularity != 0) return kCuErrorInvalidValue;
    if (size > static_cast<size_t>(D().options_.memory - D().bytes_)) return kCuErrorOutOfMemory;
    D().last_properties_ = *properties;
    D().Take(static_cast<int64_t>(size));
    *handle = D().next_handle_++;
    D().handles_[*handle] = {.size = static_cast<int64_t>(size)};
    return kCuSuccess;
  }
  static CuResult MemRelease(CuMemHandle handle) {
    EBB_FAKE_ENTER("cuMemRelease");
    const auto found = D().handles_.find(handle);
    if (found == D().handles_.end() || found->second.released) return kCuErrorInvalidValue;
    found->second.released = true;
    D().Collect(handle);
    return kCuSuccess;
  }
  static CuResult MemMap(CuDevicePtr address, size_t size, size_t offset, CuMemHandle handle,
                         unsigned long long) {
    EBB_FAKE_ENTER("cuMemMap");
    const auto found = D().handles_.find(handle);
    if (found == D().handles_.end() || found->second.released) return kCuErrorInvalidValue;
    if (offset != 0 || found->second.size != static_cast<int64_t>(size))
      return kCuErrorInvalidValue;
    if (!D().InOneReservation(address, size)) return kCuErrorInvalidValue;
    for (const auto& [begin, mapping] : D().mappings_) {
      if (begin < address + size && begin + mapping.size > address) return kCuErrorInvalidValue;
    }
    D().mappings_[address] = {.size = static_cast<int64_t>(size), .handle = handle, .access = {}};
    ++found->second.mappings;
    return kCuSuccess;
  }
  static CuResult MemUnmap(CuDevicePtr address, size_t size) {
    EBB_FAKE_ENTER("cuMemUnmap");
    if (!D().Covers(address, size)) return kCuErrorInvalidValue;
    auto it = D().mappings_.find(address);
    while (it != D().mappings_.end() && it->first < address + size) {
      const CuMemHandle handle = it->second.handle;
      --D().handles_[handle].mappings;
      D().Collect(handle);
      it = D().mappings_.erase(it);
    }
    return kCuSuccess;
  }
  static CuResult MemSetAccess(CuDevicePtr address, size_t size, const CuMemAccessDesc* access,
                               size_t count) {
    EBB_FAKE_ENTER("cuMemSetAccess");
    if (!D().Covers(address, size) || !D().InOneReservation(address, size)) {
      return kCuErrorInvalidValue;
    }
    for (auto it = D().mappings_.find(address);
         it != D().mappings_.end() && it->first < address + size; ++it) {
      for (size_t i = 0; i < count; ++i) {
        if (access[i].flags == kCuMemAccessNone) {
          it->second.access.erase(access[i].location.id);
        } else {
          it->second.access.insert(access[i].location.id);
        }
      }
    }
    return kCuSuccess;
  }
  static CuResult MemExport(void* shared, CuMemHandle handle, int, unsigned long long) {
    EBB_FAKE_ENTER("cuMemExportToShareableHandle");
    *static_cast<int*>(shared) = static_cast<int>(1000 + handle);
    return kCuSuccess;
  }

  static CuResult StreamGetId(CuStream stream, unsigned long long* id) {
    EBB_FAKE_ENTER("cuStreamGetId");
    const auto state = D().StateOrNull(stream);
    if (state == nullptr) return kCuErrorInvalidHandle;
    *id = state->id;
    return kCuSuccess;
  }
  static CuResult StreamIsCapturing(CuStream stream, int* status) {
    EBB_FAKE_ENTER("cuStreamIsCapturing");
    const auto state = D().StateOrNull(stream);
    if (state == nullptr) return kCuErrorInvalidHandle;
    if (state == D().legacy_ && D().AnyCapturing(true)) return kCuErrorStreamCaptureImplicit;
    *status = state->capturing ? 1 : kCuCaptureStatusNone;
    return kCuSuccess;
  }
  static CuResult EventCreate(CuEvent* event, unsigned int flags) {
    EBB_FAKE_ENTER("cuEventCreate");
    if (FakeDriver::ContextStack().empty()) return kCuErrorInvalidContext;
    if (flags != kCuEventDisableTiming) return kCuErrorInvalidValue;
    *event = reinterpret_cast<CuEvent>(new FakeDriver::Event);
    ++D().live_events_;
    return kCuSuccess;
  }
  static CuResult EventRecord(CuEvent handle, CuStream stream) {
    EBB_FAKE_ENTER("cuEventRecord");
    if (FakeDriver::ContextStack().empty()) return kCuErrorInvalidContext;
    auto* event = reinterpret_cast<FakeDriver::Event*>(handle);
    const auto state = D().StateOrNull(stream);
    if (state == nullptr) return kCuErrorInvalidHandle;
    event->captured = state->capturing || (state == D().legacy_ && D().AnyCapturing(true));
    if (event->captured) D().capture_broken_ = true;
    event->marks = {{state, state->queued}};
    if (state == D().legacy_) {
      for (const auto& other : D().all_streams_) {
        // The driver does not say whether it also waits for destroyed streams.
        if (other->blocking && other->exists) event->marks.emplace_back(other, other->queued);
      }
    }
    return kCuSuccess;
  }
  static CuResult EventQuery(CuEvent handle) {
    EBB_FAKE_ENTER("cuEventQuery");
    if (const CuResult failure = D().Unsafe()) return failure;
    auto* event = reinterpret_cast<FakeDriver::Event*>(handle);
    if (event->captured) return kCuErrorCapturedEvent;
    const bool done = std::all_of(event->marks.begin(), event->marks.end(),
                                  [](const auto& mark) { return mark.first->done >= mark.second; });
    return done ? kCuSuccess : kCuErrorNotReady;
  }
  static CuResult EventSynchronize(CuEvent handle) {
    EBB_FAKE_ENTER("cuEventSynchronize");
    if (const CuResult failure = D().Unsafe()) return failure;
    auto* event = reinterpret_cast<FakeDriver::Event*>(handle);
    for (const auto& [stream, mark] : event->marks) stream->done = std::max(stream->done, mark);
    return kCuSuccess;
  }
  static CuResult EventDestroy(CuEvent handle) {
    EBB_FAKE_ENTER("cuEventDestroy");
    delete reinterpret_cast<FakeDriver::Event*>(handle);
    --D().live_events_;
    return kCuSuccess;
  }
#undef EBB_FAKE_ENTER
};

CudaFunctions FakeDriver::Functions() {
  using F = FakeFunctions;
  return {.init = F::Init,
          .driver_get_version = F::DriverGetVersion,
          .get_error_name = F::GetErrorName,
          .get_error_string = F::GetErrorString,
          .device_get = F::DeviceGet,
          .device_get_name = F::DeviceGetName,
          .device_get_attribute = F::DeviceGetAttribute,
          .device_total_mem = F::DeviceTotalMem,
          .device_can_access_peer = F::DeviceCanAccessPeer,
          .device_primary_ctx_retain = F::PrimaryCtxRetain,
          .device_primary_ctx_release = F::PrimaryCtxRelease,
          .ctx_push_current = F::CtxPushCurrent,
          .ctx_pop_current = F::CtxPopCurrent,
          .ctx_synchronize = F::CtxSynchronize,
          .thread_exchange_stream_capture_mode = F::ExchangeCaptureMode,
          .mem_alloc = F::MemAlloc,
          .mem_free = F::MemFree,
          .mem_get_allocation_granularity = F::Granularity,
          .mem_address_reserve = F::AddressReserve,
          .mem_address_free = F::AddressFree,
          .mem_create = F::MemCreate,
          .mem_release = F::MemRelease,
          .mem_map = F::MemMap,
          .mem_unmap = F::MemUnmap,
          .mem_set_access = F::MemSetAccess,
          .mem_export_to_shareable_handle = F::MemExport,
          .stream_get_id = F::StreamGetId,
          .stream_is_capturing = F::StreamIsCapturing,
          .event_create = F::EventCreate,
          .event_record = F::EventRecord,
          .event_query = F::EventQuery,
          .event_synchronize = F::EventSynchronize,
          .event_destroy = F::EventDestroy};
}

FakeDriver::FakeDriver(Options options)
    : options_(std::move(options)),
      contexts_(options_.devices),
      next_address_(CuDevicePtr{1} << 40),
      legacy_(std::make_shared<StreamState>(StreamState{.id = 1})) {
  all_streams_.push_back(legacy_);
  previous_ = std::exchange(g_current, this);
}

FakeDriver::~FakeDriver() { g_current = previous_; }

void FakeDriver::FailAt(int64_t n, CuResult result, bool for_ever, std::string name) {
  fail_in_ = n;
  fail_result_ = result;
  fail_for_ever_ = for_ever;
  fail_name_ = std::move(name);
  if (n != 0) failed_ = false;
}

int64_t FakeDriver::Calls(const std::string& name) const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

CuResult FakeDriver::Enter(const std::string& name, bool restores) {
  ++calls_[name];
  if (fail_name_.empty() ? restores : name != fail_name_) return kCuSuccess;
  if (fail_in_ == 0) return kCuSuccess;
  if (fail_in_ > 1) {
    --fail_in_;
    return kCuSuccess;
  }
  if (!fail_for_ever_) fail_in_ = 0;
  failed_ = true;
  return fail_result_;
}

CuResult FakeDriver::Unsafe() {
  if (CaptureMode() == kCuCaptureModeRelaxed || !AnyCapturing(false)) return kCuSuccess;
  capture_broken_ = true;
  return kCuErrorStreamCaptureUnsupported;
}

bool FakeDriver::AnyCapturing(bool only_blocking) const {
  return std::any_of(all_streams_.begin(), all_streams_.end(), [&](const StreamPtr& stream) {
    return stream->capturing && (stream->blocking || !only_blocking);
  });
}

FakeDriver::Holdings FakeDriver::holdings() const {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  Holdings now{.bytes = bytes_,
               .handles = handles_.size(),
               .ranges = reservations_.size() + allocations_.size(),
               .mappings = {}};
  for (const auto& [address, mapping] : mappings_) now.mappings[address] = mapping.access;
  return now;
}

std::set<int> FakeDriver::DevicesWithAccess(void* address) const {
  const auto found = mappings_.find(reinterpret_cast<CuDevicePtr>(address));
  return found == mappings_.end() ? std::set<int>() : found->second.access;
}

CuMemHandle FakeDriver::HandleAt(void* address) const {
  const auto found = mappings_.find(reinterpret_cast<CuDevicePtr>(address));
  return found == mappings_.end() ? 0 : found->second.handle;
}

// True when mappings begin at `address`, end at its end and leave no gap.
bool FakeDriver::Covers(CuDevicePtr address, size_t size) const {
  CuDevicePtr at = address;
  for (auto it = mappings_.find(at);
       it != mappings_.end() && it->first == at && at < address + size; ++it) {
    at += it->second.size;
  }
  return size > 0 && at == address + size;
}

bool FakeDriver::InOneReservation(CuDevicePtr address, size_t size) const {
  auto it = reservations_.upper_bound(address);
  if (it == reservations_.begin()) return false;
  --it;
  return address + size <= it->first + it->second;
}

void FakeDriver::Collect(CuMemHandle handle) {
  const auto found = handles_.find(handle);
  if (!found->second.released || found->second.mappings > 0) return;
  bytes_ -= found->second.size;
  handles_.erase(found);
}

std::vector<CuContext>& FakeDriver::ContextStack() {
  thread_local std::vector<CuContext> stack;
  return stack;
}

int& FakeDriver::CaptureMode() {
  thread_local int mode = 0;
  return mode;
}

CuStream FakeDriver::CreateStream(bool blocking) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto state =
      std::make_shared<StreamState>(StreamState{.id = next_stream_id_++, .blocking = blocking});
  all_streams_.push_back(state);
  auto slot = std::find(slots_.begin(), slots_.end(), nullptr);
  if (slot == slots_.end()) slot = slots_.insert(slots_.end(), nullptr);
  *slot = state;
  return reinterpret_cast<CuStream>(kFirstStreamHandle + (slot - slots_.begin()));
}

void FakeDriver::DestroyStream(CuStream stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  State(stream)->exists = false;
  slots_[reinterpret_cast<uintptr_t>(stream) - kFirstStreamHandle] = nullptr;
}

void FakeDriver::DestroyStreamOfThread(std::thread::id thread) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  per_thread_[thread]->exists = false;
  per_thread_.erase(thread);
}

void FakeDriver::GiveStreamOfThread(std::thread::id from, std::thread::id to) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  per_thread_[to] = per_thread_[from];
  if (from != to) per_thread_.erase(from);
}

FakeDriver::StreamPtr FakeDriver::StateOrNull(CuStream stream) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  if (number == kCuStreamDefault || number == kCuStreamLegacy) return legacy_;
  if (number == kCuStreamPerThread) {
    StreamPtr& state = per_thread_[std::this_thread::get_id()];
    if (state == nullptr) {
      state = std::make_shared<StreamState>(StreamState{.id = next_stream_id_++});
      all_streams_.push_back(state);
    }
    return state;
  }
  const size_t slot = number - kFirstStreamHandle;
  return slot < slots_.size() ? slots_[slot] : nullptr;
}

FakeDriver::StreamPtr FakeDriver::State(CuStream stream) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  StreamPtr state = StateOrNull(stream);
  EBB_CHECK(state != nullptr) << "no such stream";
  return state;
}

void FakeDriver::Queue(CuStream stream) { ++State(stream)->queued; }

void FakeDriver::FinishAllWork() {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const StreamPtr& stream : all_streams_) stream->done = stream->queued;
}

void FakeDriver::FinishWork(CuStream stream) {
  const StreamPtr state = State(stream);
  state->done = state->queued;
}

}  // namespace ebbtide
