// SPDX-License-Identifier: Apache-2.0
//
// The objects that a program holds by an opaque handle: streams, events, graphs. A handle is a
// number that is no address, so that whoever dereferences it gets a fault. Handles are not given
// again, so that one used after its object is always found out; or, as drivers do, the one that
// was given back last is given first.
//
// Threads: the caller serialises all calls. Ownership: the table shares its objects.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_HANDLE_TABLE_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_HANDLE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace ebbtide::hollow {

template <typename T>
class HandleTable {
 public:
  // `kind` tells the tables' handles apart.
  HandleTable(uint8_t kind, bool reuse)
      : next_(0xEBB0'0000'0000'0000 | uint64_t{kind} << 40), reuse_(reuse) {}

  uintptr_t Add(std::shared_ptr<T> object) {
    uintptr_t handle = 0;
    if (reuse_ && !free_.empty()) {
      handle = free_.back();
      free_.pop_back();
    } else {
      next_ += 16;
      handle = next_;
    }
    objects_[handle] = std::move(object);
    return handle;
  }

  // Null when no object has the handle.
  std::shared_ptr<T> Find(uintptr_t handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  void Remove(uintptr_t handle) {
    if (objects_.erase(handle) != 0) free_.push_back(handle);
  }

  void set_reuse(bool reuse) { reuse_ = reuse; }
  const std::map<uintptr_t, std::shared_ptr<T>>& objects() const { return objects_; }

 private:
  uintptr_t next_;
  bool reuse_;
  std::vector<uintptr_t> free_;
  std::map<uintptr_t, std::shared_ptr<T>> objects_;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_HANDLE_TABLE_H_
