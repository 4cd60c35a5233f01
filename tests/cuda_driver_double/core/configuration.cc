// SPDX-License-Identifier: Apache-2.0

#include "tests/cuda_driver_double/core/configuration.h"

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace ebbtide::hollow {
namespace {

template <typename T>
absl::StatusOr<T> ParseNumber(absl::string_view text, T least, T most) {
  T value;
  if (absl::SimpleAtoi(text, &value) && value >= least && value <= most) return value;
  return absl::InvalidArgumentError(absl::StrCat("a number from ", least, " to ", most));
}

absl::StatusOr<bool> ParseSwitch(absl::string_view text) {
  if (text == "1") return true;
  if (text == "0") return false;
  return absl::InvalidArgumentError("0 or 1");
}

absl::StatusOr<size_t> ParseSize(absl::string_view text) {
  EBB_ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
  if (bytes <= Bytes(0)) return absl::InvalidArgumentError("an amount above 0, such as 2GiB");
  return static_cast<size_t>(bytes.count());
}

absl::StatusOr<size_t> ParseGranularity(absl::string_view text) {
  EBB_ASSIGN_OR_RETURN(const size_t bytes, ParseSize(text));
  if (bytes >= 4096 && (bytes & (bytes - 1)) == 0) return bytes;
  return absl::InvalidArgumentError("a power of two of at least 4KiB");
}

absl::StatusOr<CallRule> ParseRule(absl::string_view text) {
  const absl::Status form = absl::InvalidArgumentError("NAME:N, NAME:N+ or NAME:N=CODE");
  CallRule rule;
  std::pair<absl::string_view, absl::string_view> code =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (absl::StrContains(text, "=")) {
    int number = 0;
    if (!absl::SimpleAtoi(code.second, &number)) return form;
    rule.result = static_cast<Result>(number);
    if (number == 0 || ResultName(*rule.result) == nullptr) {
      return absl::InvalidArgumentError("an error code of core/result.inc");
    }
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(code.first, absl::MaxSplits(':', 1));
  rule.name = std::string(parts.first);
  absl::string_view number = parts.second;
  rule.for_ever = absl::ConsumeSuffix(&number, "+");
  if (rule.name.empty() || !absl::SimpleAtoi(number, &rule.number) || rule.number < 1) return form;
  return rule;
}

absl::StatusOr<CallLatency> ParseLatency(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  CallLatency latency{.name = std::string(parts.first)};
  if (!latency.name.empty() && absl::SimpleAtoi(parts.second, &latency.microseconds) &&
      latency.microseconds >= 0) {
    return latency;
  }
  return absl::InvalidArgumentError("NAME:MICROSECONDS");
}

template <typename T>
absl::StatusOr<std::vector<T>> ParseList(absl::string_view text,
                                         absl::StatusOr<T> (*parse)(absl::string_view)) {
  std::vector<T> list;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    EBB_ASSIGN_OR_RETURN(T value, parse(absl::StripAsciiWhitespace(item)));
    list.push_back(std::move(value));
  }
  return list;
}

template <auto kField, auto kParse>
absl::Status SetField(Configuration& configuration, absl::string_view text) {
  EBB_ASSIGN_OR_RETURN(configuration.*kField, kParse(text));
  return absl::OkStatus();
}

template <auto kField>
void ClearField(Configuration& configuration) {
  configuration.*kField = Configuration().*kField;
}

struct Setting {
  const char* name;
  absl::Status (*set)(Configuration&, absl::string_view);
  void (*clear)(Configuration&);
};

template <auto kField, auto kParse>
constexpr Setting Row(const char* name) {
  return {name, &SetField<kField, kParse>, &ClearField<kField>};
}

absl::StatusOr<int> ParseDevices(absl::string_view text) {
  return ParseNumber<int>(text, 0, kDevicesMax);
}
absl::StatusOr<int> ParseVersion(absl::string_view text) {
  return ParseNumber<int>(text, 11000, 99999);
}
absl::StatusOr<uint64_t> ParseSeed(absl::string_view text) {
  return ParseNumber<uint64_t>(text, 0, std::numeric_limits<uint64_t>::max());
}
absl::StatusOr<std::vector<CallRule>> ParseRules(absl::string_view text) {
  return ParseList<CallRule>(text, &ParseRule);
}
absl::StatusOr<std::vector<CallLatency>> ParseLatencies(absl::string_view text) {
  return ParseList<CallLatency>(text, &ParseLatency);
}

using C = Configuration;
constexpr Setting kSettings[] = {
    Row<&C::devices, &ParseDevices>("devices"),
    Row<&C::capacity_bytes, &ParseSize>("capacity"),
    Row<&C::granularity_bytes, &ParseGranularity>("granularity"),
    Row<&C::driver_version, &ParseVersion>("driver_version"),
    Row<&C::async_seed, &ParseSeed>("async"),
    Row<&C::strict, &ParseSwitch>("strict"),
    Row<&C::host_access, &ParseSwitch>("host_access"),
    Row<&C::free_waits, &ParseSwitch>("free_waits"),
    Row<&C::reuse_handles, &ParseSwitch>("reuse_handles"),
    Row<&C::failures, &ParseRules>("fail"),
    Row<&C::breaks, &ParseRules>("break"),
    Row<&C::latencies, &ParseLatencies>("latency"),
};

}  // namespace

absl::Status Configuration::Set(absl::string_view name, absl::string_view text) {
  for (const Setting& setting : kSettings) {
    if (name != setting.name) continue;
    if (text.empty()) {
      setting.clear(*this);
      return absl::OkStatus();
    }
    const absl::Status status = setting.set(*this, text);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", text, ": expected ", status.message()));
  }
  return absl::InvalidArgumentError(absl::StrCat("the double has no setting ", name));
}

absl::StatusOr<Configuration> Configuration::FromEnvironment() {
  Configuration configuration;
  for (const Setting& setting : kSettings) {
    const std::string variable =
        absl::StrCat("EBBTIDE_DOUBLE_", absl::AsciiStrToUpper(setting.name));
    const char* text = std::getenv(variable.c_str());
    if (text == nullptr) continue;
    EBB_RETURN_IF_ERROR(configuration.Set(setting.name, text));
  }
  return configuration;
}

}  // namespace ebbtide::hollow
