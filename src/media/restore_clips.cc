#include "media/restore_clips.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "base/checksum.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/paired_check.h"
#include "data/parallel.h"
#include "media/pipe.h"

namespace lockstep::media {
namespace {

constexpr size_t kLongestNumber = 9;    // digits of a frame's number; more are a time
constexpr size_t kHeaderBytes = 65536;  // of a picture, for its size
constexpr int64_t kCountAtOnce = 16;
constexpr uint64_t kCountSilently = 2000;  // takes seconds
// Of the 255 bytes that file systems take, without ".restored.json" and the ending of its temporary file.
constexpr size_t kLongestName = 220;

std::string Trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string LastPart(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

std::string Stem(const std::string& path) {
  const std::string name = LastPart(path);
  return name.substr(0, name.find_last_of('.'));
}

bool IsFolder(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The path without links, also of what is not there yet.
std::string RealPath(const std::string& path) {
  char real[PATH_MAX];
  if (::realpath(path.c_str(), real) != nullptr) return real;
  const std::string whole = Trimmed(path);
  const size_t slash = whole.find_last_of('/');
  if (slash == std::string::npos) return RealPath(".") + "/" + whole;
  return slash == 0 ? whole : RealPath(whole.substr(0, slash)) + "/" + whole.substr(slash + 1);
}

Status CheckApart(const MediaOptions& options) {
  const std::string input = RealPath(options.input), output = RealPath(options.output);
  if (output == input) {
    return Status(Code::kUsage, fmt::format("OUTPUT is INPUT: '{}'", options.output), "choose another OUTPUT");
  }
  if (IsFolder(options.input) && output.starts_with(input + "/")) {
    return Status(Code::kUsage, fmt::format("OUTPUT '{}' lies inside INPUT '{}'", options.output, options.input),
                  "choose an OUTPUT outside of it");
  }
  return Status::Ok();
}

// Found out before there is work to lose.
Status CheckNameLength(const std::string& output) {
  const std::string name = LastPart(output);
  if (name.size() <= kLongestName) return Status::Ok();
  return Status(
      Code::kUsage,
      fmt::format("the name of '{}' has {} bytes: expected at most {}, since files beside it have longer ones", output,
                  name.size(), kLongestName),
      "choose a shorter name; that of a clip among others is its name in INPUT");
}

// Names, sizes and times of change.
Status AddIdentity(const std::vector<std::string>& files, Checksum* sum) {
  for (const std::string& file : files) {
    struct stat info{};
    if (::stat(file.c_str(), &info) != 0) return FileError("open", file, errno);
    const std::string line =
        fmt::format("{} {} {}.{}\n", LastPart(file), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    sum->Update(line.data(), line.size());
  }
  return Status::Ok();
}

Result<data::ImageSize> SizeOfFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno);
  std::string head(kHeaderBytes, '\0');
  const ssize_t got = ::pread(fd.get(), head.data(), head.size(), 0);
  if (got < 0) return FileError("read", path, errno);
  head.resize(static_cast<size_t>(got));
  const data::ImageSize size = data::SizeOfImage(head);
  if (size.width > 0) return size;
  Result<data::Image> image = data::DecodeImage(path);
  if (!image.ok()) return image.status();
  return data::ImageSize{image->height, image->width};
}

Status CheckSizes(FoundClip* clip) {
  std::vector<Result<data::ImageSize>> sizes(clip->frames.size(), data::ImageSize{});
  data::ForEachAtOnce(sizes.size(), [&](size_t i) { sizes[i] = SizeOfFile(clip->frames[i]); });
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].ok()) return sizes[i].status();
    if (*sizes[i] == *sizes[0]) continue;
    return Status(Code::kUsage,
                  fmt::format("frames of mixed size in '{}': '{}' is {}x{}, '{}' is {}x{}", clip->input,
                              LastPart(clip->frames[0]), sizes[0]->width, sizes[0]->height, LastPart(clip->frames[i]),
                              sizes[i]->width, sizes[i]->height),
                  "bring the frames of a clip to one size");
  }
  clip->shape.height = sizes[0]->height;
  clip->shape.width = sizes[0]->width;
  return Status::Ok();
}

Result<std::vector<std::string>> PicturesOf(const std::string& folder) {
  Result<std::vector<data::Entry>> entries = data::ListEntries(folder);
  if (!entries.ok()) return entries.status();
  std::vector<std::string> names;
  for (const data::Entry& entry : *entries) {
    if (!entry.is_folder && data::IsImageName(entry.name)) names.push_back(entry.name);
  }
  return names;
}

