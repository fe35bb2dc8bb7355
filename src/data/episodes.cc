#include "data/episodes.h"

#include <fmt/format.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "base/digits.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "data/clip_transform.h"
#include "data/file_source.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/parallel.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

constexpr const char* kMilestones = "milestones_result.json";
constexpr const char* kSeeEpisodes = "docs/formats/episodes.md describes the form";
constexpr size_t kMostManifest = size_t{4} << 30;

struct Step {
  std::string picture;
  int64_t action = -1;  // of a sample; -1: history only
  uint64_t bytes = 0;   // of the picture, in an index
};

struct Episode {
  std::string name, folder;  // pictures lie in the folder
  std::vector<Step> steps;
  json texts;  // of the one sample of a manifest's entry; null: in files of the folder
};

struct Episodes {
  std::vector<Episode> all;
  std::string digest;    // of what was parsed
  uint64_t without = 0;  // steps that are history only
};

const json* FirstOf(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto it = object.find(key); it != object.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

std::string TextOf(const json* value) {
  if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// step_0007_TURN_LEFT.png
std::optional<std::pair<uint64_t, int64_t>> ParseStepName(std::string_view name) {
  if (!IsImageName(name) || !name.starts_with("step_")) return std::nullopt;
  name.remove_prefix(5);
  const size_t mark = name.find('_'), dot = name.rfind('.');
  if (mark == std::string_view::npos || dot < mark) return std::nullopt;
  const auto number = ParseDigits<uint64_t>(name.substr(0, mark));
  const auto action = ActionNumber(name.substr(mark + 1, dot - mark - 1));
  if (!number || !action) return std::nullopt;
  return std::pair{*number, *action};
}

std::string JsonBeside(const std::string& picture) { return picture.substr(0, picture.rfind('.')) + ".json"; }

// A step is a sample where both descriptions are there.
Result<bool> HasDescriptions(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return false;
  Result<json> step = ReadJsonFile(path);
  if (!step.ok()) return step.status();
  return step->is_object() && !GetString(*step, "landmark_description").empty() &&
         !GetString(*step, "spatial_description").empty();
}

Result<Episode> ReadEpisode(const std::string& root, const Folder& folder) {
  Episode episode{.name = folder.name, .folder = JoinPath(root, folder.name)};
  std::vector<std::pair<uint64_t, Step>> steps;
  for (const std::string& file : folder.files) {
    const auto parsed = ParseStepName(file);
    if (!parsed) continue;
    Result<bool> described = HasDescriptions(JsonBeside(JoinPath(episode.folder, file)));
    if (!described.ok()) return described.status();
    steps.push_back({parsed->first, {file, *described ? parsed->second : -1}});
  }
  std::ranges::sort(steps, {}, &std::pair<uint64_t, Step>::first);
  for (auto& [number, step] : steps) episode.steps.push_back(std::move(step));
  return episode;
}

Result<Episodes> ReadFolder(const SourceConfig& config) {
  Result<std::vector<Folder>> folders = ListFolders(config.path);
  if (!folders.ok()) return folders.status();
  std::erase_if(*folders, [](const Folder& folder) {
    return std::ranges::find(folder.files, kMilestones) == folder.files.end();
  });
  if (folders->empty()) {
    return Status(Code::kUsage,
                  fmt::format("no episode in '{}': looked for {} in its folders", config.path, kMilestones),
                  kSeeEpisodes);
  }
  std::vector<Result<Episode>> found(folders->size(), Status(Code::kInternal, "not read"));
  ForEachAtOnce(folders->size(), [&](size_t i) { found[i] = ReadEpisode(config.path, (*folders)[i]); });
  Episodes episodes;
  for (Result<Episode>& episode : found) {
    if (!episode.ok()) return episode.status();
    for (const Step& step : episode->steps) {
      episodes.without += step.action < 0 ? 1 : 0;
      episodes.digest += fmt::format("{}\n{}\n{}\n", episode->name, step.picture, step.action);
    }
    episodes.all.push_back(std::move(*episode));
  }
  return episodes;
}

Result<Episode> ReadEntry(const json& entry, const std::string& root, const std::string& where) {
  const auto wrong = [&](const std::string& what) { return Status(Code::kUsage, where + ": " + what, kSeeEpisodes); };
  if (!entry.is_object()) return wrong(fmt::format("expected an object, found {}", entry.type_name()));
  Episode episode{.folder = root};
  json images = json::array();
  if (const json* all = FirstOf(entry, {"images", "image"})) {
    images = all->is_array() ? *all : json::array({*all});
  } else if (const json* current = FirstOf(entry, {"current_image"})) {
    if (const json* history = FirstOf(entry, {"history_images"}); history != nullptr && history->is_array())
      images = *history;
    images.push_back(*current);
  }
  if (images.empty()) return wrong("expected 'images', 'image', or 'history_images' and 'current_image'");
  for (const json& image : images) {
    if (!image.is_string() || image.get<std::string>().empty()) return wrong("a name of an image is no text, or empty");
    episode.steps.push_back({image.get<std::string>()});
  }
  const json* action = FirstOf(entry, {"action", "action_label", "actions"});
  if (action != nullptr && action->is_array() && !action->empty()) action = &action->front();
  const std::string word = action == nullptr ? "" : action->is_string() ? action->get<std::string>() : action->dump();
  const std::optional<int64_t> number = ActionNumber(word);
  if (!number) return wrong(fmt::format("action '{}': expected STOP, MOVE_FORWARD, TURN_LEFT or TURN_RIGHT", word));
  episode.steps.back().action = *number;
  // Pictures of one walk lie in one folder: they must not be trained and validated on.
  const size_t slash = episode.steps.back().picture.rfind('/');
  episode.name = slash == std::string::npos ? "." : episode.steps.back().picture.substr(0, slash);
  episode.texts = {TextOf(FirstOf(entry, {"instruction", "instruction_text", "full_instruction", "instructions"})),
                   TextOf(FirstOf(entry, {"subinstruction", "sub_instruction", "sub_instruction_text"})),
                   TextOf(FirstOf(entry, {"2D_description", "2d_description", "description_2d"})),
                   TextOf(FirstOf(entry, {"3D_description", "3d_description", "description_3d"}))};
  return episode;
}

Result<Episodes> ReadManifest(const SourceConfig& config) {
  Result<std::string> text = ReadFile(config.path, kMostManifest);
  if (!text.ok()) return text.status();
  const size_t slash = config.path.rfind('/');
  const std::string root = slash == std::string::npos ? "" : config.path.substr(0, slash);
  Episodes episodes;
  episodes.digest = *text;
  const auto add = [&](const json& entry, const std::string& where) {
    Result<Episode> episode = ReadEntry(entry, root, where);
    if (episode.ok()) episodes.all.push_back(std::move(*episode));
    return episode.status();
  };
  if (!config.path.ends_with(".jsonl")) {
    Result<json> document = ParseJson(*text, config.path);
    if (!document.ok()) return document.status();
    if (!document->is_array()) {
      return Status(Code::kUsage,
                    fmt::format("{}: expected an array of samples, found {}", config.path, document->type_name()),
                    kSeeEpisodes);
    }
    for (size_t i = 0; i < document->size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(add((*document)[i], fmt::format("{}: [{}]", config.path, i)));
    }
    return episodes;
  }
  size_t number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{} line {}", config.path, number);
    Result<json> entry = ParseJson(line, where);
    if (!entry.ok()) return entry.status();
    LOCKSTEP_RETURN_IF_ERROR(add(*entry, where));
  }
  return episodes;
}

std::string PictureOf(const Episode& episode, uint64_t step) {
  return JoinPath(episode.folder, episode.steps[step].picture);
}

// Each once, though it is in the history of many samples of a manifest.
void MeasurePictures(Episodes* episodes) {
  std::unordered_map<std::string, uint64_t> sizes;
  for (const Episode& episode : episodes->all) {
    for (size_t step = 0; step < episode.steps.size(); ++step) sizes.emplace(PictureOf(episode, step), kMissing);
  }
  std::vector<std::pair<const std::string, uint64_t>*> pictures;
  for (auto& picture : sizes) pictures.push_back(&picture);
  ForEachAtOnce(pictures.size(), [&](size_t i) {
    struct stat info{};
    if (::stat(pictures[i]->first.c_str(), &info) == 0) pictures[i]->second = static_cast<uint64_t>(info.st_size);
  });
  for (Episode& episode : episodes->all) {
    for (size_t step = 0; step < episode.steps.size(); ++step) {
      episode.steps[step].bytes = sizes.at(PictureOf(episode, step));
    }
  }
}

Status CheckPictures(const Episodes& episodes, const FileCheck& check) {
  std::vector<size_t> starts = {0};  // of each episode's pictures among all
  for (const Episode& episode : episodes.all) starts.push_back(starts.back() + episode.steps.size());
  return CheckFiles(starts.back(), check, [&](size_t file) {
    const size_t at = std::ranges::upper_bound(starts, file) - starts.begin() - 1;
    const Episode& episode = episodes.all[at];
    const size_t step = file - starts[at];
    return LookAtFile(PictureOf(episode, step), episode.steps[step].bytes, /*at_least=*/false);
  });
}

Result<Episodes> ReadEpisodes(const SourceConfig& config) {
  struct stat info{};
  if (::stat(config.path.c_str(), &info) != 0) return FileError("read", config.path, errno);
  Result<Episodes> episodes = S_ISDIR(info.st_mode) ? ReadFolder(config) : ReadManifest(config);
  if (!episodes.ok()) return episodes.status();
  episodes->digest =
      fmt::format("{:016x}", static_cast<uint64_t>(XXH64(episodes->digest.data(), episodes->digest.size(), 0)));
  return episodes;
}

std::string WriteEpisodes(const Episodes& episodes) {
  json all = json::array();
  for (const Episode& episode : episodes.all) {
    json steps = json::array();
    for (const Step& step : episode.steps) steps.push_back({step.picture, step.action, step.bytes});
    all.push_back({episode.name, episode.folder, std::move(steps), episode.texts});
  }
  return ToJsonLine({{"episodes", std::move(all)}, {"digest", episodes.digest}, {"without", episodes.without}});
}

// What WriteEpisodes wrote on another rank.
Result<Episodes> FromIndex(const std::string& text) {
  Episodes episodes;
  try {
    const json index = json::parse(text);
    for (const json& one : index.at("episodes")) {
      Episode episode{one.at(0).get<std::string>(), one.at(1).get<std::string>(), {}, one.at(3)};
      for (const json& step : one.at(2))
        episode.steps.push_back({step.at(0).get<std::string>(), step.at(1).get<int64_t>(), step.at(2).get<uint64_t>()});
      episodes.all.push_back(std::move(episode));
    }
    episodes.digest = index.at("digest").get<std::string>();
    episodes.without = index.at("without").get<uint64_t>();
  } catch (const json::exception&) {
    return Status(Code::kInternal, "the index of the episodes is damaged");
  }
  return episodes;
}

class Walks final : public EpisodeSource {
 public:
  Walks(const SourceConfig& config, Episodes episodes) : config_(config), episodes_(std::move(episodes)) {
    fields_ = {{"frames", ElementType::kU8, {config.frames, 3, config.height, config.width}},
               {"action", ElementType::kI64, {}}};
    for (uint32_t e = 0; e < episodes_.all.size(); ++e) {
      for (uint32_t s = 0; s < episodes_.all[e].steps.size(); ++s) {
        if (episodes_.all[e].steps[s].action >= 0) samples_.push_back({e, s});
      }
    }
  }

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return samples_.size(); }
  std::string Name(uint64_t index) const override { return PictureOf(EpisodeOf(index), samples_[index].step); }
  std::string Origin(uint64_t index) const override { return EpisodeOf(index).name; }
  std::string Describe() const override {
    std::string text = fmt::format("episodes: {} of {} in {}", Count(static_cast<int64_t>(size()), "step"),
                                   Count(static_cast<int64_t>(episodes_.all.size()), "episode"), config_.path);
    if (episodes_.without > 0) text += fmt::format("; {} without descriptions are history only", episodes_.without);
    return text;
  }
  std::string Digest() const override { return "xxh64:" + episodes_.digest; }
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override;
  Result<EpisodeText> Text(uint64_t index) const override;

 private:
  struct Sample {
    uint32_t episode = 0, step = 0;
  };
  const Episode& EpisodeOf(uint64_t index) const { return episodes_.all[samples_[index].episode]; }

  SourceConfig config_;
  Episodes episodes_;
  std::vector<Field> fields_;
  std::vector<Sample> samples_;
};

