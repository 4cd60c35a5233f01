// SPDX-License-Identifier: Apache-2.0

#include "allocator/small_cache.h"

#include <sched.h>

#include <algorithm>
#include <mutex>

#include "base/check.h"

namespace ebbtide {
namespace {

// Multiples of 64; four steps for each doubling from 512 on, so that at most a fifth is wasted
// there.
constexpr uint16_t kClassSizes[SmallCache::kClasses] = {64,   128,  192,  256,  320,  384,  448,
                                                        512,  640,  768,  896,  1024, 1280, 1536,
                                                        1792, 2048, 2560, 3072, 3584, 4096};

constexpr std::array<uint8_t, 65> MakeClassTable() {
  std::array<uint8_t, 65> table{};
  int size_class = 0;
  for (int units = 1; units <= 64; ++units) {
    if (units * 64 > kClassSizes[size_class]) ++size_class;
    table[units] = static_cast<uint8_t>(size_class);
  }
  return table;
}

constexpr std::array<uint8_t, 65> kClassTable = MakeClassTable();

constexpr size_t kMaxCapacity = 64;
// A refill may find that other threads of the shard have filled the magazine meanwhile.
constexpr size_t kMagazineSlots = kMaxCapacity + SmallCache::kMaxBatch;
constexpr int64_t kPublishEvery = int64_t{64} << 10;
constexpr int kMapWords = SmallCache::kChunkSize / 64 / 64;

// As many objects as make 32 KiB, but at least 8: few enough that idle shards hold little.
size_t MagazineCapacity(int size_class) {
  return std::clamp<size_t>(32768 / kClassSizes[size_class], 8, kMaxCapacity);
}

// Threads are dealt out over the shards in the order in which they first come by.
uint32_t ThreadNumber() {
  static std::atomic<uint32_t> last{0};
  // Four bytes, for which a library that is loaded late has room.
  thread_local uint32_t number __attribute__((tls_model("initial-exec"))) = 0;
  if (number == 0) number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

const void* Hex(uintptr_t address) { return reinterpret_cast<const void*>(address); }

}  // namespace

void SpinLock::Wait() const {
  for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
    if (spins < 100) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      sched_yield();  // the holder may have lost its processor to us
    }
  }
}

struct SmallCache::Slab {
  uintptr_t base = 0;
  Block* chunk = nullptr;
  int size_class = 0;
  Kind kind = Kind::kSmall;
  uint32_t object_size = 0;
  uint32_t reciprocal = 0;  // ceil(2^16 / (object_size / 64))
  uint32_t capacity = 0;
  uint32_t free_count = 0;  // set bits of `free`
  Slab* prev = nullptr;     // in available_
  Slab* next = nullptr;
  uint64_t free[kMapWords] = {};               // objects that are in the slab, not in a magazine
  std::atomic<uint64_t> live[kMapWords] = {};  // objects that the program holds
  // What was asked for each of them; written by who takes it, read by who has it.
  uint16_t asked[kChunkSize / 64];

  // Exact for multiples of 64 below 64 KiB: n * ceil(2^16 / d) exceeds n / d * 2^16 by less than
  // 1023 * 63 < 2^16.
  uint32_t IndexOf(uintptr_t address) const {
    return static_cast<uint32_t>((((address - base) >> 6) * reciprocal) >> 16);
  }
  uintptr_t AddressOf(uint32_t index) const { return base + uintptr_t{index} * object_size; }
  bool IsStart(uintptr_t address) const {
    const uint32_t index = IndexOf(address);
    return index < capacity && AddressOf(index) == address;
  }
};

struct alignas(128) SmallCache::Shard {
  mutable SpinLock lock;
  Counts counts;
  struct {
    int64_t bytes = 0;
    int64_t asked = 0;
  } unpublished[kKinds];                      // what live_ and meters_ do not know yet
  uint32_t count[kClasses] = {};              // objects in each magazine
  uintptr_t slots[kClasses][kMagazineSlots];  // not initialised: most of it is never touched
};

SmallCache::SmallCache(PageMap* pages, Gauge* live, UsageMeter* meters)
    : pages_(pages), live_(live), meters_(meters), shards_(new Shard[kShards]) {}

SmallCache::~SmallCache() = default;

int SmallCache::ClassOf(size_t size) { return kClassTable[(size + 63) / 64]; }

// Slabs start at multiples of kChunkSize.
int SmallCache::ClassOf(size_t size, size_t alignment) {
  int size_class = ClassOf(std::max(size, alignment));
  while (kClassSizes[size_class] % alignment != 0) ++size_class;  // the last one always fits
  return size_class;
}

size_t SmallCache::ClassSize(int size_class) { return kClassSizes[size_class]; }

size_t SmallCache::ObjectSize(const Slab* slab) { return slab->object_size; }

bool SmallCache::IsLive(const Slab* slab, uintptr_t address) {
  if (!slab->IsStart(address)) return false;
  const uint32_t index = slab->IndexOf(address);
  return (slab->live[index / 64].load(std::memory_order_relaxed) >> (index % 64)) & 1;
}

