# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of torch's optim_db gives the same bits under evict-all as without Ebbtide."""

import pytest

import sampling

SHARDS = 1


def evict_all(shard):
    return sampling.compare_shard("optimizer", f"{shard}/{SHARDS}", stress="evict-all")


@pytest.mark.background(work=evict_all)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_optims(shard, background):
    sampling.check_shard(background)
