// SPDX-License-Identifier: Apache-2.0
//
// The smallest shared object that has something to hide and something to show: the symbols test is
// tried on it before it is trusted with the real ones.

namespace {
int hidden_count = 0;
}

int HiddenByDefault() { return ++hidden_count; }

extern "C" __attribute__((visibility("default"))) int symbols_probe_shown() {
  return HiddenByDefault();
}
