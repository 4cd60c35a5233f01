// SPDX-License-Identifier: Apache-2.0

#include "allocator/cuda/driver.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/allocator/cuda/fake_driver.h"

namespace ebbtide {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Where the libraries of route_library.cc lie.
std::string Route(const std::string& name) {
  const char* folder = getenv("EBBTIDE_TEST_LIBRARIES");
  return std::string(folder ? folder : "tests/allocator/cuda") + "/route_" + name + ".so";
}

TEST(CudaDriverTest, SaysThatThereIsNone) {
  const absl::Status status = CudaDriver::Load("/nowhere/libcuda.so.1").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("/nowhere/libcuda.so.1"));
}

TEST(CudaDriverTest, SaysWhatALibraryLacks) {
  const absl::Status status = CudaDriver::Load("libm.so.6").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("libm.so.6"), HasSubstr("it lacks cuInit, cuDriverGetVersion,"),
                    HasSubstr("cuMemAlloc"), Not(HasSubstr("cuMemMap"))));
}

TEST(CudaDriverTest, FindsExportedSymbolsByTheirVersion) {
  const auto driver = CudaDriver::Load(Route("symbols"));
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ(driver->functions().mem_alloc(nullptr, 0), 1);
  EXPECT_EQ(driver->functions().mem_map, nullptr);
  EXPECT_THAT(driver->virtual_memory().message(), HasSubstr("cuMemCreate, cuMemRelease"));
  EXPECT_EQ(driver->stream_ids().message(),
            "the CUDA driver is too old for telling streams apart, it lacks cuStreamGetId");
}

TEST(CudaDriverTest, PrefersTheDriversOwnLookUp) {
  for (const auto& [name, answer] : {std::pair("result", 11), std::pair("status", 12)}) {
    const auto driver = CudaDriver::Load(Route(name));
    ASSERT_TRUE(driver.ok()) << driver.status();
    EXPECT_EQ(driver->functions().init(0), answer);
    EXPECT_EQ(driver->functions().mem_alloc(nullptr, 0), answer);
    EXPECT_EQ(driver->functions().mem_map(0, 0, 0, 0, 0), 1) << "not found: the symbol";
    EXPECT_EQ(driver->functions().mem_unmap, nullptr);
    EXPECT_THAT(driver->virtual_memory().message(), HasSubstr("it lacks cuMemUnmap"));
    EXPECT_TRUE(driver->stream_ids().ok());
  }
}

TEST(CudaDriverTest, ErrorsKeepTheDriversWords) {
  const FakeDriver fake;
  const CudaDriver driver(FakeDriver::Functions());
  EXPECT_TRUE(driver.Check(kCuSuccess, "cuInit").ok());
  EXPECT_EQ(
      driver.Check(kCuErrorOutOfMemory, "cuMemCreate"),
      absl::ResourceExhaustedError("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (text of the driver)"));
  EXPECT_EQ(driver.Check(12345, "cuInit"), absl::InternalError("cuInit: CUDA error 12345"));
}

TEST(CudaDriverTest, OnlyOutOfMemoryIsExhaustion) {
  const FakeDriver fake;
  const CudaDriver driver(FakeDriver::Functions());
  for (CuResult result = 1; result < 1000; ++result) {
    EXPECT_EQ(absl::IsResourceExhausted(driver.Check(result, "")), result == kCuErrorOutOfMemory);
    EXPECT_EQ(absl::IsFailedPrecondition(driver.Check(result, "")), result >= 900 && result <= 907);
  }
  EXPECT_TRUE(absl::IsNotFound(driver.Check(kCuErrorNoDevice, "")));
  EXPECT_TRUE(absl::IsNotFound(driver.Check(kCuErrorInvalidDevice, "")));
  EXPECT_TRUE(absl::IsUnimplemented(driver.Check(kCuErrorNotSupported, "")));
}

TEST(CudaDriverTest, InitialisingPassesTheDriversAnswerOn) {
  FakeDriver fake;
  const CudaDriver driver(FakeDriver::Functions());
  EXPECT_TRUE(driver.Initialize().ok());
  fake.FailAt(1, kCuErrorNoDevice);
  EXPECT_TRUE(absl::IsNotFound(driver.Initialize()));
}

}  // namespace
}  // namespace ebbtide
