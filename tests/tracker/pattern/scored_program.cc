// SPDX-License-Identifier: Apache-2.0
#include "tests/tracker/pattern/scored_program.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace ebbtide {

Score Score::operator+(const Score& other) const {
  return {exact + other.exact,
          wrong + other.wrong,
          none_right + other.none_right,
          none_wrong + other.none_wrong,
          unknown + other.unknown,
          off_nanos + other.off_nanos,
          actual_nanos + other.actual_nanos};
}

std::string Score::Text() const {
  return absl::StrFormat(
      "%d touches, %.1f%% answered: %.1f%% right (%d exact, %d not, %d rightly none seen, %d not), "
      "time off by %.1f%%",
      answered() + unknown, 100 * coverage(), 100 * precision(), exact, wrong, none_right,
      none_wrong, 100 * time_error());
}

void ScoredProgram::Used(Held* held) {
  if (!std::exchange(held->asked, false)) return;
  const Forecast& forecast = held->forecast;
  if (forecast.kind == Forecast::kUnknown) {
    ++score_.unknown;
  } else if (forecast.kind == Forecast::kNoneSeen) {
    ++score_.none_wrong;
  } else {
    ++(held->call + forecast.calls == call_ ? score_.exact : score_.wrong);
    const auto actual = static_cast<double>((now_ - held->time).count());
    score_.off_nanos += std::abs(static_cast<double>(forecast.time.count()) - actual);
    score_.actual_nanos += actual;
  }
}

void ScoredProgram::Unused(const Held& held) {
  if (!held.asked) return;
  if (held.forecast.kind == Forecast::kUnknown) ++score_.unknown;
  if (held.forecast.kind == Forecast::kNoneSeen) ++score_.none_right;
  if (held.forecast.kind == Forecast::kExpected) ++score_.wrong;
}

void ScoredProgram::Run(const RecordedCall& call) {
  ++call_;
  now_ += call.duration;
  std::vector<Access> accesses;
  std::vector<Held*> touched;
  std::vector<std::unique_ptr<Held>> overwritten;
  for (const RecordedCall::Touched& t : call.touched) {
    if (t.kind == RecordedCall::kDropped) continue;
    std::unique_ptr<Held>& held = storages_[t.storage];
    if (held == nullptr || t.kind == RecordedCall::kMade) held = std::make_unique<Held>();
    if (t.kind != RecordedCall::kMade) {
      Used(held.get());
      accesses.push_back({&held->track, Touch::kRead});
    }
    if (t.kind == RecordedCall::kInPlace) {
      overwritten.push_back(std::exchange(held, std::make_unique<Held>()));
    }
    if (t.kind != RecordedCall::kRead) accesses.push_back({&held->track, Touch::kMade});
    touched.push_back(held.get());
  }
  pattern_.OnCall(call.signature, accesses, now_);
  for (const auto& held : overwritten) pattern_.OnDropped(held->track);
  for (Held* held : touched) {
    held->asked = true;
    held->forecast = pattern_.NextUse(held->track);
    held->call = call_;
    held->time = now_;
  }
  for (const RecordedCall::Touched& t : call.touched) {
    if (t.kind != RecordedCall::kDropped) continue;
    const auto found = storages_.find(t.storage);
    if (found == storages_.end()) continue;
    Unused(*found->second);
    pattern_.OnDropped(found->second->track);
    storages_.erase(found);
  }
}

void ScoredProgram::Run(const Calls& calls) {
  for (const RecordedCall& call : calls) Run(call);
}

void ScoredProgram::Mark(uint64_t label) {
  ++call_;
  pattern_.Mark(label);
}

void ScoredProgram::ForgetOpen() {
  for (const auto& [storage, held] : storages_) held->asked = false;
}

Score ScoredProgram::TakeScore() { return std::exchange(score_, {}); }

}  // namespace ebbtide
