// SPDX-License-Identifier: Apache-2.0
//
// Counts on how many threads of a parallel region `test` says yes.
#include <omp.h>

int count_in_region(int (*test)(void)) {
  int count = 0;
#pragma omp parallel num_threads(3) reduction(+ : count)
  count += test() != 0;
  return count;
}
