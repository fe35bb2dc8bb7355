// The tensors of a training state by their names in a checkpoint, with what each rank has of them: all of it, a part,
// or nothing. Every rank computes the parts of all ranks without communication. They become a checkpoint's content
// (rank-local), and are filled from a checkpoint (collective): each stored part is read and verified by one of the
// ranks that see the files, and sent to the others in pieces; each rank takes what it has.
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/flat.h"
#include "engine/ranks.h"
#include "record/checkpoint.h"

namespace lockstep::engine {

struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;  // of the whole
  at::Tensor data;             // what this rank has: the whole, or its ranges one after the other
  // By rank; empty: every rank has all of it.
  std::vector<std::vector<record::ElementRange>> ranges;
  bool of_main = false;  // every rank has all of it, and rank 0's is what is saved
  bool moving = false;   // changes before the next update: a forward pass writes it
};

// LibTorch's type of a stored one, where it has it.
std::optional<at::ScalarType> TorchType(Dtype type);

// One tensor per parameter, "<prefix><parameter>", from a buffer that is laid out as the own part of `flat` is. The
// rank r has the share r modulo the number of shares.
void AddFlat(const std::string& prefix, const FlatParameters& flat, const at::Tensor& own, int world,
             std::vector<StateTensor>* tensors);

// One tensor per frozen parameter that is kept in shards; the same of the rank r.
void AddFrozen(const std::string& prefix, const FlatParameters& flat, int world, std::vector<StateTensor>* tensors);

// As a checkpoint takes them, on rank `rank` of `world`; `hold` keeps the memory.
std::vector<record::CheckpointTensor> ForCheckpoint(const std::vector<StateTensor>& tensors, int rank, int world,
                                                    std::vector<at::Tensor>* hold);

class SharedCheckpoint {
 public:
  // Collective. Rank 0 must see `path`, the others need not.
  static Result<SharedCheckpoint> Open(const std::string& path, Ranks* ranks);

  const std::string& path() const { return path_; }
  const record::CheckpointManifest& manifest() const { return manifest_; }
  const std::vector<int>& readers() const { return readers_; }
  // Collective; all ranks get the same outcome. At most `piece_bytes` are read and sent at once.
  Status Read(const std::vector<StateTensor>& tensors, Ranks* ranks, size_t piece_bytes = size_t{32} << 20) const;
  // Collective: every byte is verified, by one rank each; all ranks get the same outcome.
  Status Verify(Ranks* ranks) const;

 private:
  std::string path_;
  record::CheckpointManifest manifest_;
  std::optional<record::CheckpointReader> reader_;  // where this rank sees the files
  std::vector<int> readers_;                        // the ranks that do
};

// Collective: rank 0 does `work`, in which it may have checkpoints verified by all ranks; the others take part until it
// is done. In a world of one the function is empty.
using VerifyCheckpoint = std::function<Status(const std::string& path)>;
Status WithVerification(Ranks* ranks, const std::function<void(const VerifyCheckpoint& verify)>& work);

}  // namespace lockstep::engine
