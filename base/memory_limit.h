// SPDX-License-Identifier: Apache-2.0
//
// How much memory the machine allows this process: the total that "60%" of the CPU's memory refers
// to. In a container or a batch job that is the control group's limit, not the machine's memory.
// Reads a handful of small files at each call: call it once at start. Safe on any thread.

#ifndef EBBTIDE_BASE_MEMORY_LIMIT_H_
#define EBBTIDE_BASE_MEMORY_LIMIT_H_

#include <string>

#include "base/bytes.h"

namespace ebbtide {

// The least of: physical memory (MemTotal of /proc/meminfo), and the limits of the process's
// control group and of every group above it, for version 2 (memory.max) as well as version 1
// (memory.limit_in_bytes). What cannot be read does not limit; Bytes::Max() if nothing can.
// `root` is put before every absolute path, so that a test can bring its own /proc and /sys.
Bytes MachineMemoryLimit(const std::string& root = "");

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_MEMORY_LIMIT_H_
