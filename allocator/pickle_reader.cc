// SPDX-License-Identifier: Apache-2.0

#include "allocator/pickle_reader.h"

#include <bit>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ebbtide {

// Runs a pickle: a stack of values, marks in it that say where a container's new elements begin,
// and a memo of values that were given a number.
class PickleMachine {
 public:
  explicit PickleMachine(Pickle* pickle) : pickle_(*pickle), bytes_(pickle->bytes_) {}

  absl::Status Run();

 private:
  using Kind = Pickle::Kind;
  using Node = Pickle::Node;

  absl::Status Error(const char* what) const {
    return absl::InvalidArgumentError(absl::StrFormat("pickle, byte %d: %s", opcode_at_, what));
  }

  absl::Status Step(uint8_t opcode);
  absl::Status StepSimple(uint8_t opcode);
  absl::Status StepContainer(uint8_t opcode);
  absl::Status StepMemo(uint8_t opcode);
  absl::StatusOr<uint64_t> Number(int bytes);
  absl::Status Text(int length_bytes);
  absl::Status Long(int length_bytes);
  absl::Status Collect(Kind kind, size_t count);
  absl::Status CollectFromMark(Kind kind);
  absl::Status Extend(Kind kind, size_t from);
  absl::Status ExtendFromMark(Kind kind);
  absl::Status Recall(uint64_t number);
  absl::Status Remember(uint64_t number);

  // Values that an opcode may take: those above the last mark.
  size_t Available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  void Push(const Node& node) {
    stack_.push_back(static_cast<uint32_t>(pickle_.nodes_.size()));
    pickle_.nodes_.push_back(node);
  }
  void PushInt(int64_t value) { Push({.kind = Kind::kInt, .integer = value}); }
  void PushFloat(double value) { Push({.kind = Kind::kFloat, .real = value}); }
  void PushBool(bool value) { Push({.kind = Kind::kBool, .integer = value}); }
  void PushContainer(Kind kind) {
    Push({.kind = kind, .place = pickle_.elements_.size()});
    pickle_.elements_.emplace_back();
  }

  Pickle& pickle_;
  const std::string& bytes_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  absl::flat_hash_map<uint64_t, uint32_t> memo_;
};

absl::Status PickleMachine::Run() {
  // An opcode makes at most one value, so the numbers of values fit into 32 bits.
  if (bytes_.size() >> 32 != 0) return Error("longer than 4 GiB");
  if (bytes_.size() < 2 || static_cast<uint8_t>(bytes_[0]) != 0x80) {
    return Error("not a pickle of protocol 2 or later");
  }
  for (;;) {
    opcode_at_ = at_;
    if (at_ == bytes_.size()) return Error("the file ends before the pickle does");
    const auto opcode = static_cast<uint8_t>(bytes_[at_++]);
    if (opcode == '.') break;
    EBB_RETURN_IF_ERROR(Step(opcode));
  }
  if (stack_.size() != 1 || !marks_.empty()) return Error("it does not end with one value");
  pickle_.root_ = stack_[0];
  return absl::OkStatus();
}

absl::Status PickleMachine::Step(uint8_t opcode) {
  switch (opcode) {
    case 0x80: {  // PROTO
      EBB_ASSIGN_OR_RETURN(const uint64_t protocol, Number(1));
      return protocol >= 2 && protocol <= 5 ? absl::OkStatus() : Error("an unknown protocol");
    }
    case 0x95:  // FRAME: how much to read at once
      return Number(8).status();
    case 'N':
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
    case 'J':   // BININT
    case 'K':   // BININT1
    case 'M':   // BININT2
    case 'G':   // BINFLOAT
    case 0x8a:  // LONG1
    case 0x8b:  // LONG4
    case 'X':   // BINUNICODE
    case 0x8c:  // SHORT_BINUNICODE
    case 0x8d:  // BINUNICODE8
      return StepSimple(opcode);
    case 'h':   // BINGET
    case 'j':   // LONG_BINGET
    case 'q':   // BINPUT
    case 'r':   // LONG_BINPUT
    case 0x94:  // MEMOIZE
      return StepMemo(opcode);
    case 'c':   // GLOBAL
    case 0x93:  // STACK_GLOBAL
    case 'R':   // REDUCE
    case 'i':   // INST
    case 'o':   // OBJ
    case 0x81:  // NEWOBJ
    case 0x92:  // NEWOBJ_EX
    case 'b':   // BUILD
      return Error("it makes a Python object, and only plain data is read");
    default:
      return StepContainer(opcode);
  }
}

