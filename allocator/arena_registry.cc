// SPDX-License-Identifier: Apache-2.0

#include "allocator/arena_registry.h"

#include <algorithm>
#include <atomic>

namespace ebbtide {
namespace {

uint64_t NextNumber() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

// The latest look-up of the thread. An entry stays right until its arena changes its pool.
struct LookUp {
  uint64_t registry = 0;
  PoolId pool = 0;
  StreamId stream = 0;
  Arena* arena = nullptr;
};

thread_local LookUp latest;

}  // namespace

ArenaRegistry::ArenaRegistry(std::function<std::unique_ptr<Arena>(StreamId)> make)
    : make_(std::move(make)), number_(NextNumber()) {
  main_ = FindOrMake({kSharedPool, kDefaultStream});
}

Arena* ArenaRegistry::Find(StreamId stream, PoolId pool) {
  if (stream == kDefaultStream && pool == kSharedPool) return main_;
  if (latest.registry == number_ && latest.stream == stream && latest.pool == pool &&
      latest.arena->pool() == pool && latest.arena->stream() == stream) {
    return latest.arena;
  }
  Arena* arena = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto it = by_key_.find(Key{pool, stream});
    if (it != by_key_.end()) arena = it->second;
  }
  if (arena == nullptr) {
    std::lock_guard lock(mutex_);
    arena = FindOrMake({pool, stream});
  }
  if (arena != nullptr) latest = {number_, pool, stream, arena};
  return arena;
}

Arena* ArenaRegistry::FindOrMake(const Key& key) {
  if (!pools_.contains(key.first)) return nullptr;
  const auto it = by_key_.find(key);
  if (it != by_key_.end()) return it->second;
  Arena* arena = FindSpare(key.second);
  if (arena == nullptr) arena = arenas_.emplace_back(make_(key.second)).get();
  by_key_[key] = arena;
  if (arena->pool() != key.first) arena->StartPool();
  arena->SetPool(key.first, /*keeps_cache=*/key.first != kSharedPool);
  return arena;
}

// Pools and streams come and go: an arena that nobody can ask for any more serves anew.
Arena* ArenaRegistry::FindSpare(StreamId stream) {
  for (auto it = retired_.begin(); it != retired_.end(); ++it) {
    Arena* arena = *it;
    if (arena->stream() == stream ? !arena->IsEmpty() : !arena->TryServe(stream)) continue;
    retired_.erase(it);
    return arena;
  }
  for (auto it = by_key_.begin(); it != by_key_.end(); ++it) {
    Arena* arena = it->second;
    if (arena == main_ || !arena->TryServe(stream)) continue;
    by_key_.erase(it);
    return arena;
  }
  return nullptr;
}

PoolId ArenaRegistry::CreatePool() {
  static std::atomic<PoolId> last{kSharedPool};
  const PoolId pool = last.fetch_add(1) + 1;
  std::lock_guard lock(mutex_);
  pools_.insert(pool);
  return pool;
}

bool ArenaRegistry::PoolExists(PoolId pool) const {
  std::lock_guard lock(mutex_);
  return pools_.contains(pool);
}

std::vector<Arena*> ArenaRegistry::DestroyPool(PoolId pool) {
  std::lock_guard lock(mutex_);
  std::vector<Arena*> arenas;
  if (pool == kSharedPool || pools_.erase(pool) == 0) return arenas;
  absl::erase_if(by_key_, [&](const auto& entry) {
    if (entry.first.first != pool) return false;
    entry.second->SetPool(kSharedPool, /*keeps_cache=*/false);
    arenas.push_back(entry.second);
    return true;
  });
  retired_.insert(retired_.end(), arenas.begin(), arenas.end());
  return arenas;
}

std::vector<Arena*> ArenaRegistry::All() const {
  std::lock_guard lock(mutex_);
  std::vector<Arena*> all;
  all.reserve(arenas_.size());
  for (const auto& arena : arenas_) all.push_back(arena.get());
  return all;
}

std::vector<Arena*> ArenaRegistry::OfPool(PoolId pool) const {
  std::vector<Arena*> arenas = All();
  std::erase_if(arenas, [&](const Arena* arena) { return arena->pool() != pool; });
  return arenas;
}

}  // namespace ebbtide
