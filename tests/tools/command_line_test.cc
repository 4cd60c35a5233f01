// SPDX-License-Identifier: Apache-2.0
#include "tools/command_line.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;
using Words = std::vector<std::string>;

TEST(SplitAtCommandTest, DashesEndTheFlags) {
  const SplitArguments split = SplitAtCommand({"--budget", "8g", "--", "--odd", "--", "x"});
  EXPECT_THAT(split.own, ElementsAre("--budget", "8g"));
  EXPECT_THAT(split.command, ElementsAre("--odd", "--", "x"));
}

TEST(SplitAtCommandTest, TheFirstWordThatIsNoFlagOrValueStartsTheCommand) {
  const SplitArguments split =
      SplitAtCommand({"--verify", "--log=info", "--budget", "8g", "python", "--budget", "4"});
  EXPECT_THAT(split.own, ElementsAre("--verify", "--log=info", "--budget", "8g"));
  EXPECT_THAT(split.command, ElementsAre("python", "--budget", "4"));
}

TEST(SplitAtCommandTest, AFlagAtTheEndIsLeftToTheParser) {
  EXPECT_THAT(SplitAtCommand({"--budget"}).own, ElementsAre("--budget"));
  EXPECT_THAT(SplitAtCommand({}).command, IsEmpty());
}

CommandLine Parse(const Words& arguments) {
  int exit_status = -1;
  std::optional<CommandLine> line = ParseCommandLine(arguments, &exit_status);
  EXPECT_TRUE(line.has_value());
  EXPECT_EQ(exit_status, -1);
  return line.value_or(CommandLine());
}

TEST(ParseCommandLineTest, RunCollectsFlagsByName) {
  const CommandLine line = Parse({"run", "--budget=8g", "--min-bytes", "1k", "--verify",
                                  "--quiet=no", "--", "python", "train.py"});
  EXPECT_EQ(line.subcommand, CommandLine::Subcommand::kRun);
  EXPECT_THAT(line.run.options, UnorderedElementsAre(Pair("budget", "8g"), Pair("min-bytes", "1k"),
                                                     Pair("verify", "true"), Pair("quiet", "no")));
  EXPECT_FALSE(line.run.print_environment);
  EXPECT_THAT(line.run.command, ElementsAre("python", "train.py"));
}

TEST(ParseCommandLineTest, EveryOptionOfTheTableIsAFlag) {
  for (const OptionSpec& spec : OptionTable()) {
    const std::string value = spec.kind == OptionSpec::Kind::kFlag ? "yes" : "some-value";
    const CommandLine line = Parse({"run", absl::StrCat("--", spec.name, "=", value), "x"});
    EXPECT_THAT(line.run.options, ElementsAre(Pair(spec.name, value)));
  }
}

TEST(ParseCommandLineTest, TheLastOfTwoValuesCounts) {
  EXPECT_THAT(Parse({"run", "--budget", "1g", "--budget", "2g", "x"}).run.options,
              ElementsAre(Pair("budget", "2g")));
}

// Words that are subcommands or flags of ours mean nothing inside the program's part.
TEST(ParseCommandLineTest, TheProgramsWordsAreNotLookedAt) {
  for (const Words& command : {Words{"run", "doctor"}, Words{"doctor"}, Words{"x", "-h"},
                               Words{"x", "--print-env"}, Words{"x", "--", "--version"}}) {
    Words arguments = {"run", "--verify"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    const CommandLine line = Parse(arguments);
    EXPECT_EQ(line.subcommand, CommandLine::Subcommand::kRun);
    EXPECT_EQ(line.run.command, command);
    EXPECT_FALSE(line.run.print_environment);
  }
}

TEST(ParseCommandLineTest, DoctorTakesAnInterpreter) {
  EXPECT_THAT(Parse({"doctor"}).python, IsEmpty());
  const CommandLine line = Parse({"doctor", "--", "conda", "run", "python"});
  EXPECT_EQ(line.subcommand, CommandLine::Subcommand::kDoctor);
  EXPECT_THAT(line.python, ElementsAre("conda", "run", "python"));
}

TEST(ParseCommandLineTest, Version) {
  EXPECT_EQ(Parse({"version"}).subcommand, CommandLine::Subcommand::kVersion);
}

TEST(ParseCommandLineTest, MistakesAreOneLineOnStderr) {
  for (const Words& arguments :
       {Words{}, Words{"frobnicate"}, Words{"run", "--bugdet", "1g", "x"}, Words{"run", "--budget"},
        Words{"run", "--budget=", "x"}, Words{"doctor", "--budget", "x"}, Words{"version", "x"},
        Words{"--budget", "1g"}}) {
    CaptureStderr();
    CaptureStdout();
    int exit_status = -1;
    EXPECT_FALSE(ParseCommandLine(arguments, &exit_status).has_value());
    EXPECT_EQ(exit_status, kExitUsage);
    EXPECT_THAT(GetCapturedStdout(), IsEmpty());
    EXPECT_THAT(GetCapturedStderr(), ::testing::MatchesRegex("\\[ebbtide\\] [^\n]+\n"));
  }
}

TEST(ParseCommandLineTest, HelpNamesEveryOption) {
  CaptureStdout();
  int exit_status = -1;
  EXPECT_FALSE(ParseCommandLine({"run", "--help"}, &exit_status).has_value());
  EXPECT_EQ(exit_status, 0);
  const std::string help = GetCapturedStdout();
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_THAT(help, HasSubstr(absl::StrCat("  --", spec.name)));
    EXPECT_THAT(help, HasSubstr(std::string(spec.summary)));
  }
  EXPECT_THAT(help, HasSubstr("ebbtide run [options] [--] command"));
}

}  // namespace
}  // namespace ebbtide
