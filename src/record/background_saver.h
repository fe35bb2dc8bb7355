// Saves checkpoints while training goes on, from all ranks, each its part (checkpoint_plan.h says who writes what). A
// rank's part goes through staging memory of bounded size that was allocated and touched once: a copier thread fills it
// while forward and backward run, a low-priority writer thread checksums and writes. What is checksummed is the staging
// memory, so what was in memory is what is on disk. Where a part is larger than the staging memory, copying goes on as
// the writer frees it.
//
// Every rank has a saver; all calls from its training thread, on all ranks alike. The caller promises that the tensors
// stay unchanged and allocated from Begin until WaitCopied returned:
//
//   optimizer.Step();
//   if (due) {                                                 // rank 0 decides for all, when it is not busy
//     Result<bool> begun = saver->Begin(content, best_step);   // false: the one before is still being written
//     ...
//   }
//   Forward(); Backward();
//   LOCKSTEP_RETURN_IF_ERROR(saver->WaitCopied());             // before every optimizer step; costs nothing when idle
//   for (const SaveReport& report : saver->Poll()) ...         // a full disk shows up here; training goes on
//
// One save is in flight at a time. The training thread never communicates with other ranks here; the writer threads do,
// over SavePeers. If any rank fails, nothing is published and all ranks report the same error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "record/checkpoint.h"
#include "record/checkpoint_folder.h"
#include "record/storage.h"

namespace lockstep::record {

struct SaveReport {
  uint64_t step = 0;
  std::string path;  // of the published checkpoint
  Status status;     // not ok: nothing of this step was published, older checkpoints are as before
  Status prune;      // not ok: the checkpoint is there, but old ones could not be removed or pointed to
  std::vector<uint64_t> pruned;
  uint64_t bytes = 0;            // of all files
  double reserve_seconds = 0;    // making staging memory; zero from the second save on
  double copy_seconds = 0;       // begin to the last byte in staging
  double blocked_seconds = 0;    // of the training thread, in Begin and WaitCopied
  double write_seconds = 0;      // checksums, sending, writing, sync, publishing, pruning
  double write_cpu_seconds = 0;  // of these, on a core
};

// The ranks that save together, as the writer threads reach each other. By default there is one rank.
struct SavePeers {
  int rank = 0, size = 1;
  std::vector<int> writers = {0};  // the ranks that see the checkpoints folder (shared_folder.h), rank 0 among them
  // Both are called by all ranks in the same order. Send: `bytes` at `data` of rank `from` arrive at `data` of rank
  // `to`; elsewhere data is null. Gather: every rank's text, on every rank.
  std::function<Status(void* data, size_t bytes, int from, int to)> send;
  std::function<Result<std::vector<std::string>>(std::string_view text)> gather;
};

class BackgroundSaver {
 public:
  struct Options {
    std::string folder;  // checkpoints folder
    SavePeers peers;
    Keep keep;
    Durability durability = Durability::kPower;
    uint64_t max_bytes_per_second = 0;  // of the writer; 0: as fast as the disk takes it
    int writer_nice = 10;               // of the writer thread
    // Copies bytes from a tensor into staging memory; memcpy when empty. Called from the copier thread and, inside
    // WaitCopied, from the training thread; at most chunk_bytes at once.
    std::function<Status(void* dst, const void* src, size_t bytes)> copy;
    size_t staging_bytes = 2ull << 30;  // of this rank, at most
    size_t chunk_bytes = 4u << 20;      // the same on every rank; multiples of 4 KiB
    uint64_t split_bytes = 1ull << 30;  // the same on every rank; see checkpoint_plan.h
    std::unique_ptr<Storage> storage;   // default: PosixStorage(durability)
  };

  // Rank 0 removes leftovers of writers that died in this folder.
  static Result<std::unique_ptr<BackgroundSaver>> Create(Options options);
  // Finishes the save in flight.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // Allocates and touches staging memory for such a state, so that the first save does not. Only shapes are looked at.
  Status Reserve(const std::vector<CheckpointTensor>& tensors);

  // Starts the save. False when the one before is not done: nothing was started, ask again at a later step. Other ranks
  // than 0 wait instead, for the moment in which they learn that rank 0 is done. best_step: the checkpoint that "best"
  // points to and pruning spares; may be this one.
  Result<bool> Begin(const CheckpointContent& content, std::optional<uint64_t> best_step = std::nullopt);

  // Returns once the tensors may change; helps with what is left to copy. The status is that of the copy function.
  Status WaitCopied();

  bool busy() const;
  // Saves that ended since the last call; never waits.
  std::vector<SaveReport> Poll();
  // Waits for the save in flight, then as Poll.
  std::vector<SaveReport> Drain();
  // Waits for the save in flight, at most this long; whether none is left.
  bool WaitIdle(std::chrono::milliseconds patience) const;

 private:
  struct Impl;
  explicit BackgroundSaver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::record
