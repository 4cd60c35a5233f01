#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A snapshot that the C++ side wrote, seen through Python's own pickle: the layout that PyTorch's
viewer and scripts expect, and only opcodes that the viewer knows.

Usage: snapshot_pickle_test.py WRITER, the program that writes the example to a file.
"""

import pickle
import pickletools
import subprocess
import sys
import tempfile
import unittest

WRITER = sys.argv.pop()

SEGMENT_KEYS = {
    "device": int,
    "address": int,
    "total_size": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "segment_pool_id": tuple,
    "is_expandable": bool,
    "frames": list,
    "blocks": list,
}
BLOCK_KEYS = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
EVENT_KEYS = {
    "action": str,
    "addr": int,
    "size": int,
    "stream": int,
    "time_us": int,
    "frames": list,
}
ACTIONS = {
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
}
# What the viewer's own reader handles.
VIEWER_OPCODES = {
    "PROTO",
    "STOP",
    "MARK",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "EMPTY_LIST",
    "APPENDS",
    "EMPTY_DICT",
    "SETITEMS",
    "TUPLE2",
    "BINPUT",
    "LONG_BINPUT",
    "BINGET",
    "LONG_BINGET",
}
# It passes the elements of a portion as arguments of one call, which browsers limit.
PORTION_MAX = 1000


class SnapshotTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run([WRITER, file.name], check=True)
            cls.bytes = file.read()
        cls.snapshot = pickle.loads(cls.bytes)

    def check(self, record, keys):
        self.assertEqual({key: type(value) for key, value in record.items()}, keys)

    def test_top(self):
        self.assertEqual(
            set(self.snapshot),
            {"segments", "device_traces", "allocator_settings", "external_annotations"},
        )
        self.assertEqual(self.snapshot["external_annotations"], [])
        self.assertEqual(self.snapshot["allocator_settings"]["backend"], "ebbtide")

    def test_segments(self):
        self.assertEqual(len(self.snapshot["segments"]), 2)
        for segment in self.snapshot["segments"]:
            self.check(segment, SEGMENT_KEYS)
            address = segment["address"]
            totals = {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
            for block in segment["blocks"]:
                self.check(block, BLOCK_KEYS)
                self.assertEqual(block["address"], address)
                address += block["size"]
                totals[block["state"]] += block["size"]
            self.assertEqual(address - segment["address"], segment["total_size"])
            self.assertEqual(segment["allocated_size"], totals["active_allocated"])
            self.assertEqual(
                segment["active_size"], totals["active_allocated"] + totals["active_pending_free"]
            )
        first, second = self.snapshot["segments"]
        self.assertEqual(first["requested_size"], 9 << 20)
        self.assertEqual(
            (first["segment_type"], first["is_expandable"], first["segment_pool_id"]),
            ("large", True, (0, 0)),
        )
        self.assertEqual(
            (second["segment_type"], second["is_expandable"], second["segment_pool_id"]),
            ("small", False, (1, 7)),
        )
        self.assertEqual((second["device"], second["stream"]), (1, 0x5581AA00))

    def test_events(self):
        traces = self.snapshot["device_traces"]
        self.assertEqual(len(traces), 2)
        self.assertEqual([event["action"] for event in traces[1]], ["segment_alloc", "alloc"])
        self.assertEqual({event["action"] for event in traces[0]}, ACTIONS)
        self.assertEqual(len(traces[0]), 1810)
        times = []
        for event in traces[0]:
            if event["action"] == "oom":
                self.assertEqual((event["device_free"], event["size"]), (3 << 20, 64 << 20))
                event = {"addr" if key == "device_free" else key: event[key] for key in event}
            self.check(event, EVENT_KEYS)
            times.append(event["time_us"])
        self.assertEqual(times, sorted(times))

    def test_only_opcodes_of_the_viewer_in_portions(self):
        marks = []
        count = 0
        for opcode, argument, _ in pickletools.genops(self.bytes):
            self.assertIn(opcode.name, VIEWER_OPCODES)
            if opcode.name == "PROTO":
                self.assertEqual(argument, 2)
            if opcode.name == "MARK":
                marks.append(count)
                count = 0
            elif opcode.name in ("APPENDS", "SETITEMS"):
                self.assertLessEqual(count, PORTION_MAX)
                count = marks.pop()
            elif opcode.name == "TUPLE2":
                count -= 1
            elif opcode.stack_after and not opcode.name.endswith("PUT"):
                count += 1
        self.assertEqual(marks, [])


if __name__ == "__main__":
    unittest.main()
