// SPDX-License-Identifier: Apache-2.0
//
// The writer against the reader, the reader against bytes of Python's own picklers, and the reader
// against bytes that nobody would write. That Python loads what the writer writes is shown by
// snapshot_pickle_test.py.

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "allocator/pickle_reader.h"
#include "allocator/pickle_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using Kind = Pickle::Kind;
using std::string_literals::operator""s;
using testing::HasSubstr;

std::unique_ptr<const Pickle> MustParse(std::string bytes) {
  auto pickle = Pickle::Parse(std::move(bytes));
  EXPECT_TRUE(pickle.ok()) << pickle.status().ToString();
  return pickle.ok() ? *std::move(pickle) : nullptr;
}

std::string ErrorOf(std::string bytes) {
  return std::string(Pickle::Parse(std::move(bytes)).status().message());
}

TEST(PickleTest, NumbersComeBack) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> numbers = {0, 1, 255, 256, 65535, 65536, kMax, -kMax - 1};
  for (int bit = 6; bit < 63; ++bit) {
    for (int64_t by = -1; by <= 1; ++by) numbers.push_back((int64_t{1} << bit) + by);
  }
  for (size_t i = numbers.size(); i > 0; --i) numbers.push_back(~numbers[i - 1]);
  std::string bytes;
  PickleWriter writer(&bytes);
  writer.BeginList();
  for (int64_t number : numbers) writer.Int(number);
  writer.EndList().Finish();
  const auto pickle = MustParse(bytes);
  ASSERT_EQ(pickle->root().size(), static_cast<int64_t>(numbers.size()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(pickle->root().at(static_cast<int64_t>(i)).AsInt(), numbers[i]);
  }
}

TEST(PickleTest, EveryKindComesBack) {
  std::string bytes;
  PickleWriter writer(&bytes);
  writer.BeginDict();
  writer.Key("none").None().Key("yes").Bool(true).Key("no").Bool(false);
  writer.Key("pi").Float(3.25).Key("text").String("caf\xc3\xa9");
  writer.Key("unsigned").Unsigned(~uint64_t{0}).Key("pair").IntPair(3, -70000);
  writer.Key("list").BeginList().String("text").BeginDict().EndDict().EndList();
  writer.EndDict().Finish();
  const auto pickle = MustParse(bytes);
  const Pickle::Value root = pickle->root();
  EXPECT_EQ(root.kind(), Kind::kDict);
  EXPECT_EQ(root.size(), 8);
  EXPECT_EQ(root.Find("none")->kind(), Kind::kNone);
  EXPECT_EQ(root.Find("yes")->AsBool(), true);
  EXPECT_EQ(root.Find("no")->AsBool(), false);
  EXPECT_EQ(root.Find("pi")->AsFloat(), 3.25);
  EXPECT_EQ(root.Find("text")->AsString(), "caf\xc3\xa9");
  EXPECT_EQ(root.Find("unsigned")->AsFloat(), std::ldexp(1.0, 64));  // nearest
  EXPECT_EQ(root.Find("pair")->kind(), Kind::kTuple);
  EXPECT_EQ(root.Find("pair")->at(1).AsInt(), -70000);
  EXPECT_EQ(root.Find("list")->at(0).AsString(), "text");
  EXPECT_EQ(root.Find("list")->at(1).kind(), Kind::kDict);
  EXPECT_FALSE(root.Find("other").has_value());
  EXPECT_FALSE(root.Find("pi")->Find("pi").has_value());
  EXPECT_FALSE(root.Find("pi")->AsInt().has_value());
  EXPECT_EQ(root.entry(1).first.AsString(), "yes");
}

TEST(PickleTest, LongContainersGoInPortions) {
  std::string bytes;
  PickleWriter writer(&bytes);
  writer.BeginDict();
  for (int i = 0; i < 1100; ++i) {
    writer.Key(std::to_string(i)).BeginList();
    for (int j = 0; j < i; ++j) writer.IntPair(j, i);
    writer.EndList();
  }
  writer.EndDict().Finish();
  const auto pickle = MustParse(bytes);
  ASSERT_EQ(pickle->root().size(), 1100);
  for (int i = 0; i < 1100; i += 219) {
    const Pickle::Value list = *pickle->root().Find(std::to_string(i));
    ASSERT_EQ(list.size(), i);
    for (int j = 0; j < i; ++j) ASSERT_EQ(list.at(j).at(0).AsInt(), j);
  }
}

