// SPDX-License-Identifier: Apache-2.0
//
// EvictablePool: the storages that may be evicted, in the order in which they became so.
//
// The order decides ties, so it is part of the published semantics: a storage always enters at the
// end, and taking one out keeps the order of the others. A list through two arrays does both in
// constant time, whatever the position.
//
// Threads: one at a time. Ownership: numbers only. There is nothing to replace.

#ifndef EBBTIDE_POLICY_PUBLISHED_EVICTABLE_POOL_H_
#define EBBTIDE_POLICY_PUBLISHED_EVICTABLE_POOL_H_

#include <vector>

#include "policy/published/schedule.h"

namespace ebbtide::published {

class EvictablePool {
 public:
  // For storages 0 to below `storages`; empty at first.
  explicit EvictablePool(size_t storages)
      : end_(static_cast<StorageId>(storages)), links_(storages + 1, {end_, end_}) {}

  // REQUIRES: the storage is not in the pool.
  void Append(StorageId id) {
    const StorageId last = links_[end_].before;
    links_[id] = {last, end_};
    links_[last].after = id;
    links_[end_].before = id;
  }

  // REQUIRES: the storage is in the pool.
  void Remove(StorageId id) {
    const Link link = links_[id];
    links_[link.before].after = link.after;
    links_[link.after].before = link.before;
  }

  // Walks the pool: for (id = first(); id != end(); id = Next(id)).
  StorageId first() const { return links_[end_].after; }
  StorageId end() const { return end_; }
  StorageId Next(StorageId id) const { return links_[id].after; }

 private:
  struct Link {
    StorageId before;
    StorageId after;
  };

  const StorageId end_;  // the link that closes the ring
  std::vector<Link> links_;
};

}  // namespace ebbtide::published

#endif  // EBBTIDE_POLICY_PUBLISHED_EVICTABLE_POOL_H_
