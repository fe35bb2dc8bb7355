// The scalars of a metric line that are shown or that rules look at; of each the value of this rank alone ("rank/loss")
// and the one reduced over ranks ("loss"). Found in one pass: a thousand ranks write a line each at every step.
#pragma once

#include <optional>
#include <string_view>

#include "record/metric_scan.h"
#include "record/samples.h"

namespace lockstep::watch {

struct LineValues {
  enum Name {
    kData,  // the stages, as record::kStageNames has them
    kForward,
    kBackward,
    kCollective,
    kOptimizer,
    kCheckpoint,
    kLoss,
    kStep,
    kExposed,
    kHost,
    kDevice,
    kSamples,
    kTokens,
    kRate,
    kNorm,
    kWaitPeer,
    kWaitSeconds,
    kNames
  };
  std::optional<double> own[kNames], reduced[kNames];

  explicit LineValues(const record::ScannedLine& line);

  std::optional<double> Of(Name name) const { return own[name] ? own[name] : reduced[name]; }
  // Overwrites what is known already.
  void Put(Name name, std::optional<double>* value) const {
    if (const std::optional<double> found = Of(name)) *value = found;
  }
};

}  // namespace lockstep::watch
