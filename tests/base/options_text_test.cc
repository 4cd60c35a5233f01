// SPDX-License-Identifier: Apache-2.0
#include "base/options_text.h"

#include <fstream>
#include <sstream>
#include <string>

#include "base/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(OptionsMarkdownTest, TheCheckedInPageIsUpToDate) {
  std::ifstream file("docs/options.md");
  ASSERT_TRUE(file.good()) << "docs/options.md cannot be read";
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), OptionsMarkdown())
      << "to bring it up to date: bazel run //tools:options_page > docs/options.md";
}

TEST(OptionsMarkdownTest, NamesEveryOption) {
  const std::string page = OptionsMarkdown();
  for (const OptionSpec& spec : OptionTable()) {
    EXPECT_THAT(page, HasSubstr("`" + EnvironmentName(spec) + "`"));
    EXPECT_THAT(page, HasSubstr("\n## " + std::string(spec.name) + "\n"));
  }
}

TEST(UnknownVariableTest, NamesTheClosestOption) {
  const char* const environment[] = {"HOME=/",
                                     "EBBTIDE_BUGDET=8GiB",
                                     "EBBTIDE_LOG=info",
                                     "EBBTIDE_MINBYTES=1",
                                     "MY_EBBTIDE_THING=1",
                                     nullptr};
  EXPECT_THAT(UnknownVariableWarnings(environment),
              ElementsAre("EBBTIDE_BUGDET is not an option and has no effect; did you mean "
                          "EBBTIDE_BUDGET?",
                          "EBBTIDE_MINBYTES is not an option and has no effect; did you mean "
                          "EBBTIDE_MIN_BYTES?"));
}

TEST(UnknownVariableTest, EveryOptionIsKnown) {
  std::vector<std::string> entries;
  for (const OptionSpec& spec : OptionTable()) entries.push_back(EnvironmentName(spec) + "=1");
  std::vector<const char*> environment;
  for (const std::string& entry : entries) environment.push_back(entry.c_str());
  environment.push_back(nullptr);
  EXPECT_THAT(UnknownVariableWarnings(environment.data()), IsEmpty());
}

}  // namespace
}  // namespace ebbtide
