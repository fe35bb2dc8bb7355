#include "data/prepare_pairs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/files.h"
#include "base/text.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/lmdb_listing.h"
#include "data/lmdb_writer.h"
#include "data/parallel.h"
#include "data/spike_scene.h"

namespace lockstep::data {
namespace {

// A frame of a set by its number over all clips.
struct FrameOf {
  const PairedClip* clip;
  int64_t frame;
};

std::vector<FrameOf> ShareOf(const PairedSet& set, const PrepareShare& share) {
  std::vector<FrameOf> frames;
  uint64_t n = 0;
  for (const PairedClip& clip : set.clips()) {
    for (int64_t i = 0; i < clip.frames(); ++i) {
      if (n++ % share.parts == share.part) frames.push_back({&clip, i});
    }
  }
  return frames;
}

int64_t SizeOnDisk(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : -1;
}

// Written whole or not at all, and not before what it was made from.
bool IsMadeFrom(const std::string& path, const std::string& source) {
  struct stat made{}, from{};
  if (::stat(path.c_str(), &made) != 0 || made.st_size == 0 || ::stat(source.c_str(), &from) != 0) return false;
  return std::pair(made.st_mtim.tv_sec, made.st_mtim.tv_nsec) >= std::pair(from.st_mtim.tv_sec, from.st_mtim.tv_nsec);
}

// Counts and reports, whichever thread did it; the first error stops the others.
class Tally {
 public:
  Tally(uint64_t all, const PrepareProgress& progress) : all_(all), progress_(progress) {}
  void Add(const Status& status, bool kept) {
    const std::lock_guard lock(mutex_);
    if (!status.ok() && error_.ok()) error_ = status;
    failed_ = failed_ || !status.ok();
    kept_ += kept ? 1 : 0;
    ++done_;
    if (progress_ && status.ok()) progress_(done_, kept_, all_);
  }
  bool failed() const { return failed_; }
  const Status& error() const { return error_; }

 private:
  uint64_t all_, done_ = 0, kept_ = 0;
  const PrepareProgress& progress_;
  std::mutex mutex_;
  std::atomic<bool> failed_ = false;
  Status error_;
};

std::string DatPath(const PairedSet& set, const PairedClip& clip, int64_t frame) {
  return fmt::format("{}/spike/{}.dat", JoinPath(set.config().spikes.path, clip.name), clip.stems[frame]);
}

std::vector<uint8_t> Interleaved(const std::vector<uint8_t>& planes) {
  const size_t pixels = planes.size() / 3;
  std::vector<uint8_t> rgb(planes.size());
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < 3; ++c) rgb[3 * i + c] = planes[c * pixels + i];
  }
  return rgb;
}

Status WritePicture(const std::string& path, const std::vector<uint8_t>& planes, int width, int height) {
  Result<std::string> png = EncodePng(Interleaved(planes), width, height);
  return png.ok() ? WriteFileAtomic(path, *png, 0644, Durability::kProcess) : png.status();
}

// Frames of an LMDB as they are now: the same keys, and values of the files' sizes.
bool HoldsFrames(const LmdbListing& lmdb, const PairedSet& set, bool target) {
  std::map<std::string, uint64_t> bytes;
  for (const LmdbValue& value : lmdb.values) bytes[value.key] = value.bytes;
  const std::string& root = target ? set.config().target : set.config().input;
  for (const PairedClip& clip : set.clips()) {
    for (int64_t i = 0; i < clip.frames(); ++i) {
      const auto found = bytes.find(fmt::format("{}/{}", clip.name, clip.stems[i]));
      const std::string file = JoinPath(JoinPath(root, clip.name), (target ? clip.target : clip.input)[i].name);
      if (found == bytes.end() || static_cast<int64_t>(found->second) != SizeOnDisk(file)) return false;
    }
  }
  return bytes.size() == static_cast<size_t>(set.frames());
}

// Generated clips are kept, so that a killed run goes on; those of other settings are not.
Status CheckSameScenes(const GeneratedTree& tree, const PrepareShare& share) {
  const std::string file = tree.path + "/scenes.txt";
  const std::string text = fmt::format("{} clips by seed {}, {} frames of {}x{}, sensor 1/{}\n", tree.clips, tree.seed,
                                       tree.frames, tree.width, tree.height, tree.divisor);
  if (const Result<std::string> known = ReadFile(file); known.ok()) {
    if (*known == text) return Status::Ok();
    return Status(
        Code::kUsage,
        fmt::format("'{}' has scenes of other settings: {}, asked for {}", tree.path, Trim(*known), Trim(text)),
        "choose another folder, or delete this one");
  }
  if (share.part != 0) return Status::Ok();
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(tree.path));
  return WriteFileAtomic(file, text);
}