Status ReadFolder(const MediaOptions& options, std::vector<std::string> names, FoundClip* clip) {
  if (!options.restore.allow_gaps) LOCKSTEP_RETURN_IF_ERROR(CheckFrameNumbers(clip->input, names));
  if (options.max_frames > 0 && names.size() > options.max_frames) names.resize(options.max_frames);
  std::set<std::string> stems;
  for (const std::string& name : names) {
    clip->frames.push_back(data::JoinPath(clip->input, name));
    if (!stems.insert(Stem(name)).second) {
      return Status(Code::kUsage, fmt::format("'{}' has two frames of the name '{}'", clip->input, Stem(name)),
                    "give one picture for each frame");
    }
  }
  clip->shape.count = names.size();
  clip->shape.count_certain = true;
  if (!options.fps.empty()) {
    Result<data::Ratio> rate = ParseRate(options.fps);
    if (!rate.ok()) return rate.status().Context("--fps");
    clip->shape.rate = *rate;
  }
  return CheckSizes(clip);
}

Status ReadFile(const MediaOptions& options, FoundClip* clip) {
  MediaOptions one = options;
  one.input = clip->input;
  Result<AskedFrames> asked = OpenAsked(one);
  if (!asked.ok()) return asked.status();
  clip->shape = asked->shape;
  if (clip->shape.clips != 1) {
    return Status(Code::kUsage, fmt::format("'{}' has {} clips, expected one", clip->input, clip->shape.clips));
  }
  return Status::Ok();
}

// Spike files of a clip, in the folder itself or in its "spike".
std::vector<std::string> SpikeFilesIn(const std::string& folder) {
  for (const std::string& place : {folder, folder + "/spike"}) {
    std::vector<std::string> files;
    Result<std::vector<data::Entry>> entries = data::ListEntries(place);
    for (const data::Entry& entry : entries.ok() ? *entries : std::vector<data::Entry>()) {
      if (!entry.is_folder && entry.name.ends_with(".dat")) files.push_back(data::JoinPath(place, entry.name));
    }
    if (!files.empty()) return files;
  }
  return {};
}

// A frame's spikes have its name or its number; where no name fits, and for videos, the order counts.
Status PairSpikes(const std::vector<std::string>& files, const std::string& folder, FoundClip* clip) {
  const auto missing = [&](const std::string& frame) {
    return Status(Code::kUsage,
                  fmt::format("--spikes {}: frame '{}' of '{}' has no spike file; {} files for {} frames", folder,
                              frame, clip->input, files.size(), clip->shape.count),
                  "give one .dat file for each frame, with its number");
  };
  std::map<std::string, std::string> by_name;
  std::map<int64_t, std::string> by_number;
  for (const std::string& file : files) {
    by_name[Stem(file)] = file;
    if (const auto number = data::NumberOfFrame(Stem(file))) by_number[*number] = file;
  }
  std::vector<std::string> found;
  std::string lacking;
  for (const std::string& frame : clip->frames) {
    const auto name = by_name.find(Stem(frame));
    const auto number = data::NumberOfFrame(Stem(frame));
    const auto numbered = number ? by_number.find(*number) : by_number.end();
    if (name != by_name.end()) {
      found.push_back(name->second);
    } else if (numbered != by_number.end()) {
      found.push_back(numbered->second);
    } else if (lacking.empty()) {
      lacking = LastPart(frame);
    }
  }
  if (!clip->frames.empty() && !found.empty()) {
    if (!lacking.empty()) return missing(lacking);
    clip->spikes = std::move(found);
    return Status::Ok();
  }
  if (clip->shape.count_certain && files.size() < clip->shape.count) {
    return missing(clip->frames.empty() ? std::to_string(files.size() + 1) : LastPart(clip->frames[files.size()]));
  }
  clip->spikes = files;
  if (clip->shape.count_certain) clip->spikes.resize(clip->shape.count);
  return Status::Ok();
}

Status CheckSpikeFiles(const std::vector<std::string>& files, const data::SpikeSensor& sensor,
                       const data::SpikeForm& form) {
  std::vector<Status> checks(files.size());
  data::ForEachAtOnce(files.size(), [&](size_t i) {
    struct stat info{};
    if (::stat(files[i].c_str(), &info) != 0) {
      checks[i] = FileError("open", files[i], errno);
      return;
    }
    const Result<int64_t> steps = data::SpikeSteps(static_cast<uint64_t>(info.st_size), sensor, files[i]);
    checks[i] = steps.ok() ? data::CheckSteps(form, *steps, files[i]) : steps.status();
    if (i == 0 && checks[i].ok()) checks[i] = data::CheckSaidSensor(*steps, sensor, files[i]);
  });
  for (const Status& check : checks) LOCKSTEP_RETURN_IF_ERROR(check.Context("--spikes"));
  return Status::Ok();
}

