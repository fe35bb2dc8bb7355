// A key of the configuration written as a flag: `--steps 3` for `--set train.steps=3`. Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::cli {

// What to write instead: for every key of `config` that ends in the flag's name, whole parts only, '-' and '_' equal;
// empty: no key does. `value` is empty where none was given.
//
//   KeyFlag(config, "--steps", "3")   "--set train.steps=3"
//   KeyFlag(config, "--every", "9")   "--set checkpoint.every=9 or --set data.validation.every=9"
std::string KeyFlag(const nlohmann::ordered_json& config, const std::string& flag, const std::string& value);

}  // namespace lockstep::cli
