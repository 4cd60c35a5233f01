// SPDX-License-Identifier: Apache-2.0

#include "bench/allocator/model_blocks.h"

namespace ebbtide::bench {
BlocksBySize::iterator FindBestFit(const BlocksBySize& blocks, int64_t size, uint32_t stream) {
  ModelBlock key;
  key.size = size;
  key.stream = stream;
  const auto found = blocks.lower_bound(&key);
  return found != blocks.end() && (*found)->stream == stream ? found : blocks.end();
}

ModelBlock* BlockStore::New() {
  if (spare_.empty()) return &storage_.emplace_back();
  ModelBlock* block = spare_.back();
  spare_.pop_back();
  *block = ModelBlock();
  return block;
}

ModelBlock* BlockStore::NewSegment(int64_t size, uint32_t stream, int64_t alignment) {
  ModelBlock* block = New();
  block->address = RoundUpTo(next_address_ + 1, alignment);  // a gap: no two segments touch
  block->size = size;
  block->stream = stream;
  next_address_ = block->address + size;
  return block;
}

ModelBlock* BlockStore::Split(ModelBlock* block, int64_t size) {
  ModelBlock* rest = New();
  *rest = *block;
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->prev = block;
  if (rest->next != nullptr) rest->next->prev = rest;
  block->next = rest;
  block->size = size;
  return rest;
}

void BlockStore::MergeNext(ModelBlock* block) {
  ModelBlock* gone = block->next;
  block->size += gone->size;
  block->next = gone->next;
  if (block->next != nullptr) block->next->prev = block;
  spare_.push_back(gone);
}

void BlockStore::Delete(ModelBlock* block) { spare_.push_back(block); }

}  // namespace ebbtide::bench
