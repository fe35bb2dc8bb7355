// `lockstep data prepare`: a data set of paired clips and spikes made ready for training, or generated; and
// `lockstep data show --kind gopro-spike`: blur, spikes and target side by side.
#include "cli/train/data_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/train/place.h"
#include "data/image.h"
#include "data/listing.h"
#include "data/paired_clips.h"
#include "data/prepare_pairs.h"

namespace lockstep::cli {
namespace {

struct PrepareFlags {
  std::string what, path, split = "train", target, input, spikes, meta, artefacts, artefact_root;
  int sensor_height = 360, sensor_width = 640, half_window = 20, threads = 0;
  bool no_flip = false, lmdb = false, overwrite = false;
  data::GeneratedTree tree;
};

// Ranks that a launcher started share the work.
Result<data::PrepareShare> ShareOfRank(int threads) {
  const Result<comm::Bootstrap> me = FindIdentity();
  if (!me.ok()) return me.status();
  const auto cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  const int own = std::max(cores / std::max(me->local_size, 1), 1);
  return data::PrepareShare{static_cast<uint64_t>(me->rank), static_cast<uint64_t>(me->size),
                            threads > 0 ? threads : own};
}

// A line every two seconds and at the end, on stderr.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)) {}
  void operator()(uint64_t done, uint64_t kept, uint64_t all) {
    if (done < all && SecondsSince(shown_) < 2) return;
    shown_ = Now();
    const double seconds = SecondsSince(start_);
    const double rate = static_cast<double>(done - kept) / std::max(seconds, 1e-3);
    const double left = rate > 0 ? static_cast<double>(all - done) / rate : 0;
    fmt::print(stderr, "{}: {} of {}{}, {:.1f}/s{}\n", what_, done, all,
               kept > 0 ? fmt::format(" ({} were there)", kept) : "", rate,
               done < all ? fmt::format(", {} left",
                                        FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(1000 * left))))
                          : "");
  }

 private:
  std::string what_;
  TimePoint start_ = Now(), shown_ = start_;
};

data::PrepareProgress ShowProgress(std::string what) {
  auto line = std::make_shared<ProgressLine>(std::move(what));
  return [line](uint64_t done, uint64_t kept, uint64_t all) { (*line)(done, kept, all); };
}

// GoPro's folders below one root, unless flags name them.
data::PairedConfig ConfigOf(const PrepareFlags& asked) {
  const auto or_below = [&](const std::string& given, const std::string& name) {
    return given.empty() ? data::JoinPath(asked.path, name) : given;
  };
  data::PairedConfig config{.kind = "folders"};
  config.target = or_below(asked.target, fmt::format("GOPRO_Large/{}_GT", asked.split));
  config.input = or_below(asked.input, fmt::format("GOPRO_Large/{}_GT_blurred", asked.split));
  config.meta_info = asked.meta;
  config.frames = 1;
  config.crop = 1;
  config.spikes = {.use = true,
                   .path = or_below(asked.spikes, "GOPRO_Large_spike_seq/" + asked.split),
                   .sensor = {asked.sensor_height, asked.sensor_width, !asked.no_flip},
                   .form = {.half_window = asked.half_window}};
  return config;
}

// "tfp:4" or "raw_window:41".
Result<data::SpikeForm> FormOf(const std::string& text, int half_window) {
  const std::vector<std::string> parts = Split(text, ':');
  const std::optional<int> channels = parts.size() > 1 ? ParseDigits<int>(parts[1]) : 1;
  const bool known = std::ranges::find(data::kSpikeKinds, parts[0]) != data::kSpikeKinds.end();
  if (!known || parts.size() > 2 || !channels) {
    return Status(Code::kUsage,
                  fmt::format("--artefacts {}: expected one of {}, and :channels{}", text,
                              Join(data::kSpikeKinds, ", "), known ? "" : DidYouMean(parts[0], data::kSpikeKinds)));
  }
  const data::SpikeForm form{data::SpikeKindByName(parts[0]), *channels, half_window};
  LOCKSTEP_RETURN_IF_ERROR(data::CheckForm(form).Context("--artefacts " + text));
  return form;
}

