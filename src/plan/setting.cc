#include "plan/setting.h"

#include <nlohmann/json.hpp>

namespace lockstep::plan {
namespace {

// f(key, field) for every value: one list for writing and reading.
template <typename S, typename F>
void Each(S& s, F f) {
  f("stage", s.stage), f("offload_share", s.offload_share), f("recompute", s.recompute), f("ranks", s.ranks);
  f("batch", s.batch), f("micro_batch", s.micro_batch), f("parameter_bytes", s.parameter_bytes);
  f("compute_bytes", s.compute_bytes), f("travel_bytes", s.travel_bytes), f("optimizer_slots", s.optimizer_slots);
  f("ema", s.ema), f("exchange_once", s.exchange_once), f("reproducible", s.reproducible), f("shards", s.shards);
  f("bucket", s.bucket), f("first_bucket", s.first_bucket), f("prefetch", s.prefetch), f("live", s.live);
  f("reuse_distance", s.reuse_distance), f("persistent", s.persistent), f("gpu", s.gpu);
  f("compute_capability", s.compute_capability);
}

}  // namespace

nlohmann::json ToJson(const Setting& setting) {
  nlohmann::json out;
  Each(setting, [&](const char* key, const auto& value) { out[key] = value; });
  out["offload"] = static_cast<int>(setting.offload);
  return out;
}

Result<Setting> SettingFromJson(const nlohmann::json& from) {
  Setting setting;
  try {
    Each(setting, [&](const char* key, auto& value) { from.at(key).get_to(value); });
    setting.offload = static_cast<Offload>(from.at("offload").get<int>());
  } catch (const nlohmann::json::exception& error) {
    return Status(Code::kInternal, std::string("the description of the training: ") + error.what(),
                  "use programs of one version");
  }
  return setting;
}

}  // namespace lockstep::plan
