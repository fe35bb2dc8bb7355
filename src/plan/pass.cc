#include "plan/pass.h"

namespace lockstep::plan {

std::vector<Moment> MomentsOf(const Workload& workload, const Setting& setting, int64_t samples) {
  if (const auto* lm = std::get_if<LmSample>(&workload.sample)) return LmMoments(*lm, setting, samples);
  if (const auto* taehv = std::get_if<TaehvSample>(&workload.sample)) return TaehvMoments(*taehv, setting, samples);
  return {};
}

// Without a description: 6 flops for a parameter and sample, 8 with recomputing.
Work WorkOf(const Workload& workload, const Setting& setting, int64_t samples) {
  if (const auto* lm = std::get_if<LmSample>(&workload.sample)) return LmWork(*lm, setting, samples);
  if (const auto* taehv = std::get_if<TaehvSample>(&workload.sample)) return TaehvWork(*taehv, setting, samples);
  const double once = 2.0 * static_cast<double>(workload.trained() + workload.frozen()) * static_cast<double>(samples);
  return {.forward_flops = once, .backward_flops = (setting.recompute ? 3 : 2) * once};
}

}  // namespace lockstep::plan
