// SPDX-License-Identifier: Apache-2.0

#include "tracker/dtr_log.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Kind = DtrInstruction::Kind;

constexpr char kStart[] = R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"})";

struct Content {
  std::vector<DtrInstruction> instructions;
  absl::Status status;
};

// Reads `lines` behind a START line, so that the first of them is line 2.
Content ReadAll(const std::string& lines, const std::string& start = kStart) {
  std::istringstream in(start + "\n" + lines);
  DtrLog log("net.log", &in);
  Content content;
  while (true) {
    absl::StatusOr<std::optional<DtrInstruction>> next = log.Next();
    content.status = next.status();
    if (!next.ok() || !next->has_value()) return content;
    content.instructions.push_back(**std::move(next));
  }
}

void ExpectError(const std::string& lines, const std::string& where, const std::string& what) {
  const Content content = ReadAll(lines);
  EXPECT_EQ(content.status.code(), absl::StatusCode::kInvalidArgument) << lines;
  EXPECT_THAT(std::string(content.status.message()), StartsWith("net.log " + where + ": "));
  EXPECT_THAT(std::string(content.status.message()), HasSubstr(what));
}

TEST(DtrLogTest, ConstantIsPutTogetherWithItsMemory) {
  const Content content = ReadAll(
      R"({"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"4096","NAME":"w"})");
  ASSERT_TRUE(content.status.ok()) << content.status;
  ASSERT_EQ(content.instructions.size(), 1u);
  const DtrInstruction& constant = content.instructions[0];
  EXPECT_EQ(constant.kind, Kind::kConstant);
  EXPECT_EQ(constant.line, 2);
  ASSERT_EQ(constant.results.size(), 1u);
  EXPECT_EQ(constant.results[0].name, "w");
  EXPECT_EQ(constant.results[0].bytes, Bytes(4096));
  EXPECT_EQ(constant.results[0].alias, -1);
}

