#include "media/restore_work.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/version.h"
#include "data/listing.h"
#include "data/publish.h"
#include "media/interpolate.h"

namespace lockstep::media {
namespace {

constexpr int kFormat = 1;

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// "weights, --tile (224, was 128)" of two objects of texts.
std::string Differences(const nlohmann::json& was, const nlohmann::json& now) {
  std::vector<std::string> different;
  for (const auto& [key, value] : now.items()) {
    const std::string old = GetString(was, key, "nothing");
    if (value.is_string() && value.get<std::string>() == old) continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const bool plain = text.size() <= 40 && old.size() <= 40 && !text.starts_with("xxh3");
    different.push_back(plain ? fmt::format("{} ({}, was {})", key, text, old) : key);
  }
  return Join(different, ", ");
}

nlohmann::json PlanOf(const nlohmann::json& settings, const std::vector<FoundClip>& clips) {
  nlohmann::json plan = {{"format", kFormat}, {"settings", settings}, {"clips", nlohmann::json::array()}};
  for (const FoundClip& clip : clips) {
    plan["clips"].push_back({{"name", clip.name}, {"input", clip.input}, {"identity", clip.identity}});
  }
  return plan;
}

// What differs between an unfinished restoration and what is asked for; "": nothing.
std::string PlanDifferences(const nlohmann::json& was, const nlohmann::json& now) {
  if (GetInt(was, "format") != kFormat) return "the format of the folder";
  std::string text = Differences(was.value("settings", nlohmann::json::object()), now["settings"]);
  const nlohmann::json clips = was.value("clips", nlohmann::json::array());
  std::string changed;
  for (size_t i = 0; i < now["clips"].size() && changed.empty(); ++i) {
    const nlohmann::json& clip = now["clips"][i];
    if (i >= clips.size() || GetString(clips[i], "name") != GetString(clip, "name") ||
        GetString(clips[i], "identity") != GetString(clip, "identity")) {
      changed = fmt::format("the files of '{}'", clip["input"].get<std::string>());
    }
  }
  if (changed.empty() && clips.size() > now["clips"].size()) changed = "the clips of INPUT";
  if (!changed.empty()) text += (text.empty() ? "" : ", ") + changed;
  return text;
}

bool IsFolderOfPictures(const std::string& path) {
  const Result<std::vector<std::string>> names = ListDir(path);
  return names.ok() && std::ranges::all_of(*names, [](const std::string& name) { return name.ends_with(".png"); });
}

// Whether the clip's output is there, made by these settings from these files; an error where something else is.
Result<bool> IsComplete(const MediaOptions& options, const nlohmann::json& settings, const FoundClip& clip,
                        bool published) {
  struct stat info{};
  if (::stat(clip.output.c_str(), &info) != 0) {
    if (::lstat(clip.output.c_str(), &info) != 0) return false;
    return Status(Code::kUsage, fmt::format("'{}' is a link to nowhere", clip.output),
                  "mount or make what it names, or remove the link");
  }
  const bool folder = S_ISDIR(info.st_mode);
  const Result<nlohmann::json> record = ReadJsonFile(RecordOf(clip.output));
  const bool known = record.ok() && GetInt(*record, "format") == kFormat;
  if (!options.out.overwrite || published) {
    if (!known) {
      return Status(Code::kUsage, fmt::format("'{}' exists", clip.output), "choose another name, or add --overwrite");
    }
    std::string text = Differences(record->value("settings", nlohmann::json::object()), settings);
    if (GetString(*record, "identity") != clip.identity) {
      text += fmt::format("{}the files of '{}'", text.empty() ? "" : ", ", clip.input);
    }
    if (folder && text.empty()) {
      const Result<std::vector<std::string>> names = ListDir(clip.output);
      const auto frames = static_cast<size_t>(GetInt(*record, "frames"));
      if (!names.ok() || names->size() < frames) {
        text = fmt::format("{} of its {} frames are missing", frames - (names.ok() ? names->size() : 0), frames);
      }
    }
    if (text.empty()) return true;
    return Status(Code::kUsage,
                  fmt::format("'{}' exists and is not what this command would write: {}", clip.output, text),
                  "choose another name, or add --overwrite");
  }
  const bool wanted = clip.written == Written::kFolder;
  if (folder != wanted) {
    return FileError("write", clip.output, folder ? EISDIR : ENOTDIR).WithCode(Code::kUsage);
  }
  // A folder that was not written here is replaced only if it looks as if it was.
  if (folder && !(known && IsFolderOfPictures(clip.output))) {
    LOCKSTEP_RETURN_IF_ERROR(data::Publication::Folder(clip.output, /*overwrite=*/true).status());
  }
  return false;
}

bool HasWindows(const WorkFiles& files, const nlohmann::json& plan) {
  const size_t clips = plan.value("clips", nlohmann::json::array()).size();
  for (size_t i = 0; i < clips; ++i) {
    const Result<std::vector<std::string>> marks = ListDir(files.Clip(i) + "/windows");
    if (marks.ok() && !marks->empty()) return true;
  }
  return false;
}

Status MakeClipFolders(const WorkFiles& files, size_t clip) {
  for (const char* name : {"/frames", "/shared", "/windows"}) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(files.Clip(clip) + name));
  }
  return Status::Ok();
}

