// SPDX-License-Identifier: Apache-2.0
#include "allocator/cuda/kernels/batched_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ebbtide {
namespace {

struct Range {
  uintptr_t begin;
  uintptr_t end;  // one past the last byte
  size_t copy;
};

absl::Status CheckOne(const BlockCopy& copy, size_t place) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("copy ", place, ": ", what));
  };
  if (copy.bytes < 0) return error(absl::StrCat("negative size ", copy.bytes));
  if (copy.bytes == 0) return absl::OkStatus();
  for (const void* address : {copy.from, static_cast<const void*>(copy.to)}) {
    if (address == nullptr) return error("null address");
    const auto begin = reinterpret_cast<uintptr_t>(address);
    if (begin + static_cast<uintptr_t>(copy.bytes) < begin) {
      return error("runs over the end of the address space");
    }
  }
  return absl::OkStatus();
}

Range RangeAt(const void* address, int64_t bytes, size_t copy) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {begin, begin + static_cast<uintptr_t>(bytes), copy};
}

}  // namespace

void HostCopyBlocks(const BlockCopy* copies, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (copies[i].bytes == 0) continue;  // Its addresses may be null, which memcpy must not see.
    std::memcpy(copies[i].to, copies[i].from, static_cast<size_t>(copies[i].bytes));
  }
}

absl::Status CheckBlockCopies(absl::Span<const BlockCopy> copies) {
  std::vector<Range> written;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (absl::Status status = CheckOne(copies[i], i); !status.ok()) return status;
    if (copies[i].bytes > 0) written.push_back(RangeAt(copies[i].to, copies[i].bytes, i));
  }
  std::sort(written.begin(), written.end(), [](const Range& a, const Range& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.copy < b.copy;
  });
  for (size_t i = 1; i < written.size(); ++i) {
    if (written[i].begin < written[i - 1].end) {
      return absl::InvalidArgumentError(absl::StrCat("copies ", written[i - 1].copy, " and ",
                                                     written[i].copy, " write the same bytes"));
    }
  }
  // The written ranges are disjoint now, so that their ends have the order of their begins.
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].bytes == 0) continue;
    const Range read = RangeAt(copies[i].from, copies[i].bytes, i);
    const auto hit = std::partition_point(written.begin(), written.end(), [&](const Range& range) {
      return range.end <= read.begin;
    });
    if (hit != written.end() && hit->begin < read.end) {
      return absl::InvalidArgumentError(
          absl::StrCat("copy ", i, " reads what copy ", hit->copy, " writes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ebbtide