Status FindSpikes(const MediaOptions& options, int64_t channels, FoundClip* clip) {
  const RestoreAsked& asked = options.restore;
  const data::SpikeForm form = FormOf(asked, channels);
  LOCKSTEP_RETURN_IF_ERROR(data::CheckForm(form).Context("--spike-form"));
  std::string folder = asked.spikes;
  if (!clip->name.empty()) folder = data::JoinPath(folder, IsFolder(clip->input) ? clip->name : Stem(clip->name));
  const std::vector<std::string> files = SpikeFilesIn(folder);
  if (files.empty()) {
    for (const std::string& place : {folder, folder + "/spike"}) {
      if (::access(place.c_str(), R_OK | X_OK) != 0 && errno != ENOENT && errno != ENOTDIR) {
        return FileError("read folder", place, errno).Context("--spikes");
      }
    }
    return Status(Code::kUsage, fmt::format("--spikes: '{}' has no .dat files for '{}'", folder, clip->input),
                  clip->name.empty() ? "name the folder of the clip's spike files"
                                     : "for many clips name the folder above: DIR/CLIP/spike/NUMBER.dat");
  }
  LOCKSTEP_RETURN_IF_ERROR(PairSpikes(files, folder, clip));
  return CheckSpikeFiles(clip->spikes, SensorOf(asked), form);
}

// What lies at INPUT: one clip, or a folder of them.
Result<std::vector<FoundClip>> ListClips(const MediaOptions& options) {
  std::vector<FoundClip> clips;
  const auto add = [&](const std::string& name) {
    FoundClip clip;
    clip.name = name;
    clip.input = name.empty() ? Trimmed(options.input) : data::JoinPath(Trimmed(options.input), name);
    clip.output = name.empty() ? Trimmed(options.output) : data::JoinPath(Trimmed(options.output), name);
    clips.push_back(std::move(clip));
  };
  if (!IsFolder(options.input)) {
    add("");
    return clips;
  }
  Result<std::vector<data::Entry>> entries = data::ListEntries(options.input);
  if (!entries.ok()) return entries.status();
  bool frames = false;
  for (const data::Entry& entry : *entries) frames = frames || (!entry.is_folder && data::IsImageName(entry.name));
  if (frames) {
    add("");
    return clips;
  }
  for (const data::Entry& entry : *entries) {
    if (entry.is_folder || data::IsVideoName(entry.name)) add(entry.name);
  }
  if (clips.empty()) {
    return Status(
        Code::kUsage,
        fmt::format("'{}' has no frames and no clips: expected {}, folders of them, or videos, found {}", options.input,
                    data::kImageNames, Count(static_cast<int64_t>(entries->size()), "entry", "entries")),
        "INPUT is a video, a folder of frames, or a folder of such clips");
  }
  return clips;
}

}  // namespace

Result<Written> WrittenAs(const std::string& output) {
  if (IsTensorName(output)) return Written::kTensor;
  if (data::IsVideoName(output) && !IsFolder(output)) return Written::kVideo;
  LOCKSTEP_RETURN_IF_ERROR(CheckFolderName(output));
  return Written::kFolder;
}

std::string FoundClip::FrameName(int64_t frame) const {
  return frames.empty() || renumbered ? fmt::format("{:06}.png", frame + 1)
                                      : Stem(frames[static_cast<size_t>(frame)]) + ".png";
}

data::SpikeSensor SensorOf(const RestoreAsked& asked) {
  data::SpikeSensor sensor = asked.trained ? asked.trained->sensor : data::SpikeSensor{};
  if (asked.sensor_height > 0) sensor.height = asked.sensor_height;
  if (asked.sensor_width > 0) sensor.width = asked.sensor_width;
  if (asked.no_flip) sensor.flip = false;
  return sensor;
}

data::SpikeForm FormOf(const RestoreAsked& asked, int64_t channels) {
  data::SpikeForm form = asked.trained ? asked.trained->form : data::SpikeForm{};
  if (!asked.spike_form.empty()) form.kind = data::SpikeKindByName(asked.spike_form);
  form.channels = static_cast<int>(channels);
  return form;
}

Status CheckFrameNumbers(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    const std::string stem = Stem(name);
    const size_t digits = stem.size() - (stem.find_last_not_of("0123456789") + 1);
    const auto number = data::NumberOfFrame(stem);
    if (!number || digits > kLongestNumber) return Status::Ok();
    numbers.push_back(*number);
  }
  int64_t step = 0;
  for (size_t i = 1; i < numbers.size(); ++i) {
    const int64_t distance = numbers[i] - numbers[i - 1];
    if (distance == 0) {
      return Status(Code::kUsage, fmt::format("'{}': '{}' and '{}' have one number", folder, names[i - 1], names[i]),
                    "give one picture for each frame; --allow-gaps takes the frames as they are");
    }
    if (distance > 0 && (step == 0 || distance < step)) step = distance;
  }
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i] - numbers[i - 1] == step) continue;
    return Status(Code::kUsage,
                  fmt::format("'{}': a frame is missing between '{}' and '{}': expected number {}", folder,
                              names[i - 1], names[i], numbers[i - 1] + step),
                  "copy it there; --allow-gaps takes the frames as they are");
  }
  return Status::Ok();
}

