// SPDX-License-Identifier: Apache-2.0

#include "allocator/out_of_memory.h"

#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace ebbtide::literals;

OutOfMemory Example() {
  OutOfMemory details;
  details.asked = 3_MiB;
  details.budget = 64_MiB;
  details.device_capacity = 8_GiB;
  details.held = 62_MiB;
  details.live = 60_MiB;
  details.cached = 2_MiB;
  details.largest_free_range = 1_GiB;
  return details;
}

TEST(OutOfMemoryTest, TellsTheNumbersAndTheCallersLines) {
  EXPECT_EQ(
      WithLines(FormatOutOfMemory(Example()), {"pinned 1.00 MiB by numpy", "evicted nothing"}),
      "out of memory: asked for 3.00 MiB (3145728 bytes), budget 64.00 MiB\n"
      "  held 62.00 MiB = live 60.00 MiB + cached 2.00 MiB; largest free range 1.00 GiB\n"
      "  pinned 1.00 MiB by numpy\n"
      "  evicted nothing");
}

TEST(OutOfMemoryTest, TellsWhatElseStoodInTheWay) {
  OutOfMemory details = Example();
  details.budget = Bytes::Max();
  details.device_exhausted = true;
  details.needs_contiguous = true;
  details.kept_by_pools = 1_MiB;
  EXPECT_EQ(FormatOutOfMemory(details),
            "out of memory: asked for 3.00 MiB (3145728 bytes), no budget set, but the device "
            "(8.00 GiB) has no more to give\n"
            "  held 62.00 MiB = live 60.00 MiB + cached 2.00 MiB (1.00 MiB of it kept by private "
            "pools); largest free range 1.00 GiB\n"
            "  enough bytes are free, but not in one piece");
}

}  // namespace
}  // namespace ebbtide