Status ReportAlignment(const data::SpikeAlignment& found, uint64_t frames) {
  fmt::print("spikes     {} files for {} frames, {} to {} steps\n", found.files, frames, found.least_steps,
             found.most_steps);
  if (found.missing.empty() && found.wrong.empty()) return Status::Ok();
  for (const auto* list : {&found.missing, &found.wrong}) {
    for (size_t i = 0; i < std::min<size_t>(list->size(), 5); ++i) {
      fmt::print("{}    {}\n", list == &found.missing ? "missing" : "wrong  ", (*list)[i]);
    }
    if (list->size() > 5) fmt::print("           and {} more\n", list->size() - 5);
  }
  return Status(Code::kEnvironment,
                fmt::format("{} missing and {} of another size or length", Count(found.missing.size(), "spike file"),
                            found.wrong.size()),
                "copy the missing ones; for another size give --sensor-height and --sensor-width");
}

// One that somebody wrote or shortened is not replaced unasked.
Status WriteList(const PrepareFlags& asked, const data::PairedSet& set, const data::PrepareShare& share) {
  const std::string path =
      data::JoinPath(asked.path.empty() ? "." : asked.path, fmt::format("meta_info_GoPro_{}_GT.txt", asked.split));
  const std::string text = data::MetaInfoOf(set);
  const Result<std::string> there = ReadFile(path);
  if (there.ok() && !asked.overwrite) {
    const Result<std::vector<data::MetaLine>> was = data::ParseMetaInfo(*there, path);
    const Result<std::vector<data::MetaLine>> now = data::ParseMetaInfo(text, path);
    const auto same = [](const data::MetaLine& a, const data::MetaLine& b) {
      return std::tie(a.clip, a.frames, a.first) == std::tie(b.clip, b.frames, b.first);
    };
    if (!was.ok() || !now.ok() || !std::ranges::is_permutation(*was, *now, same)) {
      return Status(Code::kUsage, fmt::format("'{}' lists other clips or frames than the folders have now", path),
                    fmt::format("take it with --meta-info {}, or write it again with --overwrite", path));
    }
  } else if (share.part == 0) {
    LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(path, text));
  }
  if (share.part == 0) fmt::print("meta info  {}\n", path);
  return Status::Ok();
}

Status PrepareGoPro(const PrepareFlags& asked, const data::PrepareShare& share) {
  Result<data::SpikeForm> form = data::SpikeForm{};
  if (!asked.artefacts.empty()) form = FormOf(asked.artefacts, asked.half_window);  // before anything is written
  if (!form.ok()) return form.status();
  data::PairedConfig config = ConfigOf(asked);
  if (!asked.artefacts.empty()) config.spikes.form = *form;  // how long files must be
  Result<data::PairedSet> set = data::PairedSet::Open(config);
  if (!set.ok()) return set.status();
  if (share.part == 0) {
    fmt::print("clips      {}, {} in {} and {}\n", set->clips().size(), Count(set->frames(), "frame"),
               set->config().target, set->config().input);
  }
  // Every rank looks at all files: none begins to write where one is wrong.
  LOCKSTEP_RETURN_IF_ERROR(ReportAlignment(data::AlignSpikes(*set, {}), static_cast<uint64_t>(set->frames())));
  if (asked.meta.empty()) LOCKSTEP_RETURN_IF_ERROR(WriteList(asked, *set, share));
  for (const bool target : {true, false}) {
    if (!asked.lmdb || share.part != (target ? 0 : 1) % share.parts) continue;
    const std::string path = (target ? set->config().target : set->config().input) + ".lmdb";
    LOCKSTEP_RETURN_IF_ERROR(
        data::WriteFramesToLmdb(*set, target, path, asked.overwrite, ShowProgress("LMDB " + path)));
    fmt::print("LMDB       {}\n", path);
  }
  if (asked.artefacts.empty()) return Status::Ok();
  const std::string root = asked.artefact_root.empty() ? set->config().spikes.path : asked.artefact_root;
  LOCKSTEP_RETURN_IF_ERROR(data::WriteArtefacts(*set, *form, root, share, ShowProgress("artefacts " + form->Folder())));
  fmt::print("artefacts  {}/CLIP/{}/FRAME.npy\n", root, form->Folder());
  return Status::Ok();
}

