// SPDX-License-Identifier: Apache-2.0
//
// The 64 bytes that stand right before every CPU block that torch gets from us. They lead from a
// torch storage to our record of it in constant time and without a lock or a table: the block's
// address is the storage's data pointer.
//
// Layout: the allocator takes `kBlockHeaderBytes + n` bytes, aligned to 64, writes a header at
// their start with `InitBlock` and hands out the payload behind it, which is therefore aligned to
// 64 as well.
//
// Threads: `record` and `flags` are atomic; the rest is written once, before torch sees the
// block. Ownership: the block belongs to whoever holds the torch DataPtr; a header does not own
// what `record` points to.
#ifndef EBBTIDE_PYTORCH_BLOCK_HEADER_H_
#define EBBTIDE_PYTORCH_BLOCK_HEADER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace ebbtide {

// Bits of BlockHeader::flags.
enum BlockFlags : uint32_t {
  // No operator has used the block since it was made uninitialised: what writes to it now only
  // fills it.
  kBlockFresh = 1u << 0,
  // A mutable access to the block is reported (torch up to 2.12 finds the tripwire here, later
  // ones in the storage).
  kBlockArmed = 1u << 1,
  // The block's address has left our sight: it may be written at any time without an operator.
  kBlockEscaped = 1u << 2,
};

struct alignas(64) BlockHeader {
  static constexpr uint64_t kMagic = 0xebb71de0b10c4eadULL;
  static constexpr uint64_t kFreed = 0xebb71de0dead0000ULL;
  static constexpr uint32_t kGuard = 0xbdbdbdbdU;

  uint64_t magic = kMagic;
  std::atomic<void*> record{
      nullptr};        // Ours to use: the runtime's record of the storage, null at first.
  uint64_t bytes = 0;  // Size of the payload as torch asked for it, in bytes.
  std::atomic<uint32_t> flags{kBlockFresh};
  // Fills the header up to the payload, to notice what is written before that.
  uint32_t guard[9] = {kGuard, kGuard, kGuard, kGuard, kGuard, kGuard, kGuard, kGuard, kGuard};

  // False when the block was released before, or something wrote to the bytes before its payload.
  bool IsIntact() const {
    uint32_t damage = 0;
    for (uint32_t word : guard) damage |= word ^ kGuard;
    return magic == kMagic && damage == 0;
  }
};

inline constexpr size_t kBlockHeaderBytes = sizeof(BlockHeader);
static_assert(kBlockHeaderBytes == 64, "payloads must stay aligned to 64 bytes");

// Writes a header at `block` (64-byte aligned, at least kBlockHeaderBytes + bytes long); returns
// the payload.
inline void* InitBlock(void* block, size_t bytes) {
  BlockHeader* header = new (block) BlockHeader;
  header->bytes = bytes;
  return static_cast<char*>(block) + kBlockHeaderBytes;
}

// The header of a payload that InitBlock returned. Not to be asked about any other pointer.
inline BlockHeader* HeaderOfPayload(void* payload) {
  return reinterpret_cast<BlockHeader*>(static_cast<char*>(payload) - kBlockHeaderBytes);
}

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BLOCK_HEADER_H_