// Each picture is cropped and resized by itself: sizes may differ. The same picture twice is decoded once.
Status Walks::Read(const Draw& draw, std::span<std::byte* const> out) const {
  const Episode& episode = EpisodeOf(draw.index);
  const std::vector<uint64_t> history = HistoryOf(samples_[draw.index].step, config_.frames);
  const size_t frame_bytes = fields_[0].bytes() / config_.frames;
  auto* to = reinterpret_cast<uint8_t*>(out[0]);
  for (size_t i = 0; i < history.size(); ++i, to += frame_bytes) {
    if (draw.cancelled != nullptr && *draw.cancelled) return Status(Code::kInterrupted, "reading was stopped");
    if (i > 0 && history[i] == history[i - 1]) {
      std::copy_n(to - frame_bytes, frame_bytes, to);
      continue;
    }
    Result<Image> image = DecodeImage(PictureOf(episode, history[i]));
    if (!image.ok()) return image.status();
    ClipTransform(draw, image->width, image->height, config_.width, config_.height, ResizeByName(config_.resize))
        .Apply(image->rgb.data(), static_cast<size_t>(image->width) * 3, to);
  }
  const int64_t action = episode.steps[samples_[draw.index].step].action;
  std::copy_n(reinterpret_cast<const std::byte*>(&action), sizeof action, out[1]);
  return Status::Ok();
}

