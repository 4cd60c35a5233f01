// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/small_calls.h"

#include <ATen/Operators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>
#include <type_traits>
#include <utility>

#include "pytorch/backend/collectives.h"
#include "pytorch/backend/dispatch_key.h"
#include "pytorch/backend/held_storages.h"
#include "pytorch/backend/op_info.h"
#include "pytorch/backend/small_call.h"
#include "pytorch/storage_swap.h"

namespace ebbtide {
namespace {

namespace ops = at::_ops;

template <class... Ops>
struct OperatorList {};

// What tiny tensors are computed with: networks bound by the number of calls, and what an optimizer
// does to its counters.
using SmallOperators = OperatorList<
    // arithmetic
    ops::add_Tensor, ops::add__Tensor, ops::add_Scalar, ops::add__Scalar, ops::sub_Tensor,
    ops::sub__Tensor, ops::rsub_Scalar, ops::mul_Tensor, ops::mul__Tensor, ops::mul_Scalar,
    ops::mul__Scalar, ops::div_Tensor, ops::div__Tensor, ops::div_Scalar, ops::div__Scalar,
    ops::neg, ops::exp, ops::log, ops::sqrt, ops::rsqrt, ops::reciprocal, ops::abs,
    ops::pow_Tensor_Scalar, ops::maximum, ops::minimum, ops::clamp, ops::clamp_min,
    // comparison and choice
    ops::eq_Tensor, ops::eq_Scalar, ops::ne_Tensor, ops::ne_Scalar, ops::lt_Tensor, ops::lt_Scalar,
    ops::le_Tensor, ops::le_Scalar, ops::gt_Tensor, ops::gt_Scalar, ops::ge_Tensor, ops::ge_Scalar,
    ops::where_self, ops::masked_fill_Scalar,
    // products
    ops::mm, ops::bmm, ops::addmm, ops::baddbmm, ops::convolution, ops::convolution_backward,
    // activations and losses
    ops::relu, ops::relu_, ops::threshold_backward, ops::sigmoid, ops::sigmoid_,
    ops::sigmoid_backward, ops::tanh, ops::tanh_, ops::tanh_backward, ops::gelu, ops::gelu_backward,
    ops::silu, ops::silu_backward, ops::_softmax, ops::_softmax_backward_data, ops::_log_softmax,
    ops::_log_softmax_backward_data, ops::nll_loss_forward, ops::nll_loss_backward, ops::mse_loss,
    ops::mse_loss_backward,
    // reductions
    ops::sum, ops::sum_dim_IntList, ops::mean, ops::mean_dim, ops::argmax, ops::max_dim,
    // normalization and look-ups
    ops::native_layer_norm, ops::native_layer_norm_backward, ops::native_batch_norm,
    ops::native_batch_norm_backward, ops::embedding, ops::embedding_dense_backward,
    ops::index_select, ops::gather,
    // copies
    ops::cat, ops::stack, ops::clone, ops::_to_copy, ops::copy_, ops::fill__Scalar, ops::zero_,
    ops::ones_like, ops::zeros_like, ops::unsafe_split_Tensor, ops::select_backward,
    ops::slice_backward, ops::_local_scalar_dense,
    // optimizers
    ops::addcmul_, ops::addcdiv_, ops::lerp__Scalar, ops::_foreach_add__List,
    ops::_foreach_add__Scalar, ops::_foreach_mul__Scalar, ops::_foreach_addcmul__Scalar,
    ops::_foreach_addcdiv__Scalar, ops::_foreach_addcdiv__ScalarList, ops::_foreach_lerp__Scalar,
    ops::_foreach_div__ScalarList, ops::_foreach_sqrt>;

// An operator, and what is needed to hand its calls on.
struct Target {
  c10::OperatorHandle op;
  const OpInfo& info;
  c10::KernelFunction hook;
};

template <class Op, class Schema = typename Op::schema>
struct SmallKernel;

template <class Op, class Return, class... Args>
struct SmallKernel<Op, Return(Args...)> {
  // Set before the kernel is registered, and never destroyed: operators run until the very end of
  // the process.
  static inline const Target* target = nullptr;

  static Return Run(c10::DispatchKeySet keys, Args... args) {
    ReleaseKernelHolds();
    PollCollectives(Manager::Get());
    const c10::DispatchKeySet below = KeysBelow(HookKey(), keys);
    SmallCall call(target->info);
    if (!call.Begin(below, args...)) {
      return target->hook.template call<Return, Args...>(target->op, keys,
                                                         std::forward<Args>(args)...);
    }
    const c10::impl::ExcludeDispatchKeyGuard hook_off(HookKeys());
    const c10::DispatchKeySet kernel = below - HookKeys();
    const OperatorScope scope;
    if constexpr (std::is_void_v<Return> || std::is_reference_v<Return>) {
      // It returns nothing but its arguments.
      return Op::redispatch(kernel, std::forward<Args>(args)...);
    } else {
      Return result = Op::redispatch(kernel, std::forward<Args>(args)...);
      call.SeeResult(result);
      return result;
    }
  }
};

template <class Op>
void Install(torch::Library* aten, const c10::KernelFunction& hook) {
  std::optional<c10::OperatorHandle> op =
      c10::Dispatcher::singleton().findSchema({Op::name, Op::overload_name});
  if (!op.has_value()) return;
  const OpInfo& info = InfoOf(*op);
  if (!SmallCall::Fits(info)) return;
  using Kernel = SmallKernel<Op>;
  Kernel::target = new Target{*op, info, hook};
  const std::string name = c10::toString(op->operator_name());
  aten->impl(name.c_str(), TORCH_FN(&Kernel::Run));
}

template <class... Ops>
void InstallAll(OperatorList<Ops...>, torch::Library* aten, const c10::KernelFunction& hook) {
  (Install<Ops>(aten, hook), ...);
}

}  // namespace

void InstallSmallCalls(torch::Library* aten, const c10::KernelFunction& hook) {
  InstallAll(SmallOperators(), aten, hook);
}

}  // namespace ebbtide