Status WriteGeneratedClip(const GeneratedTree& tree, uint64_t clip, const std::string& split, const std::string& name) {
  const std::string gt = fmt::format("{}/GOPRO_Large/{}_GT/{}", tree.path, split, name);
  const std::string lq = fmt::format("{}/GOPRO_Large/{}_GT_blurred/{}", tree.path, split, name);
  const std::string spikes = fmt::format("{}/GOPRO_Large_spike_seq/{}/{}/spike", tree.path, split, name);
  for (const std::string& folder : {gt, lq, spikes}) LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  SpikeScene scene(tree.seed, clip, {.height = tree.height, .width = tree.width, .divisor = tree.divisor});
  for (uint64_t i = 0; i < tree.frames; ++i) {
    const SpikeScene::Exposure e = scene.Next();
    const std::string stem = fmt::format("{:06}", i + 1);
    LOCKSTEP_RETURN_IF_ERROR(WritePicture(fmt::format("{}/{}.png", gt, stem), e.sharp, tree.width, tree.height));
    LOCKSTEP_RETURN_IF_ERROR(WritePicture(fmt::format("{}/{}.png", lq, stem), e.blurred, tree.width, tree.height));
    // The last file of a frame: a clip that has all of them is finished.
    LOCKSTEP_RETURN_IF_ERROR(
        WriteFileAtomic(fmt::format("{}/{}.dat", spikes, stem), e.spikes, 0644, Durability::kProcess));
  }
  return Status::Ok();
}

}  // namespace

SpikeAlignment AlignSpikes(const PairedSet& set, const PrepareShare& share) {
  const std::vector<FrameOf> frames = ShareOf(set, share);
  SpikeAlignment found;
  std::mutex mutex;
  ForEachAtOnce(frames.size(), [&](size_t i) {
    const std::string path = DatPath(set, *frames[i].clip, frames[i].frame);
    const int64_t bytes = SizeOnDisk(path);
    Result<int64_t> steps =
        bytes < 0 ? Result<int64_t>(0) : SpikeSteps(static_cast<uint64_t>(bytes), set.config().spikes.sensor, path);
    Status fits = steps.ok() ? CheckSteps(set.config().spikes.form, *steps, path) : steps.status();
    const std::lock_guard lock(mutex);
    if (bytes < 0) {
      found.missing.push_back(frames[i].clip->name + "/" + frames[i].clip->stems[frames[i].frame]);
      return;
    }
    ++found.files;
    if (!fits.ok()) found.wrong.push_back(fits.ToString());
    if (!steps.ok()) return;
    found.least_steps = found.least_steps == 0 ? *steps : std::min(found.least_steps, *steps);
    found.most_steps = std::max(found.most_steps, *steps);
  });
  std::ranges::sort(found.missing, NaturalLess);
  std::ranges::sort(found.wrong);
  return found;
}

std::string MetaInfoOf(const PairedSet& set) {
  std::string text;
  for (const PairedClip& clip : set.clips()) {
    text += fmt::format("{} {} ({},{},3) {}\n", clip.name, clip.frames(), clip.height, clip.width, clip.first);
  }
  return text;
}

Status WriteFramesToLmdb(const PairedSet& set, bool target, const std::string& path, bool overwrite,
                         const PrepareProgress& progress) {
  const auto all = static_cast<uint64_t>(set.frames());
  if (!overwrite && SizeOnDisk(path + "/data.mdb") >= 0 && SizeOnDisk(path + "/meta_info.txt") >= 0) {
    const Result<LmdbListing> there = ListLmdb(path);
    if (!there.ok()) return there.status();
    if (HoldsFrames(*there, set, target)) {
      if (progress) progress(all, all, all);
      return Status::Ok();
    }
    return Status(Code::kUsage, fmt::format("'{}' holds other frames than the folders have now", path),
                  "write it again with --overwrite");
  }
  Result<LmdbWriter> lmdb = LmdbWriter::Create(path, overwrite);
  if (!lmdb.ok()) return lmdb.status();
  const std::string& root = target ? set.config().target : set.config().input;
  uint64_t done = 0;
  for (const PairedClip& clip : set.clips()) {
    for (int64_t i = 0; i < clip.frames(); ++i) {
      const Picture& picture = (target ? clip.target : clip.input)[i];
      const std::string file = JoinPath(JoinPath(root, clip.name), picture.name);
      Result<std::string> bytes = ReadFile(file, size_t{1} << 30);
      if (!bytes.ok()) return bytes.status();
      // One row is decoded, the rest is checked for damage, in a small part of the time of decoding.
      const Result<Image> looked_at = DecodeImageBytes(*bytes, file, [](int w, int) { return Window{0, 0, w, 1}; });
      if (!looked_at.ok()) return looked_at.status().WithHint("copy the frame again, or leave its clip out");
      const std::string key = fmt::format("{}/{}", clip.name, clip.stems[i]);
      LOCKSTEP_RETURN_IF_ERROR(
          lmdb->Put(key, *bytes,
                    fmt::format("{}.png ({},{},3) 1", key, target ? clip.height : clip.input_height,
                                target ? clip.width : clip.input_width)));
      if (progress) progress(++done, 0, all);
    }
  }
  return lmdb->Finish();
}

