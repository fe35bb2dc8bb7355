#include "recipes/kair_phases.h"

#include <algorithm>

#include "base/text.h"
#include "recipes/kair_options.h"

namespace lockstep::recipes {
namespace {

using Kind = ConfigNode::Kind;

const ConfigNode* Find(const ConfigNode& options, std::string_view path) {
  const ConfigNode* at = &options;
  for (const std::string& part : Split(path, '.')) {
    at = at->Find(part);
    if (at == nullptr || at->kind == Kind::kNull) return nullptr;
  }
  return at;
}

int64_t Whole(const ConfigNode& options, std::string_view path) {
  const ConfigNode* node = Find(options, path);
  return node == nullptr ? 0 : foreign::WholeOf(*node).value_or(0);
}

bool True(const ConfigNode& options, std::string_view path) {
  const ConfigNode* node = Find(options, path);
  return node != nullptr && node->text == "true";
}

ConfigNode* Child(ConfigNode* map, std::string_view key) {
  const auto it = std::ranges::find(map->entries, key, &ConfigEntry::key);
  return it == map->entries.end() ? nullptr : &it->value;
}

void Erase(ConfigNode* map, std::string_view key) {
  std::erase_if(map->entries, [&](const ConfigEntry& entry) { return entry.key == key; });
}

void Merge(const ConfigNode& over, ConfigNode* at) {
  for (const ConfigEntry& entry : over.entries) {
    ConfigNode* known = Child(at, entry.key);
    if (known == nullptr) {
      at->entries.push_back(entry);
    } else if (entry.value.kind == Kind::kMap && known->kind == Kind::kMap) {
      Merge(entry.value, known);
    } else {
      *known = entry.value;
    }
  }
}

// [first, second] -> the phase's.
void Choose(ConfigNode* options, std::string_view key, size_t index) {
  for (const std::string_view section : {"datasets", "train"}) {
    options = Child(options, section);
    if (options == nullptr) return;
  }
  ConfigNode* value = Child(options, key);
  if (value == nullptr || value->kind != Kind::kList || value->items.empty()) return;
  ConfigNode chosen = value->items[std::min(index, value->items.size() - 1)];
  *value = std::move(chosen);
}

bool Pair(const ConfigNode& options, std::string_view key) {
  const ConfigNode* node = Find(options, "datasets.train." + std::string(key));
  return node != nullptr && node->items.size() > 1;
}

// The part of `all` that `base` does not say in the same way.
ConfigNode Without(const ConfigNode& all, const ConfigNode& base) {
  ConfigNode rest{.kind = Kind::kMap};
  for (const ConfigEntry& entry : all.entries) {
    const ConfigNode* known = base.Find(entry.key);
    if (known != nullptr && foreign::ValueText(*known) == foreign::ValueText(entry.value)) continue;
    const bool maps = known != nullptr && known->kind == Kind::kMap && entry.value.kind == Kind::kMap;
    rest.entries.push_back({entry.key, {}, maps ? Without(entry.value, *known) : entry.value});
  }
  return rest;
}

// The keys of `first` that `second` has too, with the values of `first`.
ConfigNode Shared(const ConfigNode& first, const ConfigNode& second) {
  ConfigNode shared{.kind = Kind::kMap};
  for (const ConfigEntry& entry : first.entries) {
    const ConfigNode* other = second.Find(entry.key);
    if (other == nullptr) continue;
    const bool maps = other->kind == Kind::kMap && entry.value.kind == Kind::kMap;
    shared.entries.push_back({entry.key, {}, maps ? Shared(entry.value, *other) : entry.value});
  }
  return shared;
}

}  // namespace

bool FusesKair(const ConfigNode& options) {
  if (Find(options, "datasets.train.dataroot_spike") == nullptr) return false;
  const ConfigNode* strategy = Find(options, "netG.input.strategy");
  return strategy == nullptr ? True(options, "netG.fusion.enable") : foreign::LowerCase(strategy->text) == "fusion";
}

std::vector<KairPhase> SplitKair(const ConfigNode& options) {
  const bool two_run = True(options, "train.two_run.enable");
  const int64_t total = Whole(options, "train.total_iter"), fix = Whole(options, "train.fix_iter");
  const bool sizes = Pair(options, "gt_size") || Pair(options, "dataloader_batch_size");
  if (!two_run && !sizes && !(FusesKair(options) && fix > 0)) return {};
  // A training that ends before fix_iter has the first phase alone.
  const bool cut = !two_run && total > 0 && fix >= total;
  std::vector<KairPhase> phases;
  for (int number = 1; number <= (cut ? 1 : 2); ++number) {
    KairPhase phase{.number = number, .two_run = two_run, .steps = number > 1 ? total - fix : cut ? total : fix};
    phase.steps_key = "train.fix_iter";
    phase.options = options;
    if (ConfigNode* train = Child(&phase.options, "train")) {
      const std::string block = "two_run.phase" + std::to_string(number);
      if (const ConfigNode* own = Find(options, "train." + block); two_run && own != nullptr) {
        ConfigNode changes = *own;
        if (ConfigNode* path = Child(&changes, "path"); path != nullptr && number == 1) {
          ConfigNode paths{.kind = Kind::kMap};
          paths.entries.push_back({"path", {}, *path});
          Merge(paths, &phase.options);
          train = Child(&phase.options, "train");
        }
        Erase(&changes, "path");
        Merge(changes, train);
      }
      Erase(train, "two_run");
      if (two_run) {
        phase.steps_key = "train." + block + ".total_iter";
        phase.steps = Whole(options, phase.steps_key);
      }
    }
    for (const char* key : {"gt_size", "dataloader_batch_size"}) {
      Choose(&phase.options, key, static_cast<size_t>(number - 1));
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

ConfigNode JoinKair(const std::vector<KairPhase>& phases, const std::vector<ConfigNode>& settings) {
  std::vector<ConfigNode> own = settings;
  for (ConfigNode& one : own) {
    if (ConfigNode* train = Child(&one, "train")) Erase(train, "steps");
  }
  ConfigNode joined = Shared(own.front(), own.back());
  ConfigNode list{.kind = Kind::kList};
  for (size_t i = 0; i < own.size(); ++i) {
    ConfigNode phase{.kind = Kind::kMap};
    phase.entries.push_back({"steps", {}, ConfigNode{.kind = Kind::kScalar, .text = std::to_string(phases[i].steps)}});
    if (i > 0 && !phases[i].two_run) {
      phase.entries.push_back({"optimizer", {}, ConfigNode{.kind = Kind::kScalar, .text = "keep"}});
    }
    for (ConfigEntry& entry : Without(own[i], joined).entries) {
      if (!entry.value.entries.empty()) phase.entries.push_back(std::move(entry));
    }
    list.items.push_back(std::move(phase));
  }
  joined.entries.push_back({"phases", {}, std::move(list)});
  return joined;
}

}  // namespace lockstep::recipes
