// The unfinished part of a restoration on disk, so that ranks can share it and a killed one goes on: a folder beside
// OUTPUT, OUTPUT.restoring (docs/formats/restoring.md). Every file in it appears whole, by rename; a window counts when
// its mark is there, after its frames. The result is moved to its place at the end, and a record beside it,
// OUTPUT.restored.json, says what made it. Paths are those of one launch; any thread, any rank.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "media/restore.h"
#include "media/restore_clips.h"

namespace lockstep::media {

// Names of the files of a work folder.
class WorkFiles {
 public:
  explicit WorkFiles(const std::string& output);
  const std::string& path() const { return path_; }
  std::string Plan() const { return path_ + "/plan.json"; }
  std::string Lock() const { return path_ + "/lock"; }
  std::string Clip(size_t clip) const;
  std::string Frames(size_t clip) const { return Clip(clip) + "/frames"; }
  std::string Frame(size_t clip, const std::string& name) const { return Frames(clip) + "/" + name; }
  // What one window gives for a frame that others hold, too: float32.
  std::string Shared(size_t clip, int64_t frame, size_t window) const;
  std::string Mark(size_t clip, size_t window) const;
  std::string Published(size_t clip) const { return Clip(clip) + "/published"; }
  // Frames of a clip without gaps in time have none.
  std::string Times(size_t clip) const { return Clip(clip) + "/times"; }
  // The video or tensor file in the making.
  std::string Made(size_t clip, const std::string& output) const;

 private:
  std::string path_;
};
// Where the record of a finished output lies.
std::string RecordOf(const std::string& output);

// What a clip has to do with.
struct WorkState {
  bool complete = false;      // nothing to do; its output is there
  uint64_t count = 0;         // frames that come out, certain
  std::vector<uint8_t> done;  // windows that are there
  uint64_t windows() const { return done.size(); }
};
nlohmann::json ToJson(const std::vector<WorkState>& states);
std::vector<WorkState> WorkStatesFrom(const nlohmann::json& json);

// Rank 0 alone: compares with what is there, takes the lock, counts the frames of videos and makes the folders. It
// holds the lock until it is destroyed. Errors, before anything is changed: an output that is in the way, an unfinished
// restoration or a record with other settings, another process at work.
class WorkFolder {
 public:
  // `settings`: everything but the clips that the result depends on, one text for each key.
  static Result<WorkFolder> Open(const MediaOptions& options, const nlohmann::json& settings,
                                 const std::vector<FoundClip>& clips, const RestoreTiles& tiles);
  const std::vector<WorkState>& states() const { return states_; }
  bool all_complete() const;
  // Windows that were there, of an earlier process.
  uint64_t kept() const;
  // What the decoders of unfinished clips had to leave out, also in an earlier process.
  const std::vector<std::string>& notes() const { return notes_; }
  // When all clips are published.
  Status Remove();

 private:
  explicit WorkFolder(const std::string& output) : files_(output) {}
  Status Prepare(const MediaOptions& options, const nlohmann::json& plan, const std::vector<FoundClip>& clips,
                 const RestoreTiles& tiles);

  WorkFiles files_;
  UniqueFd lock_;
  std::vector<WorkState> states_;
  std::vector<std::string> notes_;
};

// The record of a finished clip.
nlohmann::json RecordOfClip(const nlohmann::json& settings, const FoundClip& clip, uint64_t frames);

// Moves `made` to the clip's output, with its record, and marks it as published. What is there is replaced with
// `overwrite` only.
Status PublishClip(const WorkFiles& files, size_t number, const FoundClip& clip, const std::string& made,
                   const nlohmann::json& record, bool overwrite);

// A tensor's bytes as a file; back with a check of its size.
Status WriteRaw(const std::string& path, const at::Tensor& values);
Result<at::Tensor> ReadRaw(const std::string& path, at::IntArrayRef shape, at::ScalarType type);

bool FileExists(const std::string& path);

}  // namespace lockstep::media