Result<std::vector<FoundClip>> FindRestoreClips(const MediaOptions& options, int64_t spike_channels) {
  struct stat info{};
  if (::stat(options.input.c_str(), &info) != 0) return FileError("open", options.input, errno);
  LOCKSTEP_RETURN_IF_ERROR(CheckApart(options));
  Result<std::vector<FoundClip>> clips = ListClips(options);
  if (!clips.ok()) return clips.status();
  if (!clips->front().name.empty()) {
    const Result<Written> root = WrittenAs(options.output);
    if (!root.ok()) return root.status();
    if (*root != Written::kFolder) {
      return Status(
          Code::kUsage,
          fmt::format("'{}' has {} clips, and OUTPUT '{}' is one file", options.input, clips->size(), options.output),
          "give a folder as OUTPUT: each clip goes to its name in it");
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckNameLength(Trimmed(options.output)));
  std::set<std::string> endings;  // of videos to be written
  for (FoundClip& clip : *clips) {
    LOCKSTEP_RETURN_IF_ERROR(CheckNameLength(clip.output));
    std::vector<std::string> files = {clip.input};
    if (IsFolder(clip.input)) {
      Result<std::vector<std::string>> names = PicturesOf(clip.input);
      if (!names.ok()) return names.status();
      if (names->empty()) {
        return Status(Code::kUsage, fmt::format("'{}' has no frames: expected {}", clip.input, data::kImageNames),
                      "a folder of clips holds videos and folders of frames, nothing deeper");
      }
      LOCKSTEP_RETURN_IF_ERROR(ReadFolder(options, *names, &clip));
      files = clip.frames;
    } else {
      LOCKSTEP_RETURN_IF_ERROR(ReadFile(options, &clip));
    }
    // A clip among others keeps its kind; alone, OUTPUT says it.
    const Result<Written> written = clip.name.empty()
                                        ? WrittenAs(options.output)
                                        : Result<Written>(clip.frames.empty() ? Written::kVideo : Written::kFolder);
    if (!written.ok()) return written.status();
    clip.written = *written;
    if (clip.written == Written::kVideo && endings.insert(clip.output.substr(clip.output.find_last_of('.'))).second) {
      LOCKSTEP_RETURN_IF_ERROR(CheckVideo(clip.output, clip.shape, options.out));
    }
    if (spike_channels > 0) LOCKSTEP_RETURN_IF_ERROR(FindSpikes(options, spike_channels, &clip));
    Checksum sum;
    LOCKSTEP_RETURN_IF_ERROR(AddIdentity(files, &sum));
    LOCKSTEP_RETURN_IF_ERROR(AddIdentity(clip.spikes, &sum));
    clip.identity = sum.Text();
  }
  return clips;
}

Result<CountedFrames> CountFrames(const FoundClip& clip, const MediaOptions& options) {
  if (clip.shape.count_certain) return CountedFrames{clip.shape.count, {}, {}};
  MediaOptions one = options;
  one.input = clip.input;
  Result<AskedFrames> asked = OpenAsked(one);
  if (!asked.ok()) return asked.status();
  CountedFrames counted;
  if (asked->shape.count == 0 || asked->shape.count > kCountSilently) {
    fmt::print(stderr, "lockstep restore: counting the frames of '{}'\n", clip.input);
  }
  while (options.max_frames == 0 || counted.count < options.max_frames) {
    int64_t ask = kCountAtOnce;
    if (options.max_frames > 0) ask = std::min<int64_t>(ask, static_cast<int64_t>(options.max_frames - counted.count));
    Result<Piece> piece = asked->input->Read(ask);
    if (!piece.ok()) return piece.status();
    if (piece->count() == 0) break;
    counted.count += static_cast<uint64_t>(piece->count());
    counted.seconds.insert(counted.seconds.end(), piece->seconds.begin(), piece->seconds.end());
  }
  if (counted.count == 0) return Status(Code::kEnvironment, fmt::format("'{}' has not one frame", clip.input));
  counted.notes = asked->input->Notes();
  if (!clip.spikes.empty() && clip.spikes.size() < counted.count) {
    return Status(
        Code::kUsage,
        fmt::format("--spikes: {} files for the {} frames of '{}'", clip.spikes.size(), counted.count, clip.input),
        "give one file for each frame");
  }
  return counted;
}

}  // namespace lockstep::media
