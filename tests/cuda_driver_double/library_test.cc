// SPDX-License-Identifier: Apache-2.0
// The shared object as a program meets it that opens the driver: by name, without our headers'
// help.

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/cuda_driver_double/control.h"

namespace {

constexpr char kPath[] = "tests/cuda_driver_double/libcuda.so.1";

const char* const kEntryPoints[] = {
#define ENTRY(name, needs, parameters) #name,
#include "tests/cuda_driver_double/entry_points.inc"
#undef ENTRY
};

const char* const kControls[] = {
    "ebbtide_double_set",           "ebbtide_double_error",       "ebbtide_double_reset",
    "ebbtide_double_count",         "ebbtide_double_bytes_peak",  "ebbtide_double_bytes_committed",
    "ebbtide_double_calls",         "ebbtide_double_reset_calls", "ebbtide_double_hazard",
    "ebbtide_double_clear_hazards", "ebbtide_double_touch",       "ebbtide_double_break",
    "ebbtide_double_run_all",
};

class LibraryTest : public testing::Test {
 protected:
  LibraryTest() : library_(dlopen(kPath, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << dlerror();
  }

  template <typename Function>
  Function* Find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* const library_;
};

TEST_F(LibraryTest, EveryFunctionIsExportedButNotTheCore) {
  for (const char* name : kEntryPoints) EXPECT_NE(dlsym(library_, name), nullptr) << name;
  for (const char* name : kControls) EXPECT_NE(dlsym(library_, name), nullptr) << name;
  EXPECT_EQ(dlsym(library_, "_ZN7ebbtide6hollow7Machine3GetEv"), nullptr);
}

TEST_F(LibraryTest, ASecondOpenByItsNameFindsTheSame) {
  void* const again = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_EQ(again, library_) << "its SONAME is not libcuda.so.1";
}

TEST_F(LibraryTest, TheDriversOwnLookUpFindsWhatTheVersionHas) {
  auto* const look_up = Find<int(const char*, void**, int, uint64_t, int*)>("cuGetProcAddress_v2");
  void* function = nullptr;
  int status = -1;
  ASSERT_EQ(look_up("cuMemAlloc", &function, 12000, 0, &status), 0);
  EXPECT_EQ(function, dlsym(library_, "cuMemAlloc_v2"));
  EXPECT_EQ(status, 0);
  // A name has another function behind it for programs made for a newer release.
  ASSERT_EQ(look_up("cuCtxSynchronize", &function, 12000, 0, &status), 0);
  EXPECT_EQ(function, dlsym(library_, "cuCtxSynchronize"));
  ASSERT_EQ(look_up("cuCtxSynchronize", &function, 13000, 0, &status), 0);
  EXPECT_EQ(function, dlsym(library_, "cuCtxSynchronize_v2"));
  EXPECT_EQ(look_up("cuNoSuchThing", &function, 13000, 0, &status), 500);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(look_up("cuGetProcAddress_v2", &function, 11000, 0, &status), 500);
  EXPECT_EQ(status, 2);
}

TEST_F(LibraryTest, ItIsDrivenFromOutside) {
  auto* const set = Find<decltype(ebbtide_double_set)>("ebbtide_double_set");
  auto* const count = Find<decltype(ebbtide_double_count)>("ebbtide_double_count");
  auto* const init = Find<int(unsigned)>("cuInit");
  auto* const retain = Find<int(void**, int)>("cuDevicePrimaryCtxRetain");
  auto* const device_count = Find<int(int*)>("cuDeviceGetCount");
  ASSERT_EQ(set("devices", "3"), 0);
  ASSERT_EQ(init(0), 0);
  int devices = 0;
  ASSERT_EQ(device_count(&devices), 0);
  EXPECT_EQ(devices, 3);
  void* context = nullptr;
  ASSERT_EQ(retain(&context, 2), 0);
  EbbtideDoubleCounts counts;
  count(&counts);
  EXPECT_EQ(counts.contexts, 1);
}

}  // namespace
