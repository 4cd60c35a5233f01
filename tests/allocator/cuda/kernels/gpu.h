// SPDX-License-Identifier: Apache-2.0
//
// What the tests of GPU code need: a skip that says why where there is no GPU, memory of the GPU
// and streams.
//
// For the thread that runs the test. A GpuMemory owns its bytes, a GpuStream its stream; what CUDA
// refuses fails the test.

#ifndef EBBTIDE_TESTS_ALLOCATOR_CUDA_KERNELS_GPU_H_
#define EBBTIDE_TESTS_ALLOCATOR_CUDA_KERNELS_GPU_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ebbtide {

// Why no GPU can be used here, or "" where one can. Any other error fails the test: a GPU that is
// there and does not work must not pass for none.
inline std::string WhyNoGpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    return cudaGetErrorString(error);
  }
  EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
  return count == 0 ? "the driver counts none" : "";
}

#define EBB_SKIP_WITHOUT_GPU()                                        \
  do {                                                                \
    const std::string ebb_why = ::ebbtide::WhyNoGpu();                \
    if (!ebb_why.empty()) GTEST_SKIP() << "no GPU here: " << ebb_why; \
  } while (false)

class GpuMemory {
 public:
  explicit GpuMemory(size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&address_, bytes + 1), cudaSuccess);
  }
  template <typename T>
  explicit GpuMemory(const std::vector<T>& content) : GpuMemory(content.size() * sizeof(T)) {
    Write(content.data());
  }
  ~GpuMemory() { EXPECT_EQ(cudaFree(address_), cudaSuccess); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  template <typename T = void>
  T* As() const {
    return static_cast<T*>(address_);
  }

  void Write(const void* from) {
    EXPECT_EQ(cudaMemcpy(address_, from, bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }

  template <typename T>
  std::vector<T> Read() const {
    std::vector<T> content(bytes_ / sizeof(T));
    EXPECT_EQ(cudaMemcpy(content.data(), address_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return content;
  }

 private:
  size_t bytes_;
  void* address_ = nullptr;
};

// A stream that does not wait for the default one, so that a launch on the wrong stream shows.
class GpuStream {
 public:
  GpuStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~GpuStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  void* get() const { return stream_; }
  void Wait() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace ebbtide

#endif  // EBBTIDE_TESTS_ALLOCATOR_CUDA_KERNELS_GPU_H_
