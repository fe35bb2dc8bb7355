#include "data/paired_set.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/lmdb_listing.h"
#include "data/paired_check.h"
#include "data/parallel.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostMeta = 256u << 20;

bool IsFolder(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// As a shell completes it: "X/" is X, and "X.lmdb" lies beside it.
std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string StemOf(std::string_view name) { return std::string(name.substr(0, name.rfind('.'))); }

// Frames of a clip by their numbers.
using Numbered = std::map<int64_t, Picture>;

// UCF101 as it is used for interpolation: frame0 to frame3 and, in the middle, framet. As a septuplet these are 1, 3,
// 5, 7 and 4; 2 and 6, which nobody reads, are their neighbours.
std::optional<Numbered> MiddleByName(const std::vector<Entry>& entries) {
  constexpr std::pair<std::string_view, int64_t> kNames[] = {{"frame0", 1}, {"frame0", 2}, {"frame1", 3}, {"framet", 4},
                                                             {"frame2", 5}, {"frame3", 6}, {"frame3", 7}};
  Numbered pictures;
  for (const auto& [stem, number] : kNames) {
    const auto it =
        std::ranges::find_if(entries, [&](const Entry& e) { return IsImageName(e.name) && StemOf(e.name) == stem; });
    if (it == entries.end()) return std::nullopt;
    pictures.try_emplace(number, Picture{it->name});
  }
  return pictures;
}

Result<Numbered> NumberedPictures(const std::string& folder, bool interpolate) {
  Result<std::vector<Entry>> entries = ListEntries(folder);
  if (!entries.ok()) return entries.status();
  if (interpolate) {
    if (std::optional<Numbered> named = MiddleByName(*entries)) return std::move(*named);
  }
  Numbered pictures;
  for (const Entry& entry : *entries) {
    if (entry.is_folder || !IsImageName(entry.name)) continue;
    const std::optional<int64_t> number = NumberOfFrame(StemOf(entry.name));
    if (!number) {
      return Status(Code::kUsage,
                    fmt::format("'{}' in '{}': the name of a frame ends in its number", entry.name, folder),
                    "move it out of the folder of the clip");
    }
    if (!pictures.try_emplace(*number, Picture{entry.name}).second) {
      return Status(Code::kUsage, fmt::format("'{}' has two frames with number {}", folder, *number),
                    "move one of them out of the folder of the clip");
    }
  }
  return pictures;
}

// The frames of a clip on both sides, all of those that the list names or all that there are.
Status TakeFrames(const MetaLine& line, const Numbered& target, const Numbered& input, const PairedConfig& config,
                  PairedClip* clip) {
  clip->name = line.clip;
  if (target.empty()) {
    return Status(Code::kUsage, fmt::format("clip '{}' has no frames below '{}'", line.clip, config.target));
  }
  clip->first = line.first >= 0 ? line.first : target.begin()->first;
  const int64_t count = line.frames > 0 ? line.frames : target.rbegin()->first - clip->first + 1;
  for (int64_t number = clip->first; number < clip->first + count; ++number) {
    for (const bool is_target : {true, false}) {
      const Numbered& side = is_target ? target : input;
      const auto it = side.find(number);
      if (it == side.end()) {
        return Status(Code::kUsage,
                      fmt::format("clip '{}' has no frame {} below '{}': expected {} to {} without a gap, found {}",
                                  line.clip, number, is_target ? config.target : config.input, clip->first,
                                  clip->first + count - 1, Count(static_cast<int64_t>(side.size()), "frame")),
                      config.meta_info.empty() ? "copy the missing frames, or list whole parts in a meta_info file"
                                               : "copy the missing frames, or correct " + config.meta_info);
      }
      (is_target ? clip->target : clip->input).push_back(it->second);
      if (is_target) clip->stems.push_back(StemOf(it->second.name.substr(it->second.name.rfind('/') + 1)));
    }
  }
  return Status::Ok();
}

// "X" finds "X.lmdb", as S-VRT's loader does.
std::string LmdbFolder(const std::string& path) {
  const bool here = ::access(LmdbFile(path).c_str(), F_OK) == 0;
  return !here && IsFolder(path + ".lmdb") ? path + ".lmdb" : path;
}

// Keys of an LMDB by clip and number, with the sizes that its meta_info.txt has for them.
Result<std::map<std::string, Numbered>> KeysByClip(const std::string& path) {
  Result<LmdbListing> listing = ListLmdb(path);
  if (!listing.ok()) return listing.status();
  const std::string meta = JoinPath(path, "meta_info.txt");
  Result<std::string> text = ReadFile(meta, kMostMeta);
  if (!text.ok()) {
    return Status(Code::kUsage, fmt::format("LMDB '{}' has no meta_info.txt: {}", path, text.status().message()),
                  "KAIR writes it beside data.mdb: copy it there, or write both again with lockstep data prepare");
  }
  std::set<std::string> listed;
  for (const std::string& line : lockstep::Split(*text, '\n')) {
    const size_t shape = line.rfind(" (");  // a clip's name may have blanks
    const std::string name = line.substr(0, shape != std::string::npos ? shape : line.find(' '));
    if (!name.empty()) listed.insert(StemOf(name));
  }
  std::map<std::string, Numbered> clips;
  for (const LmdbValue& value : listing->values) {
    if (listed.erase(value.key) == 0) {
      return Status(
          Code::kUsage,
          fmt::format("LMDB '{}' holds key '{}', which its meta_info.txt does not list", path, Printable(value.key)),
          "the two are not of the same set: lockstep data prepare writes both again");
    }
    const size_t slash = value.key.rfind('/');
    const std::optional<int64_t> number = NumberOfFrame(value.key);
    if (slash == std::string::npos || !number) {
      return Status(Code::kUsage, fmt::format("LMDB '{}': key '{}' is not clip/frame", path, Printable(value.key)));
    }
    clips[value.key.substr(0, slash)].try_emplace(*number, Picture{value.key, value.bytes, value.offset});
  }
  if (!listed.empty()) {
    return Status(Code::kUsage,
                  fmt::format("LMDB '{}' lacks {} of its meta_info.txt, the first is '{}'", path,
                              Count(static_cast<int64_t>(listed.size()), "key"), *listed.begin()),
                  "it was written in part: write it again");
  }
  return clips;
}

}  // namespace

