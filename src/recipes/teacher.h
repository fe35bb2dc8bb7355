// The teacher of an autoencoder: what turns a clip into the latents a student shall learn. A TorchScript file, frozen,
// without gradients; its latents may lie in a feature cache (teacher_cache.h). Everything about it that can be wrong is
// an error that says what was expected: a student never trains against something else in silence. Owned by a recipe;
// one thread; every rank has its own; nothing is collective.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "cache/description.h"
#include "engine/precision.h"
#include "models/taehv.h"

namespace lockstep::recipes {

class FrozenScript;
struct ScriptFile;

struct TeacherConfig {
  std::string kind = "none";             // none, torchscript, program
  std::string path;                      // of the file
  std::vector<std::string> arguments;    // of a program
  std::vector<std::string> weights;      // files it reads its weights from
  std::array<double, 2> range = {0, 1};  // of the values it takes: black and white
  std::string layout = "NTCHW";          // of what it takes and gives; or NCTHW
  engine::Precision precision = engine::Precision::kFp32;
  struct Cache {
    std::string root;             // empty: none
    std::string policy = "auto";  // auto, read, require
    cache::Storage stored = cache::Storage::kSame;
    double max_error = 0.1;
  } cache;
};
void Declare(ConfigReader& reader, TeacherConfig* config);
ScriptFile FileOf(const TeacherConfig& config);

class Teacher {
 public:
  // Loads the file onto the device.
  static Result<std::unique_ptr<Teacher>> Load(const TeacherConfig& config, at::Device device);
  ~Teacher();

  // Calls it with one made-up clip: the latents must be of the student's shape, finite, and floating point.
  // `must_repeat`: drawing random numbers of its own is an error, otherwise a warning.
  Status Probe(const models::TaehvConfig& student, int64_t frames, int64_t height, int64_t width, bool must_repeat);

  // Frames NTCHW in [0, 1] to what the teacher gives for them, NTCHW, float32: latents, or their mean and deviation.
  // The same clip has the same features at all times.
  Result<std::vector<at::Tensor>> Features(const at::Tensor& frames);
  // Latents from features. Mean and deviation are sampled, with noise from keys[n] for clip n, on any device and number
  // of ranks alike.
  static at::Tensor Sample(const std::vector<at::Tensor>& features, const std::vector<uint64_t>& keys);
  // Both.
  Result<at::Tensor> Encode(const at::Tensor& frames, const std::vector<uint64_t>& keys);

  at::Device device() const { return device_; }
  // Known from the probe on.
  bool sampled() const { return sampled_; }
  double seconds_per_clip() const { return seconds_per_clip_; }

 private:
  Teacher(TeacherConfig config, at::Device device, std::unique_ptr<FrozenScript> script);
  TeacherConfig config_;
  at::Device device_;
  std::unique_ptr<FrozenScript> script_;
  bool probing_ = false, sampled_ = false;
  double seconds_per_clip_ = 0;
  std::vector<int64_t> of_one_clip_;  // its latents without the first axis, from the probe on
};

}  // namespace lockstep::recipes
