#include "foreign/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/config_json.h"
#include "base/files.h"
#include "base/text.h"
#include "foreign/deepspeed_derive.h"
#include "foreign/hjson.h"

namespace lockstep::foreign {

const KeyRow* DeepSpeedRow(const std::string& path) {
  static const std::map<std::string, const KeyRow*> rows = [] {
    std::map<std::string, const KeyRow*> all;
    for (const KeyRow& key : DeepSpeedKeys()) all[key.path] = &key;
    return all;
  }();
  if (const auto it = rows.find(path); it != rows.end()) return it->second;
  // JSON has no comments, so people write keys such as "_comment"; DeepSpeed reads past them at the top of a file.
  static const KeyRow kComment{.path = "_*", .why = "a name that begins with _ is a comment"};
  if (path.starts_with('_') && path.find('.') == std::string::npos) return &kComment;
  const std::vector<std::string> parts = Split(path, '.');
  for (const auto& [pattern, row] : rows) {
    if (pattern.find('*') == std::string::npos) continue;
    const auto same = [](const std::string& known, const std::string& given) { return known == "*" || known == given; };
    if (std::ranges::equal(Split(pattern, '.'), parts, same)) return row;
  }
  return nullptr;
}

namespace {

// Keys of stage 3 have its name or, as DeepSpeed also reads them, the name without it.
bool IsOfStage3(const std::string& path) {
  constexpr std::string_view kSection = "zero_optimization.";
  if (!path.starts_with(kSection)) return false;
  const std::string name = path.substr(kSection.size());
  return name.starts_with("stage3_") || DeepSpeedRow(fmt::format("{}stage3_{}", kSection, name)) != nullptr;
}

}  // namespace

Result<DeepSpeedReport> TranslateDeepSpeedTree(const ConfigNode& given, const std::string& file,
                                               const DeepSpeedContext& context) {
  DeepSpeedReport made;
  made.file = file;
  made.kind = "DeepSpeed configuration";
  made.command = "lockstep config --deepspeed FILE";
  made.settings.kind = ConfigNode::Kind::kMap;
  const ConfigNode root = WithoutOldNames(given);
  const int stage = StageOf(root);
  KeyWalk walk(
      DeepSpeedKeys(), DeepSpeedRow, [&](const std::string& path, const ConfigEntry& entry, const KeyRow& row) {
        Note note{path, ValueText(entry.value), row.to, row.why, entry.where.line};
        if (IsOfStage3(path) && stage < 3) {
          note.to.clear();
          note.reason = fmt::format("a key of stage 3, and the stage is {}: remove it, or set stage: 3", stage);
          made.refused.push_back(std::move(note));
          return;
        }
        if (const std::string now = NewNameOf(path); !now.empty() && FindKey(given, now) != nullptr) {
          note.reason = fmt::format("an older form of {}, which is given as well: remove one of them", now);
          made.refused.push_back(std::move(note));
          return;
        }
        if (IsAuto(entry.value)) {
          const bool resolved = IsResolved(path);
          if (!resolved) {
            note.to.clear();
            note.reason = row.initial.empty() ? "auto: as if it were not given"
                                              : fmt::format("auto: DeepSpeed's default, {}{}{}", row.initial,
                                                            row.why.empty() ? "" : "; ", row.why);
          }
          (resolved ? made.mapped : made.ignored).push_back(std::move(note));
          return;
        }
        const std::string to = note.to;
        if (made.Take(std::move(note), row, entry.value)) made.Set(to, entry.value, entry.value.where);
      });
  walk.AlsoFits(IsAuto);
  walk.Run(given);
  if (!walk.errors().empty()) {
    return Status(Code::kUsage, Join(walk.errors(), "\n"), "docs/deepspeed.md lists the keys");
  }
  DeriveDeepSpeed(root, context, &made);
  return made;
}

Result<DeepSpeedReport> TranslateDeepSpeed(std::string_view text, const std::string& file,
                                           const DeepSpeedContext& context) {
  Result<ConfigNode> root = ReadHjson(text, file);
  if (!root.ok()) return root.status();
  return TranslateDeepSpeedTree(*root, file, context);
}

Result<DeepSpeedReport> ReadDeepSpeed(const std::string& path, const DeepSpeedContext& context) {
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status().Context("--deepspeed");
  return TranslateDeepSpeed(*text, path, context);
}

void DeepSpeedReport::AddTo(nlohmann::ordered_json* document) const {
  nlohmann::ordered_json& d = *document;
  d["stage"] = stage;
  d["precision"] = precision;
  d["micro_batch"] = micro_batch;
  d["accumulation"] = accumulation;
  d["global_batch"] = global_batch;
  d["ranks"] = ranks;
  d["offload_optimizer"] = offload_optimizer;
  d["offload_param"] = offload_param;
  d["buckets"] = nlohmann::ordered_json::array();
  for (const DeepSpeedBucket& bucket : buckets) {
    d["buckets"].push_back({{"name", bucket.name},
                            {"elements", bucket.elements},
                            {"bytes", bucket.bytes},
                            {"to", bucket.to},
                            {"value", bucket.value}});
  }
  AddLists(document);
  if (kind.starts_with("accelerate")) d["ignored_by_accelerate"] = ignored_by_accelerate;
}

std::string DeepSpeedReport::Json() const {
  nlohmann::ordered_json document = {{"file", file}};
  AddTo(&document);
  document["config"] = ToJson(settings);
  return document.dump(2) + "\n";
}

}  // namespace lockstep::foreign
