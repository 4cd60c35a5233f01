// SPDX-License-Identifier: Apache-2.0
//
// The files of an archive, for as long as this object lives: they are unpacked into a temporary
// folder by a child process (tar, or Python for *.zip), and gone with the object.
//
// Threads: one at a time. Ownership: the object owns the folder and everything in it. Data that is
// unpacked already needs none of this.

#ifndef EBBTIDE_BENCH_UNPACKED_ARCHIVE_H_
#define EBBTIDE_BENCH_UNPACKED_ARCHIVE_H_

#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace ebbtide::bench {

class UnpackedArchive {
 public:
  // Errors: NotFound when there is nothing at `path`, or no program that could unpack it; Internal
  // when that did not work, with what the program said.
  static absl::StatusOr<UnpackedArchive> Unpack(const std::string& path);

  UnpackedArchive(UnpackedArchive&& other) noexcept
      : folder_(std::exchange(other.folder_, std::filesystem::path())) {}
  UnpackedArchive& operator=(UnpackedArchive&&) = delete;
  ~UnpackedArchive();

  const std::filesystem::path& folder() const { return folder_; }

 private:
  explicit UnpackedArchive(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;  // empty once it has been moved from
};

}  // namespace ebbtide::bench

#endif  // EBBTIDE_BENCH_UNPACKED_ARCHIVE_H_
