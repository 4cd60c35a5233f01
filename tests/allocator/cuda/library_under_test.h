// SPDX-License-Identifier: Apache-2.0
//
// The driver library that a test runs on: the one that the environment variable EBBTIDE_CUDA_DRIVER
// names, else the double of tests/cuda_driver_double. It also gives tests what only they call: the
// rest of the driver, and the double's own controls.
//
// One of it in a process; tests on one thread. To run on another library, set the variable.

#ifndef EBBTIDE_TESTS_ALLOCATOR_CUDA_LIBRARY_UNDER_TEST_H_
#define EBBTIDE_TESTS_ALLOCATOR_CUDA_LIBRARY_UNDER_TEST_H_

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "allocator/cuda/driver.h"
#include "base/check.h"

namespace ebbtide {

class LibraryUnderTest {
 public:
  static const LibraryUnderTest& Get() {
    static const LibraryUnderTest library;
    return library;
  }

  const CudaDriver& driver() const { return driver_; }
  bool is_double() const { return Find<void (*)()>("ebbtide_double_reset") != nullptr; }

  // A function by its name, or null.
  template <typename Function>
  Function Find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name));
  }

  // Calls a function of the driver that must be there and succeed.
  template <typename... Arguments>
  void Call(const char* name, Arguments... arguments) const {
    const auto function = Find<CuResult (*)(Arguments...)>(name);
    EBB_CHECK(function != nullptr) << name;
    const absl::Status status = driver_.Check(function(arguments...), name);
    EBB_CHECK(status.ok()) << status.ToString();
  }

  // The double as new; on any other driver nothing.
  void Reset() const {
    if (is_double()) Find<void (*)()>("ebbtide_double_reset")();
  }
  // One of the double's settings; an empty value is its default.
  void Set(const char* name, const std::string& value) const {
    const auto set = Find<int (*)(const char*, const char*)>("ebbtide_double_set");
    EBB_CHECK(set(name, value.c_str()) == 0) << name << "=" << value;
  }

 private:
  LibraryUnderTest() : path_(Path()), handle_(dlopen(path_.c_str(), RTLD_NOW)), driver_(Load()) {}

  static std::string Path() {
    setenv("EBBTIDE_DOUBLE_DEVICES", "2", /*overwrite=*/0);  // for tests with a peer
    const char* path = getenv("EBBTIDE_CUDA_DRIVER");
    return path ? path : "tests/cuda_driver_double/libcuda.so.1";
  }
  CudaDriver Load() const {
    const auto driver = CudaDriver::Load(path_);
    EBB_CHECK(driver.ok()) << driver.status().ToString();
    return *driver;
  }

  const std::string path_;
  void* const handle_;
  const CudaDriver driver_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_CUDA_LIBRARY_UNDER_TEST_H_