size_t SmallCache::AskedSize(const Slab* slab, uintptr_t address) {
  return slab->asked[slab->IndexOf(address)];
}

uintptr_t SmallCache::StartOf(const Slab* slab, uintptr_t address) {
  return slab->AddressOf(slab->IndexOf(address));
}

Block* SmallCache::ChunkOf(const Slab* slab) { return slab->chunk; }

Kind SmallCache::KindOf(const Slab* slab) { return slab->kind; }

SmallCache::Shard& SmallCache::MyShard() const { return shards_[ThreadNumber() % kShards]; }

void SmallCache::Publish(Shard* shard, Kind kind, int64_t bytes, int64_t asked) {
  auto& unpublished = shard->unpublished[static_cast<int>(kind)];
  unpublished.bytes += bytes;
  unpublished.asked += asked;
  if (unpublished.bytes < kPublishEvery && unpublished.bytes > -kPublishEvery) return;
  live_->Add(unpublished.bytes);
  meters_[static_cast<int>(kind)].AddObjects(unpublished.bytes, unpublished.asked);
  unpublished = {};
}

uintptr_t SmallCache::Pop(int size_class, size_t asked) {
  Shard& shard = MyShard();
  std::lock_guard<SpinLock> lock(shard.lock);
  uint32_t& count = shard.count[size_class];
  if (count == 0) return 0;
  const uintptr_t address = shard.slots[size_class][--count];
  Slab* slab = SlabOf(pages_->Get(address));
  const uint32_t index = slab->IndexOf(address);
  slab->live[index / 64].fetch_or(uint64_t{1} << (index % 64), std::memory_order_relaxed);
  slab->asked[index] = static_cast<uint16_t>(asked);
  ObjectCounts& counts = shard.counts[static_cast<int>(slab->kind)];
  ++counts.allocations;
  counts.bytes_in += slab->object_size;
  counts.asked_in += static_cast<int64_t>(asked);
  Publish(&shard, slab->kind, slab->object_size, static_cast<int64_t>(asked));
  return address;
}

void SmallCache::CountFree(Shard* shard, Slab* slab, uint32_t index) {
  const uint64_t bit = uint64_t{1} << (index % 64);
  const uint64_t before = slab->live[index / 64].fetch_and(~bit, std::memory_order_relaxed);
  EBB_CHECK((before & bit) != 0) << "free of " << Hex(slab->AddressOf(index))
                                 << ": freed twice, or never allocated; blocks here have "
                                 << slab->object_size << " bytes";
  ObjectCounts& counts = shard->counts[static_cast<int>(slab->kind)];
  ++counts.frees;
  counts.bytes_out += slab->object_size;
  counts.asked_out += slab->asked[index];
  Publish(shard, slab->kind, -static_cast<int64_t>(slab->object_size), -slab->asked[index]);
}

void SmallCache::CheckStart(const Slab* slab, uintptr_t address) {
  EBB_CHECK(slab->IsStart(address))
      << "free of " << Hex(address) << ": inside a block, not at its start; blocks here have "
      << slab->object_size << " bytes, the one around it begins at " << Hex(StartOf(slab, address));
}

void SmallCache::Retire(Slab* slab, uintptr_t address) {
  CheckStart(slab, address);
  Shard& shard = MyShard();
  std::lock_guard<SpinLock> lock(shard.lock);
  CountFree(&shard, slab, slab->IndexOf(address));
}

size_t SmallCache::Push(Slab* slab, uintptr_t address, uintptr_t* overflow) {
  CheckStart(slab, address);
  Shard& shard = MyShard();
  std::lock_guard<SpinLock> lock(shard.lock);
  CountFree(&shard, slab, slab->IndexOf(address));
  uint32_t& count = shard.count[slab->size_class];
  uintptr_t* slots = shard.slots[slab->size_class];
  size_t moved = 0;
  if (count >= MagazineCapacity(slab->size_class)) {
    // The oldest go: the newest are the ones that are still in the processor's caches.
    moved = std::min<size_t>(count / 2, kMaxBatch);
    std::copy_n(slots, moved, overflow);
    std::copy(slots + moved, slots + count, slots);
    count -= moved;
  }
  slots[count++] = address;
  return moved;
}

size_t SmallCache::TakeBatch(int size_class, size_t wanted, uintptr_t* out) {
  size_t taken = 0;
  while (taken < wanted && available_[size_class] != nullptr) {
    Slab* slab = available_[size_class];
    for (int word = 0; word < kMapWords && taken < wanted; ++word) {
      while (slab->free[word] != 0 && taken < wanted) {
        const int bit = __builtin_ctzll(slab->free[word]);
        slab->free[word] &= slab->free[word] - 1;
        out[taken++] = slab->AddressOf(word * 64 + bit);
        --slab->free_count;
      }
    }
    if (slab->free_count == 0) Unlink(slab);
  }
  return taken;
}

