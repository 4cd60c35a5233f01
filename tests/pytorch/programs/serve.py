# SPDX-License-Identifier: Apache-2.0
"""Runs train.py many times without importing torch each time: forks for every request.

Reads a JSON list of arguments a line from stdin; answers with the exit status, a line each. The
child's stderr goes to the file that the first argument names.
"""

import json
import os
import sys
import traceback

import train

# What the programs import when they need it, here once for all.
import torch._dynamo
import torchvision.models
from transformers import GPT2LMHeadModel


def child(stderr, arguments):
    descriptor = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 2)
    sys.argv = ["train.py", *arguments]
    try:
        train.main()
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    os._exit(status)


def main():
    for line in sys.stdin:
        stderr, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(stderr, arguments)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
