// SPDX-License-Identifier: Apache-2.0
#include "tools/run_command.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/installation.h"

namespace ebbtide {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class RunCommandTest : public ::testing::Test {
 protected:
  Installation installation_;
};

TEST_F(RunCommandTest, ExitStatusAndSignalAreTheProgramsOwn) {
  EXPECT_EQ(installation_.Run({"run", "--", "sh", "-c", "exit 7"}).exit_status, 7);
  EXPECT_EQ(installation_.Run({"run", "--", "sh", "-c", "kill -TERM $$"}).exit_status, 128 + 15);
}

// Had a process stayed between, it would be the parent.
TEST_F(RunCommandTest, NoProcessStaysBehind) {
  EXPECT_EQ(installation_.Run({"run", "--", "sh", "-c", "echo $PPID"}).out,
            std::to_string(getpid()) + "\n");
}

TEST_F(RunCommandTest, WritesNothingOfItsOwn) {
  const ChildResult child = installation_.Run({"run", "--budget", "8GiB", "sh", "-c", "echo out"});
  EXPECT_EQ(child.out, "out\n");
  EXPECT_EQ(child.err, "");
}

TEST_F(RunCommandTest, SettingsAreInTheProgramsEnvironment) {
  const ChildResult child = installation_.Run(
      {"run", "--budget", "8GiB", "--verify", "--min-bytes=1k", "--", "sh", "-c",
       "echo $EBBTIDE_BUDGET $EBBTIDE_VERIFY $EBBTIDE_MIN_BYTES $EBBTIDE_LOG $LD_PRELOAD"},
      {{"EBBTIDE_LOG", "info"}});
  EXPECT_EQ(child.out, "8GiB true 1k info " + installation_.library() + "\n");
}

TEST_F(RunCommandTest, KeepsWhatIsPreloadedAlready) {
  const ChildResult child =
      installation_.Run({"run", "sh", "-c", "echo $LD_PRELOAD"},
                        {{"LD_PRELOAD", "libm.so.6:" + installation_.library() + " libdl.so.2"}});
  EXPECT_EQ(child.out, installation_.library() + ":libm.so.6:libdl.so.2\n");
}

TEST_F(RunCommandTest, NestedRunsPreloadOnceAndTheInnerWins) {
  const ChildResult child =
      installation_.Run({"run", "--budget", "1g", "--", installation_.command(), "run", "--budget",
                         "2g", "--", "sh", "-c", "echo $EBBTIDE_BUDGET $LD_PRELOAD"});
  EXPECT_EQ(child.out, "2g " + installation_.library() + "\n");
}

TEST_F(RunCommandTest, TheProgramsOwnFlagsReachIt) {
  EXPECT_EQ(installation_.Run({"run", "printf", "%s,", "--budget", "3", "--", "-h"}).out,
            "--budget,3,--,-h,");
}

TEST_F(RunCommandTest, AProgramThatCannotRunIsSaidAsAShellSaysIt) {
  const ChildResult missing = installation_.Run({"run", "--", "no-such-program-here"});
  EXPECT_EQ(missing.exit_status, kExitCommandNotFound);
  EXPECT_EQ(missing.err,
            "[ebbtide] cannot run \"no-such-program-here\": No such file or directory\n");
  const ChildResult folder = installation_.Run({"run", "--", installation_.root()});
  EXPECT_EQ(folder.exit_status, kExitCannotExecute);
  EXPECT_THAT(folder.out, IsEmpty());
}

TEST_F(RunCommandTest, ABadValueStopsBeforeTheProgramStarts) {
  for (const ChildResult& child :
       {installation_.Run({"run", "--budget", "8GX", "--", "echo", "started"}),
        installation_.Run({"run", "--", "echo", "started"}, {{"EBBTIDE_BUDGET", "8GX"}}),
        installation_.Run({"run", "--budget", "8GX", "--print-env"})}) {
    EXPECT_EQ(child.exit_status, kExitUsage);
    EXPECT_THAT(child.out, IsEmpty());
    EXPECT_THAT(child.err,
                MatchesRegex("\\[ebbtide\\] EBBTIDE_BUDGET: \"8GX\" [^\n]*allowed is [^\n]+\n"));
  }
}

TEST_F(RunCommandTest, AFlagRepairsABadVariable) {
  const ChildResult child =
      installation_.Run({"run", "--budget", "1g", "--", "true"}, {{"EBBTIDE_BUDGET", "8GX"}});
  EXPECT_EQ(child.exit_status, 0);
  EXPECT_THAT(child.err, IsEmpty());
}

TEST_F(RunCommandTest, UnknownVariablesAreWarnedAboutUnlessQuiet) {
  const std::map<std::string, std::string> environment = {{"EBBTIDE_BUGDET", "1g"}};
  const ChildResult loud = installation_.Run({"run", "--", "true"}, environment);
  EXPECT_EQ(loud.exit_status, 0);
  EXPECT_THAT(loud.err, HasSubstr("did you mean EBBTIDE_BUDGET?"));
  EXPECT_THAT(installation_.Run({"run", "--quiet", "--", "true"}, environment).err, IsEmpty());
}

TEST_F(RunCommandTest, FilesAreMeantFromWhereTheUserIs) {
  const std::string here = std::filesystem::current_path();
  const ChildResult child =
      installation_.Run({"run", "--stats-file", "s.%p.json", "--log-file=/tmp/log", "--", "sh",
                         "-c", "cd / && echo $EBBTIDE_STATS_FILE $EBBTIDE_LOG_FILE"});
  EXPECT_EQ(child.out, here + "/s.%p.json /tmp/log\n");
}

TEST_F(RunCommandTest, AFolderThatWouldLoseTheFileIsRefused) {
  const ChildResult child =
      installation_.Run({"run", "--stats-file", "no/such/folder/s.json", "--", "echo", "started"});
  EXPECT_EQ(child.exit_status, kExitUsage);
  EXPECT_THAT(child.out, IsEmpty());
  EXPECT_THAT(child.err, AllOf(HasSubstr("EBBTIDE_STATS_FILE: \"no/such/folder/s.json\""),
                               HasSubstr("No such file or directory"), HasSubstr("allowed is")));
  // Only the program knows its rank.
  EXPECT_EQ(installation_.Run({"run", "--stats-file", "no/%r/s.json", "true"}).exit_status, 0);
}

TEST_F(RunCommandTest, PrintedLinesGiveTheSameSettings) {
  const std::string print = installation_.command() +
                            " run --budget 60% --policy lru --log-file \"/tmp/it's a log\" "
                            "--print-env";
  absl::StatusOr<ChildResult> child =
      RunChild({"sh", "-euc",
                "eval \"$(" + print +
                    ")\"; echo \"$EBBTIDE_BUDGET|$EBBTIDE_POLICY|"
                    "$EBBTIDE_LOG_FILE|$EBBTIDE_LOG|$LD_PRELOAD\""},
               {{"EBBTIDE_LOG", "info"}, {"LD_PRELOAD", "libm.so.6"}}, std::chrono::minutes(1));
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->out, "60%|lru|/tmp/it's a log|info|" + installation_.library() + ":libm.so.6\n");
}

