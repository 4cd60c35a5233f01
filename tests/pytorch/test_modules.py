# SPDX-License-Identifier: Apache-2.0
"""Every module of torch's module_db gives the same bits under evict-all as without Ebbtide."""

import pytest

import sampling

SHARDS = 2


def evict_all(shard):
    return sampling.compare_shard("module", f"{shard}/{SHARDS}", stress="evict-all")


@pytest.mark.background(work=evict_all)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_modules(shard, background):
    sampling.check_shard(background)
