// SPDX-License-Identifier: Apache-2.0

#include "policy/published/read_schedule.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Writes a log, a line for each call.
class LogText {
 public:
  LogText() { Add(R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"})"); }

  LogText& Constant(const std::string& name, const std::string& bytes) {
    Add(absl::StrCat(R"({"INSTRUCTION":"CONSTANT","NAME":")", name, R"("})"));
    return Memory(name, bytes);
  }
  LogText& Call(int64_t time, const std::vector<std::string>& arguments,
                const std::vector<std::string>& results) {
    Add(absl::StrCat(R"({"INSTRUCTION":"CALL","NAME":"f","TIME":")", time, R"(","ARGS":)",
                     List(arguments), R"(,"RESULT":)", List(results), "}"));
    return *this;
  }
  LogText& Result(const std::string& name, const std::string& bytes, int alias) {
    Memory(name, bytes);
    Add(absl::StrCat(R"({"INSTRUCTION":"ALIAS","NAME":")", name, R"(","ALIAS":")", alias, R"("})"));
    return *this;
  }
  LogText& Mutate(int time, const std::vector<std::string>& arguments, const std::string& indices) {
    Add(absl::StrCat(R"({"INSTRUCTION":"MUTATE","NAME":"f_","TIME":")", time, R"(","ARGS":)",
                     List(arguments), R"(,"MUTATE":[)", indices, "]}"));
    return *this;
  }
  LogText& Copy(const std::string& kind, const std::string& to, const std::string& from) {
    Add(absl::StrCat(R"({"INSTRUCTION":")", kind, R"(","DST":")", to, R"(","SRC":")", from,
                     R"("})"));
    return *this;
  }
  LogText& Release(const std::string& name) {
    Add(absl::StrCat(R"({"INSTRUCTION":"RELEASE","NAME":")", name, R"("})"));
    return *this;
  }

  absl::StatusOr<Schedule> Read() const {
    std::istringstream in(text_);
    DtrLog log("net.log", &in);
    return ReadSchedule(&log);
  }

  // The steps as text: C op, G, R and P tensor.
  std::string Steps() const {
    const auto schedule = Read();
    EXPECT_TRUE(schedule.ok()) << schedule.status();
    std::vector<std::string> steps;
    for (const Step& step : schedule->steps) {
      steps.push_back(absl::StrCat(std::string(1, "CGRP"[static_cast<int>(step.kind)]), step.id));
    }
    return absl::StrJoin(steps, " ");
  }

 private:
  static std::string List(const std::vector<std::string>& names) {
    return names.empty() ? "[]" : absl::StrCat("[\"", absl::StrJoin(names, "\",\""), "\"]");
  }
  LogText& Memory(const std::string& name, const std::string& bytes) {
    Add(absl::StrCat(R"({"INSTRUCTION":"MEMORY","NAME":")", name, R"(","MEMORY":")", bytes,
                     R"("})"));
    return *this;
  }
  void Add(const std::string& line) { absl::StrAppend(&text_, line, "\n"); }

  std::string text_;
};

TEST(ReadScheduleTest, AConstantCostsNothingAndIsPinnedAtOnce) {
  LogText log;
  log.Constant("w", "10").Release("w");
  EXPECT_EQ(log.Steps(), "C0 P0 R0") << "no hold is left at the end";
  const Schedule schedule = *log.Read();
  EXPECT_EQ(schedule.ops[0].cost, 0);
  EXPECT_THAT(schedule.ops[0].arguments, IsEmpty());
  EXPECT_EQ(schedule.storages[0].bytes, 10);
}

TEST(ReadScheduleTest, ACallKeepsArgumentsAndAliases) {
  LogText log;
  log.Constant("w", "10").Call(7, {"w", "w"}, {"a", "b"}).Result("a", "10", 1).Result("b", "4", -1);
  EXPECT_EQ(log.Steps(), "C0 P0 C1 P0 P1 P2") << "all are held at the end, in order of binding";
  const Schedule schedule = *log.Read();
  EXPECT_EQ(schedule.ops[1].cost, 7);
  EXPECT_THAT(schedule.ops[1].arguments, ElementsAre(0, 0));
  EXPECT_EQ(schedule.ops[1].result_bytes, 4) << "an alias has no bytes, whatever MEMORY says";
  EXPECT_EQ(schedule.tensors[1].storage, schedule.tensors[0].storage);
}

