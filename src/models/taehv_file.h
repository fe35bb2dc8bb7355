// TAEHV's weights between files and models: which variant a file is, starting a variant from another one's weights, and
// files that upstream's Python loads. What a model is (variant, trimming, CogVideoX' rule, chunks) travels with it as
// JSON; a file's name is asked only about files that upstream wrote. One thread; no collectives.
//
//   std::string note;
//   auto config = RecognizeTaehv(weights, "taew2_1.pth", metadata, &note);
//   if (!config.ok()) return config.status();
//   Taehv model(*config, 0);
//   LOCKSTEP_RETURN_IF_ERROR(model.Load(weights));
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_info.h"
#include "models/taehv.h"

namespace lockstep::models {

// Every field, so that a model is built again from this alone. Fields that are absent keep their default (an older
// writer); one that is unknown is an error, for it may change what the model does.
nlohmann::json ToJson(const TaehvConfig& config);
Result<TaehvConfig> TaehvFromJson(const nlohmann::json& json);

// The variant of a weight file. Its shapes decide; where several variants share them (taehv, taew2_1, taeos1_3, taecvx)
// our own export's metadata does, then the file's name (a variant's name anywhere in its last part), else the first of
// them. `note` says what was assumed, if anything. Shapes that no variant has give a configuration all the same.
Result<TaehvConfig> RecognizeTaehv(const NamedTensors& weights, const std::string& file_name,
                                   const std::map<std::string, std::string>& metadata, std::string* note = nullptr);

// The names of what happened to the model's tensors, and of the file's that were not used.
struct ConversionReport {
  std::vector<std::string> taken;
  std::vector<std::string> cut;    // the last rows of a TGrow that makes more frames
  std::vector<std::string> drawn;  // "name (file [..], model [..])": kept as the model had them
  std::vector<std::string> unused;
  std::string Summary() const;  // one line, with the first names
};

// Takes every tensor that fits a tensor of that name, keeps the model's own elsewhere. A plain and a wide decoder have
// nothing in common but some names: between those only the encoder is taken. An error, and nothing changed, when less
// than half of the model's tensors fit.
Status StartFrom(Taehv& model, const NamedTensors& weights, ConversionReport* report = nullptr);

// Safetensors with upstream's names and ToJson as metadata; dtype F32, F16 or BF16. The file appears when it is
// complete. Weights that are not finite, or not any more in F16, are an error that names them.
Status ExportTaehv(const Taehv& model, const std::string& path, Dtype dtype = Dtype::kF32);

}  // namespace lockstep::models
