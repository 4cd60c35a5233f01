// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_checks.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace literals;
using ::testing::HasSubstr;
using Verdict = Answer::Verdict;
using Environment = std::map<std::string, std::string>;

TorchFacts GoodFacts() {
  return {.python = "/venv/bin/python",
          .python_version = "3.11.2",
          .torch_version = "2.15.0+cpu",
          .torch_error = "",
          .free_keys = {"Fake", "DeferredInit"},
          .own_cpu_allocator = true};
}

// A yes has nothing to repair, and a no says how.
void ExpectYes(const Answer& answer) {
  EXPECT_EQ(answer.verdict, Verdict::kYes) << answer.question << ": " << answer.detail;
  EXPECT_EQ(answer.remedy, "") << answer.question;
}

void ExpectNo(const Answer& answer, const std::string& detail, const std::string& remedy) {
  EXPECT_EQ(answer.verdict, Verdict::kNo) << answer.question;
  EXPECT_THAT(answer.detail, HasSubstr(detail));
  EXPECT_THAT(answer.remedy, HasSubstr(remedy));
}

TEST(DoctorChecksTest, TorchFound) {
  ExpectYes(CheckTorchFound(GoodFacts()));
  ExpectNo(CheckTorchFound(absl::NotFoundError("cannot run \"python9\"")), "python9",
           "ebbtide doctor -- /path/to/python");
  TorchFacts none = GoodFacts();
  none.torch_version = "";
  none.torch_error = "ModuleNotFoundError: No module named 'torch'";
  ExpectNo(CheckTorchFound(none), "No module named 'torch'",
           "/venv/bin/python -m pip install \"torch==2.15.*\"");
}

TEST(DoctorChecksTest, TorchVersion) {
  TorchFacts facts = GoodFacts();
  for (const char* version : {"2.11.0", "2.11.3+cu130", "2.15.0"}) {
    facts.torch_version = version;
    ExpectYes(CheckTorchVersion(facts));
  }
  for (const char* version : {"2.1.1", "2.110.0", "2.12.0", "12.11.0", "unknown"}) {
    facts.torch_version = version;
    ExpectNo(CheckTorchVersion(facts), version, "pip install");
  }
}

TEST(DoctorChecksTest, DispatchKey) {
  TorchFacts facts = GoodFacts();
  EXPECT_EQ(CheckDispatchKey(facts).detail, "Fake, DeferredInit");
  ExpectYes(CheckDispatchKey(facts));
  facts.free_keys = {"DeferredInit"};
  ExpectNo(CheckDispatchKey(facts), "fallback", "TORCH_DEVICE_BACKEND_AUTOLOAD=0");
}

TEST(DoctorChecksTest, CpuAllocator) {
  TorchFacts facts = GoodFacts();
  ExpectYes(CheckCpuAllocator(facts));
  facts.own_cpu_allocator = false;
  ExpectNo(CheckCpuAllocator(facts), "replaced", "extension");
}

TEST(DoctorChecksTest, Libraries) {
  ExpectYes(CheckPreloadLibrary("/lib/libebbtide.so"));
  ExpectNo(CheckPreloadLibrary(absl::NotFoundError("cannot find it")), "cannot find it",
           "tools/quickstart");

  std::string folder = ::testing::TempDir() + "/doctor_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string library = folder + "/libebbtide.so";
  ExpectNo(CheckBackendPresent(library, "2.15.0"), folder + "/libebbtide_torch_2_15.so",
           "bazel build //pytorch:libebbtide_torch_2_15.so");
  std::ofstream(folder + "/libebbtide_torch_2_15.so") << "library";
  ExpectYes(CheckBackendPresent(library, "2.15.0"));
  ExpectNo(CheckBackendPresent(library, "nonsense"), "nonsense", "bazel build");
  std::filesystem::remove_all(folder);

  ExpectYes(CheckBackendLoads(absl::OkStatus()));
  ExpectNo(CheckBackendLoads(absl::UnavailableError("undefined symbol")), "undefined symbol",
           "--log debug");
}

TEST(DoctorChecksTest, OtherPreloads) {
  const std::string ours = "/lib/libebbtide.so";
  ExpectYes(CheckOtherPreloads("", ours));
  ExpectYes(CheckOtherPreloads(ours, ours));
  EXPECT_EQ(CheckOtherPreloads("libjemalloc.so.2", ours).detail, "libjemalloc.so.2");
  ExpectNo(CheckOtherPreloads("libm.so.6:/old/libebbtide.so", ours), "another copy", "LD_PRELOAD");
  ExpectNo(CheckOtherPreloads("/no/such/lib.so", ours), "does not exist", "LD_PRELOAD");
  ExpectNo(CheckOtherPreloads("libasan.so.8", ours), "sanitizer", "LD_PRELOAD");
}

Answer Variables(const Environment& environment) {
  return CheckAllocatorVariables([&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(DoctorChecksTest, AllocatorVariables) {
  ExpectYes(Variables({}));
  ExpectYes(Variables({{"THP_MEM_ALLOC_ENABLE", "0"}}));
  ExpectNo(Variables({{"THP_MEM_ALLOC_ENABLE", "1"}}), "huge pages", "unset");
  const Answer harmless = Variables({{"PYTORCH_CUDA_ALLOC_CONF", "x"}, {"MALLOC_ARENA_MAX", "1"}});
  ExpectYes(harmless);
  EXPECT_THAT(harmless.detail, HasSubstr("PYTORCH_CUDA_ALLOC_CONF, MALLOC_ARENA_MAX"));
}

TEST(DoctorChecksTest, OptionsAreJudged) {
  const char* const nothing[] = {nullptr};
  const auto unset = [](const char*) -> const char* { return nullptr; };
  ExpectYes(CheckOptions(unset, nothing));
  const auto budget = [](const char* name) {
    return absl::string_view(name) == "EBBTIDE_BUDGET" ? "8GiB" : nullptr;
  };
  EXPECT_THAT(CheckOptions(budget, nothing).detail, HasSubstr("8.00 GiB"));
  const auto wrong = [](const char* name) {
    return absl::string_view(name) == "EBBTIDE_POLICY" ? "best" : nullptr;
  };
  ExpectNo(CheckOptions(wrong, nothing), "EBBTIDE_POLICY: \"best\"", "variable");
  const char* const unknown[] = {"EBBTIDE_BUGDET=1", nullptr};
  ExpectNo(CheckOptions(unset, unknown), "EBBTIDE_BUDGET", "variable");
}

TEST(DoctorChecksTest, AddressSpace) {
  ExpectYes(CheckAddressSpace(Bytes::Max()));
  ExpectNo(CheckAddressSpace(8_GiB), "8.00 GiB", "ulimit -v unlimited");
}

TEST(FormatAnswerTest, OneLineAndTheRemedyBelow) {
  EXPECT_EQ(FormatAnswer({Verdict::kYes, "torch found", "2.15.0", ""}),
            "yes  torch found: 2.15.0\n");
  EXPECT_EQ(FormatAnswer({Verdict::kYes, "backend loads", "", ""}), "yes  backend loads\n");
  EXPECT_EQ(FormatAnswer({Verdict::kNo, "torch found", "none", "install it"}),
            "no   torch found: none\n     remedy: install it\n");
  EXPECT_EQ(FormatAnswer(NotChecked("backend loads")),
            "-    backend loads: not checked, because of the no above\n");
}

}  // namespace
}  // namespace ebbtide