TEST(ReadScheduleTest, AWriteMakesNewTensorsAndReleasesTheOldOnes) {
  LogText log;
  log.Constant("w", "10").Constant("x", "4").Mutate(3, {"w", "x"}, "1,0");
  EXPECT_EQ(log.Steps(), "C0 P0 C1 P1 C2 R1 R0 P3 P2")
      << "in the order of the indices; at the end w comes first, where it was bound first";
  EXPECT_EQ(log.Read()->storages[2].bytes, 4);
  EXPECT_EQ(log.Read()->storages[3].bytes, 10);
}

TEST(ReadScheduleTest, AWriteToAViewIsAsLargeAsTheWholeStorage) {
  LogText log;
  log.Constant("w", "10").Call(1, {"w"}, {"v"}).Result("v", "3", 0).Mutate(2, {"v"}, "0");
  EXPECT_EQ(log.Steps(), "C0 P0 C1 C2 R1 P0 P2");
  const Schedule schedule = *log.Read();
  EXPECT_EQ(schedule.tensors[2].bytes, 10);
  EXPECT_NE(schedule.tensors[2].storage, schedule.tensors[0].storage) << "w keeps the old content";
}

TEST(ReadScheduleTest, OtherNamesKeepTheTensorFromBeforeAWrite) {
  LogText log;
  log.Constant("w", "10").Copy("COPY", "u", "w").Mutate(3, {"w"}, "0").Release("u");
  EXPECT_EQ(log.Steps(), "C0 P0 G0 C1 R0 R0 P1") << "u was the old tensor";
}

TEST(ReadScheduleTest, CopyFromReleasesBeforeItHolds) {
  LogText log;
  log.Constant("a", "1").Constant("b", "2").Copy("COPY_FROM", "a", "b");
  EXPECT_EQ(log.Steps(), "C0 P0 C1 P1 R0 G1 P1 P1");
  LogText self;
  self.Constant("a", "1").Copy("COPY_FROM", "a", "a");
  EXPECT_EQ(self.Steps(), "C0 P0 R0 G0 P0") << "even where that evicts what it takes";
}

TEST(ReadScheduleTest, AReleasedNameStaysBoundToWhatOthersHold) {
  LogText log;
  log.Constant("a", "1").Constant("b", "2").Copy("COPY", "c", "a").Release("a");
  EXPECT_EQ(log.Steps(), "C0 P0 C1 P1 G0 R0 P0 P1 P0")
      << "a is first although released: c holds its tensor";
}

TEST(ReadScheduleTest, ReleaseOfAnUnknownNameIsIgnored) {
  LogText log;
  log.Release("early").Constant("a", "1");
  EXPECT_EQ(log.Steps(), "C0 P0 P0");
}

TEST(ReadScheduleTest, ErrorsNameTheLineOfTheInstruction) {
  LogText log;
  log.Constant("a", "1").Call(1, {"a", "b"}, {"c"}).Result("c", "1", -1);
  EXPECT_EQ(log.Read().status().message(), "net.log line 4: b is no tensor");
  EXPECT_EQ(log.Read().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(LogText().Call(1, {}, {}).Read().status().message()),
              HasSubstr("line 2: an operator without results"));
  EXPECT_THAT(
      std::string(LogText().Constant("a", "1").Mutate(1, {"a"}, "").Read().status().message()),
      HasSubstr("line 4: an operator without results"));
  for (const char* kind : {"COPY", "COPY_FROM"}) {
    EXPECT_THAT(std::string(LogText().Copy(kind, "a", "b").Read().status().message()),
                HasSubstr("line 2: b is no tensor"));
  }
  EXPECT_THAT(
      std::string(
          LogText().Constant("b", "1").Copy("COPY_FROM", "a", "b").Read().status().message()),
      HasSubstr("line 4: a is no tensor"));
}

// Sums over a log go into 64 bits; a log that would not fit must not wrap around to nonsense.
TEST(ReadScheduleTest, ALogWhoseSumsWouldOverflowIsAnError) {
  LogText log;
  for (int i = 0; i < 129; ++i) log.Constant(absl::StrCat("x", i), "9007199254740992");
  EXPECT_THAT(std::string(log.Read().status().message()), HasSubstr("more than 2^60 bytes"));
  LogText slow;
  for (const char* name : {"a", "b"}) {
    slow.Call(int64_t{1} << 47, {}, {name}).Result(name, "1", -1);
  }
  EXPECT_TRUE(slow.Read().ok()) << "2^48 ns are more than three days";
  slow.Call(1, {}, {"c"}).Result("c", "1", -1);
  EXPECT_THAT(std::string(slow.Read().status().message()), HasSubstr("more than 2^48 ns"));
}

}  // namespace
}  // namespace ebbtide::published
