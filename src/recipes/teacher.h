// The teacher of an autoencoder: what turns a clip into the latents a student shall learn. A TorchScript file (frozen,
// without gradients), or latents that lie on disk beside the clips (docs/formats/latents.md). Everything about it that
// can be wrong is an error that says what was expected: a student never trains against something else in silence.
// Owned by a recipe; one thread; every rank has its own; nothing is collective.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "data/sampler.h"
#include "data/source.h"
#include "engine/precision.h"
#include "models/taehv.h"

namespace lockstep::recipes {

struct TeacherConfig {
  std::string kind = "none";             // none, torchscript, latents
  std::string path;                      // a file, or a folder of latents
  std::array<double, 2> range = {0, 1};  // of the values it takes: black and white
  std::string layout = "NTCHW";          // of what it takes and gives; or NCTHW
  engine::Precision precision = engine::Precision::kFp32;
  std::string write;  // folder its latents are kept in
};
void Declare(ConfigReader& reader, TeacherConfig* config);

class Teacher {
 public:
  // Loads the file onto the device.
  static Result<std::unique_ptr<Teacher>> Load(const TeacherConfig& config, at::Device device);
  ~Teacher();

  // Calls it with one made-up clip: the latents must be of the student's shape, finite, and floating point.
  // `must_repeat`: drawing random numbers of its own is an error, otherwise a warning.
  Status Probe(const models::TaehvConfig& student, int64_t frames, int64_t height, int64_t width, bool must_repeat);

  // Frames NTCHW in [0, 1] to latents NTCHW, float32. A teacher that gives (mean, deviation) is sampled here, with
  // noise from keys[n] for clip n, on any device and number of ranks alike.
  Result<at::Tensor> Encode(const at::Tensor& frames, const std::vector<uint64_t>& keys);

 private:
  struct Script;
  Teacher(TeacherConfig config, at::Device device);
  TeacherConfig config_;
  at::Device device_;
  std::unique_ptr<Script> script_;
  bool probing_ = false;
  std::vector<int64_t> of_one_clip_;  // its latents without the first axis, from the probe on
};

// `source` with one more field, "latents": float32 [count, channels, height, width] of each clip from the folder. Looks
// for all files at once where there are at most 10,000.
Result<std::shared_ptr<const data::Source>> WithLatents(std::shared_ptr<const data::Source> source,
                                                        const std::string& folder, const std::vector<int64_t>& shape);

// The file of clip `number` of a video.
std::string LatentsPath(const std::string& folder, const std::string& origin, uint64_t number);
// `latents` [count, channels, height, width]; `frames` (U8 [T, 3, H, W]) leave their checksum, which reading compares.
Status WriteLatents(const std::string& path, const at::Tensor& latents, const at::Tensor& frames);

// Keeps the latents of the clips of one source, each written once.
class LatentsFolder {
 public:
  LatentsFolder(std::string folder, std::shared_ptr<const data::Source> source);
  // `latents` and `frames` of samples `ids`.
  Status Keep(const std::vector<data::SampleId>& ids, const at::Tensor& latents, const at::Tensor& frames);

 private:
  std::string folder_;
  std::shared_ptr<const data::Source> source_;
  std::vector<uint64_t> numbers_;
  std::vector<bool> done_;
};

}  // namespace lockstep::recipes
