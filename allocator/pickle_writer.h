// SPDX-License-Identifier: Apache-2.0
//
// PickleWriter writes plain data (dictionaries, lists, pairs, text, numbers) in Python's pickle
// format, protocol 2, which every Python 3 loads. It keeps to the opcodes that PyTorch's memory
// viewer knows, a page of JavaScript with a small reader of its own: that is why the protocol is
// not a newer one, and why long lists are written in portions.
//
//     PickleWriter pickle(&bytes);
//     pickle.BeginDict();
//     pickle.Key("sizes").BeginList();
//     pickle.Int(512).Int(1024);
//     pickle.EndList().EndDict().Finish();
//
// The format is documented in Python's source, in the module pickletools.
//
// Threads: one at a time. Ownership: appends to a string of the caller's, which must outlive the
// writer.

#ifndef EBBTIDE_ALLOCATOR_PICKLE_WRITER_H_
#define EBBTIDE_ALLOCATOR_PICKLE_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace ebbtide {

class PickleWriter {
 public:
  explicit PickleWriter(std::string* out);
  PickleWriter(const PickleWriter&) = delete;
  PickleWriter& operator=(const PickleWriter&) = delete;

  PickleWriter& None();
  PickleWriter& Bool(bool value);
  PickleWriter& Int(int64_t value);
  PickleWriter& Unsigned(uint64_t value);
  PickleWriter& Float(double value);

  // Text that is written again takes two bytes. REQUIRES: `text` is UTF-8 and below 4 GiB.
  PickleWriter& String(absl::string_view text);

  // A tuple of two numbers.
  PickleWriter& IntPair(int64_t first, int64_t second);

  // Between the two: the elements, or for a dictionary a key and a value in turn.
  PickleWriter& BeginList() { return Begin(']', 'e'); }
  PickleWriter& EndList() { return End('e'); }
  PickleWriter& BeginDict() { return Begin('}', 'u'); }
  PickleWriter& EndDict() { return End('u'); }

  // The same as String, for the eye.
  PickleWriter& Key(absl::string_view text) { return String(text); }

  // Ends the pickle, after one whole value. REQUIRES: everything that was begun was ended.
  void Finish();

 private:
  struct Container {
    char closing;   // the opcode that puts the elements since the last mark into the container
    int64_t count;  // elements since then; of a dictionary, keys and values
  };

  PickleWriter& Begin(char empty, char closing);
  PickleWriter& End(char closing);
  void BeforeValue();
  void Integer(int64_t value);
  void Number(uint64_t value, int bytes);

  std::string* const out_;
  std::vector<Container> open_;
  int64_t values_ = 0;  // outside of any container
  absl::flat_hash_map<std::string, uint32_t> memo_;
};

}  // namespace ebbtide

#endif  // EBBTIDE_ALLOCATOR_PICKLE_WRITER_H_