TEST(DtrLogTest, CallIsPutTogetherWithMemoryAndAliasOfEachResult) {
  const Content content = ReadAll(
      R"({"ARGS":["x","w","x"],"INSTRUCTION":"CALL","NAME":"split","RESULT":["a","b"],"TIME":"75"}
{"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"a"}
{"ALIAS":"1","INSTRUCTION":"ALIAS","NAME":"a"}
{"INSTRUCTION":"MEMORY","MEMORY":8,"NAME":"b"}
{"ALIAS":-1,"INSTRUCTION":"ALIAS","NAME":"b"}
{"INSTRUCTION":"RELEASE","NAME":"x"})");
  ASSERT_TRUE(content.status.ok()) << content.status;
  ASSERT_EQ(content.instructions.size(), 2u);
  const DtrInstruction& call = content.instructions[0];
  EXPECT_EQ(call.kind, Kind::kCall);
  EXPECT_EQ(call.operation, "split");
  EXPECT_THAT(call.arguments, ElementsAre("x", "w", "x"));
  EXPECT_EQ(call.duration, Nanos(75));
  ASSERT_EQ(call.results.size(), 2u);
  EXPECT_EQ(call.results[0].alias, 1);
  EXPECT_EQ(call.results[0].bytes, Bytes(16));
  EXPECT_EQ(call.results[1].alias, -1);
  EXPECT_EQ(call.results[1].bytes, Bytes(8)) << "a number need not be a string";
  EXPECT_EQ(content.instructions[1].kind, Kind::kRelease);
  EXPECT_EQ(content.instructions[1].name, "x");
  EXPECT_EQ(content.instructions[1].line, 7) << "lines are counted, not instructions";
}

TEST(DtrLogTest, MutateCopiesAndMarksAreOneLineEach) {
  const Content content = ReadAll(
      R"({"ARGS":["x","y"],"INSTRUCTION":"MUTATE","MUTATE":[1,0],"NAME":"add_","TIME":"9"}
{"DST":"z","INSTRUCTION":"COPY","SRC":"x"}
{"DST":"y","INSTRUCTION":"COPY_FROM","SRC":"z"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"})");
  ASSERT_TRUE(content.status.ok()) << content.status;
  ASSERT_EQ(content.instructions.size(), 4u);
  EXPECT_EQ(content.instructions[0].kind, Kind::kMutate);
  EXPECT_THAT(content.instructions[0].mutated, ElementsAre(1, 0));
  EXPECT_THAT(content.instructions[0].results, IsEmpty());
  EXPECT_EQ(content.instructions[0].duration, Nanos(9));
  EXPECT_EQ(content.instructions[1].kind, Kind::kCopy);
  EXPECT_EQ(content.instructions[1].name, "z");
  EXPECT_EQ(content.instructions[1].source, "x");
  EXPECT_EQ(content.instructions[2].kind, Kind::kCopyFrom);
  EXPECT_EQ(content.instructions[2].name, "y");
  EXPECT_EQ(content.instructions[2].source, "z");
  EXPECT_EQ(content.instructions[3].kind, Kind::kAnnotate);
  EXPECT_EQ(content.instructions[3].name, "BACKWARD");
}

TEST(DtrLogTest, WhatComesBeforeStartIsLeftOut) {
  const std::string before =
      R"({"INSTRUCTION":"CONSTANT","NAME":"early"}
{"INSTRUCTION":"MEMORY","MEMORY":"1","NAME":"early"}
)";
  const Content content = ReadAll(R"({"INSTRUCTION":"RELEASE","NAME":"early"})", before + kStart);
  ASSERT_TRUE(content.status.ok()) << content.status;
  ASSERT_EQ(content.instructions.size(), 1u);
  EXPECT_EQ(content.instructions[0].kind, Kind::kRelease);
}

TEST(DtrLogTest, ALogWithoutStartIsAnErrorNotAnEmptyProgram) {
  std::istringstream in(R"({"INSTRUCTION":"RELEASE","NAME":"x"})");
  DtrLog log("net.log", &in);
  EXPECT_THAT(std::string(log.Next().status().message()), HasSubstr("without ANNOTATE START"));
}

TEST(DtrLogTest, EndStaysTheEnd) {
  std::istringstream in(kStart);
  DtrLog log("net.log", &in);
  for (int i = 0; i < 2; ++i) {
    const auto next = log.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_FALSE(next->has_value());
  }
}

TEST(DtrLogTest, ErrorsNameTheLineOnce) {
  ExpectError("{\"INSTRUCTION\":", "line 2", "no JSON object");
  ExpectError("[1]", "line 2", "no JSON object");
  ExpectError("\n", "line 2", "no JSON object");
  ExpectError("{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"w\"}\n{broken", "line 3", "no JSON object");
  const Content content = ReadAll("{broken");
  EXPECT_EQ(content.status.message(), "net.log line 2: no JSON object");
}

TEST(DtrLogTest, MissingAndMistypedFieldsAreErrors) {
  ExpectError(R"({"NAME":"x"})", "line 2", "INSTRUCTION is not a text");
  ExpectError(R"({"INSTRUCTION":"JUMP"})", "line 2", "JUMP");
  ExpectError(R"({"INSTRUCTION":"RELEASE","NAME":5})", "line 2", "NAME is not a text");
  ExpectError(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":"x","RESULT":[],"TIME":"1"})", "line 2",
              "ARGS is not a list of texts");
  ExpectError(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":[1],"RESULT":[],"TIME":"1"})", "line 2",
              "ARGS is not a list of texts");
}

TEST(DtrLogTest, NumbersThatWouldBeRoundedOrWrapAreErrors) {
  for (const char* time : {"-1", "\"1.5\"", "1.5", "\"\"", "9007199254740993",
                           "18446744073709551615", "\"99999999999999999999\"", "null"}) {
    ExpectError(std::string(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"RESULT":[],"TIME":)") +
                    time + "}",
                "line 2", "TIME is not a whole number");
  }
  // As a 64-bit pattern this one is -1, which would mean "no alias".
  ExpectError(
      R"({"ARGS":["x"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["a"],"TIME":"1"}
{"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"a"}
{"ALIAS":18446744073709551615,"INSTRUCTION":"ALIAS","NAME":"a"})",
      "line 4", "ALIAS is not a whole number");
}

TEST(DtrLogTest, IndicesOutsideOfTheArgumentsAreErrors) {
  for (const char* index : {"1", "-1", "\"1\"", "null"}) {
    ExpectError(std::string(R"({"ARGS":["x"],"INSTRUCTION":"MUTATE","NAME":"f","TIME":"1",)") +
                    "\"MUTATE\":[" + index + "]}",
                "line 2", "MUTATE is not a list of indices below 1");
  }
  ExpectError(
      R"({"ARGS":["x"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["a"],"TIME":"1"}
{"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"a"}
{"ALIAS":"1","INSTRUCTION":"ALIAS","NAME":"a"})",
      "line 4", "ALIAS 1 is no argument");
}

TEST(DtrLogTest, LinesThatBelongTogetherMustFollowEachOther) {
  const std::string call =
      R"({"ARGS":[],"INSTRUCTION":"CALL","NAME":"f","RESULT":["a"],"TIME":"1"})";
  const std::string memory = R"({"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"a"})";
  ExpectError(call, "line 2", "not the MEMORY of a");
  ExpectError(call + "\n" + memory, "line 3", "not the ALIAS of a");
  ExpectError(call + "\n" + memory + "\n" + memory, "line 4", "not the ALIAS of a");
  ExpectError(call + "\n" + R"({"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"b"})", "line 3",
              "not the MEMORY of a");
  ExpectError(memory, "line 2", "MEMORY does not begin an instruction");
}

}  // namespace
}  // namespace ebbtide
