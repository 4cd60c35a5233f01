// SPDX-License-Identifier: Apache-2.0
//
// ArenaRegistry finds the arena of a stream and a pool, makes it when it is first asked for, and
// lists them all. Pools are told apart by numbers that are never used again in the process, so that
// one of another allocator is not taken for one of ours; pool 0, the shared one, always exists.
// Arenas of a destroyed pool live on until the blocks in them are freed, and serve a later pool of
// the same stream after that.
//
// Thread safety: all functions may be called from any thread. A thread's repeated look-ups take no
// lock. Ownership: arenas live as long as the registry.

#ifndef EBBTIDE_ALLOCATOR_ARENA_REGISTRY_H_
#define EBBTIDE_ALLOCATOR_ARENA_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "allocator/arena.h"
#include "allocator/stream_order.h"

namespace ebbtide {

using PoolId = uint64_t;
inline constexpr PoolId kSharedPool = 0;

class ArenaRegistry {
 public:
  // `make` makes an arena of a stream.
  explicit ArenaRegistry(std::function<std::unique_ptr<Arena>(StreamId)> make);

  // The arena of the shared pool's default stream.
  Arena& main() const { return *main_; }

  // Null when the pool was destroyed or never existed.
  Arena* Find(StreamId stream, PoolId pool);

  // A pool whose memory nobody else gets.
  PoolId CreatePool();
  bool PoolExists(PoolId pool) const;

  // Returns the pool's arenas, whose caches are no longer kept; empty when there is no such pool.
  std::vector<Arena*> DestroyPool(PoolId pool);

  // All arenas in the order of their making, those of destroyed pools included. The list only
  // grows.
  std::vector<Arena*> All() const;
  std::vector<Arena*> OfPool(PoolId pool) const;

  // Guards the list. Taken before any arena's lock; for fork().
  std::mutex& mutex() const { return mutex_; }
  // Calls visit(Arena&) for all. REQUIRES: the caller holds mutex().
  template <typename Visitor>
  void ForEachLocked(const Visitor& visit) const {
    for (const auto& arena : arenas_) visit(*arena);
  }

 private:
  using Key = std::pair<PoolId, StreamId>;

  Arena* FindOrMake(const Key& key);
  Arena* FindSpare(StreamId stream);

  const std::function<std::unique_ptr<Arena>(StreamId)> make_;
  const uint64_t number_;  // of this registry among all that ever were
  Arena* main_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  absl::flat_hash_map<Key, Arena*> by_key_;
  std::vector<Arena*> retired_;
  absl::flat_hash_set<PoolId> pools_{kSharedPool};
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_ARENA_REGISTRY_H_