TEST_F(RunCommandTest, PrintedLinesWorkWhereNothingIsPreloaded) {
  const std::string print = installation_.command() + " run --budget 1g --print-env";
  absl::StatusOr<ChildResult> child =
      RunChild({"sh", "-euc", "eval \"$(" + print + ")\"; echo $LD_PRELOAD"}, {{"LD_PRELOAD", ""}},
               std::chrono::minutes(1));
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(child->out, installation_.library() + "\n");
}

TEST_F(RunCommandTest, WithoutACommandThereIsNothingToDo) {
  const ChildResult child = installation_.Run({"run", "--budget", "1g"});
  EXPECT_EQ(child.exit_status, kExitUsage);
  EXPECT_THAT(child.err, HasSubstr("no command given"));
}

TEST_F(RunCommandTest, WithoutTheLibraryNothingStarts) {
  std::filesystem::remove(installation_.library());
  const ChildResult child = installation_.Run({"run", "--", "echo", "started"});
  EXPECT_EQ(child.exit_status, kExitUsage);
  EXPECT_THAT(child.out, IsEmpty());
  EXPECT_THAT(child.err, MatchesRegex("\\[ebbtide\\] cannot find libebbtide.so in [^\n]+\n"));
}

TEST_F(RunCommandTest, VersionAndHelp) {
  EXPECT_THAT(installation_.Run({"version"}).out, MatchesRegex("ebbtide [0-9.]+ \\(torch .*\\)\n"));
  const ChildResult help = installation_.Run({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("run"), HasSubstr("doctor"), HasSubstr("version")));
}

TEST(ShellQuoteTest, OnlyWhatNeedsIt) {
  EXPECT_EQ(ShellQuote("8GiB"), "8GiB");
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("a b"), "'a b'");
  EXPECT_EQ(ShellQuote("$HOME"), "'$HOME'");
  EXPECT_EQ(ShellQuote("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace ebbtide