Status WriteTimes(const std::string& path, const std::vector<double>& seconds) {
  if (seconds.empty()) return Status::Ok();
  const std::string_view bytes(reinterpret_cast<const char*>(seconds.data()), seconds.size() * sizeof(double));
  return WriteFileAtomic(path, bytes, 0644, Durability::kProcess);
}

}  // namespace

WorkFiles::WorkFiles(const std::string& output) : path_(WithoutSlash(output) + ".restoring") {}

std::string WorkFiles::Clip(size_t clip) const { return fmt::format("{}/clip-{:05}", path_, clip); }

std::string WorkFiles::Shared(size_t clip, int64_t frame, size_t window) const {
  return fmt::format("{}/shared/{:08}-{:06}", Clip(clip), frame, window);
}

std::string WorkFiles::Mark(size_t clip, size_t window) const {
  return fmt::format("{}/windows/{:06}", Clip(clip), window);
}

std::string WorkFiles::Made(size_t clip, const std::string& output) const {
  return Clip(clip) + "/" + output.substr(output.find_last_of('/') + 1);
}

std::string RecordOf(const std::string& output) { return WithoutSlash(output) + ".restored.json"; }

bool FileExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

nlohmann::json ToJson(const std::vector<WorkState>& states) {
  nlohmann::json json = nlohmann::json::array();
  for (const WorkState& state : states) {
    json.push_back({{"complete", state.complete}, {"count", state.count}, {"done", state.done}});
  }
  return json;
}

std::vector<WorkState> WorkStatesFrom(const nlohmann::json& json) {
  std::vector<WorkState> states;
  for (const nlohmann::json& one : json) {
    states.push_back({one["complete"], one["count"], one["done"].get<std::vector<uint8_t>>()});
  }
  return states;
}

bool WorkFolder::all_complete() const {
  return std::ranges::all_of(states_, [](const WorkState& state) { return state.complete; });
}

uint64_t WorkFolder::kept() const {
  uint64_t kept = 0;
  for (const WorkState& state : states_) kept += static_cast<uint64_t>(std::ranges::count(state.done, 1));
  return kept;
}

Result<WorkFolder> WorkFolder::Open(const MediaOptions& options, const nlohmann::json& settings,
                                    const std::vector<FoundClip>& clips, const RestoreTiles& tiles) {
  WorkFolder work(options.output);
  const WorkFiles& files = work.files_;
  const nlohmann::json plan = PlanOf(settings, clips);
  const Result<nlohmann::json> before = ReadJsonFile(files.Plan());
  const std::string different = before.ok() ? PlanDifferences(*before, plan) : "";
  const bool goes_on = before.ok() && different.empty();
  // What has no window yet (out of memory at the first) is nothing to lose.
  if (!different.empty() && !options.out.overwrite && HasWindows(files, *before)) {
    return Status(Code::kUsage,
                  fmt::format("'{}' holds an unfinished restoration with other settings: {}", files.path(), different),
                  "finish it with those settings, choose another OUTPUT, or discard it with --overwrite");
  }
  work.states_.resize(clips.size());
  for (size_t i = 0; i < clips.size(); ++i) {
    // A folder of frames that is gone was moved to its place, and the process killed before it could say so.
    const bool moved =
        clips[i].written == Written::kFolder && FileExists(files.Clip(i)) && !FileExists(files.Frames(i));
    const bool published = goes_on && (moved || FileExists(files.Published(i)));
    const Result<bool> complete = IsComplete(options, settings, clips[i], published);
    if (!complete.ok()) return complete.status();
    work.states_[i].complete = *complete;
    if (*complete) {
      const Result<nlohmann::json> record = ReadJsonFile(RecordOf(clips[i].output));
      work.states_[i].count = record.ok() ? static_cast<uint64_t>(GetInt(*record, "frames")) : 0;
    }
  }
  if (work.all_complete()) {
    // Killed after the last clip was there.
    if (goes_on) LOCKSTEP_RETURN_IF_ERROR(RemoveAll(files.path()));
    return work;
  }
  const std::string parent =
      files.path().find('/') == std::string::npos ? "." : files.path().substr(0, files.path().find_last_of('/') + 1);
  if (!FileExists(parent)) return FileError("create", options.output, ENOENT);
  const bool fresh = !FileExists(files.path());
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(files.path()));
  const Status prepared = work.Prepare(options, goes_on ? *before : plan, clips, tiles);
  if (prepared.ok()) return work;
  if (fresh) static_cast<void>(RemoveAll(files.path()));
  return prepared;
}

