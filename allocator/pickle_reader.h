// SPDX-License-Identifier: Apache-2.0
//
// Pickle reads plain data out of a Python pickle of any protocol from 2 to 5: dictionaries, lists,
// tuples, text, numbers, booleans, None. A pickle is a program; one that would import a name or
// make an object is refused, so that reading a file from anywhere runs nothing. Memory and time are
// linear in the length of the file, whatever it says: a value that the pickle mentions many times
// exists once, and nothing here recurses.
//
// Values are handles into the Pickle, which owns the bytes; they are valid as long as it lives. A
// pickle can describe a list that contains itself: who descends into values must know to what
// depth.
//
// Threads: a Pickle does not change after Parse and may be read from several at once.

#ifndef EBBTIDE_ALLOCATOR_PICKLE_READER_H_
#define EBBTIDE_ALLOCATOR_PICKLE_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ebbtide {

class Pickle {
 private:
  struct Node;

 public:
  enum class Kind : uint8_t { kNone, kBool, kInt, kFloat, kString, kList, kTuple, kDict };

  class Value {
   public:
    Kind kind() const { return node().kind; }

    // The value, when it is of this kind. An integer beyond 64 bits is a kFloat.
    std::optional<bool> AsBool() const;
    std::optional<int64_t> AsInt() const;
    std::optional<double> AsFloat() const;
    std::optional<absl::string_view> AsString() const;  // UTF-8, if the file is in order

    // Elements of a list or tuple, or entries of a dictionary; 0 for everything else.
    int64_t size() const;

    // Element i of a list or tuple. REQUIRES: 0 <= i < size().
    Value at(int64_t i) const;

    // The entry of a dictionary under this text; nothing if there is none or this is none.
    std::optional<Value> Find(absl::string_view key) const;

    // Key and value of entry i of a dictionary. REQUIRES: 0 <= i < size().
    std::pair<Value, Value> entry(int64_t i) const;

   private:
    friend class Pickle;
    Value(const Pickle* pickle, uint32_t index) : pickle_(pickle), index_(index) {}
    const Node& node() const { return pickle_->nodes_[index_]; }
    const std::vector<uint32_t>& elements() const;

    const Pickle* pickle_;
    uint32_t index_;
  };

  // Takes the bytes of a whole pickle; what follows its end is ignored, as Python does.
  // Errors: InvalidArgument with the offset of what is wrong: an opcode that is not plain data, an
  // end in the middle, a stack or memo that does not have what an opcode needs.
  static absl::StatusOr<std::unique_ptr<const Pickle>> Parse(std::string bytes);

  Value root() const { return Value(this, root_); }

  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

 private:
  friend class PickleMachine;

  struct Node {
    Kind kind = Kind::kNone;
    uint32_t length = 0;  // of kString
    union {
      int64_t integer = 0;  // of kBool, kInt
      double real;
      uint64_t place;  // of kString in bytes_; of kList, kTuple and kDict in elements_
    };
  };

  Pickle() = default;

  std::string bytes_;
  std::vector<Node> nodes_;
  std::vector<std::vector<uint32_t>> elements_;  // of a dictionary, keys and values in turn
  uint32_t root_ = 0;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PICKLE_READER_H_
