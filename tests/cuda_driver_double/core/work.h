// SPDX-License-Identifier: Apache-2.0
//
// What is queued on the streams of the virtual devices. An operation is run when all before it on
// its stream, and all that it waits for on others, is done: at once, or with a seed only when
// somebody waits for it or asks, and then as far as the seed says. So a program that forgets to
// order its work meets it late here, as on a busy device.
//
// An operation names the addresses that it touches. They are looked up when it runs, not when it is
// queued: what was unmapped in between is a fault then, as on a device.
//
// Threads: the caller serialises all calls; operations run on the thread that waits. Ownership: a
// stream is shared by the table of handles and by Work, which keeps it until it is empty.

#ifndef EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_WORK_H_
#define EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_WORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "tests/cuda_driver_double/core/access_history.h"
#include "tests/cuda_driver_double/core/result.h"

namespace ebbtide::hollow {

struct Capture;

// The place of one operation in its stream, and what comes before it and with it. A ticket whose
// number is 0 is before everything.
struct Ticket {
  uint64_t stream = 0;
  uint64_t number = 0;
  std::shared_ptr<const Clock> clock = nullptr;
};

struct Operation {
  const char* name = "";
  std::vector<Touch> touches = {};
  std::function<Result()> run = {};  // may be empty
  std::vector<Ticket> after = {};
};

struct Stream {
  uint64_t id = 0;  // no other stream of the process ever has it
  uintptr_t handle = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool blocking = true;  // in order with the legacy stream
  bool legacy = false;
  bool destroyed = false;
  std::deque<Operation> pending;
  uint64_t issued = 0;
  uint64_t done = 0;
  std::shared_ptr<const Clock> clock;  // of the last operation that was queued
  std::shared_ptr<Capture> capture;

  Ticket tail() const { return {id, issued, clock}; }
};

class Work {
 public:
  // Called when an operation has failed, before its stream's device is abandoned.
  using FaultHandler = std::function<void(const Stream&, const Operation&, Result)>;
  // Called when an operation that is queued is in a race with an earlier one.
  using RaceHandler = std::function<void(const Toucher&, const Touch&, const Toucher& earlier)>;

  Work(std::optional<uint64_t> seed, FaultHandler on_fault, RaceHandler on_race);

  // Changes when work is done. Runs everything first.
  void SetSeed(std::optional<uint64_t> seed);

  std::shared_ptr<Stream> Open(int device, bool blocking);

  // Lets go of a stream; what is queued on it will still be run.
  void Close(Stream& stream);

  // Queues an operation; without a seed also runs it.
  Ticket Enqueue(Stream& stream, Operation operation);

  bool IsDone(const Ticket& ticket) const;

  // Runs what `ticket` needs.
  void RunUntil(const Ticket& ticket);

  // Runs everything that is queued on a device, on destroyed streams as well.
  void RunDevice(int device);
  void RunAll();

  // The host has found out that this is done: what it queues from now on comes after it.
  void Learn(const Ticket& ticket);
  void LearnDevice(int device);

  // An operation that touches the range and that the host does not know to be done.
  std::optional<Toucher> FindUser(uintptr_t start, size_t bytes) const;

  // The range is nobody's any more.
  void Forget(uintptr_t start, size_t bytes) { history_.Forget(start, bytes); }

  // Lets the devices come as far as the seed says: what happens while a program asks.
  void RunByItself();

  // Forgets what is queued on a device: it has failed, or its context was destroyed.
  void Abandon(int device);

  size_t CountPending() const;

 private:
  // Real queues are finite too; this one keeps the recursion in RunUntil shallow.
  static constexpr size_t kPendingMax = 1024;

  Stream* FindStream(uint64_t id) const;
  void RunFront(Stream& stream);
  bool IsReady(const Operation& operation) const;
  void DropEmptyStreams();
  // Gives the operation its place in the order, and looks for races.
  void Order(Stream& stream, const Operation& operation);

  std::optional<std::mt19937_64> random_;
  // What streams that are no more had come to, for whoever waits for the whole device.
  struct Retired {
    Clock all;
    Clock blocking;
  };

  const FaultHandler on_fault_;
  const RaceHandler on_race_;
  AccessHistory history_;
  Clock host_;                      // what the host knows to be done
  std::map<int, Retired> retired_;  // by device
  uint64_t last_stream_ = 0;
  std::vector<std::shared_ptr<Stream>> streams_;
};

}  // namespace ebbtide::hollow

#endif  // EBBTIDE_TESTS_CUDA_DRIVER_DOUBLE_CORE_WORK_H_
