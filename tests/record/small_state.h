// A small training state whose every byte follows from its step, for the tests of checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "record/checkpoint.h"

namespace lockstep::record {

class SmallState {
 public:
  explicit SmallState(uint64_t step, size_t scale = 1) {
    content.step = step;
    content.recipe = "taehv";
    content.state = {
        {"samples", step * 64}, {"lr", 0.1 / static_cast<double>(step + 1)}, {"seed", 18446744073709551615u}};
    Add("model/encoder.0.weight", Dtype::kF32, {static_cast<int64_t>(16 * scale), 3, 9});
    Add("model/encoder.0.bias", Dtype::kBF16, {17});
    Add("model/steps", Dtype::kI64, {});
    Add("model/empty", Dtype::kF32, {0, 4});
    Add("optimizer/encoder.0.weight.exp_avg", Dtype::kF32, {static_cast<int64_t>(1000 * scale), 3});
    Add("optimizer/encoder.0.weight.exp_avg_sq", Dtype::kF32, {static_cast<int64_t>(1000 * scale), 3});
    Add("ema/encoder.0.weight", Dtype::kF64, {5});
    Add("recipe/replay", Dtype::kU8, {4099});
    for (size_t i = 0; i < content.tensors.size(); ++i) content.tensors[i].data = data_[i].data();
  }
  SmallState(const SmallState&) = delete;

  CheckpointContent content;

  std::string& data(size_t i) { return data_[i]; }

  // Whether the checkpoint at `path` gives exactly this state.
  testing::AssertionResult IsIn(const std::string& path) const {
    Result<CheckpointReader> reader = CheckpointReader::Open(path);
    if (!reader.ok()) return testing::AssertionFailure() << reader.status().message();
    if (reader->step() != content.step || reader->recipe() != content.recipe || reader->state() != content.state) {
      return testing::AssertionFailure() << "another step, recipe or state";
    }
    if (reader->tensors().size() != content.tensors.size()) return testing::AssertionFailure() << "other tensors";
    for (size_t i = 0; i < content.tensors.size(); ++i) {
      const CheckpointTensor& tensor = content.tensors[i];
      const TensorInfo* info = reader->Find(tensor.name);
      if (info == nullptr || info->dtype != tensor.dtype || info->shape != tensor.shape) {
        return testing::AssertionFailure() << tensor.name << " is another tensor";
      }
      std::string got(tensor.bytes, '\x5a');
      const Status status = reader->Read(tensor.name, got.data(), got.size());
      if (!status.ok()) return testing::AssertionFailure() << status.message();
      if (got != data_[i]) return testing::AssertionFailure() << tensor.name << " has other bytes";
    }
    return testing::AssertionSuccess();
  }

 private:
  void Add(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
    const size_t bytes = *TensorBytes(dtype, shape);
    std::string data(bytes, '\0');
    uint64_t x = content.step * 1000003 + data_.size() + 1;
    for (char& c : data) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      c = static_cast<char>(x >> 56);
    }
    data_.push_back(std::move(data));
    content.tensors.push_back({name, dtype, std::move(shape), nullptr, bytes});
  }
  std::vector<std::string> data_;
};

}  // namespace lockstep::record
