// SPDX-License-Identifier: Apache-2.0
//
// SmallCall: an operator call for which the hook need only watch: no storage of it has a record, so
// nothing has to be brought back or kept, and it makes nothing large enough to be recorded. It does
// for such a call what HookedCall does, but sees the arguments as they are, not boxed.
//
// Threads: used by one thread only; lives on its stack around the kernel. Ownership: borrows the
// arguments, which the caller keeps alive.

#ifndef EBBTIDE_PYTORCH_BACKEND_SMALL_CALL_H_
#define EBBTIDE_PYTORCH_BACKEND_SMALL_CALL_H_

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/shared_mutex.h"
#include "pytorch/backend/manager.h"
#include "pytorch/backend/op_info.h"

namespace ebbtide {

// Types of arguments and results in which no tensor can hide. An unknown one does not compile, so
// that none is overlooked.
template <class T>
inline constexpr bool kTensorless = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <class T>
inline constexpr bool kTensorless<std::optional<T>> = kTensorless<T>;
template <class T>
inline constexpr bool kTensorless<c10::ArrayRef<T>> = kTensorless<T>;
template <class T>
inline constexpr bool kTensorless<c10::OptionalArrayRef<T>> = kTensorless<T>;
template <class T, size_t kSize>
inline constexpr bool kTensorless<std::array<T, kSize>> = kTensorless<T>;
template <>
inline constexpr bool kTensorless<at::Scalar> = true;
template <>
inline constexpr bool kTensorless<c10::SymInt> = true;
template <>
inline constexpr bool kTensorless<c10::Device> = true;
template <>
inline constexpr bool kTensorless<at::Generator> = true;
template <>
inline constexpr bool kTensorless<c10::string_view> = true;

class SmallCall {
 public:
  // `info` must outlive the call, and fit.
  explicit SmallCall(const OpInfo& info) : info_(info), manager_(*Manager::Get()) {}
  // The kernel, if Begin allowed it, has returned or thrown.
  ~SmallCall() {
    if (begun_) End();
  }
  SmallCall(const SmallCall&) = delete;
  SmallCall& operator=(const SmallCall&) = delete;

  // Whether calls of the operator can be small at all.
  static bool Fits(const OpInfo& info) {
    return !info.composite && !info.collective && !info.keeps_addresses;
  }

  // True: the call is counted, run the kernel. False: it is for HookedCall; nothing has happened
  // that would not happen there. `below` is what the call is dispatched with below the hook.
  template <class... Args>
  bool Begin(c10::DispatchKeySet below, const Args&... args) {
    if (below.has(c10::DispatchKey::Python)) return false;
    {
      ReaderLock lock(&manager_.header_mutex());
      (SeeArgument(args), ...);
    }
    begun_ = unknown_ && !MayBeRecorded();
    if (begun_) manager_.CountCall();
    return begun_;
  }

  // What the kernel has returned, if it is new to the program.
  void SeeResult(const at::Tensor& tensor);
  void SeeResult(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) SeeResult(tensor);
  }
  template <class... Results>
  void SeeResult(const std::tuple<Results...>& results) {
    std::apply([this](const Results&... result) { (SeeResult(result), ...); }, results);
  }
  template <class Other>
  void SeeResult(const Other&) {
    static_assert(kTensorless<Other>);
  }

 private:
  struct Entry {
    c10::StorageImpl* storage;
    bool foreign;  // as in HookedCall
  };

  void SeeArgument(const at::Tensor& tensor);
  void SeeArgument(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) SeeArgument(*tensor);
  }
  void SeeArgument(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) SeeArgument(tensor);
  }
  void SeeArgument(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) SeeArgument(tensor);
  }
  template <class Other>
  void SeeArgument(const Other&) {
    static_assert(kTensorless<Other>);
  }
  bool MayBeRecorded() const;
  void SeeResultStorage(c10::StorageImpl& storage);
  void End();

  const OpInfo& info_;
  Manager& manager_;
  absl::InlinedVector<Entry, 6> entries_;
  // At least: storages count as often as they are given.
  int64_t input_bytes_ = 0;
  // No argument has a record, or hides its storages.
  bool unknown_ = true;
  bool begun_ = false;
};

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_SMALL_CALL_H_