Result<EpisodeText> Walks::Text(uint64_t index) const {
  const Episode& episode = EpisodeOf(index);
  if (!episode.texts.is_null())
    return EpisodeText{episode.texts[0], episode.texts[1], episode.texts[2], episode.texts[3]};
  Result<json> whole = ReadJsonFile(JoinPath(episode.folder, kMilestones));
  if (!whole.ok()) return whole.status();
  Result<json> step = ReadJsonFile(JsonBeside(Name(index)));
  if (!step.ok()) return step.status();
  EpisodeText text{GetString(*whole, "instruction_text"), "", GetString(*step, "landmark_description"),
                   GetString(*step, "spatial_description")};
  // Part i covers the frames up to its checkpoint; what lies behind the last one belongs to the last part.
  const json parts = whole->value("subinstructions", json::array());
  const json checkpoints = whole->value("completion_checkpoints", json::array());
  if (!parts.is_array() || parts.empty()) return text;
  size_t part = parts.size() - 1;
  for (size_t i = 0; checkpoints.is_array() && i < std::min(checkpoints.size(), parts.size()); ++i) {
    if (samples_[index].step <= static_cast<uint64_t>(GetInt(checkpoints[i], "checkpoint_frame_index", -1))) {
      part = i;
      break;
    }
  }
  if (parts[part].is_string()) text.subinstruction = parts[part].get<std::string>();
  return text;
}

}  // namespace

