// SPDX-License-Identifier: Apache-2.0
//
// For tests of the built command: a temporary folder in which the command and the library that it
// preloads lie as tools/quickstart puts them, next to a python that a test makes up. For one
// thread; owns the folder and removes it at the end. REQUIRES: the test's data has //tools:ebbtide
// and
// //pytorch:libebbtide.so.

#ifndef EBBTIDE_TESTS_TOOLS_INSTALLATION_H_
#define EBBTIDE_TESTS_TOOLS_INSTALLATION_H_

#include <map>
#include <string>
#include <vector>

#include "tools/child_process.h"

namespace ebbtide {

class Installation {
 public:
  Installation();
  ~Installation();
  Installation(const Installation&) = delete;
  Installation& operator=(const Installation&) = delete;

  const std::string& root() const { return root_; }
  std::string command() const { return root_ + "/bin/ebbtide"; }
  std::string library() const { return root_ + "/lib/ebbtide/libebbtide.so"; }

  // Writes a file below the root, executable, with the folders that it needs.
  void Write(const std::string& path, const std::string& text) const;

  // Runs the command with these arguments and variables. A failure to start it fails the test.
  ChildResult Run(std::vector<std::string> arguments,
                  const std::map<std::string, std::string>& environment = {}) const;

 private:
  std::string root_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_TOOLS_INSTALLATION_H_
