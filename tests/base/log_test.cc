// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(InitLog(LogOptions()).ok());
    path_ = ::testing::TempDir() + "/log_test." + std::to_string(getpid());
    unlink(path_.c_str());
  }
  void TearDown() override { unlink(path_.c_str()); }

  std::string path_;
};

TEST_F(LogTest, WarningsArePrefixedAndGoToStderrOnly) {
  CaptureStderr();
  CaptureStdout();
  EBB_WARN("torch %s is not supported", "1.0");
  EBB_INFO("not wanted by default");
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] torch 1.0 is not supported\n");
  EXPECT_THAT(GetCapturedStdout(), IsEmpty());
}

TEST_F(LogTest, EveryLineOfATextIsPrefixed) {
  CaptureStderr();
  LogReport("first\nsecond\n");
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] first\n[ebbtide] second\n");
}

TEST_F(LogTest, LevelChoosesWhatIsWritten) {
  ASSERT_TRUE(InitLog({.level = LogLevel::kInfo}).ok());
  CaptureStderr();
  EBB_DEBUG("debug");
  EBB_INFO("info");
  EBB_ERROR("error");
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] info\n[ebbtide] error\n");
  EXPECT_FALSE(LogEnabled(LogLevel::kDebug));
  EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
}

TEST_F(LogTest, UnwantedLinesDoNotEvaluateTheirArguments) {
  int evaluated = 0;
  EBB_DEBUG("%d", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST_F(LogTest, QuietLeavesErrorsOnStderrAndEverythingInTheFile) {
  ASSERT_TRUE(InitLog({.level = LogLevel::kInfo, .quiet = true, .log_file = path_}).ok());
  CaptureStderr();
  EBB_INFO("info");
  EBB_WARN("warning");
  LogReport("report");
  EBB_ERROR("error");
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] error\n");
  const std::string file = Contents(path_);
  for (const char* line :
       {"info info\n", "warning warning\n", "report report\n", "error error\n"}) {
    EXPECT_THAT(file, HasSubstr(line));
  }
}

TEST_F(LogTest, QuietWithoutAFileEvaluatesNothing) {
  ASSERT_TRUE(InitLog({.level = LogLevel::kDebug, .quiet = true}).ok());
  EXPECT_FALSE(LogEnabled(LogLevel::kWarn));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
}

TEST_F(LogTest, FileLinesSayWhenWhoAndHowBad) {
  ASSERT_TRUE(InitLog({.log_file = path_}).ok());
  CaptureStderr();
  EBB_WARN("over budget");
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] over budget\n");
  EXPECT_THAT(Contents(path_), MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
                                            "\\.[0-9]{3}Z [0-9]+ warning over budget\n"));
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsNamedAndStderrStillWorks) {
  absl::Status status = InitLog({.log_file = "/nonexistent/folder/log"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"/nonexistent/folder/log\""));
  CaptureStderr();
  EBB_WARN("still here");
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] still here\n");
}

TEST_F(LogTest, LimitedWarningsStopAndSaySo) {
  CaptureStderr();
  for (int i = 1; i <= 100; ++i) EBB_WARN_LIMITED("warning %d", i);
  const std::string lines = GetCapturedStderr();
  EXPECT_THAT(lines, StartsWith("[ebbtide] warning 1\n"));
  EXPECT_THAT(lines, HasSubstr("[ebbtide] warning 15\n"));
  EXPECT_THAT(lines, HasSubstr("warning 16 (further warnings of this kind are hidden)\n"));
  EXPECT_THAT(lines, Not(HasSubstr("warning 17")));
}

TEST_F(LogTest, OnceMeansOnceOverAllThreads) {
  CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 1000; ++j) EBB_WARN_ONCE("once");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(GetCapturedStderr(), "[ebbtide] once\n");
}

TEST_F(LogTest, LinesOfSeveralThreadsDoNotMix) {
  ASSERT_TRUE(InitLog({.log_file = path_}).ok());
  CaptureStderr();
  const std::string text(200, 'x');
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&text] {
      for (int j = 0; j < 200; ++j) EBB_WARN("%s", text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  GetCapturedStderr();
  std::istringstream lines(Contents(path_));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    ASSERT_EQ(line.size() - line.find('x'), text.size()) << line;
  }
  EXPECT_EQ(count, 800);
}

// A child forked while other threads log must be able to log at once.
TEST_F(LogTest, AForkedChildCanLog) {
  ASSERT_TRUE(InitLog({.log_file = path_}).ok());
  CaptureStderr();
  std::atomic<bool> stop{false};
  std::thread busy([&stop] {
    while (!stop) EBB_WARN("parent");
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      EBB_WARN("child");
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  }
  stop = true;
  busy.join();
  GetCapturedStderr();
  EXPECT_THAT(Contents(path_), HasSubstr("child\n"));
}

}  // namespace
}  // namespace ebbtide
