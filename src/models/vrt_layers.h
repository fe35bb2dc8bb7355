// The modules inside a VRT, nested and named as upstream's. Features of clips lie [b, d, h, w, c] everywhere (upstream:
// [b, c, d, h, w], transposed for every layer). Owned by Vrt; one thread at a time; no collectives.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/decoder_layers.h"
#include "models/vrt_attention.h"
#include "models/vrt_config.h"

namespace lockstep::models::vrt {

using decoder::Linear;

// A unit of the model: recomputed or gathered as a whole (engine/units.h).
struct Unit {
  std::string name;
  std::vector<std::string> parameters;
  bool recompute = false;  // as the option file has it
};
using UnitForward = std::function<at::Tensor(const at::Tensor&)>;
using Runner = std::function<at::Tensor(size_t unit, const UnitForward& forward, const at::Tensor& input)>;

class Copies;
struct AttentionCopy;
struct KeptAttention;
struct MlpCopy;

// What the blocks of one forward pass share.
struct Pass {
  Runner runner;                         // empty: units are just called
  at::Tensor factors;                    // [draws of all blocks, b]: DropPath's, float32; undefined: nothing is dropped
  std::shared_ptr<const Copies> copies;  // null: blocks make their own
  at::Tensor Run(size_t unit, const UnitForward& forward, const at::Tensor& input) const {
    return runner ? runner(unit, forward, input) : forward(input);
  }
};

struct Tmsa;

// Where a model's blocks, units and draws are counted while it is built.
struct Builder {
  const VrtConfig& config;
  std::shared_ptr<WindowTables> tables;
  std::vector<Unit> units;
  std::vector<double> rates;  // of DropPath, for every draw
  std::vector<std::shared_ptr<Tmsa>> blocks;
};

struct Norm : torch::nn::Module {
  explicit Norm(int64_t width);
  at::Tensor Forward(const at::Tensor& x) const;
  at::Tensor weight, bias;
};

// 3x3 (or `kernel`) over frames, channels last: [..., h, w, in] -> [..., h, w, out]. The parameter is [out, in, 1, k,
// k] where upstream has a Conv3d. On a GPU in half precision the input may have zeros up to the next multiple of eight
// channels; others are padded so.
struct Conv : torch::nn::Module {
  Conv(int64_t in, int64_t out, int64_t kernel = 3, bool conv3d = false, bool padded = true);
  at::Tensor Forward(const at::Tensor& x) const;
  at::Tensor weight, bias;
  int64_t padding;
};

// fc2(gelu(fc11 x) * fc12 x).
struct Geglu : torch::nn::Module {
  Geglu(int64_t in, int64_t hidden, int64_t out);
  at::Tensor Forward(const at::Tensor& x) const;
  std::shared_ptr<Linear> fc11, fc12, fc2;
};

struct WindowAttention : torch::nn::Module {
  WindowAttention(Builder& builder, int64_t width, const Size3& size, int64_t head_count, bool has_mutual);
  // Windows [W, n, c]; every layer of the plan's windows.
  at::Tensor Forward(const at::Tensor& x, const WindowPlan& plan, bool shifted) const;
  Size3 window;
  int64_t heads;
  bool mutual;
  double scale;
  std::shared_ptr<WindowTables> tables;
  at::Tensor relative_position_bias_table;
  std::shared_ptr<Linear> qkv_self, qkv_mut, proj;
};

// Temporal mutual self attention: x + attention(norm1 x), then x + mlp(norm2 x). Two units.
struct Tmsa : torch::nn::Module {
  struct Options {
    int64_t width, heads;
    Size3 window, shift;
    bool mutual;
    double drop;  // rate of DropPath
    bool recompute_attention, recompute_mlp;
    std::string name;  // "stage1.residual_group1.blocks.0"
  };
  Tmsa(Builder& builder, const Options& options);
  at::Tensor Forward(const at::Tensor& x, const Pass& pass) const;

  std::shared_ptr<Norm> norm1, norm2;
  std::shared_ptr<WindowAttention> attn;
  std::shared_ptr<Geglu> mlp;

 private:
  // `factor`: DropPath's of each sample, or undefined.
  at::Tensor AddAttention(const at::Tensor& x, const at::Tensor& factor,
                          const std::shared_ptr<const AttentionCopy>& copy, KeptAttention* kept) const;
  at::Tensor AddMlp(const at::Tensor& x, const at::Tensor& factor, const std::shared_ptr<const MlpCopy>& copy) const;
  at::Tensor Attention(const at::Tensor& x) const;
  Size3 shift_;
  bool keeps_attention_;
  size_t first_unit_;
  int64_t first_draw_ = -1;  // none without DropPath
};

// A group of blocks; every other one has shifted windows.
struct Tmsag : torch::nn::Module {
  struct Options {
    int64_t width, depth, heads;
    Size3 window;
    bool mutual;
    std::vector<double> drop;  // of each block, or more
    bool recompute_attention, recompute_mlp;
    std::string name;
  };
  Tmsag(Builder& builder, const Options& options);
  at::Tensor Forward(at::Tensor x, const Pass& pass) const;
  std::vector<std::shared_ptr<Tmsa>> blocks;
};

// x + linear(group(x)): the groups of stage 8.
struct Rtmsa : torch::nn::Module {
  Rtmsa(Builder& builder, const Tmsag::Options& options);
  at::Tensor Forward(const at::Tensor& x, const Pass& pass) const;
  std::shared_ptr<Tmsag> residual_group;
  std::shared_ptr<Linear> linear;
};

// A module that only numbers others: upstream's Sequential and ModuleList. `layers` in any order of numbers.
struct Numbered : torch::nn::Module {
  template <typename T>
  std::shared_ptr<T> Add(int64_t number, std::shared_ptr<T> layer) {
    return register_module(std::to_string(number), std::move(layer));
  }
};

std::shared_ptr<Linear> MakeLinear(int64_t in, int64_t out, bool bias = true);

}  // namespace lockstep::models::vrt