const std::vector<std::string> kPairedKinds = {"generated", "folders", "lmdb"};

Result<std::vector<MetaLine>> ParseMetaInfo(std::string_view text, const std::string& name) {
  std::vector<MetaLine> lines;
  int number = 0;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // of editors on Windows
  for (std::string line : lockstep::Split(text, '\n')) {
    ++number;
    std::ranges::replace(line, '\t', ' ');
    std::vector<std::string> words;
    for (const std::string& word : lockstep::Split(Trim(line), ' ')) {
      if (!Trim(word).empty()) words.emplace_back(Trim(word));
    }
    if (words.empty()) continue;
    std::string clip = words[0], count = words.size() > 1 ? words[1] : "";
    // Before a shape in brackets: the number of frames, and before that the clip, whose name may have blanks.
    if (const size_t shape = Trim(line).rfind(" ("); words.size() > 1 && shape != std::string_view::npos) {
      const std::string_view head = Trim(Trim(line).substr(0, shape));
      if (const size_t blank = head.rfind(' '); blank != std::string_view::npos) {
        clip = Trim(head.substr(0, blank)), count = head.substr(blank + 1);
      }
    }
    const auto digits = [](const std::string& word) { return !word.empty() && std::ranges::all_of(word, IsDigit); };
    if (words.size() == 1) {
      lines.push_back({words[0]});
      continue;
    }
    if (!digits(count) || count.size() > 9 || std::stoll(count) == 0) {
      return Status(
          Code::kUsage,
          fmt::format("{}:{}: '{}': expected \"clip frames shape start_frame\"", name, number, Printable(Trim(line))),
          "correct the line; lockstep data prepare writes such a list");
    }
    MetaLine meta{clip, std::stoll(count)};
    // The last of four or more words; the shape may have blanks of its own.
    if (words.size() >= 4 && digits(words.back()) && words.back().size() < 18) meta.first = std::stoll(words.back());
    lines.push_back(std::move(meta));
  }
  if (lines.empty()) return Status(Code::kUsage, fmt::format("'{}' lists no clip", name));
  return lines;
}

