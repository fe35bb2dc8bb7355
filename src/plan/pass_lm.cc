// A pass of the decoder-only language model: models/decoder_fused.cc (layers), models/linear_cross_entropy.cc (head and
// loss), engine/recompute.cc. Where layers are composed of operators (CPU, float32, LoRA) what they keep is counted
// from models/decoder_layers.cc, and is an estimate: ATen chooses its own temporaries.
#include <algorithm>
#include <cmath>

#include "plan/pass.h"

namespace lockstep::plan {
namespace {

struct Sizes {
  int64_t n, w, m, q, v, v_padded;  // tokens; width, mlp, queries with keys and values, vocabulary
  int64_t wide, narrow;             // bytes of the residual stream, of matrix products
  int64_t lse;                      // bytes
  bool fused = true;

  int64_t Residual() const { return n * w * wide; }
  int64_t Row() const { return n * w * narrow; }
  bool casts() const { return wide != narrow; }
};

Sizes SizesOf(const LmSample& s, const Setting& setting, int64_t samples) {
  Sizes z{};
  z.n = samples * s.length, z.w = s.width, z.m = s.mlp, z.q = s.Qkv(), z.v = s.vocabulary;
  z.wide = setting.parameter_bytes, z.narrow = setting.compute_bytes;
  z.fused = setting.gpu && z.narrow == 2 && !s.lora && s.HeadSize() % 16 == 0 && s.HeadSize() <= 256 && s.mlp % 8 == 0;
  z.v_padded = z.fused ? (z.v + 63) / 64 * 64 : z.v;
  z.lse = z.n * s.heads * 4;
  return z;
}

// The last quarter of the layers computes gate and up again in backward.
bool KeepsGateUp(const LmSample& s, int64_t layer) { return 4 * (layer + 1) <= 3 * s.layers; }

// Rows of logits that exist at once.
int64_t LogitRows(const Sizes& z, bool gpu) {
  const int64_t logits = gpu ? int64_t{1} << 28 : int64_t{1} << 24;
  const int64_t most = std::max<int64_t>(16, logits / z.v);
  const int64_t chunks = std::max<int64_t>(1, (z.n + most - 1) / most);
  const int64_t rows = (z.n + chunks - 1) / chunks;
  return rows > 128 ? (rows + 127) / 128 * 128 : rows;
}

// What a layer keeps beside its input.
int64_t LayerKeeps(const LmSample& s, const Sizes& z, int64_t layer) {
  if (z.fused) {
    const int64_t gate_up = KeepsGateUp(s, layer) ? z.n * 2 * z.m * z.narrow : 0;
    return 8 * z.n + z.n * z.q * z.narrow + z.Row() + z.lse +
           gate_up;  // inverses, queries to values, attention's output
  }
  const int64_t expanded = s.kv_heads == s.heads ? z.n * (z.q - z.w) * z.narrow : 2 * z.Row();
  return 8 * z.n + z.Residual() + 5 * z.Row() + expanded + z.lse + 3 * z.n * z.m * z.narrow;
}

struct LayerBackward {
  int64_t mlp, norm, end;  // temporaries at three moments; `end` may be less than what was freed by then
};

LayerBackward BackwardOf(const LmSample& s, const Sizes& z, int64_t layer, bool views) {
  const int64_t row = z.Row(), residual = z.Residual(), narrow = z.narrow;
  const int64_t gate_up = z.n * 2 * z.m * narrow;
  const bool kept = !z.fused || KeepsGateUp(s, layer);
  const int64_t incoming = residual + (z.casts() ? row : 0);  // the gradient of the output, in both types
  const int64_t gate_up_weight = 2 * z.m * z.w * narrow;      // concatenated
  const int64_t common = incoming + row + gate_up_weight + (kept ? 0 : gate_up);  // with attention's projection
  const int64_t cast = z.casts() ? z.m * z.w * narrow : 0;
  const int64_t down = views ? 0 : z.m * z.w * z.wide;
  LayerBackward out{};
  out.mlp = common + z.n * z.m * narrow + std::max(cast, down);
  out.norm = common + row + residual + 2 * row + (views ? 0 : 3 * z.m * z.w * z.wide);
  const int64_t own = 2 * z.w * z.w + (z.q - z.w) * z.w + 3 * z.m * z.w;  // elements of the layer's matrices
  const int64_t weights = (views ? z.q * z.w : own) * z.wide;
  out.end = incoming + 2 * row + residual + z.n * z.q * narrow + residual + 2 * row + weights - (kept ? gate_up : 0);
  return out;
}

}  // namespace

std::vector<Moment> LmMoments(const LmSample& s, const Setting& setting, int64_t samples) {
  const Sizes z = SizesOf(s, setting, samples);
  const bool views = setting.gradient_views(), again = setting.recompute;
  const int first = s.tied ? 0 : 1;
  const int64_t row = z.Row(), residual = z.Residual();
  const int64_t inputs = 4 * 8 * z.n;  // tokens and labels, twice
  const int64_t casts =
      !z.fused && z.casts() ? 2 * (s.layers * (2 * z.w * z.w + (z.q - z.w) * z.w + 3 * z.m * z.w)) : 0;
  std::vector<int64_t> upto = {inputs + casts};  // kept by the first i layers
  for (int64_t i = 0; i < s.layers; ++i) upto.push_back(upto.back() + residual + (again ? 0 : LayerKeeps(s, z, i)));
  // The last layer's output, which the final norm keeps.
  const int64_t all = upto.back() + (again ? 0 : residual);

  std::vector<Moment> moments;
  const int64_t rows = LogitRows(z, setting.gpu);
  const int64_t logits = rows * z.v_padded * (z.fused ? z.narrow : 4 + z.narrow);
  const int64_t head = (z.casts() || z.v_padded != z.v) && z.narrow < 4 ? z.v_padded * z.w * z.narrow : 0;
  const int64_t d_weight = z.v_padded * z.w * 4;
  const int head_unit = s.tied ? -1 : first + static_cast<int>(s.layers);
  // Hidden states, their gradient, the head's; with recomputing an own head runs with gradients in backward only.
  moments.push_back(
      {"loss", head_unit, again && !s.tied, all + row, head + row + d_weight + logits + rows * z.w * z.narrow});
  const int64_t narrowed = z.wide == 2 ? z.v * z.w * 2 : 0;
  moments.push_back({"backward of the loss", head_unit, true, all, row + 4 * z.n * z.w + d_weight + narrowed});
  // A tied weight's gradient waits for the embedding's.
  const int64_t pending = s.tied ? z.v * z.w * z.wide : 0;
  for (int64_t i = s.layers; i-- > 0;) {
    const LayerBackward t = BackwardOf(s, z, i, views);
    // Recomputed: the layer's own activations are there again, and its output.
    const int64_t kept = upto[static_cast<size_t>(i) + 1] + (again ? LayerKeeps(s, z, i) + residual : 0);
    const int unit = first + static_cast<int>(i);
    const int64_t most = std::max({t.mlp, t.norm, t.end});
    moments.push_back({"backward of layer " + std::to_string(i), unit, true, kept, pending + most});
  }
  moments.push_back(
      {"backward of the embedding", s.tied ? -1 : 0, true, inputs, pending + z.v * z.w * z.wide + residual});
  return moments;
}

Work LmWork(const LmSample& s, const Setting& setting, int64_t samples) {
  const Sizes z = SizesOf(s, setting, samples);
  const auto n = static_cast<double>(z.n), w = static_cast<double>(z.w), m = static_cast<double>(z.m);
  const auto q = static_cast<double>(z.q), v = static_cast<double>(z.v_padded), layers = static_cast<double>(s.layers);
  const bool again = setting.recompute, own_head = !s.tied;
  int64_t thrifty = 0;  // layers that compute gate and up again
  for (int64_t i = 0; z.fused && i < s.layers; ++i) thrifty += KeepsGateUp(s, i) ? 0 : 1;
  const double layer = 2 * n * w * (q + w + 3 * m);
  const double head = 2 * n * w * v;
  Work work;
  work.head_size = s.HeadSize();
  work.forward_flops = layers * layer + head;
  work.backward_flops = layers * 2 * layer + 2 * head;
  if (z.fused) work.backward_flops += layers * 2 * n * w * w + static_cast<double>(thrifty) * 4 * n * w * m;
  // The head's gradients are computed with its loss: three products in forward. With recomputing an own head runs
  // twice.
  if (!again || s.tied) {
    work.forward_flops += 2 * head;
    work.backward_flops -= 2 * head;
  }
  if (again) work.backward_flops += layers * layer + (own_head ? head : 0);
  // Causal: half of the scores.
  const double attention = 2 * n * static_cast<double>(s.length) * w * layers;
  work.forward_attention = attention;
  work.backward_attention = (again ? 3.5 : 2.5) * attention;
  // Norms, rotation, SwiGLU and their gradients, by bytes of a token and layer (docs/plan.md); composed layers make
  // four times as many passes over memory.
  const auto wide = static_cast<double>(z.wide), narrow = static_cast<double>(z.narrow);
  const double composed = z.fused ? 1 : 4;
  const double forward = (3 * wide + 3 * narrow) * w + 3 * narrow * m + 2 * narrow * q;
  const double backward = (7 * wide + 7 * narrow) * w + 6 * narrow * m + 3 * narrow * q;
  const double losses = 3 * n * v * narrow;
  const double casts =
      z.casts() ? (wide + narrow) * layers * w * (q + w + 3 * m) : 2 * narrow * layers * w * (q + 2 * m);
  work.forward_bytes = composed * (layers * n * forward + losses) + casts;
  work.backward_bytes =
      composed * layers * n * (backward + (again ? forward : 0)) + (again ? 2 : 1) * casts + 8 * v * w * 4;
  work.kernels = layers * (again ? 70 : 55) + 60;
  return work;
}

}  // namespace lockstep::plan
