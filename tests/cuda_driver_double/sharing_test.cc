// SPDX-License-Identifier: Apache-2.0
// Memory between processes: file descriptors of pieces of memory, and handles of allocations. The
// other process is this program again, started with exec, because a fork cannot use the driver.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/cuda_driver_double/double_fixture.h"

namespace ebbtide::hollow {
namespace {

constexpr char kRoleVariable[] = "EBBTIDE_DOUBLE_TEST_ROLE";
constexpr int kChildSocket = 100;  // where the other process finds its end

class SharingTest : public DoubleTest {
 protected:
  SharingTest() { Start(); }

  // Starts the other process, which runs the test of this name in `role` and then ends.
  static pid_t StartOther(const char* role, int socket) {
    const std::string filter = absl::StrCat(
        "--gtest_filter=*", testing::UnitTest::GetInstance()->current_test_info()->name());
    const pid_t child = fork();
    if (child != 0) return child;
    dup2(socket, kChildSocket);
    setenv(kRoleVariable, role, 1);
    execl("/proc/self/exe", "sharing_test", filter.c_str(), nullptr);
    _exit(127);
  }

  static int Wait(pid_t child) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  static bool IsOther() { return std::getenv(kRoleVariable) != nullptr; }
};

// Sends one byte, and with it a descriptor.
void SendDescriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  ASSERT_EQ(sendmsg(socket, &message, 0), 1);
}

int ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, 0) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  int descriptor = -1;
  if (header != nullptr) std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return descriptor;
}

MemoryHandle Import(int descriptor) {
  MemoryHandle handle = 0;
  EXPECT_OK(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(intptr_t{descriptor}),
                                           HandleType::kPosixDescriptor));
  return handle;
}

TEST_F(SharingTest, ADescriptorCarriesAPieceToAnotherProcess) {
  const DevicePointer range = Reserve(kGranule);
  if (IsOther()) {
    const int descriptor = ReceiveDescriptor(kChildSocket);
    const MemoryHandle handle = Import(descriptor);
    close(descriptor);
    ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
    ASSERT_OK(Allow(range, kGranule));
    EXPECT_EQ(Byte(range + 10), 21);
    Byte(range + 11) = 22;
    return;
  }
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const MemoryHandle handle = Create(kGranule, 0, HandleType::kPosixDescriptor);
  ASSERT_OK(cuMemMap(range, kGranule, 0, handle, 0));
  ASSERT_OK(Allow(range, kGranule));
  Byte(range + 10) = 21;
  int descriptor = -1;
  ASSERT_OK(cuMemExportToShareableHandle(&descriptor, handle, HandleType::kPosixDescriptor, 0));
  const pid_t child = StartOther("importer", sockets[1]);
  SendDescriptor(sockets[0], descriptor);
  EXPECT_EQ(Wait(child), 0);
  EXPECT_EQ(Byte(range + 11), 22);
  for (int each : {sockets[0], sockets[1], descriptor}) close(each);
}

TEST_F(SharingTest, APieceMustBeMadeForExport) {
  int descriptor = -1;
  EXPECT_EQ(
      cuMemExportToShareableHandle(&descriptor, Create(kGranule), HandleType::kPosixDescriptor, 0),
      Result::kInvalidValue);
  const MemoryHandle handle = Create(kGranule, 0, HandleType::kPosixDescriptor);
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, handle, HandleType::kFabric, 0),
            Result::kInvalidValue);
  EXPECT_EQ(descriptor, -1);
}

TEST_F(SharingTest, AnImportIsAHandleOfItsOwnAndOnlyOfOurFiles) {
  const MemoryHandle handle = Create(kGranule, 0, HandleType::kPosixDescriptor);
  int descriptor = -1;
  ASSERT_OK(cuMemExportToShareableHandle(&descriptor, handle, HandleType::kPosixDescriptor, 0));
  const MemoryHandle imported = Import(descriptor);
  close(descriptor);
  EXPECT_NE(imported, handle);
  ASSERT_OK(cuMemRelease(handle));
  ASSERT_OK(cuMemRelease(imported));
  EXPECT_EQ(Counts().handles, 0);
  MemoryHandle other = 0;
  const int strange = open("/dev/zero", O_RDWR | O_CLOEXEC);
  for (int bad : {strange, 9999}) {
    EXPECT_EQ(cuMemImportFromShareableHandle(&other, reinterpret_cast<void*>(intptr_t{bad}),
                                             HandleType::kPosixDescriptor),
              Result::kInvalidValue);
  }
  close(strange);
}

