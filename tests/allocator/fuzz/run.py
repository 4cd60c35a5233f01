#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the caching allocator with libFuzzer (clang) for some time, under ASan and UBSan.

    tests/allocator/fuzz/run.py --seconds 60        search, starting from corpus.txt
    tests/allocator/fuzz/run.py --seconds 60 --keep  and write what reached new code into corpus.txt

--junit-xml PATH writes the outcome as one test case. A failing input is printed as hexadecimal
digits: add the line to corpus.txt once it is mended.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CORPUS = HERE / "corpus.txt"
ABSL = ["absl_flat_hash_map", "absl_status", "absl_statusor", "absl_strings", "absl_str_format"]


def sources(path, found):
    """`path` and every source file of ours that it or its header needs."""
    if path in found or not (ROOT / path).exists():
        return
    found.append(path)
    for included in re.findall(r'^#include "([^"]+\.h)"', (ROOT / path).read_text(), re.M):
        sources(included, found)
        folder = pathlib.PurePosixPath(included).parent
        stem = pathlib.PurePosixPath(included).stem
        for sibling in (ROOT / folder).glob(f"{stem}*.cc"):
            # heap.h is implemented by heap.cc and heap_check.cc, but caching_ does not mean
            # caching_allocator_fuzz.cc: a file belongs to the longest header that begins its name.
            headers = (ROOT / folder).glob("*.h")
            owners = [h.stem for h in headers if sibling.stem.startswith(h.stem)]
            if owners and max(owners, key=len) == stem and "test" not in sibling.stem:
                sources(sibling.relative_to(ROOT).as_posix(), found)


def build(binary):
    found = []
    sources("tests/allocator/fuzz/caching_allocator_fuzz.cc", found)
    libraries = subprocess.check_output(["pkg-config", "--libs"] + ABSL, text=True).split()
    command = ["clang++", "-std=c++20", "-O2", "-g", "-I.", "-o", str(binary)]
    command += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    command += [path for path in found if path.endswith(".cc")] + libraries + ["-pthread"]
    subprocess.run(command, cwd=ROOT, check=True)


def write_outcome(path, status):
    failure = f'<failure message="libFuzzer ended with {status}"/>' if status else ""
    case = f'<testcase classname="fuzz" name="caching_allocator">{failure}</testcase>'
    path.write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--junit-xml", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        binary = folder / "fuzz"
        build(binary)
        for part in ("kept", "found", "merged"):
            (folder / part).mkdir()
        for number, line in enumerate(CORPUS.read_text().split()):
            (folder / "kept" / str(number)).write_bytes(bytes.fromhex(line))
        limits = [f"-max_total_time={arguments.seconds}", "-max_len=1024", "-len_control=0"]
        limits += ["-timeout=20"]
        prefix = f"-artifact_prefix={folder}/failed-"
        command = [binary, *limits, prefix, "-print_final_stats=1"]
        result = subprocess.run([*command, folder / "found", folder / "kept"])
        for failed in folder.glob("failed-*"):
            print(f"failing input: {failed.read_bytes().hex()}", flush=True)
        if arguments.junit_xml:
            write_outcome(arguments.junit_xml, result.returncode)
        if result.returncode != 0 or not arguments.keep:
            return result.returncode
        merge = [binary, "-merge=1", folder / "merged", folder / "kept", folder / "found"]
        subprocess.run(merge, check=True, stderr=subprocess.DEVNULL)
        inputs = [path.read_bytes() for path in (folder / "merged").iterdir()]
        lines = sorted((data.hex() for data in inputs if data), key=lambda line: (len(line), line))
        CORPUS.write_text("".join(line + "\n" for line in lines))
        print(f"{CORPUS.relative_to(ROOT)}: {len(lines)} inputs")
        return 0


if __name__ == "__main__":
    sys.exit(main())