absl::Status PickleMachine::StepSimple(uint8_t opcode) {
  switch (opcode) {
    case 'N':
      Push({});
      return absl::OkStatus();
    case 'X':
      return Text(4);
    case 0x8c:
      return Text(1);
    case 0x8d:
      return Text(8);
    case 0x8a:
      return Long(1);
    case 0x8b:
      return Long(4);
    case 0x88:
    case 0x89:
      PushBool(opcode == 0x88);
      return absl::OkStatus();
    case 'G': {
      EBB_ASSIGN_OR_RETURN(const uint64_t bits, Number(8));
      PushFloat(std::bit_cast<double>(__builtin_bswap64(bits)));
      return absl::OkStatus();
    }
    default: {
      EBB_ASSIGN_OR_RETURN(const uint64_t value, Number(opcode == 'K' ? 1 : opcode == 'M' ? 2 : 4));
      PushInt(opcode == 'J' ? static_cast<int32_t>(value) : static_cast<int64_t>(value));
      return absl::OkStatus();
    }
  }
}

absl::Status PickleMachine::StepContainer(uint8_t opcode) {
  switch (opcode) {
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return absl::OkStatus();
    case ']':  // EMPTY_LIST
      return Collect(Kind::kList, 0);
    case ')':  // EMPTY_TUPLE
      return Collect(Kind::kTuple, 0);
    case '}':  // EMPTY_DICT
      return Collect(Kind::kDict, 0);
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return Collect(Kind::kTuple, opcode - 0x84);
    case 'l':  // LIST
      return CollectFromMark(Kind::kList);
    case 't':  // TUPLE
      return CollectFromMark(Kind::kTuple);
    case 'd':  // DICT
      return CollectFromMark(Kind::kDict);
    case 'a':  // APPEND
      return Available() < 1 ? Error("nothing to append") : Extend(Kind::kList, stack_.size() - 1);
    case 's':  // SETITEM
      return Available() < 2 ? Error("no entry to set") : Extend(Kind::kDict, stack_.size() - 2);
    case 'e':  // APPENDS
      return ExtendFromMark(Kind::kList);
    case 'u':  // SETITEMS
      return ExtendFromMark(Kind::kDict);
    default:
      return Error("an opcode that is not plain data");
  }
}

absl::Status PickleMachine::StepMemo(uint8_t opcode) {
  if (opcode == 0x94) return Remember(memo_.size());
  EBB_ASSIGN_OR_RETURN(const uint64_t number, Number(opcode == 'h' || opcode == 'q' ? 1 : 4));
  return opcode == 'h' || opcode == 'j' ? Recall(number) : Remember(number);
}

// A little-endian number that follows the opcode.
absl::StatusOr<uint64_t> PickleMachine::Number(int bytes) {
  if (bytes_.size() - at_ < static_cast<size_t>(bytes)) return Error("it ends within a number");
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(bytes_[at_ + i])} << 8 * i;
  at_ += bytes;
  return value;
}

absl::Status PickleMachine::Text(int length_bytes) {
  EBB_ASSIGN_OR_RETURN(const uint64_t length, Number(length_bytes));
  if (bytes_.size() - at_ < length) return Error("it ends within a text");
  Push({.kind = Kind::kString, .length = static_cast<uint32_t>(length), .place = at_});
  at_ += length;
  return absl::OkStatus();
}

// A two's complement number of any length.
absl::Status PickleMachine::Long(int length_bytes) {
  EBB_ASSIGN_OR_RETURN(const uint64_t length, Number(length_bytes));
  if (bytes_.size() - at_ < length) return Error("it ends within a number");
  const bool negative = length > 0 && static_cast<int8_t>(bytes_[at_ + length - 1]) < 0;
  uint64_t low = negative ? ~uint64_t{0} : 0;
  double real = negative ? -1 : 0;
  for (size_t i = at_ + length; i > at_; --i) {  // from the most significant byte on
    const auto byte = static_cast<uint8_t>(bytes_[i - 1]);
    low = low << 8 | byte;
    real = real * 256 + byte;
  }
  at_ += length;
  if (length <= 8) {
    PushInt(static_cast<int64_t>(low));
  } else {
    PushFloat(real);
  }
  return absl::OkStatus();
}

