// VRT's weights between files and models: upstream's .pth files ({"params": ...}, {"params_ema": ...} or a bare state
// dict, read without executing anything) and safetensors. Written files hold everything that upstream's
// load_state_dict(strict=True) wants, LoRA merged. One thread; no collectives.
//
//   LOCKSTEP_RETURN_IF_ERROR(LoadVrtFile(model, "006_VRT_videodeblurring_GoPro.pth", &note));
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "models/vrt.h"
#include "models/weights.h"

namespace lockstep::models {

// Key of the configuration (JSON) in the metadata of a safetensors file.
constexpr const char* kVrtKey = "lockstep.vrt";

// The tensors of one model in a file that may wrap them: of "params_ema", "params" or "state_dict", in this order, or
// of `key` where that is given; names of DataParallel ("module.") and of S-VRT ("spynet.model.", "fusion_operator.",
// "base", "lora_A.weight") as a Vrt has them. `note` (may be null) says which, where there were several.
Result<NamedTensors> UnwrapVrt(const NamedTensors& tensors, const std::string& key = "", std::string* note = nullptr);

struct VrtLoad {
  // A file for fewer input channels than the model has is taken, and conv_first reads the new channels with weight 0:
  // the model begins as the file's.
  bool widen_first = false;
};
// Strict, but for upstream's buffers (position indices and codes, SpyNet's mean and std), which follow from the
// configuration and may be there or not.
Status LoadVrt(Vrt& model, const NamedTensors& weights, const VrtLoad& options = {});
Status LoadVrtFile(Vrt& model, const std::string& path, std::string* note = nullptr, const VrtLoad& options = {});

// Parameters in `type`, LoRA merged, and upstream's buffers, on the CPU.
NamedTensors VrtStateDict(const Vrt& model, at::ScalarType type = at::kFloat);
// ".pth" and ".pt": torch.save of {key: state dict}, or of the bare one for key ""; else safetensors with the
// configuration, and `more`, as metadata. The file appears when it is complete.
Status WriteVrtFile(const Vrt& model, const std::string& path, const std::string& key = "params",
                    at::ScalarType type = at::kFloat, const std::map<std::string, std::string>& more = {});

// The tensors of a file in either format.
Result<NamedTensors> ReadTensorFile(const std::string& path);

}  // namespace lockstep::models
