// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/cuda_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

// The unit in plain mode. The driver aligns large allocations to it by itself.
constexpr Bytes kPlainGranularity = 2_MiB;

// No processor has more addresses. What the driver says to more than that it does not document.
constexpr Bytes kAddressesMax = Bytes(int64_t{1} << 57);

uintptr_t Number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// An attribute that an older driver does not know is one that the device does not have.
absl::StatusOr<bool> HasAttribute(const CudaDriver& driver, CuDevice device, int attribute) {
  int value = 0;
  const CuResult result = driver.functions().device_get_attribute(&value, attribute, device);
  if (result == kCuErrorInvalidValue) return false;
  EBB_RETURN_IF_ERROR(driver.Check(result, "cuDeviceGetAttribute"));
  return value != 0;
}

absl::StatusOr<CuMemAllocationProp> PieceProperties(const CudaContext& context,
                                                    const CudaMemory::Options& options) {
  const CudaDriver& driver = context.driver();
  CuMemAllocationProp properties = {};
  if (!options.virtual_memory) return properties;
  EBB_ASSIGN_OR_RETURN(const bool supported,
                       CudaMemory::SupportsVirtualMemory(driver, options.ordinal));
  if (!supported) {
    EBB_RETURN_IF_ERROR(driver.virtual_memory());
    return absl::UnimplementedError(
        absl::StrCat("CUDA device ", options.ordinal, " has no virtual memory"));
  }
  properties.type = kCuMemAllocationTypePinned;
  properties.location = {.type = kCuMemLocationTypeDevice, .id = context.device()};
  EBB_ASSIGN_OR_RETURN(
      properties.flags.gpu_direct_rdma_capable,
      HasAttribute(driver, context.device(), kCuAttributeGpuDirectRdmaWithVirtualMemory));
  if (!options.exportable) return properties;
  EBB_ASSIGN_OR_RETURN(const bool exportable,
                       HasAttribute(driver, context.device(), kCuAttributePosixFileDescriptor));
  if (!exportable) {
    return absl::UnimplementedError(
        absl::StrCat("CUDA device ", options.ordinal, " cannot export memory"));
  }
  properties.requested_handle_types = kCuMemHandleTypePosixFileDescriptor;
  return properties;
}

absl::StatusOr<Bytes> Granularity(const CudaDriver& driver, const CuMemAllocationProp& properties) {
  size_t granularity = 0;
  EBB_RETURN_IF_ERROR(driver.Check(driver.functions().mem_get_allocation_granularity(
                                       &granularity, &properties, kCuMemGranularityMinimum),
                                   "cuMemGetAllocationGranularity"));
  if (granularity < 4096 || (granularity & (granularity - 1)) != 0) {
    return absl::InternalError(absl::StrCat("cuMemGetAllocationGranularity: ", granularity,
                                            " bytes is no power of two from 4096 on"));
  }
  return Bytes(static_cast<int64_t>(granularity));
}

}  // namespace

absl::StatusOr<bool> CudaMemory::SupportsVirtualMemory(const CudaDriver& driver, int ordinal) {
  EBB_RETURN_IF_ERROR(driver.Initialize());
  CuDevice device = 0;
  EBB_RETURN_IF_ERROR(driver.Check(driver.functions().device_get(&device, ordinal), "cuDeviceGet"));
  if (!driver.virtual_memory().ok()) return false;
  return HasAttribute(driver, device, kCuAttributeVirtualMemory);
}

absl::StatusOr<std::unique_ptr<CudaMemory>> CudaMemory::Create(const CudaDriver* driver,
                                                               const Options& options) {
  if (options.large_piece <= Bytes(0) || options.handle_pool < Bytes(0)) {
    return absl::InvalidArgumentError("large_piece must be positive, handle_pool not negative");
  }
  if (!options.virtual_memory &&
      (options.exportable || !options.peers.empty() || options.handle_pool > Bytes(0))) {
    return absl::InvalidArgumentError("handle_pool, peers and exportable need virtual_memory");
  }
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context,
                       CudaContext::Retain(driver, options.ordinal));
  EBB_ASSIGN_OR_RETURN(const CuMemAllocationProp properties, PieceProperties(*context, options));
  Bytes granularity = kPlainGranularity;
  if (options.virtual_memory) {
    EBB_ASSIGN_OR_RETURN(granularity, Granularity(*driver, properties));
  }
  size_t capacity = 0;
  EBB_RETURN_IF_ERROR(driver->Check(
      driver->functions().device_total_mem(&capacity, context->device()), "cuDeviceTotalMem"));
  std::unique_ptr<CudaMemory> memory(new CudaMemory(
      std::move(context), options, granularity, Bytes(static_cast<int64_t>(capacity)), properties));
  for (int peer : options.peers) EBB_RETURN_IF_ERROR(memory->AddPeer(peer));
  return memory;
}