// {'a': [1, 2.5, None], 'b': (True, -1, 'x', 'x'), 'c': 2**63, 'd': ((), (1,), (1, 2, 3))}
const std::string kProtocol2 =
    "\x80\x02}q\x00(X\x01\x00\x00\x00\x61q\x01]q\x02(K\x01G@\x04\x00\x00\x00\x00\x00\x00NeX\x01"
    "\x00\x00\x00\x62q\x03(\x88J\xff\xff\xff\xffX\x01\x00\x00\x00xq\x04h\x04tq\x05X\x01\x00\x00\x00"
    "\x63q\x06\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00X\x01\x00\x00\x00\x64q\x07)K\x01\x85q\x08"
    "K\x01K\x02K\x03\x87q\x09\x87q\x0au."s;
const std::string kProtocol4 =
    "\x80\x04\x95N\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01\x61\x94]\x94(K\x01G@\x04\x00\x00\x00"
    "\x00\x00\x00Ne\x8c\x01\x62\x94(\x88J\xff\xff\xff\xff\x8c\x01x\x94h\x04t\x94\x8c\x01\x63\x94"
    "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00\x8c\x01\x64\x94)K\x01\x85\x94K\x01K\x02K\x03\x87"
    "\x94\x87\x94u."s;

TEST(PickleTest, ReadsWhatPythonWrites) {
  for (const std::string& bytes : {kProtocol2, kProtocol4}) {
    const auto pickle = MustParse(bytes);
    ASSERT_NE(pickle, nullptr);
    const Pickle::Value root = pickle->root();
    EXPECT_EQ(root.Find("a")->at(1).AsFloat(), 2.5);
    EXPECT_EQ(root.Find("a")->at(2).kind(), Kind::kNone);
    EXPECT_EQ(root.Find("b")->size(), 4);
    EXPECT_EQ(root.Find("b")->at(1).AsInt(), -1);
    EXPECT_EQ(root.Find("b")->at(3).AsString(), "x");
    EXPECT_EQ(root.Find("c")->AsFloat(), std::ldexp(1.0, 63));
    EXPECT_EQ(root.Find("d")->at(0).size(), 0);
    EXPECT_EQ(root.Find("d")->at(1).at(0).AsInt(), 1);
    EXPECT_EQ(root.Find("d")->at(2).at(2).AsInt(), 3);
  }
}

TEST(PickleTest, ALaterEntryReplacesAnEarlierOne) {
  const auto pickle = MustParse("\x80\x02}(X\x01\x00\x00\x00kK\x01X\x01\x00\x00\x00kK\x02u."s);
  EXPECT_EQ(pickle->root().Find("k")->AsInt(), 2);
}

TEST(PickleTest, AListMayContainItself) {
  const auto pickle = MustParse("\x80\x02]q\x00h\x00\x61."s);
  EXPECT_EQ(pickle->root().size(), 1);
  EXPECT_EQ(pickle->root().at(0).at(0).at(0).size(), 1);
}

TEST(PickleTest, ProgramsAreRefused) {
  const char* const kText = "only plain data";
  EXPECT_THAT(ErrorOf("\x80\x02"
                      "cos\nsystem\n."),
              HasSubstr(kText));
  EXPECT_THAT(ErrorOf("\x80\x04\x8c\x02os\x8c\x06system\x93."), HasSubstr(kText));
  EXPECT_THAT(ErrorOf("\x80\x02)R."), HasSubstr(kText));
  EXPECT_THAT(ErrorOf("\x80\x02)\x81."), HasSubstr(kText));
  EXPECT_THAT(ErrorOf("\x80\x02}b."), HasSubstr(kText));
  EXPECT_THAT(ErrorOf("\x80\x02Pid\n."), HasSubstr("plain data"));
}