TEST_F(SharingTest, AnAllocationsHandleOpensItInAnotherProcess) {
  IpcHandle handle;
  if (IsOther()) {
    ASSERT_EQ(read(kChildSocket, &handle, sizeof(handle)), static_cast<ssize_t>(sizeof(handle)));
    DevicePointer memory = 0;
    ASSERT_OK(cuIpcOpenMemHandle_v2(&memory, handle, 1));
    DevicePointer again = 0;
    ASSERT_OK(cuIpcOpenMemHandle_v2(&again, handle, 1));
    EXPECT_EQ(again, memory);
    EXPECT_EQ(Read(memory + 999), 31);
    ASSERT_OK(cuMemsetD8_v2(memory, 32, 1));
    IpcHandle third;
    EXPECT_EQ(cuIpcGetMemHandle(&third, memory), Result::kInvalidValue);
    EXPECT_EQ(cuMemFree_v2(memory), Result::kInvalidValue);
    EXPECT_OK(cuIpcCloseMemHandle(memory));
    EXPECT_EQ(Counts().imported_allocations, 1);
    ASSERT_OK(cuCtxSynchronize());
    EXPECT_OK(cuIpcCloseMemHandle(memory));
    EXPECT_EQ(cuIpcCloseMemHandle(memory), Result::kInvalidValue);
    EXPECT_EQ(Counts().imported_allocations, 0);
    EXPECT_EQ(Hazard(), "");
    return;
  }
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  DevicePointer memory = 0;
  ASSERT_OK(cuMemAlloc_v2(&memory, 1000));
  ASSERT_OK(cuMemsetD8_v2(memory, 31, 1000));
  ASSERT_OK(cuIpcGetMemHandle(&handle, memory + 500));  // of the whole allocation
  const pid_t child = StartOther("importer", sockets[1]);
  ASSERT_EQ(write(sockets[0], &handle, sizeof(handle)), static_cast<ssize_t>(sizeof(handle)));
  EXPECT_EQ(Wait(child), 0);
  EXPECT_EQ(Byte(memory), 32);
  for (int each : sockets) close(each);
}

TEST_F(SharingTest, OnlyPlainAllocationsHaveInterprocessHandles) {
  IpcHandle handle;
  EXPECT_EQ(cuIpcGetMemHandle(&handle, Mapped(kGranule)), Result::kInvalidValue);
  DevicePointer memory = 0;
  ASSERT_OK(cuMemAllocAsync(&memory, 100, StreamHandle::kDefault));
  EXPECT_EQ(cuIpcGetMemHandle(&handle, memory), Result::kInvalidValue);
  ASSERT_OK(cuMemAlloc_v2(&memory, 100));
  ASSERT_OK(cuIpcGetMemHandle(&handle, memory));
  // In its own process a handle opens nothing.
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&memory, handle, 1), Result::kInvalidContext);
  EXPECT_EQ(cuIpcOpenMemHandle_v2(&memory, IpcHandle(), 1), Result::kInvalidValue);
}

TEST_F(SharingTest, EventsDoNotPassBetweenProcesses) {
  IpcHandle handle;
  EventHandle event = NewEvent();
  EXPECT_EQ(cuIpcGetEventHandle(&handle, event), Result::kNotSupported);
  EXPECT_EQ(cuIpcOpenEventHandle(&event, handle), Result::kNotSupported);
  EXPECT_EQ(cuEventCreate(&event, kEventInterprocess | kEventDisableTiming), Result::kNotSupported);
}

}  // namespace
}  // namespace ebbtide::hollow