Status Prepare(PrepareFlags asked) {
  const Result<data::PrepareShare> share = ShareOfRank(asked.threads);
  if (!share.ok()) return share.status();
  if (asked.what == "generated-spike") {
    if (asked.path.empty()) return Status(Code::kUsage, "generated-spike needs the folder to write to");
    asked.tree.path = asked.path;
    LOCKSTEP_RETURN_IF_ERROR(data::WriteGeneratedTree(asked.tree, *share, ShowProgress("scenes")));
    fmt::print(
        "{}: clips as GoPro's, with a sensor of {} x {}; try: lockstep data show {} --kind gopro-spike "
        "--sensor-height {} --sensor-width {} --out pairs.png\n",
        asked.path, asked.tree.height / asked.tree.divisor, asked.tree.width / asked.tree.divisor, asked.path,
        asked.tree.height / asked.tree.divisor, asked.tree.width / asked.tree.divisor);
    return Status::Ok();
  }
  if (asked.path.empty() && (asked.target.empty() || asked.input.empty() || asked.spikes.empty())) {
    return Status(Code::kUsage, "gopro-spike needs PATH, or --target, --input and --spikes");
  }
  return PrepareGoPro(asked, *share);
}

}  // namespace

int DataPrepareMain(int argc, char** argv) {
  Arguments args(
      "Makes paired clips and spikes ready for training. gopro-spike: checks that every frame has its spikes, writes "
      "the "
      "list of clips, and LMDBs and arrays of the spikes where asked; an interrupted run goes on where it stopped, and "
      "ranks of a launcher share the work. generated-spike: writes scenes with blur and spikes as such a data set.",
      "lockstep data prepare");
  PrepareFlags asked;
  args.Option("WHAT", &asked.what, "gopro-spike or generated-spike")
      .Required()
      .OneOf({"gopro-spike", "generated-spike"});
  args.Option("PATH", &asked.path, "folder with GOPRO_Large and GOPRO_Large_spike_seq; or the folder to write");
  args.Option("--split", &asked.split, "train or test").OneOf({"train", "test"}).ShowDefault();
  args.Option("--target", &asked.target, "sharp clips, where they lie elsewhere").Named("DIR");
  args.Option("--input", &asked.input, "blurred clips, where they lie elsewhere").Named("DIR");
  args.Option("--spikes", &asked.spikes, "clips of spikes, where they lie elsewhere").Named("DIR");
  args.Option("--meta-info", &asked.meta, "use this list of clips instead of writing one").Named("FILE");
  args.Option("--sensor-height", &asked.sensor_height, "of the spike camera").Between(1, 1 << 14).ShowDefault();
  args.Option("--sensor-width", &asked.sensor_width, "of the spike camera").Between(1, 1 << 14).ShowDefault();
  args.Flag("--no-flip", &asked.no_flip, "the file's first row is the picture's first");
  args.Flag("--lmdb", &asked.lmdb, "write X.lmdb beside the folders of frames, as KAIR reads it");
  args.Option("--artefacts", &asked.artefacts, "write arrays of the spikes: tfp:4, raw_window:41, ...").Named("FORM:N");
  args.Option("--artefact-path", &asked.artefact_root, "where (default: beside the spikes)").Named("DIR");
  args.Option("--half-window", &asked.half_window, "of tfp and tfi").Between(1, 1 << 14).ShowDefault();
  args.Flag("--overwrite", &asked.overwrite, "write LMDBs and the list of clips again");
  args.Option("--threads", &asked.threads, "of this process (default: one per core)").Between(1, 4096).Named("N");
  args.Option("--clips", &asked.tree.clips, "generated for training; a quarter as many for testing")
      .Between(1, 1 << 20)
      .ShowDefault();
  args.Option("--frames", &asked.tree.frames, "of a generated clip").Between(1, 1 << 20).ShowDefault();
  args.Option("--height", &asked.tree.height, "of generated frames").Between(16, 4096).ShowDefault();
  args.Option("--width", &asked.tree.width, "of generated frames").Between(16, 4096).ShowDefault();
  args.Option("--divisor", &asked.tree.divisor, "frame size / sensor size of generated clips")
      .Between(1, 8)
      .ShowDefault();
  args.Option("--seed", &asked.tree.seed, "of generated scenes").ShowDefault();
  args.Footer(
      "examples:\n  lockstep data prepare gopro-spike datasets/gopro_spike --lmdb --artefacts tfp:4\n"
      "  lockstep run --nproc-per-node 8 -- lockstep-train data prepare gopro-spike datasets/gopro_spike --artefacts "
      "tfp:4\n  lockstep data prepare generated-spike scenes --clips 16\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Prepare(asked);
  if (status.ok()) return 0;
  std::fflush(stdout);  // the error is the last line of a rank's log
  fmt::print(stderr, "lockstep data prepare: {}\n", status.ToString());
  return ExitCode(status);
}

Result<std::unique_ptr<data::Source>> OpenPairs(const PairsShown& asked, int frames) {
  data::PairedConfig config;
  if (asked.kind == "gopro-spike") {
    config = ConfigOf({.path = asked.path,
                       .sensor_height = asked.sensor_height,
                       .sensor_width = asked.sensor_width,
                       .half_window = asked.half_window});
  }
  config.spikes.use = true;
  config.spikes.form.half_window = asked.half_window;
  config.frames = frames;
  config.crop = asked.size;
  config.seed = asked.seed;
  return data::OpenPaired(config);
}

Status ShowPairs(const PairsShown& asked) {
  Result<std::unique_ptr<data::Source>> source = OpenPairs(asked, /*frames=*/1);
  if (!source.ok()) return source.status();
  const int size = asked.size;
  const size_t pixels = static_cast<size_t>(size) * size;
  const auto rows = static_cast<int>(std::min<uint64_t>(asked.samples, (*source)->size()));
  constexpr int kGap = 2;
  const int width = 3 * size + 2 * kGap, height = rows * (size + kGap) - kGap;
  std::vector<uint8_t> sheet(static_cast<size_t>(width) * height * 3, 128);
  std::vector<uint8_t> fields[3] = {std::vector<uint8_t>(3 * pixels), std::vector<uint8_t>(pixels),
                                    std::vector<uint8_t>(3 * pixels)};
  std::vector<std::byte*> out;
  for (auto& field : fields) out.push_back(reinterpret_cast<std::byte*>(field.data()));
  for (int row = 0; row < rows; ++row) {
    const uint64_t index = (*source)->size() * static_cast<uint64_t>(row) / static_cast<uint64_t>(rows);
    LOCKSTEP_RETURN_IF_ERROR((*source)->Read({.seed = asked.seed, .index = index, .augment = asked.augment}, out));
    for (int column = 0; column < 3; ++column) {
      for (size_t p = 0; p < pixels; ++p) {
        const size_t y = static_cast<size_t>(row) * (size + kGap) + p / size;
        uint8_t* to = sheet.data() + (y * width + static_cast<size_t>(column) * (size + kGap) + p % size) * 3;
        for (size_t c = 0; c < 3; ++c) to[c] = fields[column][column == 1 ? p : c * pixels + p];
      }
    }
  }
  Result<std::string> png = data::EncodePng(sheet, width, height);
  if (!png.ok()) return png.status();
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(asked.out, *png));
  fmt::print("{}\n{}: {} samples of {}x{}; blurred, spikes, target\n", (*source)->Describe(), asked.out, rows, size,
             size);
  return Status::Ok();
}

}  // namespace lockstep::cli
