// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

const char* ResultName(Result result) {
  switch (result) {
#define RESULT(name, number, driver_name, text) \
  case Result::name:                            \
    return #driver_name;
#include "tests/cuda_driver_double/core/result.inc"
#undef RESULT
  }
  return nullptr;
}

const char* ResultText(Result result) {
  switch (result) {
#define RESULT(name, number, driver_name, text) \
  case Result::name:                            \
    return text;
#include "tests/cuda_driver_double/core/result.inc"
#undef RESULT
  }
  return nullptr;
}

}  // namespace ebbtide::hollow