CudaMemory::CudaMemory(std::unique_ptr<CudaContext> context, const Options& options,
                       Bytes granularity, Bytes capacity, const CuMemAllocationProp& properties)
    : context_(std::move(context)),
      driver_(context_->driver()),
      cu_(driver_.functions()),
      virtual_memory_(options.virtual_memory),
      exportable_(options.exportable),
      granularity_(granularity),
      large_piece_(virtual_memory_ ? RoundUp(options.large_piece, granularity) : granularity),
      capacity_(capacity),
      pool_(context_.get(), properties, options.handle_pool),
      mappings_(&driver_, context_->device()) {}

// The driver may be gone, at the end of the process, or refuse: then nobody is left to be told.
CudaMemory::~CudaMemory() {
  const CudaContext::Scope scope(*context_);
  if (!scope.status().ok()) return;
  for (const auto& [address, range] : ranges_) Free(address, range).IgnoreError();
  pool_.ReleaseAll().IgnoreError();
}

absl::Status CudaMemory::CheckGranules(uintptr_t address, Bytes size) const {
  const auto bits = address | static_cast<uintptr_t>(size.count());
  if (size > Bytes(0) && bits % granularity_.count() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(size.count(), " bytes at 0x", absl::Hex(address),
                                                 " are not a positive number of whole granules of ",
                                                 FormatBytes(granularity_)));
}

absl::Status CudaMemory::CheckReserved(uintptr_t address, Bytes size) const {
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin()) {
    --it;
    const auto offset = static_cast<int64_t>(address - it->first);
    if (offset <= it->second.size.count() && size <= it->second.size - Bytes(offset)) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(FormatBytes(size), " at 0x", absl::Hex(address),
                                                 " are not inside one reserved range"));
}

absl::StatusOr<void*> CudaMemory::Reserve(Bytes size) {
  EBB_RETURN_IF_ERROR(CheckGranules(0, size));
  if (size > kAddressesMax) return absl::ResourceExhaustedError("no such address range");
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  Range range{.size = size, .base = 0};
  absl::StatusOr<uintptr_t> address =
      virtual_memory_ ? ReserveVirtual(size) : ReservePlain(size, &range.base);
  if (!address.ok()) return address.status();
  std::lock_guard<std::mutex> lock(mutex_);
  ranges_.emplace(*address, range);
  return reinterpret_cast<void*>(*address);
}

absl::StatusOr<uintptr_t> CudaMemory::ReserveVirtual(Bytes size) {
  CuDevicePtr address = 0;
  EBB_RETURN_IF_ERROR(
      driver_.Check(cu_.mem_address_reserve(&address, size.count(), granularity_.count(), 0, 0),
                    "cuMemAddressReserve"));
  return address;
}

// The driver promises no alignment that would do. Where it did not give it by itself, one granule
// more holds an aligned range.
absl::StatusOr<uintptr_t> CudaMemory::ReservePlain(Bytes size, CuDevicePtr* base) {
  const auto granule = static_cast<CuDevicePtr>(granularity_.count());
  for (Bytes padding : {Bytes(0), granularity_}) {
    EBB_RETURN_IF_ERROR(driver_.Check(cu_.mem_alloc(base, (size + padding).count()), "cuMemAlloc"));
    if (padding > Bytes(0) || *base % granule == 0) break;
    EBB_RETURN_IF_ERROR(driver_.Check(cu_.mem_free(*base), "cuMemFree"));
  }
  return (*base + granule - 1) / granule * granule;
}

absl::Status CudaMemory::Commit(void* address, Bytes size, Bytes piece) {
  EBB_RETURN_IF_ERROR(CheckGranules(Number(address), size));
  EBB_RETURN_IF_ERROR(CheckGranules(0, piece));
  if (size % piece != Bytes(0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        FormatBytes(size), " are not a number of whole pieces of ", FormatBytes(piece)));
  }
  if (!virtual_memory_) return absl::UnimplementedError("plain CUDA memory is always committed");
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  std::lock_guard<std::mutex> lock(mutex_);
  EBB_RETURN_IF_ERROR(CheckReserved(Number(address), size));
  std::vector<CudaPiece> pieces;
  EBB_RETURN_IF_ERROR(pool_.Get(size / piece, piece, &pieces));
  const absl::Status status = mappings_.Map(Number(address), pieces);
  if (!status.ok()) pool_.Unget(pieces);
  return status;
}

