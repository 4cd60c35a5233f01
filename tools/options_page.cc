// SPDX-License-Identifier: Apache-2.0
//
// Prints docs/options.md.
#include <iostream>

#include "base/options_text.h"

int main() { std::cout << ebbtide::OptionsMarkdown(); }
