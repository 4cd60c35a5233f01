// SPDX-License-Identifier: Apache-2.0

#include "allocator/pickle_writer.h"

#include <bit>

#include "base/check.h"

namespace ebbtide {
namespace {

// Elements a portion: the viewer passes them as arguments of one call, of which a browser allows
// some ten thousand. Python's own pickler writes portions of the same size. Even, so that keys stay
// with their values.
constexpr int64_t kPortion = 1000;

constexpr char kMark = '(';
constexpr char kProto[] = {'\x80', 2};

}  // namespace

PickleWriter::PickleWriter(std::string* out) : out_(out) { out_->append(kProto, 2); }

// Little-endian, as every number in a pickle but a float.
void PickleWriter::Number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_->push_back(static_cast<char>(value >> (8 * i)));
}

void PickleWriter::BeforeValue() {
  if (open_.empty()) {
    EBB_CHECK(values_++ == 0) << "a second value at the top of a pickle";
    return;
  }
  Container& container = open_.back();
  if (container.count == kPortion) {
    out_->push_back(container.closing);
    out_->push_back(kMark);
    container.count = 0;
  }
  ++container.count;
}

PickleWriter& PickleWriter::Begin(char empty, char closing) {
  BeforeValue();
  out_->push_back(empty);
  out_->push_back(kMark);
  open_.push_back({closing, 0});
  return *this;
}

PickleWriter& PickleWriter::End(char closing) {
  EBB_CHECK(!open_.empty() && open_.back().closing == closing) << "what is ended was not begun";
  EBB_CHECK(closing != 'u' || open_.back().count % 2 == 0) << "a key without a value";
  out_->push_back(closing);
  open_.pop_back();
  return *this;
}

PickleWriter& PickleWriter::None() {
  BeforeValue();
  out_->push_back('N');
  return *this;
}

PickleWriter& PickleWriter::Bool(bool value) {
  BeforeValue();
  out_->push_back(static_cast<char>(value ? 0x88 : 0x89));
  return *this;
}

// The shortest opcode for a number.
void PickleWriter::Integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0 && value < 1 << 8) {
    out_->push_back('K');
    Number(bits, 1);
  } else if (value >= 0 && value < 1 << 16) {
    out_->push_back('M');
    Number(bits, 2);
  } else if (value == static_cast<int32_t>(value)) {
    out_->push_back('J');
    Number(bits, 4);
  } else {
    // As many bytes as hold it with its sign.
    const int width = static_cast<int>(std::bit_width(value < 0 ? ~bits : bits)) / 8 + 1;
    out_->push_back('\x8a');
    Number(static_cast<uint64_t>(width), 1);
    Number(bits, width);
  }
}

PickleWriter& PickleWriter::Int(int64_t value) {
  BeforeValue();
  Integer(value);
  return *this;
}

PickleWriter& PickleWriter::Unsigned(uint64_t value) {
  if (value >> 63 == 0) return Int(static_cast<int64_t>(value));
  BeforeValue();
  out_->append("\x8a\x09");
  Number(value, 8);
  out_->push_back('\0');  // or it would be negative
  return *this;
}

PickleWriter& PickleWriter::Float(double value) {
  BeforeValue();
  out_->push_back('G');
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) out_->push_back(static_cast<char>(bits >> (8 * i)));
  return *this;
}

PickleWriter& PickleWriter::String(absl::string_view text) {
  BeforeValue();
  const auto [entry, fresh] = memo_.try_emplace(text, static_cast<uint32_t>(memo_.size()));
  const bool narrow = entry->second < 256;
  if (fresh) {
    EBB_CHECK(text.size() < uint64_t{1} << 32) << "a text of " << text.size() << " bytes";
    out_->push_back('X');
    Number(text.size(), 4);
    out_->append(text.data(), text.size());
    out_->push_back(narrow ? 'q' : 'r');  // remember it under this number
  } else {
    out_->push_back(narrow ? 'h' : 'j');  // what was remembered under this number
  }
  Number(entry->second, narrow ? 1 : 4);
  return *this;
}

PickleWriter& PickleWriter::IntPair(int64_t first, int64_t second) {
  BeforeValue();
  Integer(first);
  Integer(second);
  out_->push_back('\x86');
  return *this;
}

void PickleWriter::Finish() {
  EBB_CHECK(open_.empty() && values_ == 1) << "a pickle must hold one whole value";
  out_->push_back('.');
}

}  // namespace ebbtide
