// SPDX-License-Identifier: Apache-2.0

#include "allocator/host_stream_order.h"

#include "tests/allocator/stream_order_conformance.h"

namespace ebbtide {
namespace {

class HostWorld : public StreamWorld {
 public:
  StreamOrder* order() override { return &order_; }
  bool has_queues() const override { return false; }
  StreamId CreateStream() override { return kDefaultStream; }
  void DestroyStream(StreamId /*stream*/) override {}
  void Hold(StreamId /*stream*/) override {}
  void LetGo() override {}

 private:
  HostStreamOrder order_;
};

INSTANTIATE_TEST_SUITE_P(Host, StreamOrderTest,
                         testing::Values([] { return std::make_unique<HostWorld>(); }));

}  // namespace
}  // namespace ebbtide
