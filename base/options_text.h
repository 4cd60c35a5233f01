// SPDX-License-Identifier: Apache-2.0
//
// Texts made from the options table: the page docs/options.md, and the lines about variables that
// look like options but are none. Pure functions, safe on any thread; the caller owns what they
// return. To change a text, change the table in options.cc.

#ifndef EBBTIDE_BASE_OPTIONS_TEXT_H_
#define EBBTIDE_BASE_OPTIONS_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ebbtide {

// The whole of docs/options.md.
std::string OptionsMarkdown();

// One line for each entry of `environment` (null-terminated, "NAME=value", as environ) whose name
// starts with EBBTIDE_ and is not in the table; it names the closest option.
std::vector<std::string> UnknownVariableWarnings(const char* const* environment);

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_OPTIONS_TEXT_H_
