// The tools that run a model over video files: reconstruct, encode, decode, restore; and what they share: options, the
// model on its device, frames to and from what the model takes, progress, the summary at the end. Main thread only.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "media/files.h"
#include "media/load_taehv.h"
#include "media/restore.h"
#include "media/vrt_spikes.h"
#include "track/progress_line.h"

namespace lockstep::media {

// Of `restore` alone.
struct RestoreAsked {
  RestoreTiles tiles;                       // batch 0: chosen by the device
  std::string spikes;                       // folder of .dat files, one for each frame; of many clips the one above
  std::string spike_form;                   // "": as in training, where the weights say it, else tfp
  int sensor_height = 0, sensor_width = 0;  // 0: likewise, else 360 x 640
  bool no_flip = false;
  std::optional<VrtSpikes> trained;  // what the weights say
  std::optional<int> noise;          // of 255
  bool allow_gaps = false;           // numbers of frames may leave some out
  comm::Bootstrap who;               // ranks share clips and windows
  std::string ranks;                 // the launcher's; here it is an error
  std::string summary;               // file to which the summary goes instead of stdout
};

struct MediaOptions {
  std::string command, weights, variant, input, output;
  std::string device = "auto", precision = "auto", execution = "fast", dtype = "f32";
  std::string fps;
  int64_t chunk = 0;        // frames; 0: chosen
  uint64_t max_frames = 0;  // 0: all
  OutputOptions out;
  bool json = false;
  RestoreAsked restore;
  bool no_tail = false;  // encode: no further latents for the last frames
};

// The frames a command reads, and their shape with --fps and --max-frames taken into account.
struct AskedFrames {
  std::unique_ptr<MediaInput> input;
  MediaShape shape;
};
Result<AskedFrames> OpenAsked(const MediaOptions& options);

// What --device asks for.
Result<at::Device> DeviceFor(const MediaOptions& options);

class MediaModel {
 public:
  // Loads the weights and brings them to the device.
  static Result<MediaModel> Load(const MediaOptions& options);

  models::Taehv& taehv() const { return *loaded_.model; }
  const models::TaehvConfig& config() const { return loaded_.model->config(); }
  const LoadedTaehv& loaded() const { return loaded_; }
  at::Device device() const { return device_; }
  const char* precision() const;

  // Time steps of one piece for frames of this size.
  int64_t PieceOf(const MediaOptions& options, const MediaShape& frames) const;
  // Frames of a file as the model takes them: [0, 1], on its device, the last row and column repeated up to the model's
  // multiple.
  at::Tensor Take(const at::Tensor& frames) const;
  at::Tensor TakeLatents(const at::Tensor& latents) const { return latents.to(device_, type_); }
  // Frames of the model for the file: cropped; bytes if `bytes`. An error if the model gave something that is no
  // number.
  Result<at::Tensor> Give(const at::Tensor& frames, int64_t height, int64_t width, bool bytes) const;
  // The same in the CPU's memory; `planes`: as files of tensors hold them, else as they are.
  static at::Tensor ToHost(const at::Tensor& frames, bool planes);
  Result<at::Tensor> GiveLatents(const at::Tensor& latents) const;
  // How many frames to encode, the last one repeated, so that decoding gives back all `frames`.
  int64_t Complete(int64_t frames) const;

 private:
  LoadedTaehv loaded_;
  at::Device device_ = at::kCPU;
  at::ScalarType type_ = at::kFloat;
};

// Counts frames on stderr; the summary's clock.
class MediaProgress {
 public:
  explicit MediaProgress(uint64_t total);  // 0: unknown
  void Done(int64_t frames);
  void End() { line_.Finish(); }
  uint64_t frames() const { return frames_; }
  double seconds() const;

 private:
  track::ProgressLine line_;
  TimePoint began_;
  uint64_t frames_ = 0;
};

// What went through, for the summary of any command; notes are printed as well.
void SummarizeFrames(const MediaOptions& options, const MediaShape& frames, const MediaProgress& progress,
                     const std::vector<std::string>& notes, nlohmann::json* summary);
// The same, and the autoencoder.
void Summarize(const MediaOptions& options, const MediaModel& model, const MediaShape& frames,
               const MediaProgress& progress, const std::vector<std::string>& notes, nlohmann::json* summary);

std::string RateText(const data::Ratio& rate);  // "30000/1001" or "25"

// Each fills the summary; an output that was not finished leaves nothing behind.
Status Reconstruct(const MediaOptions& options, nlohmann::json* summary);  // frames through the model and back
Status Encode(const MediaOptions& options, nlohmann::json* summary);       // frames to latents
Status Decode(const MediaOptions& options, nlohmann::json* summary);       // latents to frames
Status Restore(const MediaOptions& options, nlohmann::json* summary);      // frames through VRT

}  // namespace lockstep::media