Status WorkFolder::Prepare(const MediaOptions& options, const nlohmann::json& plan, const std::vector<FoundClip>& clips,
                           const RestoreTiles& tiles) {
  lock_ = UniqueFd(::open(files_.Lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_) return FileError("create", files_.Lock(), errno);
  // A file system without locks has none to respect.
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status(Code::kUsage, fmt::format("another process restores into '{}'", files_.path()),
                  "wait until it is done, or stop it");
  }
  const bool goes_on = FileExists(files_.Plan()) && plan["clips"][0].contains("frames");
  if (!goes_on) {
    const Result<std::vector<std::string>> names = ListDir(files_.path());
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (name != "lock") LOCKSTEP_RETURN_IF_ERROR(RemoveAll(files_.path() + "/" + name));
    }
  }
  nlohmann::json counted = plan;
  for (size_t i = 0; i < clips.size(); ++i) {
    WorkState& state = states_[i];
    nlohmann::json& entry = counted["clips"][i];
    entry["frames"] = state.complete ? state.count : 0;
    if (state.complete) continue;
    LOCKSTEP_RETURN_IF_ERROR(MakeClipFolders(files_, i));
    if (goes_on && GetInt(plan["clips"][i], "frames") > 0) {
      state.count = static_cast<uint64_t>(GetInt(plan["clips"][i], "frames"));
    } else {
      Result<CountedFrames> frames = CountFrames(clips[i], options);
      if (!frames.ok()) return frames.status();
      const bool between = tiles.between > 0;
      state.count =
          between ? static_cast<uint64_t>(InterpolatedCount(static_cast<int64_t>(frames->count))) : frames->count;
      LOCKSTEP_RETURN_IF_ERROR(
          WriteTimes(files_.Times(i), between ? InterpolatedTimes(frames->seconds) : frames->seconds));
      if (!frames->notes.empty()) entry["notes"] = frames->notes;
    }
    for (const nlohmann::json& note : entry.value("notes", nlohmann::json::array())) {
      if (note.is_string()) notes_.push_back(note.get<std::string>());
    }
    entry["frames"] = state.count;
    const size_t windows = FrameWindows(static_cast<int64_t>(state.count), tiles).size();
    for (size_t w = 0; w < windows; ++w) state.done.push_back(FileExists(files_.Mark(i, w)) ? 1 : 0);
  }
  return WriteFileAtomic(files_.Plan(), counted.dump(1) + "\n");
}

Status WorkFolder::Remove() { return RemoveAll(files_.path()); }

nlohmann::json RecordOfClip(const nlohmann::json& settings, const FoundClip& clip, uint64_t frames) {
  return {{"format", kFormat},   {"made_by", VersionText("lockstep")},
          {"input", clip.input}, {"identity", clip.identity},
          {"frames", frames},    {"settings", settings}};
}

Status PublishClip(const WorkFiles& files, size_t number, const FoundClip& clip, const std::string& made,
                   const nlohmann::json& record, bool overwrite) {
  if (!clip.name.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(clip.output.substr(0, clip.output.find_last_of('/'))));
  }
  if (FileExists(clip.output)) {
    if (!overwrite) {
      return Status(Code::kUsage, fmt::format("'{}' exists: it appeared meanwhile", clip.output),
                    "move it away and start again: the windows are kept");
    }
    const std::string aside = files.Clip(number) + "/replaced";
    LOCKSTEP_RETURN_IF_ERROR(RemoveAll(aside));
    if (::rename(clip.output.c_str(), aside.c_str()) != 0) return FileError("replace", clip.output, errno);
  }
  // The record first: an output without one is nobody's, a record without an output says nothing.
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(RecordOf(clip.output), record.dump(1) + "\n"));
  if (::rename(made.c_str(), clip.output.c_str()) != 0) return FileError("publish", clip.output, errno);
  return WriteFileAtomic(files.Published(number), "");
}

Status WriteRaw(const std::string& path, const at::Tensor& values) {
  const at::Tensor dense = values.contiguous();
  return WriteFileAtomic(path, {static_cast<const char*>(dense.data_ptr()), dense.nbytes()}, 0644,
                         Durability::kProcess);
}

Result<at::Tensor> ReadRaw(const std::string& path, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor values = at::empty(shape, type);
  Result<std::string> bytes = ReadFile(path, values.nbytes());
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() != values.nbytes()) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' has {} bytes, expected {}", path, bytes->size(), values.nbytes()),
                  "delete the folder it is in, and start again");
  }
  std::memcpy(values.data_ptr(), bytes->data(), bytes->size());
  return values;
}

}  // namespace lockstep::media
