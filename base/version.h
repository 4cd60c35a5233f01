// SPDX-License-Identifier: Apache-2.0
//
// The version of Ebbtide, as `ebbtide version` and the statistics file say it. One constant, so
// that a library and a command built together always agree. To release, change it here. Owns
// nothing; any thread may read it.

#ifndef EBBTIDE_BASE_VERSION_H_
#define EBBTIDE_BASE_VERSION_H_

namespace ebbtide {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace ebbtide

#endif  // EBBTIDE_BASE_VERSION_H_
