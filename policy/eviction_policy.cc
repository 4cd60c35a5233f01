// SPDX-License-Identifier: Apache-2.0

#include "policy/eviction_policy.h"

#include "base/check.h"

namespace ebbtide {

bool CandidatePolicy::Qualifies(const Value& value) const {
  return value.memory != nullptr && !value.is_source() && value.bytes >= min_bytes_ &&
         (value.storage == nullptr || !value.storage->escaped);
}

void CandidatePolicy::Update(Value* value) {
  const bool qualifies = Qualifies(*value);
  if (qualifies == IsCandidate(*value)) return;
  if (!qualifies) {
    Remove(value);
    return;
  }
  value->policy_index = static_cast<int32_t>(candidates_.size());
  candidates_.push_back(value);
  candidate_bytes_ += value->bytes;
  OnAdded(value);
}

void CandidatePolicy::Remove(Value* value) {
  if (!IsCandidate(*value)) return;
  OnRemoved(value);
  const size_t place = static_cast<size_t>(value->policy_index);
  EBB_CHECK(candidates_[place] == value);
  candidates_[place] = candidates_.back();
  candidates_[place]->policy_index = static_cast<int32_t>(place);
  candidates_.pop_back();
  value->policy_index = -1;
  candidate_bytes_ -= value->bytes;
}

}  // namespace ebbtide
