#include "plan/step_time.h"

#include <algorithm>
#include <cmath>

#include "plan/collective.h"
#include "plan/pass.h"

namespace lockstep::plan {
namespace {

// Between and beyond the two sizes of heads that were measured: a power of the size.
double AttentionRate(const Gpu& gpu, int64_t head_size) {
  if (head_size <= 0) return gpu.matmul;
  const double power = std::log2(gpu.attention128 / gpu.attention64);
  return gpu.attention64 * std::pow(static_cast<double>(head_size) / 64, power);
}

}  // namespace

StepTime StepTimeOf(const Workload& workload, const Setting& s, const Machine& machine) {
  const Gpu& gpu = machine.gpu;
  const Work work = WorkOf(workload, s, s.pass_samples());
  const auto passes = static_cast<double>(s.passes());
  const auto trained = static_cast<double>(workload.trained());
  const int stage = s.effective_stage();
  const double own = stage == 0 ? trained : trained / s.ranks;
  // float32 matrix products run as TF32 at half the rate, or without tensor cores at a tenth of it.
  const double rate = (work.convolutions ? gpu.convolution : gpu.matmul) * (s.compute_bytes == 4 ? 0.25 : 1);
  const double attention = AttentionRate(gpu, work.head_size) * (s.compute_bytes == 4 ? 0.25 : 1);
  const double gaps = work.kernels * gpu.launch;
  StepTime out;
  out.forward = passes * (work.forward_flops / rate + work.forward_attention / attention +
                          work.forward_bytes / gpu.bandwidth + gaps / 3);
  out.backward = passes * (work.backward_flops / rate + work.backward_attention / attention +
                           work.backward_bytes / gpu.bandwidth + gaps * 2 / 3);
  // Steps that are not captured as CUDA graphs (stage 3; an offloaded update that goes on during forward) are as slow
  // as the host starts kernels.
  const bool captured = s.gpu && stage < 3 && !(s.offloads() && stage == 0 && !workload.units.empty());
  const double host = captured || !s.gpu ? 0 : passes * work.kernels * gpu.host_launch;
  if (const double device = out.forward + out.backward; device > 0 && host > device) {
    out.forward *= host / device;
    out.backward *= host / device;
  }
  // AdamW reads and writes values and both moments and reads the gradient; the norm reads it, resetting writes it.
  const double slots = s.optimizer_slots;
  const double update_bytes =
      own * (4 + 8 + 8 * slots + 4 + (s.ema ? 12 : 0)) + trained * 4 + (s.parameter_bytes == 2 ? own * 6 : 0);
  if (s.offloads()) {
    const double down = s.gradient_bytes() == 2 ? 2 : s.travel_bytes;
    const double moved = own * std::max<double>(down, s.parameter_bytes);  // both directions at once
    // Moments and master are read and written, the gradient read and the parameters written; ranks share the host.
    const int on_node = std::min(s.ranks, machine.links.gpus_per_node);
    const double bytes = own * (8 + 8 * slots + down + s.parameter_bytes) * s.offload_share * on_node;
    out.host_update = std::max(bytes / machine.host_bandwidth, moved * s.offload_share / gpu.host_link);
    out.update = own * 8 / gpu.bandwidth + (1 - s.offload_share) * update_bytes / gpu.bandwidth;
    // With one rank the next forward begins with the units that are back already.
    const bool overlaps = s.effective_stage() == 0 && !workload.units.empty();
    out.host_exposed = overlaps ? std::max(0.0, out.host_update - out.forward) : out.host_update;
  } else {
    out.update = update_bytes / gpu.bandwidth;
  }
  if (s.ranks <= 1) return out;

  // Gradients go during the last backward (stages 2 and 3: every one), all but the last bucket hidden by it; stages 1
  // and 2 gather the updated parameters afterwards, stage 3 before each unit's forward and backward.
  Algorithm algorithm = Algorithm::kRing;
  const double gradient_bytes = 4 * trained, exchanges = s.whole_gradients() ? 1 : passes;
  const Collective reduce = stage == 0 ? Collective::kAllReduce : Collective::kReduceScatter;
  const double once = BestSecondsOf(reduce, gradient_bytes, s.ranks, machine, &algorithm);
  const double last_bucket =
      BestSecondsOf(reduce, std::min(gradient_bytes, static_cast<double>(s.bucket)), s.ranks, machine);
  out.tree = algorithm == Algorithm::kTree;
  out.communication = exchanges * once;
  out.exposed = exchanges * (last_bucket + std::max(0.0, once - last_bucket - out.backward / passes));
  const double gather = BestSecondsOf(Collective::kAllGather, trained * s.parameter_bytes, s.ranks, machine);
  if (stage == 1 || stage == 2) {
    out.communication += gather;
    out.exposed += gather;
  } else if (stage == 3) {
    out.communication += 2 * passes * gather;
    const double units = std::max<double>(1, static_cast<double>(workload.units.size()));
    // The first unit is waited for; the rest only where gathering takes longer than computing. Backward shares the
    // links with the gradients.
    out.exposed += passes * (gather / units + std::max(0.0, gather - out.forward / passes));
    out.exposed += passes * std::max(0.0, gather - std::max(0.0, out.backward / passes - once));
  }
  return out;
}

}  // namespace lockstep::plan
