// Pictures from spikes, as networks take them: texture from playback (TFP), texture from intervals (TFI), the raw bits
// around the middle, and counts in bins of time. Each form is a formula over the bits of one file (one file belongs to
// one RGB frame); the formulas are those of SpikeCV and S-VRT and are written down in docs/formats/spikes.md. Any
// thread.
//
//   form         channels  values
//   tfp          S         centre c of each of S equal parts of the time, clamped to [h, T - h]: mean of the spikes in
//                          [c - h, c + h], times 255, truncated to a byte; h = half_window = 20. Needs T > 2 h
//   middle_tfp   1         mean of [middle - 49, middle + 50], (x - min) / (max - min + 1e-6) over the whole picture
//   tfi          S         255 / (next spike after c - last spike up to c), both within h; 2 h where one is missing
//   raw_window   L         the bits of L steps around T / 2 (L odd), 0 or 1
//   voxel        S         spikes in each of S equal parts of the time / the most of any pixel in that part
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/npy.h"
#include "data/spike_file.h"

namespace lockstep::data {

enum class SpikeKind { kTfp, kMiddleTfp, kTfi, kRawWindow, kVoxel };
// tfp, middle_tfp, tfi, raw_window, voxel.
extern const std::vector<std::string> kSpikeKinds;
SpikeKind SpikeKindByName(const std::string& name);  // must be one of them

struct SpikeForm {
  SpikeKind kind = SpikeKind::kTfp;
  int channels = 1;  // S, or L of raw_window; 1 for middle_tfp
  int half_window = 20;
  int middle = 44;  // of middle_tfp
  // Name of the folder of precomputed pictures inside a clip's folder: "tfp_b4_hw20", "raw_window_l41".
  std::string Folder() const;
};

// What the form asks of a file: an even window, channels that the form does not have.
Status CheckForm(const SpikeForm& form);
// "too short" where a file of T steps gives no such picture. `name` is the file.
Status CheckSteps(const SpikeForm& form, int64_t steps, const std::string& name);
// Centres of S equal parts of T steps, clamped to [half, T - half].
std::vector<int64_t> SpikeCentres(int64_t steps, int channels, int half_window);

// Where spikes lie that belong to a box of an RGB picture: (top, left, size) times spike size / RGB size, rounded half
// to even, at least one pixel, moved inside.
SpikeBox BoxOfSpikes(const SpikeSensor& sensor, int rgb_height, int rgb_width, const SpikeBox& rgb_box);

// The form's channels inside a box: values 0 to 1, [channels, box.height, box.width]. Bytes of tfp and tfi are divided
// by 255, so nothing is lost.
Result<std::vector<float>> RenderSpikes(const SpikeFile& file, const SpikeForm& form, const SpikeBox& box);
// The same from a precomputed array [channels, height, width]; bytes are divided by 255, or not (raw_window).
Result<std::vector<float>> ReadRendered(const NpyFile& file, const SpikeSensor& sensor, const SpikeForm& form,
                                        const SpikeBox& box);
// A value as a byte, where a field of samples holds bytes.
inline uint8_t SpikeByte(float value) { return static_cast<uint8_t>(std::nearbyint(value * 255.0F)); }
// An array for the whole sensor, as ReadRendered reads it: bytes for tfp, tfi and raw_window, float32 for the others.
Result<std::string> RenderToNpy(const SpikeFile& file, const SpikeForm& form);

// Bilinear with half-pixel centres, edges continued, as OpenCV's INTER_LINEAR: planes [channels, from_height,
// from_width]
// -> [channels, height, width].
std::vector<float> ResizePlanes(std::vector<float> planes, int channels, int from_height, int from_width, int height,
                                int width);

}  // namespace lockstep::data
