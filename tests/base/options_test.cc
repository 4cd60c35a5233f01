// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using namespace literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Environment = std::map<std::string, std::string>;

absl::StatusOr<Options> Load(const Environment& environment) {
  return LoadOptions([&environment](const char* name) -> const char* {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(OptionTableTest, RowsAreCompleteAndDistinct) {
  std::set<std::string> names;
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_TRUE(names.insert(EnvironmentName(spec)).second) << spec.name;
    EXPECT_FALSE(spec.summary.empty() || spec.allowed.empty() || spec.details.empty()) << spec.name;
    EXPECT_FALSE(spec.default_text.empty()) << spec.name;
    EXPECT_EQ(spec.kind == OptionSpec::Kind::kFlag, spec.value_name.empty()) << spec.name;
    // The help's summary column must fit into a terminal.
    EXPECT_LE(spec.summary.size(), 60u) << spec.name;
  }
  EXPECT_EQ(EnvironmentName(OptionTable()[3]), "EBBTIDE_MIN_BYTES");
}

TEST(OptionTableTest, PrintedDefaultsAreTheDefaults) {
  Options options = {.devices = {},
                     .policy = "",
                     .min_bytes = 1_B,
                     .verify = true,
                     .check = true,
                     .strict = true,
                     .log = LogLevel::kDebug,
                     .quiet = true};
  for (const OptionSpec& spec : OptionTable()) {
    if (absl::StartsWith(spec.default_text, "none")) continue;
    EXPECT_TRUE(spec.parse(spec.default_text, options).ok()) << spec.name;
  }
  const Options defaults;
  EXPECT_EQ(options.devices, defaults.devices);
  EXPECT_EQ(options.policy, defaults.policy);
  EXPECT_EQ(options.min_bytes, defaults.min_bytes);
  EXPECT_EQ(options.log, defaults.log);
  EXPECT_FALSE(options.verify || options.check || options.strict || options.quiet);
}

TEST(LoadOptionsTest, NothingSetGivesTheDefaults) {
  for (const Environment& environment :
       {Environment{}, Environment{{"EBBTIDE_BUDGET", ""}, {"EBBTIDE_VERIFY", ""}}}) {
    absl::StatusOr<Options> options = Load(environment);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_FALSE(options->budget.has_value());
    EXPECT_THAT(options->devices, ElementsAre("cpu"));
    EXPECT_EQ(options->policy, "ebb");
    EXPECT_EQ(options->min_bytes, 16_KiB);
    EXPECT_FALSE(options->verify || options->check || options->strict || options->quiet);
    EXPECT_EQ(options->log, LogLevel::kWarn);
    EXPECT_EQ(options->log_file + options->stats_file + options->snapshot_file, "");
    EXPECT_EQ(options->stress, Stress());
  }
}

TEST(LoadOptionsTest, ReadsEveryOption) {
  absl::StatusOr<Options> options = Load({{"EBBTIDE_BUDGET", "60%"},
                                          {"EBBTIDE_DEVICES", "CPU, cpu"},
                                          {"EBBTIDE_POLICY", "lru"},
                                          {"EBBTIDE_MIN_BYTES", "0"},
                                          {"EBBTIDE_VERIFY", "1"},
                                          {"EBBTIDE_CHECK", "on"},
                                          {"EBBTIDE_STRICT", "Yes"},
                                          {"EBBTIDE_LOG", "debug"},
                                          {"EBBTIDE_LOG_FILE", "log.%p"},
                                          {"EBBTIDE_STATS_FILE", "/tmp/stats.%r.json"},
                                          {"EBBTIDE_SNAPSHOT_FILE", "snapshot.pickle"},
                                          {"EBBTIDE_QUIET", "on"},
                                          {"EBBTIDE_STRESS", "evict-random:7:0.25"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->budget->Resolve(10_GiB), 6_GiB);
  EXPECT_THAT(options->devices, ElementsAre("cpu"));
  EXPECT_EQ(options->policy, "lru");
  EXPECT_EQ(options->min_bytes, 0_B);
  EXPECT_TRUE(options->verify && options->check && options->strict && options->quiet);
  EXPECT_EQ(options->log, LogLevel::kDebug);
  EXPECT_EQ(options->log_file, "log.%p");
  EXPECT_EQ(options->stats_file, "/tmp/stats.%r.json");
  EXPECT_EQ(options->snapshot_file, "snapshot.pickle");
  EXPECT_EQ(options->stress, (Stress{Stress::Kind::kEvictRandom, 7, 0.25}));
}

TEST(LoadOptionsTest, StressCanEvictAll) {
  EXPECT_EQ(Load({{"EBBTIDE_STRESS", "evict-all"}})->stress.kind, Stress::Kind::kEvictAll);
}

struct BadValue {
  const char* name;
  const char* value;
  const char* allowed;  // A part of what must be said to be allowed.
};

class BadValueTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValueTest, IsOneLineWithVariableValueAndWhatIsAllowed) {
  const auto& [name, value, allowed] = GetParam();
  absl::StatusOr<Options> options = Load({{name, value}});
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(std::string(options.status().message()),
              AllOf(HasSubstr(name), HasSubstr(value), HasSubstr("allowed is"), HasSubstr(allowed),
                    Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(
    Each, BadValueTest,
    ::testing::Values(
        BadValue{"EBBTIDE_BUDGET", "8GX", "60%"}, BadValue{"EBBTIDE_BUDGET", "0", "8GiB"},
        BadValue{"EBBTIDE_BUDGET", "120%", "100%"}, BadValue{"EBBTIDE_DEVICES", "cuda:0", "cpu"},
        BadValue{"EBBTIDE_DEVICES", "cpu,", "cpu"}, BadValue{"EBBTIDE_DEVICES", "tpu", "cpu"},
        BadValue{"EBBTIDE_POLICY", "fifo", "ebb, dtr-eq, lru or size"},
        BadValue{"EBBTIDE_MIN_BYTES", "-1", "512m"}, BadValue{"EBBTIDE_MIN_BYTES", "5%", "512m"},
        BadValue{"EBBTIDE_VERIFY", "maybe", "yes"}, BadValue{"EBBTIDE_CHECK", "2", "yes"},
        BadValue{"EBBTIDE_STRICT", "2", "yes"}, BadValue{"EBBTIDE_QUIET", "y", "yes"},
        BadValue{"EBBTIDE_LOG", "loud", "warn, info or debug"},
        BadValue{"EBBTIDE_LOG_FILE", "logs/", "file"}, BadValue{"EBBTIDE_STATS_FILE", "/", "file"},
        BadValue{"EBBTIDE_STRESS", "evict-some", "evict-all"},
        BadValue{"EBBTIDE_STRESS", "evict-random", "PROBABILITY"},
        BadValue{"EBBTIDE_STRESS", "evict-random:7", "PROBABILITY"},
        BadValue{"EBBTIDE_STRESS", "evict-random:-7:0.5", "PROBABILITY"},
        BadValue{"EBBTIDE_STRESS", "evict-random:7:1.5", "PROBABILITY"},
        BadValue{"EBBTIDE_STRESS", "evict-random:7:nan", "PROBABILITY"}));

TEST(LoadOptionsTest, CudaIsSaidToBeMissingRatherThanUnknown) {
  EXPECT_THAT(std::string(Load({{"EBBTIDE_DEVICES", "cpu,cuda"}}).status().message()),
              HasSubstr("CUDA, which is not managed yet"));
}

TEST(LoadOptionsTest, AValueOfSeveralLinesStillGivesOneLine) {
  EXPECT_THAT(std::string(Load({{"EBBTIDE_POLICY", "a\nb"}}).status().message()),
              HasSubstr("a\\nb"));
}

TEST(StrictRequestedTest, IsFoundWhenOtherOptionsAreWrong) {
  auto strict = [](const char* value) {
    return StrictRequested([value](const char*) { return value; });
  };
  EXPECT_TRUE(strict("1"));
  EXPECT_TRUE(strict("nonsense"));
  EXPECT_FALSE(strict("0"));
  EXPECT_FALSE(strict(""));
  EXPECT_FALSE(strict(nullptr));
}

}  // namespace
}  // namespace ebbtide
