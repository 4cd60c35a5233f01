// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/installation.h"

namespace ebbtide {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// An interpreter made of a shell script. It answers the probe with $ANSWERS, and an import of torch
// with $IMPORT on stderr.
constexpr char kFakePython[] = R"(#!/bin/sh
case "$2" in
  *ebbtide-probe*) printf '%s\n' "noise" "$ANSWERS" ;;
  *) printf '%s\n' "$IMPORT" "preloaded $LD_PRELOAD" >&2; exit ${STATUS:-0} ;;
esac
)";

constexpr char kGoodAnswers[] =
    "ebbtide-probe python /fake/python\n"
    "ebbtide-probe python_version 3.11.2\n"
    "ebbtide-probe torch_version 2.15.0+cpu\n"
    "ebbtide-probe free_key Fake\nebbtide-probe free_key DeferredInit\n"
    "ebbtide-probe own_cpu_allocator 1";

class DoctorCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    installation_.Write("bin/python", kFakePython);
    installation_.Write("lib/ebbtide/libebbtide_torch_2_15.so", "");
  }

  ChildResult Doctor(const std::string& answers, const std::string& import,
                     std::map<std::string, std::string> environment = {}) const {
    environment["ANSWERS"] = answers;
    environment["IMPORT"] = import;
    return installation_.Run({"doctor"}, environment);
  }

  Installation installation_;
};

TEST_F(DoctorCommandTest, AllYesIsSuccess) {
  const ChildResult child = Doctor(kGoodAnswers, "[ebbtide] managing cpu, budget 1 GiB of 2 GiB");
  EXPECT_EQ(child.exit_status, 0) << child.out;
  EXPECT_THAT(child.out, MatchesRegex("(yes  [^\n]+\n)+"));
  EXPECT_THAT(child.out, AllOf(HasSubstr("2.15.0+cpu in /fake/python"),
                               HasSubstr("dispatch keys free: Fake"), HasSubstr("backend loads")));
}

TEST_F(DoctorCommandTest, WithoutTorchTheRestIsLeftOpen) {
  const ChildResult child = Doctor(
      "ebbtide-probe python /fake/python\nebbtide-probe torch_error ImportError: no torch", "");
  EXPECT_EQ(child.exit_status, 1);
  EXPECT_THAT(child.out, AllOf(HasSubstr("no   torch found"), HasSubstr("ImportError: no torch"),
                               HasSubstr("remedy: /fake/python -m pip install"),
                               HasSubstr("-    torch version supported: not checked"),
                               HasSubstr("-    backend present: not checked"),
                               HasSubstr("-    backend loads: not checked")));
}

TEST_F(DoctorCommandTest, ABackendThatDoesNotLoadIsQuoted) {
  const ChildResult child =
      Doctor(kGoodAnswers, "[ebbtide] cannot be loaded; the program runs unmanaged");
  EXPECT_EQ(child.exit_status, 1);
  EXPECT_THAT(child.out,
              HasSubstr("no   backend loads: cannot be loaded; the program runs unmanaged\n"));
}

TEST_F(DoctorCommandTest, ABackendThatBreaksTheImportIsNotCalledGood) {
  const ChildResult child = Doctor(kGoodAnswers, "[ebbtide] managing cpu", {{"STATUS", "139"}});
  EXPECT_EQ(child.exit_status, 1);
  EXPECT_THAT(child.out, HasSubstr("no   backend loads"));
}

TEST_F(DoctorCommandTest, SilenceOfTheBackendIsANo) {
  EXPECT_THAT(Doctor(kGoodAnswers, "").out, HasSubstr("Ebbtide did not notice it"));
}

TEST_F(DoctorCommandTest, AMissingBackendIsNotTried) {
  const ChildResult child = Doctor(
      "ebbtide-probe python /fake/python\nebbtide-probe torch_version 2.11.0\n"
      "ebbtide-probe free_key Fake\nebbtide-probe free_key DeferredInit\n"
      "ebbtide-probe own_cpu_allocator 1",
      "[ebbtide] managing cpu");
  EXPECT_EQ(child.exit_status, 1);
  EXPECT_THAT(child.out,
              AllOf(HasSubstr("no   backend present"), HasSubstr("libebbtide_torch_2_11.so"),
                    HasSubstr("-    backend loads: not checked")));
}

TEST_F(DoctorCommandTest, TheUsersSettingsDoNotDisturbTheTrial) {
  const ChildResult child = Doctor(kGoodAnswers, "[ebbtide] managing cpu",
                                   {{"EBBTIDE_QUIET", "1"}, {"EBBTIDE_STATS_FILE", "s.json"}});
  EXPECT_EQ(child.exit_status, 0) << child.out;
}

TEST_F(DoctorCommandTest, TheGivenInterpreterIsAsked) {
  installation_.Write("other",
                      "#!/bin/sh\necho ebbtide-probe python /other\n"
                      "echo ebbtide-probe torch_error none here\n");
  const ChildResult child = installation_.Run({"doctor", "--", installation_.root() + "/other"});
  EXPECT_THAT(child.out, AllOf(HasSubstr("/other"), HasSubstr("none here")));
  EXPECT_THAT(installation_.Run({"doctor", "no-such-python"}).out,
              HasSubstr("cannot run \"no-such-python\""));
}

TEST_F(DoctorCommandTest, WhatIsNoPythonIsSaidToBeNone) {
  const ChildResult child = installation_.Run({"doctor", "--", "false"});
  EXPECT_EQ(child.exit_status, 1);
  EXPECT_THAT(child.out, AllOf(HasSubstr("\"false\" does not answer as a python does"),
                               Not(HasSubstr("yes  torch"))));
}

}  // namespace
}  // namespace ebbtide