uintptr_t SmallCache::TakeFromSlabs(int size_class, size_t asked) {
  // Another thread of the shard may have refilled it while this one waited for the owner's lock.
  const uintptr_t address = Pop(size_class, asked);
  if (address != 0) return address;
  uintptr_t batch[kMaxBatch];
  const size_t wanted = std::min(MagazineCapacity(size_class) / 2, kMaxBatch);
  size_t left = TakeBatch(size_class, wanted, batch);
  if (left == 0) return 0;
  {
    Shard& shard = MyShard();
    std::lock_guard<SpinLock> lock(shard.lock);
    uint32_t& count = shard.count[size_class];
    // Only frees can have come in between, and those stop at the capacity.
    EBB_CHECK(count + left <= kMagazineSlots);
    // From the back, so that the lowest address is handed out first.
    while (left > 0) shard.slots[size_class][count++] = batch[--left];
  }
  return Pop(size_class, asked);
}

void SmallCache::AddChunk(int size_class, Block* chunk, Kind kind) {
  if (spare_.empty()) spare_.push_back(&storage_.emplace_back());
  Slab* slab = spare_.back();
  spare_.pop_back();
  slab->base = chunk->begin;
  slab->chunk = chunk;
  slab->size_class = size_class;
  slab->kind = kind;
  slab->object_size = kClassSizes[size_class];
  const uint32_t units = slab->object_size / 64;
  slab->reciprocal = (65536 + units - 1) / units;
  slab->capacity = kChunkSize / slab->object_size;
  slab->free_count = slab->capacity;
  for (uint32_t word = 0; word < kMapWords; ++word) {
    const uint32_t first = word * 64;
    const uint32_t count = slab->capacity > first ? std::min(slab->capacity - first, 64u) : 0;
    slab->free[word] = count == 0 ? 0 : ~uint64_t{0} >> (64 - count);
    slab->live[word].store(0, std::memory_order_relaxed);
  }
  Link(slab);
  for (uintptr_t at = chunk->begin; at < chunk->end; at += uintptr_t{1} << PageMap::kPageBits) {
    pages_->Set(at, reinterpret_cast<uintptr_t>(slab) | 1);
  }
}

void SmallCache::ReturnObjects(const uintptr_t* objects, size_t count, std::vector<Block*>* empty) {
  for (size_t i = 0; i < count; ++i) {
    Slab* slab = SlabOf(pages_->Get(objects[i]));
    const uint32_t index = slab->IndexOf(objects[i]);
    EBB_DCHECK(((slab->free[index / 64] >> (index % 64)) & 1) == 0);
    slab->free[index / 64] |= uint64_t{1} << (index % 64);
    if (slab->free_count++ == 0) Link(slab);
    if (slab->free_count == slab->capacity) Retire(slab, empty);
  }
}

void SmallCache::Retire(Slab* slab, std::vector<Block*>* empty) {
  Unlink(slab);
  for (uintptr_t at = slab->base; at < slab->base + kChunkSize;
       at += uintptr_t{1} << PageMap::kPageBits) {
    pages_->Set(at, 0);
  }
  empty->push_back(slab->chunk);
  spare_.push_back(slab);
}

void SmallCache::Flush(std::vector<Block*>* empty) {
  std::vector<uintptr_t> objects;
  for (int i = 0; i < kShards; ++i) {
    std::lock_guard<SpinLock> lock(shards_[i].lock);
    for (int c = 0; c < kClasses; ++c) {
      const uintptr_t* slots = shards_[i].slots[c];
      objects.insert(objects.end(), slots, slots + shards_[i].count[c]);
      shards_[i].count[c] = 0;
    }
  }
  ReturnObjects(objects.data(), objects.size(), empty);
  // While a chunk was obtained, without the lock, its class may have been filled otherwise: then no
  // object of the slab was ever handed out, and none comes back.
  for (Slab* slab : available_) {
    while (slab != nullptr) {
      Slab* next = slab->next;
      if (slab->free_count == slab->capacity) Retire(slab, empty);
      slab = next;
    }
  }
}

SmallCache::Counts SmallCache::Count() const {
  Counts total;
  LockShards();
  for (int i = 0; i < kShards; ++i) {
    for (int kind = 0; kind < kKinds; ++kind) total[kind] += shards_[i].counts[kind];
  }
  UnlockShards();
  return total;
}

void SmallCache::LockShards() const {
  for (int i = 0; i < kShards; ++i) shards_[i].lock.lock();
}

void SmallCache::UnlockShards() const {
  for (int i = 0; i < kShards; ++i) shards_[i].lock.unlock();
}

void SmallCache::Link(Slab* slab) {
  Slab*& head = available_[slab->size_class];
  slab->prev = nullptr;
  slab->next = head;
  if (head != nullptr) head->prev = slab;
  head = slab;
}

void SmallCache::Unlink(Slab* slab) {
  if (slab->next != nullptr) slab->next->prev = slab->prev;
  if (slab->prev != nullptr) {
    slab->prev->next = slab->next;
  } else {
    available_[slab->size_class] = slab->next;
  }
}

}  // namespace ebbtide