absl::Status PickleMachine::Collect(Kind kind, size_t count) {
  if (Available() < count) return Error("a tuple of more values than there are");
  const size_t from = stack_.size() - count;
  std::vector<uint32_t> values(stack_.begin() + static_cast<ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  PushContainer(kind);
  pickle_.elements_.back() = std::move(values);
  return absl::OkStatus();
}

absl::Status PickleMachine::CollectFromMark(Kind kind) {
  if (marks_.empty()) return Error("no mark where elements begin");
  const size_t count = Available();
  if (kind == Kind::kDict && count % 2 != 0) return Error("a key without a value");
  marks_.pop_back();
  return Collect(kind, count);
}

// Moves the values from height `from` of the stack on into the container below them.
absl::Status PickleMachine::Extend(Kind kind, size_t from) {
  if (from == 0 || (!marks_.empty() && from <= marks_.back())) return Error("no container");
  const Node& container = pickle_.nodes_[stack_[from - 1]];
  if (container.kind != kind) return Error("elements for a container of another kind");
  if (kind == Kind::kDict && (stack_.size() - from) % 2 != 0) return Error("a key without a value");
  std::vector<uint32_t>& elements = pickle_.elements_[container.place];
  elements.insert(elements.end(), stack_.begin() + static_cast<ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  return absl::OkStatus();
}

absl::Status PickleMachine::ExtendFromMark(Kind kind) {
  if (marks_.empty()) return Error("no mark where elements begin");
  const size_t from = marks_.back();
  marks_.pop_back();
  return Extend(kind, from);
}

absl::Status PickleMachine::Recall(uint64_t number) {
  const auto found = memo_.find(number);
  if (found == memo_.end()) return Error("a number that nothing was remembered under");
  stack_.push_back(found->second);
  return absl::OkStatus();
}

absl::Status PickleMachine::Remember(uint64_t number) {
  if (Available() == 0) return Error("nothing to remember");
  memo_[number] = stack_.back();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Pickle>> Pickle::Parse(std::string bytes) {
  std::unique_ptr<Pickle> pickle(new Pickle);
  pickle->bytes_ = std::move(bytes);
  EBB_RETURN_IF_ERROR(PickleMachine(pickle.get()).Run());
  return pickle;
}

std::optional<bool> Pickle::Value::AsBool() const {
  if (kind() != Kind::kBool) return std::nullopt;
  return node().integer != 0;
}

std::optional<int64_t> Pickle::Value::AsInt() const {
  if (kind() != Kind::kInt) return std::nullopt;
  return node().integer;
}

std::optional<double> Pickle::Value::AsFloat() const {
  if (kind() != Kind::kFloat) return std::nullopt;
  return node().real;
}

std::optional<absl::string_view> Pickle::Value::AsString() const {
  if (kind() != Kind::kString) return std::nullopt;
  return absl::string_view(pickle_->bytes_).substr(node().place, node().length);
}

const std::vector<uint32_t>& Pickle::Value::elements() const {
  static const std::vector<uint32_t>* const none = new std::vector<uint32_t>;
  return kind() < Kind::kList ? *none : pickle_->elements_[node().place];
}

int64_t Pickle::Value::size() const {
  return static_cast<int64_t>(elements().size()) / (kind() == Kind::kDict ? 2 : 1);
}

Pickle::Value Pickle::Value::at(int64_t i) const {
  EBB_CHECK(kind() != Kind::kDict && i >= 0 && i < size()) << "element " << i << " of " << size();
  return Value(pickle_, elements()[static_cast<size_t>(i)]);
}

std::pair<Pickle::Value, Pickle::Value> Pickle::Value::entry(int64_t i) const {
  EBB_CHECK(kind() == Kind::kDict && i >= 0 && i < size()) << "entry " << i << " of " << size();
  const auto at = static_cast<size_t>(2 * i);
  return {Value(pickle_, elements()[at]), Value(pickle_, elements()[at + 1])};
}

std::optional<Pickle::Value> Pickle::Value::Find(absl::string_view key) const {
  if (kind() != Kind::kDict) return std::nullopt;
  for (int64_t i = size() - 1; i >= 0; --i) {  // what was set last holds
    const auto [name, value] = entry(i);
    if (name.AsString() == key) return value;
  }
  return std::nullopt;
}

}  // namespace ebbtide
