// SPDX-License-Identifier: Apache-2.0

#include "pytorch/backend/op_table.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "absl/container/flat_hash_map.h"

namespace ebbtide {
namespace {

constexpr uint64_t Arguments(std::initializer_list<int> indices) {
  uint64_t mask = 0;
  for (int i : indices) mask |= uint64_t{1} << i;
  return mask;
}

constexpr absl::string_view kRunningStatistics =
    "training mode updates the running mean and variance; the schema does not say so";
constexpr absl::string_view kUninitialised = "the content is whatever the memory held before";
constexpr absl::string_view kNewMemory = "gives an existing storage other memory or another size";
constexpr absl::string_view kScratchOutput =
    "parts of an output are scratch memory that the kernel leaves uninitialised";
constexpr absl::string_view kReadsBack =
    "reads data back to the host; there is nothing to make again";

constexpr OpRow kRows[] = {
    {.name = "aten::native_batch_norm",
     .silently_written = Arguments({3, 4}),
     .only_if_argument = 5,
     .reason = kRunningStatistics},
    {.name = "aten::batch_norm_update_stats",
     .silently_written = Arguments({1, 2}),
     .reason = kRunningStatistics},
    {.name = "aten::batch_norm_gather_stats",
     .silently_written = Arguments({3, 4}),
     .reason = kRunningStatistics},
    {.name = "aten::batch_norm_gather_stats_with_counts",
     .silently_written = Arguments({3, 4}),
     .reason = kRunningStatistics},
    {.name = "aten::cudnn_batch_norm",
     .silently_written = Arguments({3, 4}),
     .only_if_argument = 5,
     .reason = kRunningStatistics},
    {.name = "aten::miopen_batch_norm",
     .silently_written = Arguments({3, 4}),
     .only_if_argument = 5,
     .reason = kRunningStatistics},
    {.name = "aten::mkldnn_rnn_layer_backward",
     .silently_written = Arguments({22}),
     .scratch_arguments = true,
     .reason = "uses the forward pass's workspace, an argument, as its scratch memory"},
    {.name = "aten::mkldnn_rnn_layer", .scratch_results = 1 << 3, .reason = kScratchOutput},
    {.name = "aten::_ctc_loss", .scratch_results = 1 << 1, .reason = kScratchOutput},
    {.name = "aten::empty",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::empty_strided",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::empty_like",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::empty_permuted",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::new_empty",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::new_empty_strided",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::_empty_affine_quantized",
     .never_replayed = true,
     .uninitialised = true,
     .reason = kUninitialised},
    {.name = "aten::resize_", .never_replayed = true, .reason = kNewMemory},
    {.name = "aten::resize_as_", .never_replayed = true, .reason = kNewMemory},
    {.name = "aten::_resize_output_", .never_replayed = true, .reason = kNewMemory},
    {.name = "aten::resize", .never_replayed = true, .reason = kNewMemory},
    {.name = "aten::set_", .never_replayed = true, .reason = kNewMemory},
    {.name = "aten::set_data", .never_replayed = true, .reason = kNewMemory},
    {.name = "aten::_lazy_clone",
     .never_replayed = true,
     .keeps_addresses = true,
     .reason = "two storages share one memory afterwards"},
    {.name = "aten::_local_scalar_dense", .never_replayed = true, .reason = kReadsBack},
    {.name = "aten::item", .never_replayed = true, .reason = kReadsBack},
    {.name = "aten::equal", .never_replayed = true, .reason = kReadsBack},
    {.name = "aten::is_pinned", .never_replayed = true, .reason = kReadsBack},
    {.name = "aten::record_stream", .never_replayed = true, .reason = "changes only bookkeeping"},
    {.name = "aten::_pin_memory", .never_replayed = true, .reason = "allocates elsewhere"},
    {.name = "aten::from_file", .never_replayed = true, .reason = "the file may change"},
    {.name = "aten::manual_seed", .never_replayed = true, .reason = "sets the random generator"},
    {.name = "aten::_no_grad_normal_",
     .never_replayed = true,
     .reason = "draws random numbers without the tag that says so"},
    {.name = "aten::_no_grad_uniform_",
     .never_replayed = true,
     .reason = "draws random numbers without the tag that says so"},
};

using RowIndex = absl::flat_hash_map<absl::string_view, const OpRow*>;

const RowIndex& Index() {
  static const RowIndex* const index = [] {
    auto* made = new RowIndex;
    for (const OpRow& row : kRows) made->emplace(row.name, &row);
    return made;
  }();
  return *index;
}

}  // namespace

const OpRow* FindOpRow(absl::string_view name) {
  const auto it = Index().find(name);
  return it == Index().end() ? nullptr : it->second;
}

bool IsTrustedNamespace(absl::string_view space) {
  constexpr std::array<absl::string_view, 3> kTrusted = {"aten", "torchvision", "mkldnn"};
  return std::find(kTrusted.begin(), kTrusted.end(), space) != kTrusted.end();
}

bool IsCollectiveNamespace(absl::string_view space) {
  constexpr std::array<absl::string_view, 4> kCollective = {
      "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem"};
  return std::find(kCollective.begin(), kCollective.end(), space) != kCollective.end();
}

}  // namespace ebbtide
