// What video restoration is trained and tested on: clips of degraded frames with the frames they should become and,
// where asked, spikes, listed and checked once (docs/vrt.md#data). Nothing that contradicts itself passes: a clip that
// one side lacks, a frame missing in the middle, an input that is not the target's size / scale, a crop larger than a
// frame, a clip without spikes, spikes of another sensor. Any thread; ranks that open the same data get equal sets.
//
//   layout     below `target`, `input`                        spikes below `spikes`
//   folders    CLIP/NUMBER.png (or .jpg; any prefix, "im3")   CLIP/spike/NUMBER.dat, CLIP/tfp_b4_hw20/NUMBER.npy
//   lmdb       X.lmdb as KAIR writes it, keys CLIP/NUMBER,    the same, in folders
//              with its meta_info.txt
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/file_source.h"
#include "data/image.h"
#include "data/parts.h"
#include "data/spike.h"

namespace lockstep::data {

struct SpikeInput {
  bool use = false;
  std::string path;  // folder of clips; not for kind generated
  SpikeSensor sensor;
  SpikeForm form;
  bool precomputed = false;      // read .npy arrays of the form instead of .dat
  std::string precomputed_path;  // empty: beside the .dat files
  bool floats = false;           // the field is F32 and exact; else U8, 255 for 1
  bool all = false;  // a frame whose file is missing or of a wrong size is an error of Open; else of reading
};

struct PairedConfig {
  std::string kind = "generated";  // generated | folders | lmdb
  std::string target, input;       // folders, or .lmdb folders ("X" also finds "X.lmdb")
  std::string meta_info;           // KAIR's list of clips; empty: every clip below `target`
  std::string partition;           // REDS4 or official: clips of REDS that validate ...
  bool validation = false;         // ... and whether these are wanted, or all others
  SpikeInput spikes;
  int frames = 6;
  int repeat_last = 0;  // times that the last one follows again: KAIR's pad_sequence
  int crop = 224;       // of the target, square; 0: whole frames, which are then of one size
  int scale = 1;        // target size / input size
  std::vector<int> intervals = {1};
  bool every_start = true;  // every frame begins a sample, as KAIR counts; false: one sample for each clip
  bool random_reverse = false, hflip = true, rotate = true;
  double color_jitter = 0;  // how far brightness, contrast, saturation and hue are changed, the same for all frames
  // Of frame interpolation: every second frame is input, `frames` of them, and the one in their middle is the target.
  bool interpolate = false;
  std::array<int, 2> center{0, 0};  // height and width of the part of test frames that counts; 0: all of it
  bool repeat_ends = false;         // a test clip goes on with its first and its last frame
  // Of kind generated:
  uint64_t clips = 256, seed = 0;
  int sensor_divisor = 1;  // picture size / sensor size

  int SampleFrames() const { return frames + repeat_last; }
  int Span() const { return interpolate ? 2 * frames - 1 : frames; }  // frames of a clip that a sample reaches over
};

extern const std::vector<std::string> kPairedKinds;

// A line of a meta_info file: "GOPR0372_07_00 100 (720,1280,3) 47". The shape is not looked at: files have "0" or
// anything else there. Lines of KAIR's list of Vimeo90K have no fourth column, those of its own lists the clip alone.
struct MetaLine {
  std::string clip;
  int64_t frames = 0;  // 0: all that there are
  int64_t first = -1;  // number of the first frame; -1: the file does not say
};
Result<std::vector<MetaLine>> ParseMetaInfo(std::string_view text, const std::string& name);

// Clips of REDS that validate: "REDS4" or "official".
Result<std::vector<std::string>> RedsPartition(const std::string& name);

struct PairedClip {
  std::string name;
  int64_t first = 0;          // number of its first frame
  int height = 0, width = 0;  // of the target
  int input_height = 0, input_width = 0;
  std::vector<Picture> target, input;  // frame after frame, without gaps
  std::vector<std::string> stems;      // "000047": names of frames without their ending
  int64_t frames() const { return static_cast<int64_t>(target.size()); }
};

class PairedSet {
 public:
  static Result<PairedSet> Open(const PairedConfig& config);

  const std::vector<PairedClip>& clips() const { return clips_; }
  const PairedConfig& config() const { return config_; }
  const std::string& notes() const { return notes_; }  // what was left out
  int64_t frames() const;

  // A frame, or at least the given rows of it.
  Result<Image> ReadTarget(const PairedClip& clip, int64_t frame, const WindowOf& window = nullptr) const;
  Result<Image> ReadInput(const PairedClip& clip, int64_t frame, const WindowOf& window = nullptr) const;
  // Spikes of a box of the input picture, resized to that box: [channels, box.height, box.width].
  Result<std::vector<float>> ReadSpikes(const PairedClip& clip, int64_t frame, const SpikeBox& box) const;
  std::string SpikePath(const PairedClip& clip, int64_t frame) const;

 private:
  Status NoClip(const MetaLine& line, const Status& why) const;
  Status TakePartition(std::vector<MetaLine>* lines);
  Status ListFolderClips(std::vector<MetaLine> lines);
  Status ListLmdbClips(std::vector<MetaLine> lines);
  Status CheckSizes();
  Status CheckSpikes() const;
  Status CheckSpikeFile(const std::string& path, bool first) const;
  std::string SpikeFolder(const PairedClip& clip) const;
  Result<Image> Read(const std::string& root, const PairedClip& clip, const Picture& picture,
                     const WindowOf& window) const;

  PairedConfig config_;
  std::vector<PairedClip> clips_;
  std::string notes_;
  std::string target_file_, input_file_;  // data.mdb of lmdb
  std::shared_ptr<const PartReader> parts_ = std::make_shared<const PartReader>();
};

}  // namespace lockstep::data