Result<std::vector<std::string>> RedsPartition(const std::string& name) {
  if (name == "REDS4") return std::vector<std::string>{"000", "011", "015", "020"};
  std::vector<std::string> clips;
  for (int i = 240; i < 270; ++i) clips.push_back(fmt::format("{:03}", i));
  if (name == "official") return clips;
  return Status(Code::kUsage, fmt::format("validation partition '{}' of REDS: expected REDS4 or official{}", name,
                                          DidYouMean(name, {"REDS4", "official"})));
}

// A clip of the list, or of the targets, that a side does not have.
Status PairedSet::NoClip(const MetaLine& line, const Status& why) const {
  if (why.code() == Code::kUsage) return why;
  return Status(why.code(), fmt::format("clip '{}': {}", line.clip, why.message()),
                config_.meta_info.empty()
                    ? "both sides have the same clips: check data.target and data.input"
                    : fmt::format("check the folder, or take the clip out of {}", config_.meta_info));
}

Status PairedSet::TakePartition(std::vector<MetaLine>* lines) {
  if (config_.partition.empty()) return Status::Ok();
  Result<std::vector<std::string>> reds = RedsPartition(config_.partition);
  if (!reds.ok()) return reds.status();
  const size_t before = lines->size();
  std::erase_if(*lines, [&](const MetaLine& line) {
    return (std::ranges::find(*reds, line.clip) != reds->end()) != config_.validation;
  });
  if (lines->empty()) {
    return Status(Code::kUsage, fmt::format("no clip is left of {}: partition {} of REDS has none of them",
                                            Count(static_cast<int64_t>(before), "clip"), config_.partition));
  }
  notes_ = fmt::format("{} of partition {} left out", Count(static_cast<int64_t>(before - lines->size()), "clip"),
                       config_.partition);
  return Status::Ok();
}

Status PairedSet::ListFolderClips(std::vector<MetaLine> lines) {
  LOCKSTEP_RETURN_IF_ERROR(TakePartition(&lines));
  std::vector<Status> errors(lines.size());
  clips_.resize(lines.size());
  ForEachAtOnce(lines.size(), [&](size_t i) {
    const auto pictures = [&](const std::string& root) {
      return NumberedPictures(JoinPath(root, lines[i].clip), config_.interpolate);
    };
    Result<Numbered> target = pictures(config_.target);
    Result<Numbered> input = config_.input == config_.target ? target : pictures(config_.input);
    errors[i] = !target.ok()  ? NoClip(lines[i], target.status())
                : !input.ok() ? NoClip(lines[i], input.status())
                              : TakeFrames(lines[i], *target, *input, config_, &clips_[i]);
  });
  for (const Status& error : errors) LOCKSTEP_RETURN_IF_ERROR(error);
  return Status::Ok();
}

Status PairedSet::ListLmdbClips(std::vector<MetaLine> lines) {
  config_.target = LmdbFolder(config_.target);
  config_.input = LmdbFolder(config_.input);
  target_file_ = LmdbFile(config_.target);
  input_file_ = LmdbFile(config_.input);
  Result<std::map<std::string, Numbered>> target = KeysByClip(config_.target);
  if (!target.ok()) return target.status();
  Result<std::map<std::string, Numbered>> input = config_.input == config_.target ? *target : KeysByClip(config_.input);
  if (!input.ok()) return input.status();
  if (lines.empty()) {
    for (const auto& [clip, pictures] : *target) lines.push_back({clip});
    std::ranges::sort(lines, NaturalLess, &MetaLine::clip);
  }
  LOCKSTEP_RETURN_IF_ERROR(TakePartition(&lines));
  for (const MetaLine& line : lines) {
    LOCKSTEP_RETURN_IF_ERROR(
        TakeFrames(line, (*target)[line.clip], (*input)[line.clip], config_, &clips_.emplace_back()));
  }
  return Status::Ok();
}

