# SPDX-License-Identifier: Apache-2.0
"""Threads, processes, compilers: the same results as without Ebbtide in every one of them."""

import pytest

import harness

PROGRAMS = ("threads", "shared_model", "backward_in_thread", "loader_fork", "loader_spawn", "fork",
            "subprocesses", "shared_tensors", "ddp", "compiled", "export", "trace",
            "queue_of_tensors")
# These start processes that train for themselves: each must leave its own stats file.
TRAINING_CHILDREN = {"subprocesses": 1, "ddp": 2}


def evict_all(program):
    return harness.compare("processes.py", program, stress="evict-all")


@pytest.mark.background(work=evict_all)
@pytest.mark.parametrize("program", PROGRAMS)
def test_evict_all(program, background):
    training = [stats for stats in background.children_stats if stats["calls"] > 100]
    assert len(training) >= TRAINING_CHILDREN.get(program, 0), background.describe()
    for stats in training[:TRAINING_CHILDREN.get(program, 0)]:
        assert stats["devices"][0]["evictions"] > 0, stats
    if program != "ddp":
        assert background.device()["evictions"] > 0, background.describe()


def evict_random(program, seed):
    return harness.compare("processes.py", program, stress=f"evict-random:{seed}:0.2")


@pytest.mark.background(work=evict_random)
@pytest.mark.parametrize("seed", (1, 2, 3))
@pytest.mark.parametrize("program", ("threads", "shared_model"))
def test_threads_evict_random(program, seed, background):
    """Other interleavings of threads that read, evict and rebuild the same values."""
    assert background.device()["evictions"] > 0, background.describe()


def fork_sides():
    return harness.run("processes.py", "fork", stress="evict-random:4:0.5").check()


@pytest.mark.background(work=fork_sides)
def test_both_sides_of_a_fork_agree(background):
    assert background.result["equal"], background.describe()
