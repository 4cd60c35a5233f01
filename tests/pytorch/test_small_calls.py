# SPDX-License-Identifier: Apache-2.0
"""Calls on tiny tensors pass the hook by a shorter way: the same bits, rules and counts."""

import pytest

import harness
import sampling

BUDGET = "24MiB"
KERNELS = ["aten::add.Tensor", "aten::addmm", "aten::cat", "aten::_foreach_add_.List"]
# Groups of op_db that lead to the operators of pytorch/backend/small_calls.cc.
GROUPS = (
    "add", "sub", "mul", "div.no_rounding_mode", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal",
    "abs", "pow", "maximum", "minimum", "clamp", "clamp_min", "eq", "ne", "lt", "le", "gt", "ge",
    "where", "masked_fill", "mm", "bmm", "addmm", "baddbmm", "nn.functional.linear",
    "nn.functional.conv2d", "nn.functional.relu", "sigmoid", "tanh", "nn.functional.gelu",
    "nn.functional.silu", "softmax", "log_softmax", "nn.functional.nll_loss",
    "nn.functional.cross_entropy", "nn.functional.mse_loss", "sum", "mean", "argmax",
    "max.reduction_with_dim", "nn.functional.layer_norm", "nn.functional.batch_norm",
    "nn.functional.embedding", "index_select", "gather", "cat", "stack", "clone", "to", "fill",
    "zero_", "ones_like", "zeros_like", "select", "__getitem__", "item", "addcmul", "addcdiv",
    "lerp",
)  # fmt: skip


def test_the_cases_hold_without_ebbtide(probe):
    outcome = harness.run("small_calls.py", "cases", "--probe", probe, managed=False).check()
    assert outcome.result["wrong"] == [] and outcome.result["kernels"] == []


@pytest.mark.parametrize("min_bytes", ("16KiB", "512KiB"))
def test_what_small_calls_touch_stays_exact(probe, min_bytes):
    outcome = harness.run("small_calls.py", "cases", "--probe", probe, budget=BUDGET,
                          env={"EBBTIDE_MIN_BYTES": min_bytes}).check()  # fmt: skip
    assert outcome.result["kernels"] == KERNELS
    assert outcome.result["wrong"] == []
    device = outcome.device()
    assert device["evictions"] > outcome.result["cases"], outcome.describe()
    assert device["rebuilds"] > outcome.result["cases"] / 2, outcome.describe()


def test_every_call_is_counted():
    """Without a budget a hook counts that has no shorter way."""
    observed = harness.run("small_calls.py", "count").check()
    managed = harness.run("small_calls.py", "count", budget=BUDGET).check()
    assert observed.result["kernels"] == [] and managed.result["kernels"] == KERNELS
    assert managed.stats["calls"] == observed.stats["calls"] > 200


def samples(database, groups):
    return sampling.compare_shard(database, "0/1", groups, budget="16GiB")


@pytest.mark.background(work=samples)
@pytest.mark.parametrize("database, groups", (("op", GROUPS), ("optimizer", ())))
def test_small_samples_give_the_same_bits(database, groups, background):
    """Under evict-all, which the other tests use, no result is too small to be recorded."""
    sampling.check_shard(background, evicting=False)