std::vector<uint64_t> HistoryOf(uint64_t current, int frames) {
  const auto back = static_cast<uint64_t>(frames - 1);
  std::vector<uint64_t> history;
  if (current <= back) {
    history.assign(back - current, 0);
    for (uint64_t i = 0; i <= current; ++i) history.push_back(i);
    return history;
  }
  const double step = back == 0 ? 0 : static_cast<double>(current) / static_cast<double>(back);
  for (uint64_t i = 0; i < back; ++i) history.push_back(static_cast<uint64_t>(static_cast<double>(i) * step));
  history.push_back(current);
  return history;
}

std::optional<int64_t> ActionNumber(std::string_view word) {
  std::string plain;
  for (const char c : word)
    plain += c == ' ' || c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  static constexpr std::pair<const char*, int64_t> kActions[] = {
      {"STOP", 0},       {"MOVE_FORWARD", 1}, {"FORWARD", 1}, {"TURN_LEFT", 2}, {"LEFT", 2},
      {"TURN_RIGHT", 3}, {"RIGHT", 3},        {"0", 0},       {"1", 1},         {"2", 2},
      {"3", 3}};
  for (const auto& [name, number] : kActions) {
    if (plain == name) return number;
  }
  return std::nullopt;
}

Result<std::unique_ptr<EpisodeSource>> OpenEpisodes(const SourceConfig& config) {
  Result<Episodes> episodes = config.index ? FromIndex(*config.index) : ReadEpisodes(config);
  if (!episodes.ok()) return episodes.status();
  if (config.index) LOCKSTEP_RETURN_IF_ERROR(CheckPictures(*episodes, config.check));
  auto source = std::make_unique<Walks>(config, std::move(*episodes));
  if (source->size() == 0) {
    return Status(Code::kUsage,
                  fmt::format("'{}': no step has what a sample needs: a picture step_<number>_<action>.png "
                              "and both descriptions beside it",
                              config.path),
                  kSeeEpisodes);
  }
  return std::unique_ptr<EpisodeSource>(std::move(source));
}

Result<std::string> IndexEpisodes(const SourceConfig& config) {
  Result<Episodes> episodes = ReadEpisodes(config);
  if (!episodes.ok()) return episodes.status();
  MeasurePictures(&*episodes);
  return WriteEpisodes(*episodes);
}

}  // namespace lockstep::data
