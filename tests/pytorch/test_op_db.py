# SPDX-License-Identifier: Apache-2.0
"""Every operator of torch's op_db gives the same bits under evict-all as without Ebbtide."""

import pytest

import sampling

SHARDS = 6


def evict_all(shard):
    return sampling.compare_shard("op", f"{shard}/{SHARDS}", stress="evict-all")


@pytest.mark.background(work=evict_all)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_op_db(shard, background):
    sampling.check_shard(background)