TEST(PickleTest, WhatIsNotWholeIsRefusedWithItsPlace) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("not a pickle"));
  EXPECT_THAT(ErrorOf("(dp0\n."), HasSubstr("not a pickle"));
  EXPECT_THAT(ErrorOf("\x80\x06N."), HasSubstr("protocol"));
  EXPECT_THAT(ErrorOf("\x80\x02N"), HasSubstr("byte 3: the file ends"));
  EXPECT_THAT(ErrorOf("\x80\x02NN."), HasSubstr("one value"));
  EXPECT_THAT(ErrorOf("\x80\x02(N."), HasSubstr("one value"));
  EXPECT_THAT(ErrorOf("\x80\x02."), HasSubstr("one value"));
  EXPECT_THAT(ErrorOf("\x80\x02J\x01."), HasSubstr("within a number"));
  EXPECT_THAT(ErrorOf("\x80\x02X\xff\xff\xff\xff."), HasSubstr("within a text"));
  EXPECT_THAT(ErrorOf("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), HasSubstr("within a text"));
  EXPECT_THAT(ErrorOf("\x80\x02\x8b\xff\xff\xff\x7f."), HasSubstr("within a number"));
  EXPECT_THAT(ErrorOf("\x80\x02h\x05."), HasSubstr("nothing was remembered"));
  EXPECT_THAT(ErrorOf("\x80\x02q\x05."), HasSubstr("nothing to remember"));
  EXPECT_THAT(ErrorOf("\x80\x02(q\x05."), HasSubstr("nothing to remember"));
  EXPECT_THAT(ErrorOf("\x80\x02"
                      "Ne."),
              HasSubstr("no mark"));
  EXPECT_THAT(ErrorOf("\x80\x02"
                      "a."),
              HasSubstr("nothing to append"));
  EXPECT_THAT(ErrorOf("\x80\x02Na."), HasSubstr("no container"));
  EXPECT_THAT(ErrorOf("\x80\x02](Na."), HasSubstr("no container"));
  EXPECT_THAT(ErrorOf("\x80\x02NNa."), HasSubstr("another kind"));
  EXPECT_THAT(ErrorOf("\x80\x02}(Nu."), HasSubstr("key without a value"));
  EXPECT_THAT(ErrorOf("\x80\x02(Nd."), HasSubstr("key without a value"));
  EXPECT_THAT(ErrorOf("\x80\x02](NNu."), HasSubstr("another kind"));
  EXPECT_THAT(ErrorOf("\x80\x02(Nu."), HasSubstr("no container"));
  EXPECT_THAT(ErrorOf("\x80\x02N\x86."), HasSubstr("more values than there are"));
  EXPECT_THAT(ErrorOf("\x80\x02N(\x85."), HasSubstr("more values than there are"));
}

// Walks all values to a depth, so that the tools that find bad reads see every one.
void Touch(Pickle::Value value, int depth) {
  if (const auto text = value.AsString()) {
    for (char c : *text) ASSERT_EQ(c, c);
  }
  if (depth == 0) return;
  for (int64_t i = 0; i < std::min<int64_t>(value.size(), 20); ++i) {
    if (value.kind() == Kind::kDict) {
      Touch(value.entry(i).second, depth - 1);
    } else {
      Touch(value.at(i), depth - 1);
    }
  }
}

TEST(PickleTest, RandomBytesAndDamagedFilesNeverCrash) {
  std::mt19937 random(7);
  int accepted = 0;
  const auto draw = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = kProtocol2;
    if (i % 2 == 0) bytes = kProtocol4;
    for (size_t j = 1 + draw(6); j > 0; --j) {
      const size_t at = draw(bytes.size());
      if (draw(3) == 0) {
        bytes.erase(at, 1 + draw(4));
      } else if (draw(2) == 0) {
        bytes.insert(at, 1, "()]}etuasdlqhjrNKMJXG.\x85\x86\x87\x88\x8a\x8c\x94"[draw(29)]);
      } else {
        bytes[at] = static_cast<char>(random());
      }
      if (bytes.empty()) bytes = "x";
    }
    auto pickle = Pickle::Parse(bytes);
    if (!pickle.ok()) continue;
    ++accepted;
    Touch((*pickle)->root(), 6);
  }
  EXPECT_GT(accepted, 300);  // or the damage is too coarse to test anything
}

TEST(PickleDeathTest, TheWriterKnowsWhatItWasTold) {
  std::string bytes;
  EXPECT_DEATH(PickleWriter(&bytes).Finish(), "one whole value");
  EXPECT_DEATH(PickleWriter(&bytes).Int(1).Int(2), "second value");
  EXPECT_DEATH(PickleWriter(&bytes).BeginList().EndDict(), "not begun");
  EXPECT_DEATH(PickleWriter(&bytes).BeginDict().Int(1).EndDict(), "without a value");
  EXPECT_DEATH(PickleWriter(&bytes).BeginList().Finish(), "one whole value");
}

}  // namespace
}  // namespace ebbtide
