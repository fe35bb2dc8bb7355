// `lockstep data`: what a data set holds, which of it is damaged, how fast it is read and by what it is limited, and
// what the model will see of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/train/commands.h"
#include "data/clip_transform.h"
#include "data/fault.h"
#include "data/file_source.h"
#include "data/image.h"
#include "data/index_journal.h"
#include "data/listing.h"
#include "data/loader.h"
#include "data/sources.h"

namespace lockstep::cli {
namespace {

struct DataFlags {
  std::string command, out;
  data::SourceConfig source{.kind = "auto", .frames = 1, .height = 224, .width = 224};
  int threads = 0, batch = 32, shown = 8;
  uint64_t samples = 0, seed = 0;
  double seconds = 5;
  bool augment = false, overwrite = false, json = false;
  data::IndexOptions index;
};

// By the files that are there.
std::string KindOf(const data::SourceConfig& source) {
  if (!source.annotations.empty()) return "annotations";
  if (source.path.empty()) return "clips";
  Result<std::vector<data::Folder>> folders = data::ListFolders(source.path);
  if (!folders.ok()) folders = std::vector<data::Folder>{{"", {source.path}}};
  const auto any = [&](const auto& accept) {
    return std::ranges::any_of(*folders,
                               [&](const data::Folder& folder) { return std::ranges::any_of(folder.files, accept); });
  };
  const auto ends = [](const char* end) { return [end](const std::string& name) { return name.ends_with(end); }; };
  if (any(ends(".mdb"))) return "lmdb";
  if (any(ends(".tar"))) return "tar";
  if (any(ends(".h5")) || any(ends(".hdf5"))) return "hdf5";
  if (any(ends(".safetensors"))) return "safetensors";
  if (any(data::IsVideoName)) return "videos";
  return source.frames == 1 ? "images" : "frames";
}

int Threads(const DataFlags& asked) {
  return asked.threads > 0 ? asked.threads : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

// Batches of all samples in order, over and over.
data::Loader MakeLoader(const DataFlags& asked, const std::shared_ptr<const data::Source>& source, bool once) {
  const uint64_t size = asked.samples > 0 ? std::min(asked.samples, source->size()) : source->size();
  const auto batch = static_cast<uint64_t>(asked.batch);
  const uint64_t batches = (size + batch - 1) / batch;
  const auto plan = [=](uint64_t n) {
    std::vector<data::SampleId> ids;
    const uint64_t first = n % batches * batch;
    for (uint64_t i = first; i < std::min(first + batch, size); ++i) ids.push_back({n / batches, i, i});
    return ids;
  };
  data::LoaderOptions options{.threads = Threads(asked), .augment = asked.augment, .seed = asked.seed};
  return data::Loader(source, plan, 0, once ? std::optional<uint64_t>(batches) : std::nullopt, options);
}

struct Spread {
  uint64_t count = 0, total = 0, least = 0, median = 0, most = 0;
};

Spread SpreadOf(std::vector<uint64_t> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  Spread spread{values.size(), 0, values.front(), values[values.size() / 2], values.back()};
  for (const uint64_t value : values) spread.total += value;
  return spread;
}

nlohmann::json ToJson(const Spread& spread) {
  return {{"count", spread.count},
          {"total", spread.total},
          {"least", spread.least},
          {"median", spread.median},
          {"most", spread.most}};
}

// Sizes of files and lengths of videos, as the index has them.
Status Sizes(const data::SourceConfig& source, Spread* bytes, Spread* frames) {
  if (source.kind == "clips" || source.kind == "episodes" || source.kind == "hdf5" || source.kind == "safetensors")
    return Status::Ok();
  Result<data::Inventory> inventory = data::TakeInventory(source);
  if (!inventory.ok()) return inventory.status();
  inventory->digest.clear();  // also of listed files: sizes are what is asked for
  data::MeasureFiles(&*inventory);
  std::vector<uint64_t> sizes, lengths;
  for (const data::Video& video : inventory->videos) {
    if (video.pictures.empty() && video.bytes != data::kMissing) sizes.push_back(video.bytes);
    if (!video.pictures.empty()) lengths.push_back(video.pictures.size());
    for (const data::Picture& picture : video.pictures) {
      if (picture.bytes != data::kMissing) sizes.push_back(picture.bytes);
    }
  }
  *bytes = SpreadOf(std::move(sizes));
  *frames = SpreadOf(std::move(lengths));
  return Status::Ok();
}

// Reads everything once; bad samples are named.
Status Stat(const DataFlags& asked, const std::shared_ptr<const data::Source>& source) {
  Spread bytes, frames;
  LOCKSTEP_RETURN_IF_ERROR(Sizes(asked.source, &bytes, &frames));
  data::Loader loader = MakeLoader(asked, source, /*once=*/true);
  nlohmann::json bad = nlohmann::json::array();
  uint64_t read = 0;
  while (!loader.AtEnd()) {
    const Result<data::Batch> batch = loader.Next();
    if (!batch.ok()) return batch.status();
    read += batch->count() + batch->bad.size();
    for (const data::BadSample& one : batch->bad) {
      bad.push_back({{"sample", one.name}, {"class", data::FaultOf(one.status)}, {"why", one.status.message()}});
    }
  }
  if (asked.json) {
    const nlohmann::json summary = {{"data", source->Describe()},
                                    {"digest", source->Digest()},
                                    {"samples", source->size()},
                                    {"read", read},
                                    {"bytes", ToJson(bytes)},
                                    {"frames", ToJson(frames)},
                                    {"bad", bad}};
    fmt::print("{}\n", summary.dump(2));
  } else {
    fmt::print("{}\ndigest   {}\nsamples  {}, {} read, {} damaged\n", source->Describe(), source->Digest(),
               source->size(), read, bad.size());
    if (bytes.count > 0) {
      fmt::print("files    {}, {}: {} to {}, median {}\n", bytes.count, FormatSize(bytes.total),
                 FormatSize(bytes.least), FormatSize(bytes.most), FormatSize(bytes.median));
    }
    if (frames.count > 0) {
      fmt::print("frames   {} to {} in a video, median {}\n", frames.least, frames.most, frames.median);
    }
    for (const nlohmann::json& one : bad) {
      fmt::print("damaged  {} ({}): {}\n", one["sample"].get<std::string>(), one["class"].get<std::string>(),
                 one["why"].get<std::string>());
    }
  }
  if (bad.empty()) return Status::Ok();
  return Status(Code::kEnvironment, fmt::format("{} of {} samples cannot be read", bad.size(), read),
                "repair or remove them, or allow them with data.bad_samples");
}

// What limits the speed, in words.
std::string Bottleneck(const data::LoaderStats& stats, double seconds, int threads) {
  const auto& stages = stats.stages.seconds;
  const size_t most = std::ranges::max_element(stages) - stages.begin();
  const double busy = stats.read_seconds / (seconds * threads);
  return fmt::format("{} takes {:.0f} % of the time of a sample; the {} {} busy for {:.0f} %", data::kStageNames[most],
                     100 * stages[most] / std::max(stats.read_seconds, 1e-9), Count(threads, "thread"),
                     threads == 1 ? "is" : "are", 100 * busy);
}

Status Bench(const DataFlags& asked, const std::shared_ptr<const data::Source>& source) {
  data::Loader loader = MakeLoader(asked, source, /*once=*/false);
  const Result<data::Batch> first = loader.Next();  // starts the threads, fills caches
  if (!first.ok()) return first.status();
  const data::LoaderStats before = loader.stats();
  const TimePoint start = Now();
  while (SecondsSince(start) < asked.seconds) {
    const Result<data::Batch> batch = loader.Next();
    if (!batch.ok()) return batch.status();
  }
  const double seconds = SecondsSince(start);
  data::LoaderStats stats = loader.stats();
  stats.samples_read -= before.samples_read;
  stats.samples_bad -= before.samples_bad;
  stats.read_seconds -= before.read_seconds;
  for (size_t i = 0; i < data::kStages; ++i) stats.stages.seconds[i] -= before.stages.seconds[i];
  const auto samples = static_cast<double>(stats.samples_read + stats.samples_bad);
  const double rate = samples / seconds;
  const std::string limit = Bottleneck(stats, seconds, Threads(asked));
  if (asked.json) {
    nlohmann::json stages;
    for (size_t i = 0; i < data::kStages; ++i) {
      stages[data::kStageNames[i]] = stats.stages.seconds[i] / std::max(samples, 1.0);
    }
    const nlohmann::json summary = {
        {"data", source->Describe()},         {"threads", Threads(asked)}, {"seconds", seconds},
        {"samples_per_second", rate},         {"bad", stats.samples_bad},  {"seconds_per_sample", stages},
        {"buffer_bytes", stats.buffer_bytes}, {"bottleneck", limit}};
    fmt::print("{}\n", summary.dump(2));
    return Status::Ok();
  }
  fmt::print("{}\n{:.1f} samples/s with {}, {} in {:.1f} s{}\n", source->Describe(), rate,
             Count(Threads(asked), "thread"), stats.samples_read, seconds,
             stats.samples_bad > 0 ? fmt::format(", {} damaged", stats.samples_bad) : "");
  for (size_t i = 0; i < data::kStages; ++i) {
    fmt::print("  {:<10} {:9.3f} ms a sample\n", data::kStageNames[i],
               1e3 * stats.stages.seconds[i] / std::max(samples, 1.0));
  }
  fmt::print("bottleneck: {}\n", limit);
  return Status::Ok();
}

// A row for each sample, a column for each frame, as the model gets them; a grey line between.
Status Show(const DataFlags& asked, const std::shared_ptr<const data::Source>& source) {
  DataFlags first = asked;
  first.samples = asked.samples > 0 ? asked.samples : static_cast<uint64_t>(asked.batch);
  data::Loader loader = MakeLoader(first, source, /*once=*/true);
  const int columns = asked.source.frames == 1 ? asked.shown : std::min(asked.source.frames, asked.shown);
  const int height = asked.source.height, width = asked.source.width;
  const size_t plane = static_cast<size_t>(height) * width;
  std::vector<std::vector<uint8_t>> tiles;
  uint64_t bad = 0;
  while (!loader.AtEnd()) {
    const Result<data::Batch> batch = loader.Next();
    if (!batch.ok()) return batch.status();
    bad += batch->bad.size();
    const auto* bytes = reinterpret_cast<const uint8_t*>(batch->fields[0].data);
    const int frames = asked.source.frames == 1 ? 1 : columns;
    for (size_t i = 0; i < batch->count(); ++i) {
      for (int t = 0; t < frames; ++t) {
        const uint8_t* from = bytes + (i * asked.source.frames + t) * 3 * plane;
        tiles.emplace_back(from, from + 3 * plane);
      }
    }
  }
  if (tiles.empty()) return Status(Code::kEnvironment, fmt::format("none of the {} samples can be read", bad));
  constexpr int kLine = 2;
  const int rows = static_cast<int>((tiles.size() + columns - 1) / columns);
  const int whole_width = columns * (width + kLine) - kLine, whole_height = rows * (height + kLine) - kLine;
  constexpr int64_t kMostPixels = 1 << 28;
  if (static_cast<int64_t>(whole_width) * whole_height > kMostPixels) {
    return Status(Code::kUsage, fmt::format("a sheet of {}x{} pixels is too large", whole_width, whole_height),
                  "show fewer with --samples");
  }
  std::vector<uint8_t> sheet(static_cast<size_t>(whole_width) * whole_height * 3, 128);
  for (size_t n = 0; n < tiles.size(); ++n) {
    const size_t left = n % columns * (width + kLine), top = n / columns * (height + kLine);
    for (size_t p = 0; p < plane; ++p) {
      uint8_t* to = sheet.data() + ((top + p / width) * whole_width + left + p % width) * 3;
      for (size_t c = 0; c < 3; ++c) to[c] = tiles[n][c * plane + p];
    }
  }
  Result<std::string> png = data::EncodePng(sheet, whole_width, whole_height);
  if (!png.ok()) return png.status();
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(asked.out, *png));
  fmt::print("{}: {} pictures of {}x{} in {} columns{}\n", asked.out, tiles.size(), width, height, columns,
             bad > 0 ? fmt::format("; {} samples cannot be read", bad) : "");
  return Status::Ok();
}

Status Index(const DataFlags& asked) {
  const TimePoint start = Now();
  const std::string out = asked.out.empty() ? data::JoinPath(asked.source.path, "lockstep.index") : asked.out;
  // What a process that was killed found out is in the journal.
  const data::SourceConfig& s = asked.source;
  const std::string identity = fmt::format("1 {} {} {} {} {} {} {}", s.kind, s.path, s.annotations, s.frames == 1,
                                           asked.index.sizes, asked.index.key_frames, s.check.all);
  Result<std::unique_ptr<data::IndexJournal>> journal = data::IndexJournal::Open(out + ".partial", identity);
  if (!journal.ok()) return journal.status();
  if ((*journal)->known() > 0) {
    fmt::print("going on with {}: {} known\n", out + ".partial", Count((*journal)->known(), "record"));
  }
  data::SourceConfig config = asked.source;
  config.journal = journal->get();
  Result<std::string> index = data::IndexSource(config, asked.index);
  if (index.ok() && index->empty()) {
    index = Status(Code::kUsage, fmt::format("kind {} needs no index: its few files have their own", s.kind));
  }
  if (!index.ok()) {
    if ((*journal)->empty()) (*journal)->Remove();
    return index.status();
  }
  LOCKSTEP_RETURN_IF_ERROR(data::WriteIndexFile(out, *index));
  (*journal)->Remove();
  config.journal = nullptr;
  config.index = std::make_shared<const std::string>(std::move(*index));
  const Result<std::unique_ptr<data::Source>> source = data::OpenSource(config);
  if (!source.ok()) return source.status();
  fmt::print("{}\ndigest   {}\nindex    {}, {}, {:.1f} s; use it with data.index: {}\n", (*source)->Describe(),
             (*source)->Digest(), out, FormatSize(config.index->size()), SecondsSince(start), out);
  return Status::Ok();
}

Status Run(DataFlags asked) {
  if (asked.source.kind == "auto") asked.source.kind = KindOf(asked.source);
  if (asked.command == "index") return Index(asked);
  Result<std::unique_ptr<data::Source>> opened = data::OpenSource(asked.source);
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<const data::Source> source = std::move(*opened);
  if (asked.command == "stat") return Stat(asked, source);
  if (asked.command == "bench") return Bench(asked, source);
  if (asked.out.empty()) return Status(Code::kUsage, "show needs --out FILE.png");
  return Show(asked, source);
}

}  // namespace

int DataMain(int argc, char** argv) {
  Arguments args(
      "Looks at training data with the code that trains on them. index: lists them once, for data.index. stat: reads "
      "every sample; sizes, and what is damaged. bench: samples a second, time of each stage, what limits it. show: a "
      "PNG with samples as the model sees them.",
      "lockstep data");
  DataFlags asked;
  std::vector<std::string> kinds = data::SourceKinds();
  kinds.insert(kinds.begin(), "auto");
  args.Option("COMMAND", &asked.command, "index, stat, bench or show")
      .Required()
      .OneOf({"index", "stat", "bench", "show"});
  args.Option("PATH", &asked.source.path, "folder of the data, or its one file, as data.path");
  args.Option("--kind", &asked.source.kind, "of the data (default: by the files)").OneOf(kinds);
  args.Option("--annotations", &asked.source.annotations, "list of videos below PATH").Named("FILE");
  args.Option("--field", &asked.source.field, "array of HDF5 and safetensors files").Named("NAME").ShowDefault();
  args.Option("--frames", &asked.source.frames, "of a clip").Between(1, 1 << 16).ShowDefault();
  args.Option("--height", &asked.source.height, "of a picture").Between(1, 8192).ShowDefault();
  args.Option("--width", &asked.source.width, "of a picture").Between(1, 8192).ShowDefault();
  args.Option("--resize", &asked.source.resize, "as data.resize").OneOf(data::kResizeNames).ShowDefault();
  args.Option("--decode", &asked.source.decode, "as data.decode").OneOf({"exact", "scaled"}).ShowDefault();
  args.Option("--threads", &asked.threads, "that read (default: one per core)").Between(1, 4096).Named("N");
  args.Option("--batch", &asked.batch, "samples of a batch").Between(1, 1 << 20).ShowDefault();
  args.Option("--samples", &asked.samples, "the first N only (default: all; show: one batch)").Named("N");
  args.Option("--seconds", &asked.seconds, "of bench").ShowDefault();
  args.Option("--seed", &asked.seed, "of the augmentation").ShowDefault();
  args.Option("--columns", &asked.shown, "of the sheet; frames shown of a clip").Between(1, 1000).ShowDefault();
  args.Flag("--sizes", &asked.index.sizes, "of index: widths and heights, for data.buckets; opens every file");
  args.Flag("--keyframes", &asked.index.key_frames,
            "of index: where videos of varying rate can be entered; reads every file");
  args.Flag("--augment", &asked.augment, "random crop, flip and colour, as in training");
  args.Option("--out", &asked.out, "the file to write: the sheet, or the index").Named("FILE");
  args.Flag("--json", &asked.json, "the result as JSON");
  args.Footer(
      "examples:\n  lockstep data stat shards/ --json\n  lockstep data bench photos/ --augment --threads 2\n"
      "  lockstep data show videos/ --frames 12 --height 64 --width 64 --augment --out batch.png\n"
      "  lockstep data index photos/ --out photos.index\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Run(asked);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep data: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