Result<PairedSet> PairedSet::Open(const PairedConfig& config) {
  PairedSet set;
  set.config_ = config;
  set.config_.target = WithoutSlash(config.target);
  set.config_.input = WithoutSlash(config.input);
  if (config.interpolate && config.input.empty()) set.config_.input = set.config_.target;
  LOCKSTEP_RETURN_IF_ERROR(CheckPairedConfig(set.config_));
  std::vector<MetaLine> lines;
  if (!config.meta_info.empty()) {
    Result<std::string> text = ReadFile(config.meta_info, kMostMeta);
    if (!text.ok()) return text.status();
    Result<std::vector<MetaLine>> parsed = ParseMetaInfo(*text, config.meta_info);
    if (!parsed.ok()) return parsed.status();
    lines = std::move(*parsed);
  } else if (config.kind == "folders") {
    Result<std::vector<Folder>> folders = ListFolders(config.target);
    if (!folders.ok()) return folders.status();
    for (const Folder& folder : *folders) {
      if (std::ranges::any_of(folder.files, IsImageName)) lines.push_back({folder.name});
    }
    if (lines.empty()) {
      return Status(Code::kUsage,
                    fmt::format("no clip in '{}': looked for folders with {}, found {}", config.target, kImageNames,
                                SummarizeFiles(*folders)),
                    config.target.ends_with(".lmdb") ? "an LMDB is read with data.kind: lmdb (io_backend of type lmdb)"
                                                     : "check data.target: the folder above the clips");
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(config.kind == "lmdb" ? set.ListLmdbClips(std::move(lines))
                                                 : set.ListFolderClips(std::move(lines)));
  LOCKSTEP_RETURN_IF_ERROR(set.CheckSizes());
  LOCKSTEP_RETURN_IF_ERROR(set.CheckSpikes());
  return set;
}

Status PairedSet::CheckSizes() {
  std::vector<Status> errors(clips_.size());
  ForEachAtOnce(clips_.size(),
                [&](size_t i) { errors[i] = CheckClipSizes(config_, target_file_, input_file_, *parts_, &clips_[i]); });
  for (const Status& error : errors) LOCKSTEP_RETURN_IF_ERROR(error);
  if (config_.crop > 0 || config_.validation) return Status::Ok();  // those that validate are read one by one
  for (const PairedClip& clip : clips_) {
    if (clip.height == clips_[0].height && clip.width == clips_[0].width) continue;
    return Status(Code::kUsage,
                  fmt::format("frames of mixed size: clip '{}' is {}x{}, clip '{}' is {}x{}", clips_[0].name,
                              clips_[0].width, clips_[0].height, clip.name, clip.width, clip.height),
                  "train on crops, which all clips have, or bring the clips to one size");
  }
  return Status::Ok();
}

// Of every frame where all are asked for, else of the first frame of each clip.
Status PairedSet::CheckSpikes() const {
  const SpikeInput& spikes = config_.spikes;
  if (!spikes.use) return Status::Ok();
  const std::string remedy = spikes.precomputed ? "lockstep data prepare gopro-spike --artefacts writes them"
                                                : "check data.spikes.path, or list only clips that have spikes";
  std::vector<std::string> without;
  for (const PairedClip& clip : clips_) {
    const std::string folder = SpikeFolder(clip);
    if (IsFolder(folder)) continue;
    // One that is there and cannot be looked into is not one that is missing.
    if (::access(folder.c_str(), F_OK) != 0 && errno != ENOENT && errno != ENOTDIR) {
      return FileError("read folder", folder, errno).Context("spikes");
    }
    without.push_back(folder);
  }
  if (!without.empty()) {
    return Status(Code::kUsage,
                  fmt::format("{} of {} without spikes: no folder '{}'{}", without.size(),
                              Count(static_cast<int64_t>(clips_.size()), "clip"), without[0],
                              without.size() > 1 ? fmt::format(" and {} more", without.size() - 1) : ""),
                  remedy);
  }
  std::vector<Status> wrong(clips_.size());
  std::vector<std::vector<std::string>> missing(clips_.size());
  ForEachAtOnce(clips_.size(), [&](size_t i) {
    const PairedClip& clip = clips_[i];
    for (int64_t frame = 0; frame < (spikes.all ? clip.frames() : 1) && wrong[i].ok(); ++frame) {
      const std::string path = SpikePath(clip, frame);
      if (::access(path.c_str(), F_OK) != 0) {
        if (errno == ENOENT) {
          missing[i].push_back(path);
        } else {
          wrong[i] = FileError("open", path, errno);
        }
      } else {
        wrong[i] = CheckSpikeFile(path, frame == 0);
      }
    }
  });
  for (const Status& status : wrong) LOCKSTEP_RETURN_IF_ERROR(status.Context("spikes"));
  std::vector<std::string> all;
  for (const auto& some : missing) all.insert(all.end(), some.begin(), some.end());
  if (all.empty() || !spikes.all) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("{} of {} without spikes: no file '{}'{}", all.size(), Count(frames(), "frame"), all[0],
                            all.size() > 1 ? fmt::format(" and {} more", all.size() - 1) : ""),
                remedy + "; data.bad_samples above 0 leaves out samples that need them");
}

// By its size alone, or by the header of an array.
Status PairedSet::CheckSpikeFile(const std::string& path, bool first) const {
  const SpikeInput& spikes = config_.spikes;
  if (spikes.precomputed) {
    Result<NpyFile> file = NpyFile::Open(path);
    return file.ok() ? ReadRendered(*file, spikes.sensor, spikes.form, {0, 0, 1, 1}).status() : file.status();
  }
  Result<SpikeFile> file = SpikeFile::Open(path, spikes.sensor);
  if (!file.ok()) return file.status();
  if (first) LOCKSTEP_RETURN_IF_ERROR(CheckSaidSensor(file->steps(), spikes.sensor, path));
  return CheckSteps(spikes.form, file->steps(), path);
}

int64_t PairedSet::frames() const {
  int64_t frames = 0;
  for (const PairedClip& clip : clips_) frames += clip.frames();
  return frames;
}

Result<Image> PairedSet::Read(const std::string& root, const PairedClip& clip, const Picture& picture,
                              const WindowOf& window) const {
  if (config_.kind != "lmdb") return DecodeImage(JoinPath(JoinPath(root, clip.name), picture.name), window);
  const std::string name = fmt::format("{} in {}", picture.name, root);
  Result<std::string> bytes = parts_->Read(LmdbFile(root), picture.offset, picture.bytes, name);
  if (!bytes.ok()) return bytes.status();
  return DecodeImageBytes(*bytes, name, window);
}

Result<Image> PairedSet::ReadTarget(const PairedClip& clip, int64_t frame, const WindowOf& window) const {
  return Read(config_.target, clip, clip.target[frame], window);
}

Result<Image> PairedSet::ReadInput(const PairedClip& clip, int64_t frame, const WindowOf& window) const {
  return Read(config_.input, clip, clip.input[frame], window);
}

std::string PairedSet::SpikeFolder(const PairedClip& clip) const {
  const SpikeInput& spikes = config_.spikes;
  const std::string& root =
      spikes.precomputed && !spikes.precomputed_path.empty() ? spikes.precomputed_path : spikes.path;
  return fmt::format("{}/{}", JoinPath(root, clip.name), spikes.precomputed ? spikes.form.Folder() : "spike");
}

std::string PairedSet::SpikePath(const PairedClip& clip, int64_t frame) const {
  return fmt::format("{}/{}.{}", SpikeFolder(clip), clip.stems[frame], config_.spikes.precomputed ? "npy" : "dat");
}

Result<std::vector<float>> PairedSet::ReadSpikes(const PairedClip& clip, int64_t frame, const SpikeBox& box) const {
  const SpikeInput& spikes = config_.spikes;
  const std::string path = SpikePath(clip, frame);
  const SpikeBox inside = BoxOfSpikes(spikes.sensor, clip.input_height, clip.input_width, box);
  const auto read = [&]() -> Result<std::vector<float>> {
    if (spikes.precomputed) {
      Result<NpyFile> file = NpyFile::Open(path);
      return file.ok() ? ReadRendered(*file, spikes.sensor, spikes.form, inside) : file.status();
    }
    Result<SpikeFile> file = SpikeFile::Open(path, spikes.sensor);
    return file.ok() ? RenderSpikes(*file, spikes.form, inside) : file.status();
  };
  Result<std::vector<float>> planes = read();
  if (!planes.ok()) return planes.status().Context("spikes");
  return ResizePlanes(std::move(*planes), spikes.form.channels, inside.height, inside.width, box.height, box.width);
}

}  // namespace lockstep::data