absl::Status CudaMemory::Decommit(void* address, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckGranules(Number(address), size));
  if (!virtual_memory_) return absl::UnimplementedError("plain CUDA memory stays committed");
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CudaPiece> pieces;
  EBB_RETURN_IF_ERROR(mappings_.Unmap({Number(address), size}, &pieces));
  pool_.Put(pieces);
  return absl::OkStatus();
}

absl::Status CudaMemory::Move(void* from, void* to, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckGranules(Number(from), size));
  EBB_RETURN_IF_ERROR(CheckGranules(Number(to), size));
  if (!virtual_memory_) return absl::UnimplementedError("plain CUDA memory cannot be moved");
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  std::lock_guard<std::mutex> lock(mutex_);
  EBB_RETURN_IF_ERROR(CheckReserved(Number(to), size));
  return mappings_.Move({Number(from), size}, Number(to));
}

absl::Status CudaMemory::Unreserve(void* address, Bytes size) {
  EBB_RETURN_IF_ERROR(CheckGranules(Number(address), size));
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranges_.find(Number(address));
  if (it == ranges_.end() || it->second.size != size) {
    return absl::InvalidArgumentError(absl::StrCat(
        FormatBytes(size), " at 0x", absl::Hex(Number(address)), " are not what Reserve returned"));
  }
  EBB_RETURN_IF_ERROR(Free(it->first, it->second));
  ranges_.erase(it);
  return absl::OkStatus();
}

absl::Status CudaMemory::Free(uintptr_t address, const Range& range) {
  if (!virtual_memory_) return driver_.Check(cu_.mem_free(range.base), "cuMemFree");
  std::vector<CudaPiece> pieces;
  const absl::Status status = mappings_.Clear({address, range.size}, &pieces);
  pool_.Put(pieces);
  EBB_RETURN_IF_ERROR(status);
  return driver_.Check(cu_.mem_address_free(address, range.size.count()), "cuMemAddressFree");
}

Bytes CudaMemory::retained() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return pool_.pooled();
}

void CudaMemory::BoundRetained(Room room) {
  std::lock_guard<std::mutex> lock(mutex_);
  pool_.set_room(std::move(room));
}

absl::Status CudaMemory::ReleaseRetained() {
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  std::lock_guard<std::mutex> lock(mutex_);
  return pool_.ReleaseAll();
}

absl::Status CudaMemory::AddPeer(int ordinal) {
  if (!virtual_memory_) {
    return absl::UnimplementedError("plain CUDA memory is shared by cuCtxEnablePeerAccess");
  }
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  CuDevice peer = 0;
  EBB_RETURN_IF_ERROR(driver_.Check(cu_.device_get(&peer, ordinal), "cuDeviceGet"));
  if (peer == context_->device()) return absl::OkStatus();
  int can = 0;
  EBB_RETURN_IF_ERROR(driver_.Check(cu_.device_can_access_peer(&can, peer, context_->device()),
                                    "cuDeviceCanAccessPeer"));
  if (can == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("CUDA device ", ordinal, " cannot reach the memory of this one"));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CudaMappingTable::Span> spans;
  for (const auto& [address, range] : ranges_) spans.push_back({address, range.size});
  return mappings_.AddPeer(peer, spans);
}

absl::StatusOr<CudaMemory::Export> CudaMemory::ExportPiece(void* address) {
  if (!exportable_) {
    return absl::FailedPreconditionError("this memory was not made to be exported");
  }
  const CudaContext::Scope scope(*context_);
  EBB_RETURN_IF_ERROR(scope.status());
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [piece, begin] = mappings_.Find(Number(address));
  if (piece == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no memory behind 0x", absl::Hex(Number(address))));
  }
  int fd = -1;
  EBB_RETURN_IF_ERROR(driver_.Check(cu_.mem_export_to_shareable_handle(
                                        &fd, piece->handle, kCuMemHandleTypePosixFileDescriptor, 0),
                                    "cuMemExportToShareableHandle"));
  piece->exported = true;
  return Export{.fd = fd,
                .size = piece->size,
                .offset = Bytes(static_cast<int64_t>(Number(address) - begin))};
}

}  // namespace ebbtide
