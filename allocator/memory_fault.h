// SPDX-License-Identifier: Apache-2.0
//
// The red zones and the poison of CheckedBlocks, and the reports of what was found in them. Each
// Check returns when all is well and ends the program when it is not.
//
// Threads: safe on any; what is looked at must not be handed out or given back meanwhile.
// Ownership: none. Used by checked_blocks.cc alone.

#ifndef EBBTIDE_ALLOCATOR_MEMORY_FAULT_H_
#define EBBTIDE_ALLOCATOR_MEMORY_FAULT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "allocator/checked_blocks.h"

namespace ebbtide {

// Fills the `zone` bytes before and after the payload.
void FillRedZones(const CheckedBlock& block, size_t zone);

// Fills the payload of a freed block.
void Poison(const CheckedBlock& block);

// Reports an underrun or overrun when the red zones are not as they were filled.
void CheckRedZones(const CheckedBlock& block, size_t zone);

// Reports a use after free when the poison is not as it was filled.
void CheckPoison(const CheckedBlock& block);

// Its size and state in a line, then the stacks on which it was allocated and freed.
std::string DescribeBlock(const CheckedBlock& block);

// Writes the report and aborts. `what` is the headline; `block`, if any, the block that it is
// about; `here` the stack on which it was noticed.
[[noreturn]] void ReportFault(absl::string_view what, const CheckedBlock* block,
                              const CallStack& here);

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_MEMORY_FAULT_H_
