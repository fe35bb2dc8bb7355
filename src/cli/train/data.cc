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
#include "base/progress.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/train/commands.h"
#include "cli/train/data_bench.h"
#include "cli/train/data_pairs.h"
#include "cli/train/settings.h"
#include "data/clip_transform.h"
#include "data/fault.h"
#include "data/file_source.h"
#include "data/image.h"
#include "data/index_journal.h"
#include "data/listing.h"
#include "data/loader.h"
#include "data/mixed_source.h"
#include "data/sampler.h"
#include "data/sources.h"

namespace lockstep::cli {
namespace {

struct DataFlags {
  std::string command, out;
  data::SourceConfig source{.kind = "auto", .frames = 1, .height = 224, .width = 224};
  int threads = 0, batch = 32, shown = 8;
  uint64_t samples = 0, seed = 0, epochs = 0;
  double seconds = 5;
  bool augment = false, crop_only = false, normalise = false, overwrite = false, json = false;
  data::IndexOptions index;
  std::string recipe, config;     // whose data, instead of `source`
  std::vector<std::string> sets;  // key=value
  PairsShown pairs;
};

bool IsPairs(const std::string& kind) { return kind == "gopro-spike" || kind == "generated-spike"; }

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

// What is looked at, and in which order a training would read it.
struct Opened {
  std::shared_ptr<const data::Source> source;
  std::shared_ptr<const data::Mixture> mixture;  // null: one set
  std::optional<data::Sampler> order;            // null: as the samples lie
};

// All samples of a training, with nothing held out.
Result<Opened> OpenTraining(const Program& program, const DataFlags& asked) {
  std::vector<std::string> sets = asked.sets;
  sets.emplace_back("data.validation.fraction=0");
  Result<Settings> settings = ReadSettings(program.recipes, asked.recipe, {asked.config}, sets, false, 0);
  if (!settings.ok()) return settings.status();
  Result<std::string> index = settings->recipe->IndexData();
  if (!index.ok()) return index.status();
  if (!index->empty()) settings->recipe->UseIndex(std::make_shared<const std::string>(std::move(*index)));
  Result<engine::Sources> sources = settings->recipe->Open(settings->config);
  if (!sources.ok()) return sources.status();
  Opened opened{sources->train, sources->mixture, {}};
  const auto batch = static_cast<uint64_t>(asked.batch);
  const std::vector<uint64_t> buckets = data::BucketSizes(*opened.source);
  Result<data::Sampler> order =
      opened.mixture       ? data::Sampler::CreateMixed(opened.mixture, {asked.seed}, batch)
      : buckets.size() > 1 ? data::Sampler::CreateBucketed(buckets, {asked.seed}, batch, data::LastBatch::kKeep)
                           : data::Sampler::Create(opened.source->size(), {asked.seed}, batch, data::LastBatch::kKeep);
  if (!order.ok()) return order.status();
  opened.order = std::move(*order);
  return opened;
}

// Batches as a training draws them, or all samples as they lie: over and over, or once.
// `epoch` gets the number of batches in which each sample comes once.
data::Loader MakeLoader(const DataFlags& asked, const Opened& opened, bool drawn, bool once,
                        uint64_t* epoch = nullptr) {
  const uint64_t all = opened.source->size();
  const uint64_t size = asked.samples > 0 ? std::min(asked.samples, all) : all;
  const auto batch = static_cast<uint64_t>(asked.batch);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // of one shape each
  uint64_t first = 0;
  for (const uint64_t bucket : data::BucketSizes(*opened.source)) {
    for (const uint64_t end = first + bucket; first < end; first = ranges.back().second) {
      ranges.emplace_back(first, std::min(first + batch, end));
    }
  }
  while (!ranges.empty() && ranges.back().first >= size) ranges.pop_back();
  if (!ranges.empty()) ranges.back().second = std::min(ranges.back().second, size);
  const uint64_t batches = drawn ? (size + batch - 1) / batch : ranges.size();
  if (epoch != nullptr) *epoch = std::max<uint64_t>(batches, 1);
  const auto plan = [=, order = opened.order](uint64_t n) {
    if (drawn) return order->Peek(n);
    std::vector<data::SampleId> ids;
    const auto [from, end] = ranges[n % ranges.size()];
    for (uint64_t i = from; i < end; ++i) ids.push_back({n / ranges.size(), i, i});
    return ids;
  };
  data::LoaderOptions options{.threads = Threads(asked), .augment = asked.augment, .seed = asked.seed};
  return data::Loader(opened.source, plan, 0, once ? std::optional<uint64_t>(batches) : std::nullopt, options);
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
Status Sizes(const DataFlags& asked, Spread* bytes, Spread* frames) {
  const data::SourceConfig& source = asked.source;
  if (!asked.recipe.empty() || source.kind == "clips" || source.kind == "episodes" || source.kind == "hdf5" ||
      source.kind == "safetensors")
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
// Samples and damaged ones of each set of a mixture.
nlohmann::json SetsOf(const Opened& opened, const std::vector<uint64_t>& bad) {
  nlohmann::json sets = nlohmann::json::array();
  const auto* mixed = dynamic_cast<const data::MixedSource*>(opened.source.get());
  if (!opened.mixture || mixed == nullptr) return sets;
  for (size_t i = 0; i < opened.mixture->parts(); ++i) {
    const auto damaged = std::ranges::count_if(bad, [&](uint64_t index) { return mixed->Find(index).part == i; });
    sets.push_back({{"samples", opened.mixture->size(i)}, {"share", opened.mixture->share(i)}, {"bad", damaged}});
  }
  return sets;
}

Status Stat(const DataFlags& asked, const Opened& opened) {
  const std::shared_ptr<const data::Source>& source = opened.source;
  Spread bytes, frames;
  LOCKSTEP_RETURN_IF_ERROR(Sizes(asked, &bytes, &frames));
  data::Loader loader = MakeLoader(asked, opened, /*drawn=*/false, /*once=*/true);
  std::vector<uint64_t> bad_indices;
  nlohmann::json bad = nlohmann::json::array();
  uint64_t read = 0;
  const uint64_t wanted = asked.samples > 0 ? std::min(asked.samples, source->size()) : source->size();
  std::optional<Progress> progress(std::in_place, "reading", "sample");
  while (!loader.AtEnd()) {
    const Result<data::Batch> batch = loader.Next();
    if (!batch.ok()) return batch.status();
    read += batch->count() + batch->bad.size();
    progress->Show(read, wanted);
    for (const data::BadSample& one : batch->bad) {
      bad_indices.push_back(one.id.index);
      bad.push_back({{"sample", one.name}, {"class", data::FaultOf(one.status)}, {"why", one.status.message()}});
    }
  }
  progress.reset();
  const nlohmann::json sets = SetsOf(opened, bad_indices);
  if (asked.json) {
    const nlohmann::json summary = {{"data", source->Describe()}, {"sets", sets}, {"digest", source->Digest()},
                                    {"samples", source->size()},  {"read", read}, {"bytes", ToJson(bytes)},
                                    {"frames", ToJson(frames)},   {"bad", bad}};
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
    for (size_t i = 0; i < sets.size(); ++i) {
      fmt::print("set {}    {} samples, {:.4g} % of what is drawn, {} damaged\n", i, sets[i]["samples"].get<uint64_t>(),
                 100 * sets[i]["share"].get<double>(), sets[i]["bad"].get<int64_t>());
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

Status Bench(const DataFlags& asked, const Opened& opened) {
  uint64_t batches = 1;
  data::Loader loader = MakeLoader(asked, opened, /*drawn=*/opened.order.has_value(), /*once=*/false, &batches);
  return BenchLoader(*opened.source, &loader,
                     {.threads = Threads(asked),
                      .seconds = asked.seconds,
                      .epochs = asked.epochs,
                      .epoch_batches = batches,
                      .normalise = asked.normalise,
                      .json = asked.json});
}

// A picture as planes.
struct Tile {
  int height = 0, width = 0;
  std::vector<uint8_t> planes;
};

// The first frames of each sample of a batch.
void AddTiles(const data::Batch& batch, int most_frames, std::vector<Tile>* tiles) {
  const std::vector<int64_t>& shape = batch.fields[0].field->shape;
  const int frames = static_cast<int>(shape[0]), height = static_cast<int>(shape[2]),
            width = static_cast<int>(shape[3]);
  const size_t picture = static_cast<size_t>(height) * width * 3;
  const auto* bytes = reinterpret_cast<const uint8_t*>(batch.fields[0].data);
  for (size_t i = 0; i < batch.count(); ++i) {
    for (int t = 0; t < std::min(frames, most_frames); ++t) {
      const uint8_t* from = bytes + (i * frames + t) * picture;
      tiles->push_back({height, width, {from, from + picture}});
    }
  }
}

// A row for each sample, a column for each frame, as the model gets them; a grey line between.
Status Show(const DataFlags& asked, const Opened& opened) {
  const std::vector<data::Field>& fields = opened.source->fields();
  if (fields[0].type != data::ElementType::kU8 || fields[0].shape.size() != 4 || fields[0].shape[1] != 3) {
    return Status(Code::kUsage,
                  fmt::format("the field '{}' of a sample is no clip: there are no pictures to show", fields[0].name));
  }
  const int clip = static_cast<int>(fields[0].shape[0]);
  const int columns = clip == 1 ? asked.shown : std::min(clip, asked.shown);
  DataFlags first = asked;
  first.samples = asked.samples > 0 ? asked.samples : static_cast<uint64_t>(asked.batch);
  data::Loader loader = MakeLoader(first, opened, /*drawn=*/opened.order.has_value(), /*once=*/true);
  std::vector<Tile> tiles;
  uint64_t bad = 0;
  while (!loader.AtEnd()) {
    const Result<data::Batch> batch = loader.Next();
    if (!batch.ok()) return batch.status();
    bad += batch->bad.size();
    AddTiles(*batch, clip == 1 ? 1 : columns, &tiles);
  }
  if (tiles.empty()) return Status(Code::kEnvironment, fmt::format("none of the {} samples can be read", bad));
  constexpr int kLine = 2;
  const int height = std::ranges::max_element(tiles, {}, &Tile::height)->height;
  const int width = std::ranges::max_element(tiles, {}, &Tile::width)->width;
  const int rows = static_cast<int>((tiles.size() + columns - 1) / columns);
  const int whole_width = columns * (width + kLine) - kLine, whole_height = rows * (height + kLine) - kLine;
  constexpr int64_t kMostPixels = 1 << 28;
  if (static_cast<int64_t>(whole_width) * whole_height > kMostPixels) {
    return Status(Code::kUsage, fmt::format("a sheet of {}x{} pixels is too large", whole_width, whole_height),
                  "show fewer with --samples");
  }
  std::vector<uint8_t> sheet(static_cast<size_t>(whole_width) * whole_height * 3, 128);
  for (size_t n = 0; n < tiles.size(); ++n) {
    const Tile& tile = tiles[n];
    const size_t left = n % columns * (width + kLine), top = n / columns * (height + kLine);
    const size_t plane = static_cast<size_t>(tile.height) * tile.width;
    for (size_t p = 0; p < plane; ++p) {
      uint8_t* to = sheet.data() + ((top + p / tile.width) * whole_width + left + p % tile.width) * 3;
      for (size_t c = 0; c < 3; ++c) to[c] = tile.planes[c * plane + p];
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
  std::optional<Progress> progress(std::in_place, "indexing", "file");
  config.index_progress = [&](uint64_t done, uint64_t all) { progress->Show(done, all); };
  Result<std::string> index = data::IndexSource(config, asked.index);
  progress.reset();
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
  config.index_progress = nullptr;
  config.index = std::make_shared<const std::string>(std::move(*index));
  const Result<std::unique_ptr<data::Source>> source = data::OpenSource(config);
  if (!source.ok()) return source.status();
  fmt::print("{}\ndigest   {}\nindex    {}, {}, {:.1f} s; use it with data.index: {}\n", (*source)->Describe(),
             (*source)->Digest(), out, FormatSize(config.index->size()), SecondsSince(start), out);
  return Status::Ok();
}

// Of kinds gopro-spike and generated-spike.
PairsShown PairsOf(const DataFlags& asked) {
  PairsShown pairs = asked.pairs;
  pairs.kind = asked.source.kind;
  pairs.path = asked.source.path;
  pairs.out = asked.out;
  pairs.size = std::min(asked.source.height, asked.source.width);
  pairs.samples = asked.samples > 0 ? asked.samples : 4;
  pairs.seed = asked.seed;
  pairs.augment = asked.augment;
  return pairs;
}

// Blurred frames, spikes and targets side by side, or how fast they are read.
Status RunPairs(const DataFlags& asked) {
  const PairsShown pairs = PairsOf(asked);
  if (asked.command == "show" && !asked.out.empty()) return ShowPairs(pairs);
  if (asked.command != "bench") {
    return Status(Code::kUsage,
                  fmt::format("kind {} is for bench and show --out FILE.png; `lockstep data prepare` checks "
                              "such data",
                              asked.source.kind));
  }
  Result<std::unique_ptr<data::Source>> source = OpenPairs(pairs, asked.source.frames);
  return source.ok() ? Bench(asked, {std::move(*source), nullptr, {}}) : source.status();
}

Result<Opened> Open(const Program& program, const DataFlags& asked) {
  if (!asked.recipe.empty()) return OpenTraining(program, asked);
  Result<std::unique_ptr<data::Source>> opened = data::OpenSource(asked.source);
  if (!opened.ok()) return opened.status();
  return Opened{std::move(*opened), nullptr, {}};
}

Status Run(const Program& program, DataFlags asked) {
  if (asked.crop_only && (!asked.augment || !asked.recipe.empty())) {
    return Status(Code::kUsage,
                  asked.augment ? "--crop-only is of a PATH: with --recipe the configuration says it"
                                : "--crop-only is a kind of --augment, which is missing",
                  asked.augment ? "--set data.flip=false --set data.colour=false" : "add --augment");
  }
  if (asked.crop_only) asked.source.flip = asked.source.colour = false;
  if (IsPairs(asked.source.kind)) return RunPairs(asked);
  if (asked.recipe.empty() && !(asked.config.empty() && asked.sets.empty())) {
    return Status(Code::kUsage, "--config and --set are of a training's configuration, and --recipe names its recipe",
                  "lockstep data stat --recipe taehv --config taehv.yaml");
  }
  if (!asked.recipe.empty() && (asked.command == "index" || !asked.source.path.empty())) {
    return Status(Code::kUsage, asked.command == "index" ? "an index is made for one PATH, not for a training"
                                                         : "with --recipe the configuration says where the data are");
  }
  if (asked.source.kind == "auto") asked.source.kind = KindOf(asked.source);
  if (asked.command == "index") return Index(asked);
  if (asked.command == "show" && asked.out.empty()) return Status(Code::kUsage, "show needs --out FILE.png");
  const Result<Opened> opened = Open(program, asked);
  if (!opened.ok()) return opened.status();
  if (asked.command == "stat") return Stat(asked, *opened);
  if (asked.command == "bench") return Bench(asked, *opened);
  return Show(asked, *opened);
}

}  // namespace

int DataMain(const Program& program, int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "prepare") return DataPrepareMain(argc - 1, argv + 1);
  Arguments args(
      "Looks at training data with the code that trains on them. index: lists them once, for data.index. stat: reads "
      "every sample; sizes, and what is damaged. bench: samples a second, time of each stage, what limits it. show: a "
      "PNG with samples as the model sees them.",
      "lockstep data");
  DataFlags asked;
  std::vector<std::string> kinds = data::SourceKinds();
  kinds.insert(kinds.begin(), "auto");
  kinds.insert(kinds.end(), {"gopro-spike", "generated-spike"});
  args.Option("COMMAND", &asked.command, "index, stat, bench or show (prepare: see lockstep data prepare --help)")
      .Required()
      .OneOf({"index", "stat", "bench", "show"});
  args.Option("PATH", &asked.source.path, "folder of the data, or its one file, as data.path");
  args.Option("--recipe", &asked.recipe, "the data of a training instead of PATH: one set, or those of data.mix")
      .Named("NAME");
  args.Option("--config", &asked.config, "its configuration file").Named("FILE");
  args.Option("--set", &asked.sets, "path.of.key=value of it; may be repeated").Named("KEY=VALUE").Repeated();
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
  args.Option("--epochs", &asked.epochs,
              "of bench, instead of --seconds: goes N times through the data and says the resident memory after each")
      .Between(1, 1 << 20)
      .Named("N");
  args.Flag("--normalise", &asked.normalise, "of bench: each batch also becomes floats, as for ImageNet's models");
  args.Option("--seed", &asked.seed, "of the augmentation").ShowDefault();
  args.Option("--columns", &asked.shown, "of the sheet; frames shown of a clip").Between(1, 1000).ShowDefault();
  args.Flag("--sizes", &asked.index.sizes, "of index: widths and heights, for data.buckets; opens every file");
  args.Flag("--keyframes", &asked.index.key_frames,
            "of index: where videos of varying rate can be entered; reads every file");
  args.Option("--sensor-height", &asked.pairs.sensor_height, "of kind gopro-spike").Between(1, 1 << 14).ShowDefault();
  args.Option("--sensor-width", &asked.pairs.sensor_width, "of kind gopro-spike").Between(1, 1 << 14).ShowDefault();
  args.Option("--half-window", &asked.pairs.half_window, "of the spikes that are shown")
      .Between(1, 1 << 14)
      .ShowDefault();
  args.Flag("--augment", &asked.augment, "random crop, flip and colour, as in training");
  args.Flag("--crop-only", &asked.crop_only, "with --augment: neither flip nor colour");
  args.Option("--out", &asked.out, "the file to write: the sheet, or the index").Named("FILE");
  args.Flag("--json", &asked.json, "the result as JSON");
  args.Footer(
      "examples:\n  lockstep data stat shards/ --json\n  lockstep data bench photos/ --augment --threads 2\n"
      "  lockstep data show videos/ --frames 12 --height 64 --width 64 --augment --out batch.png\n"
      "  lockstep data index photos/ --out photos.index\n"
      "  lockstep data bench --recipe taehv --config mixed.yaml --augment\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Run(program, asked);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep data: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