Status WriteArtefacts(const PairedSet& set, const SpikeForm& form, const std::string& root, const PrepareShare& share,
                      const PrepareProgress& progress) {
  LOCKSTEP_RETURN_IF_ERROR(CheckForm(form));
  const std::vector<FrameOf> frames = ShareOf(set, share);
  for (const PairedClip& clip : set.clips()) {
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(JoinPath(JoinPath(root, clip.name), form.Folder())));
  }
  Tally tally(frames.size(), progress);
  ForEachAtOnce(
      frames.size(),
      [&](size_t i) {
        if (tally.failed()) return;
        const auto& [clip, frame] = frames[i];
        const std::string path =
            fmt::format("{}/{}/{}.npy", JoinPath(root, clip->name), form.Folder(), clip->stems[frame]);
        const std::string spikes = DatPath(set, *clip, frame);
        if (IsMadeFrom(path, spikes)) return tally.Add(Status::Ok(), true);
        Result<SpikeFile> file = SpikeFile::Open(spikes, set.config().spikes.sensor);
        if (!file.ok()) return tally.Add(file.status(), false);
        Result<std::string> npy = RenderToNpy(*file, form);
        tally.Add(npy.ok() ? WriteFileAtomic(path, *npy, 0644, Durability::kProcess) : npy.status(), false);
      },
      static_cast<size_t>(std::max(share.threads, 1)));
  return tally.error();
}

Status WriteGeneratedTree(const GeneratedTree& tree, const PrepareShare& share, const PrepareProgress& progress) {
  const int sensor_height = tree.height / tree.divisor, sensor_width = tree.width / tree.divisor;
  if (tree.divisor < 1 || sensor_height * tree.divisor != tree.height || sensor_width * tree.divisor != tree.width ||
      sensor_height < 8 || sensor_width < 8 || sensor_height * sensor_width % 8 != 0) {
    return Status(
        Code::kUsage,
        fmt::format("pictures of {}x{} and a sensor 1/{} as large: expected a sensor of whole pixels, at least "
                    "8x8, whose number is a multiple of 8",
                    tree.width, tree.height, tree.divisor));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSameScenes(tree, share));
  const uint64_t test_clips = std::max<uint64_t>(tree.clips / 4, 1);
  std::string meta[2];
  std::vector<uint64_t> mine;
  const auto split_of = [&](uint64_t clip) { return clip < tree.clips ? "train" : "test"; };
  const auto name_of = [](uint64_t clip) { return fmt::format("scene_{:04}", clip); };
  for (uint64_t clip = 0; clip < tree.clips + test_clips; ++clip) {
    meta[clip < tree.clips ? 0 : 1] +=
        fmt::format("{} {} ({},{},3) 1\n", name_of(clip), tree.frames, tree.height, tree.width);
    if (clip % share.parts == share.part) mine.push_back(clip);
  }
  Tally tally(mine.size(), progress);
  ForEachAtOnce(
      mine.size(),
      [&](size_t i) {
        if (tally.failed()) return;
        const std::string last = fmt::format("{}/GOPRO_Large_spike_seq/{}/{}/spike/{:06}.dat", tree.path,
                                             split_of(mine[i]), name_of(mine[i]), tree.frames);
        if (SizeOnDisk(last) > 0) return tally.Add(Status::Ok(), true);
        tally.Add(WriteGeneratedClip(tree, mine[i], split_of(mine[i]), name_of(mine[i])), false);
      },
      static_cast<size_t>(std::max(share.threads, 1)));
  LOCKSTEP_RETURN_IF_ERROR(tally.error());
  if (share.part != 0) return Status::Ok();
  for (const int i : {0, 1}) {
    const std::string file = fmt::format("{}/meta_info_GoPro_{}_GT.txt", tree.path, i == 0 ? "train" : "test");
    LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(file, meta[i]));
  }
  return WriteFileAtomic(
      tree.path + "/GOPRO_Large_spike_seq/config.yaml",
      fmt::format("spike_h: {}\nspike_w: {}\nis_labeled: false\nlabeled_data_type: []\n", sensor_height, sensor_width));
}

}  // namespace lockstep::data
