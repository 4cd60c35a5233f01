// SPDX-License-Identifier: Apache-2.0

#include "policy/published/evictable_pool.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebbtide::published {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<StorageId> Content(const EvictablePool& pool) {
  std::vector<StorageId> ids;
  for (StorageId id = pool.first(); id != pool.end(); id = pool.Next(id)) ids.push_back(id);
  return ids;
}

TEST(EvictablePoolTest, OrderIsThatOfEntry) {
  EvictablePool pool(5);
  EXPECT_THAT(Content(pool), IsEmpty());
  for (const StorageId id : {3, 0, 4, 1}) pool.Append(id);
  EXPECT_THAT(Content(pool), ElementsAre(3, 0, 4, 1));
}

// A pool that fills a gap with its last element is faster, and decides ties differently.
TEST(EvictablePoolTest, RemovalKeepsTheOrderOfTheOthers) {
  EvictablePool pool(5);
  for (const StorageId id : {0, 1, 2, 3, 4}) pool.Append(id);
  pool.Remove(1);
  EXPECT_THAT(Content(pool), ElementsAre(0, 2, 3, 4));
  pool.Remove(0);
  pool.Remove(4);
  EXPECT_THAT(Content(pool), ElementsAre(2, 3));
  pool.Append(0);
  EXPECT_THAT(Content(pool), ElementsAre(2, 3, 0)) << "who returns does so at the end";
  for (const StorageId id : {3, 2, 0}) pool.Remove(id);
  EXPECT_THAT(Content(pool), IsEmpty());
}

}  // namespace
}  // namespace ebbtide::published
