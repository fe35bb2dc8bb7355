// Keys of the section `data` of recipes that restore video: where pairs of clips lie, which part of them a sample is,
// and the spikes; and, in `data.test`, clips that validate and are read whole. data/paired_set.h says what they mean.
//
//   PairedData data;
//   void DeclareData(ConfigReader& r, engine::DataConfig* d) override { DeclarePairedData(r, &data_, d); }
//   Open: OpenPaired(data_.train); clips that validate: PairedSet::Open(*data_.Test()), or a part of the training clips
#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/config.h"
#include "data/paired_set.h"
#include "engine/config.h"

namespace lockstep::recipes {

struct PairedData {
  data::PairedConfig train;
  // What of a test set differs from the training set; without a target there is none.
  std::string test_kind = "folders", test_target, test_input, test_meta_info, test_spikes, test_precomputed;
  std::array<int, 2> test_center{0, 0};
  bool test_repeat_ends = false;

  // Whole frames of the test set, not augmented; nothing where the configuration names none.
  std::optional<data::PairedConfig> Test() const;
};

void DeclarePairedData(ConfigReader& reader, PairedData* data, engine::DataConfig* engine);

}  // namespace lockstep::recipes
