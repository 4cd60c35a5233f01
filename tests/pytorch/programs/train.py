# SPDX-License-Identifier: Apache-2.0
"""Trains one small network with one feature of PyTorch and reports digests of every result.

    python train.py resnet50 --feature adam_fused --steps 2 --result result.json
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch

from digest import Report
from features import FEATURES, Job
from networks import NETWORKS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("--feature", choices=sorted(FEATURES), default="plain")
    parser.add_argument("--large", action="store_true", help="activations outweigh parameters")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", help="write the report here instead of to stdout")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    report = Report()
    job = Job(report, NETWORKS[options.network](options.large), options.steps)
    started = time.perf_counter()
    FEATURES[options.feature](job)
    report.facts["training_seconds"] = time.perf_counter() - started
    job.finish()
    report.write(options.result)


if __name__ == "__main__":
    main()
