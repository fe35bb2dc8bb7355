// DeepSpeed's and accelerate's files over a recipe's configuration: what `auto` stands for there, where both say
// different things, and what is in force in the end. Plain values.
#pragma once

#include "base/config_tree.h"
#include "base/status.h"
#include "cli/train/settings.h"
#include "foreign/deepspeed.h"

namespace lockstep::cli {

// One of --deepspeed and --accelerate is given.
bool HasForeign(const ConfigFiles& files);
// The values of the recipe's own configuration, which `auto` takes.
foreign::DeepSpeedContext ContextOf(const Settings& own, int ranks);
// The file, translated. Errors: it cannot be read; what it refuses is DeepSpeedReport::Check.
Result<foreign::DeepSpeedReport> ReadForeign(const ConfigFiles& files, const foreign::DeepSpeedContext& context);
// Errors: a key of the configuration file says something else, as it is one for Hugging Face's Trainer.
Status CheckAgreement(const ConfigTree& config, const foreign::DeepSpeedReport& report);
// The numbers of the report as they are in force after --set.
void TakeEffective(const engine::TrainConfig& train, foreign::DeepSpeedReport* report);

}  // namespace lockstep::cli
