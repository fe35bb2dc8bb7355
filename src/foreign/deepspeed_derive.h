// The part of translating a DeepSpeed configuration that needs more than one key: batch sizes, precision, offload,
// buckets, optimizer and schedule, and what `auto` stands for. Any thread.
#pragma once

#include <string>

#include "base/config_tree.h"
#include "foreign/deepspeed.h"

namespace lockstep::foreign {

bool IsAuto(const ConfigNode& value);
// Whether Hugging Face's Trainer has a value for `auto` of this key.
bool IsResolved(const std::string& path);
// The tree with today's names where older ones stand.
ConfigNode WithoutOldNames(ConfigNode root);
// Today's form of an older key that says the same; empty for others.
std::string NewNameOf(std::string_view path);
int StageOf(const ConfigNode& root);

// The row of a key; null where the table has none.
const KeyRow* DeepSpeedRow(const std::string& path);
// A configuration that was read: from HJSON, or made of accelerate's.
Result<DeepSpeedReport> TranslateDeepSpeedTree(const ConfigNode& given, const std::string& file,
                                               const DeepSpeedContext& context);

// Adds settings, the numbers of the report, derived values and, where keys contradict each other, refusals.
void DeriveDeepSpeed(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made);
// Its parts.
void DeriveBatch(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made);
void DeriveOptimizer(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made);
void DeriveSchedule(const ConfigNode& root, const DeepSpeedContext& context, DeepSpeedReport* made);

// What is given and not `auto`; unset otherwise.
std::optional<double> NumberAt(const ConfigNode& root, std::string_view path);
std::optional<std::string> TextAt(const ConfigNode& root, std::string_view path);  // in lower case
bool IsAutoAt(const ConfigNode& root, std::string_view path);
// Where a value stands; the file where it is not given.
ConfigLocation PlaceOf(const ConfigNode& root, std::string_view path);
// Says in the note of `path` what `auto` is.
void Resolve(const std::string& path, const std::string& value, const std::string& why, DeepSpeedReport* made);

}  // namespace lockstep::foreign
