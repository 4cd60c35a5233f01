// SPDX-License-Identifier: Apache-2.0
//
// Collectives run on threads of their own after the operator that started them has returned. What
// they were given stays in memory until their Work says that it is done; where there is no Work to
// ask, for good.
//
// Threads: any. Finished collectives are noticed by whichever thread calls an operator next.

#ifndef EBBTIDE_PYTORCH_BACKEND_COLLECTIVES_H_
#define EBBTIDE_PYTORCH_BACKEND_COLLECTIVES_H_

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <vector>

#include "absl/types/span.h"
#include "pytorch/backend/manager.h"

namespace ebbtide {

// Pins `storages` until the Work objects among `returned` are done.
void KeepUntilDone(Manager* manager, const std::vector<c10::StorageImpl*>& storages,
                   absl::Span<const c10::IValue> returned);

// Lets go of what finished collectives kept. Costs one load when there are none.
void PollCollectives(Manager* manager);

}  // namespace ebbtide

#endif  // EBBTIDE_PYTORCH_BACKEND_COLLECTIVES_H_
