// `lockstep eval vrt`: PSNR and SSIM of restored clips, one by one and overall.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/weights.h"
#include "cli/train/commands.h"
#include "cli/train/settings.h"
#include "data/image.h"
#include "data/publish.h"
#include "engine/trainer.h"
#include "media/load_vrt.h"
#include "models/vrt_file.h"
#include "recipes/vrt_evaluation.h"
#include "record/checkpoint_folder.h"
#include "track/progress_line.h"
#include "track/score_text.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using recipes::VrtClip;

struct VrtFlags {
  std::string recipe, weights, variant, target, input, spikes, picture;
  ConfigFiles files;
  std::vector<std::string> said, overrides;  // keys by the file of the weights, and by --set
  std::string device = "auto", precision = "auto";
  int sensor_height = 0, sensor_width = 0, worst = 5;
  bool strict = false, json = false;
};

struct Column {
  const char *name, *title;
  int digits;
};
constexpr Column kColumns[] = {{"psnr", "PSNR", 2},
                               {"ssim", "SSIM", 4},
                               {"psnr_y", "PSNR_Y", 2},
                               {"ssim_y", "SSIM_Y", 4},
                               {"psnr_input", "input", 2}};

bool IsLmdb(const std::string& path) { return path.ends_with(".lmdb") || path.ends_with(".lmdb/"); }

// The shape that a file of Lockstep says in its metadata, as keys of the recipe, and with `spikes` how those were read;
// none where it says none, or where no model of the recipe has what keys cannot say.
std::vector<std::string> ShapeOfFile(const std::string& path, bool spikes) {
  const Result<std::unique_ptr<Weights>> file = OpenWeights(path);
  if (!file.ok()) return {};
  const auto said = (*file)->metadata().find(models::kVrtKey);
  if (said == (*file)->metadata().end()) return {};
  const Result<models::VrtConfig> config = models::VrtFromJson(nlohmann::json::parse(said->second, nullptr, false));
  if (!config.ok()) return {};
  const auto base = std::ranges::find_if(models::VrtVariants(), [&](const models::VrtConfig& row) {
    return row.out_chans == config->out_chans && row.mul_attn_ratio == config->mul_attn_ratio &&
           row.mlp_ratio == config->mlp_ratio && row.qkv_bias == config->qkv_bias && row.qk_scale == config->qk_scale &&
           row.recal_all_flows == config->recal_all_flows;
  });
  if (base == models::VrtVariants().end()) return {};
  constexpr std::pair<const char*, const char*> kKeys[] = {{"in_chans", "in_channels"},
                                                           {"upscale", "upscale"},
                                                           {"img_size", "img_size"},
                                                           {"window_size", "window"},
                                                           {"depths", "depths"},
                                                           {"indep_reconsts", "indep_reconsts"},
                                                           {"embed_dims", "embed_dims"},
                                                           {"num_heads", "heads"},
                                                           {"pa_frames", "pa_frames"},
                                                           {"deformable_groups", "deformable_groups"},
                                                           {"nonblind_denoising", "nonblind_denoising"}};
  const nlohmann::json shape = models::ToJson(*config);
  std::vector<std::string> keys = {"recipe.model=" + base->name, fmt::format("data.scale={}", config->upscale)};
  for (const auto& [from, to] : kKeys) keys.push_back(fmt::format("recipe.{}={}", to, shape[from].dump()));
  if (config->in_chans > 3 && spikes) keys.push_back(fmt::format("data.spikes.channels={}", config->in_chans - 3));
  const auto add = [&](const char* key, const std::string& section, const std::vector<std::string>& names) {
    const auto found = (*file)->metadata().find(key);
    if (found == (*file)->metadata().end()) return;
    const nlohmann::json values = nlohmann::json::parse(found->second, nullptr, false);
    for (const std::string& name : names) {
      if (values.is_object() && values.contains(name)) {
        keys.push_back(fmt::format("{}.{}={}", section, name, values[name].dump()));
      }
    }
  };
  add(media::kFusionKey, "recipe.fusion",
      {"operator", "frames", "hidden", "kernel", "normalize_kernel", "features", "token_dim", "token_stride", "layers",
       "reducer_index"});
  if (spikes) {
    add(media::kSpikesKey, "data.spikes", {"form", "channels", "half_window", "middle", "height", "width", "flip"});
  }
  return keys;
}

// Flags as keys; what the user sets comes last and wins.
std::vector<std::string> Keys(const VrtFlags& asked) {
  std::vector<std::string> keys = asked.said;
  const auto set = [&](const std::string& key, const std::string& value) { keys.push_back(key + "=" + value); };
  if (!asked.variant.empty()) set("recipe.model", asked.variant);
  if (!asked.target.empty()) {
    const std::string kind = IsLmdb(asked.target) ? "lmdb" : "folders";
    for (const char* of : {"data", "data.test"}) {
      set(fmt::format("{}.kind", of), kind);
      set(fmt::format("{}.target", of), asked.target);
      set(fmt::format("{}.input", of), asked.input);
      set(fmt::format("{}.meta_info", of), "");
    }
    set("data.partition", "");
  }
  if (!asked.spikes.empty()) {
    set("data.spikes.use", "true");
    set("data.spikes.path", asked.spikes);
    set("data.test.spikes.path", asked.spikes);
  }
  if (asked.sensor_height > 0) set("data.spikes.height", std::to_string(asked.sensor_height));
  if (asked.sensor_width > 0) set("data.spikes.width", std::to_string(asked.sensor_width));
  keys.insert(keys.end(), asked.overrides.begin(), asked.overrides.end());
  return keys;
}

Result<Settings> ReadAll(const recipes::Registry& recipes, const VrtFlags& asked) {
  VrtFlags all = asked;
  if (all.files.config.empty() && all.files.options.empty()) {
    all.files.config = ConfigOfRun(asked.weights);
    if (all.files.config.empty() && asked.variant.empty()) {
      all.said = ShapeOfFile(asked.weights, !asked.spikes.empty());
    }
    if (all.files.config.empty() && ((asked.variant.empty() && all.said.empty()) || asked.target.empty())) {
      return Status(
          Code::kUsage, fmt::format("'{}' does not say its model and clips", asked.weights),
          "--config or --opt FILE of its training, or --target and --input, and --variant NAME for upstream's files");
    }
  }
  Result<Settings> settings = ReadSettings(recipes, "vrt", all.files, Keys(all), false, 0);
  if (!settings.ok() || settings->phases.empty()) return settings;
  Settings last = std::move(settings->phases.back());  // what a run of several phases ends with
  return last;
}

ordered_json Scores(const VrtClip& clip) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : clip.scores) json[name] = std::isfinite(value) ? ordered_json(value) : nullptr;
  return json;
}

void PrintTable(const recipes::VrtEvaluation& found) {
  size_t width = 7;
  for (const VrtClip& clip : found.clips) width = std::max(width, clip.name.size());
  std::string head = fmt::format("{:<{}} {:>6} {:>9}", "clip", width, "frames", "size");
  for (const Column& column : kColumns) head += fmt::format("{:>9}", column.title);
  fmt::print("{}\n", head);
  const auto row = [&](const std::string& name, int64_t frames, const std::string& size, auto score) {
    std::string line = fmt::format("{:<{}} {:>6} {:>9}", name, width, frames, size);
    for (const Column& column : kColumns) {
      const double value = score(column.name);
      line += std::isnan(value) ? fmt::format("{:>9}", "-") : fmt::format("{:>9.{}f}", value, column.digits);
    }
    fmt::print("{}\n", line);
  };
  for (const VrtClip& clip : found.clips) {
    row(clip.name, clip.frames, fmt::format("{}x{}", clip.width, clip.height),
        [&](const char* name) { return clip.Score(name); });
  }
  row("mean", found.frames(), "", [&](const char* name) { return found.Mean(name); });
  for (const auto& [name, why] : found.left_out) fmt::print("left out: {}: {}\n", name, why);
}

Status WritePicture(const track::Cairo& cairo, const std::string& path, const track::Sheet& sheet) {
  const Result<track::Picture> picture = track::DrawSheet(cairo, sheet);
  if (!picture.ok()) return picture.status();
  Result<std::string> png = data::EncodePng(picture->rgb, picture->width, picture->height);
  if (!png.ok()) return png.status();
  return WriteFileAtomic(path, *png);
}

Status Run(const recipes::Registry& recipes, const VrtFlags& asked) {
  const track::Cairo* cairo = nullptr;
  if (!asked.picture.empty()) {
    Result<const track::Cairo*> loaded = track::LoadCairo();
    if (!loaded.ok()) return loaded.status().Context("--picture");
    cairo = *loaded;
    // Made and removed again: a place that cannot be written is said before clips are measured.
    const Result<data::Publication> place = data::Publication::File(asked.picture, /*overwrite=*/true);
    if (!place.ok()) return place.status().Context("--picture");
  }
  Result<std::string> checkpoint = record::FindCheckpoint(asked.weights);
  if (!checkpoint.ok()) return checkpoint.status().Context("--weights");
  if (checkpoint->empty() && ::access(asked.weights.c_str(), R_OK) != 0) {
    return FileError("open", asked.weights, errno).Context("--weights");
  }
  VrtFlags found = asked;
  if (!checkpoint->empty()) found.weights = *checkpoint;
  Result<Settings> settings = ReadAll(recipes, found);
  if (!settings.ok()) return settings.status();
  auto* recipe = dynamic_cast<recipes::VrtRecipe*>(settings->recipe.get());
  if (recipe == nullptr) return Status(Code::kInternal, "the recipe vrt is not VRT's");
  settings->config.checkpoint.weights = found.weights;  // before SpyNet's own file
  recipe->data().train.spikes.all = asked.strict;       // else a clip without some of them is left out
  Result<at::Device> device = engine::ChooseDevice(asked.device, 0, 1, comm::Backend::kAuto);
  if (!device.ok()) return device.status();
  const engine::Precision precision = asked.precision == "auto"
                                          ? (device->is_cuda() ? engine::Precision::kBf16 : engine::Precision::kFp32)
                                          : *engine::PrecisionNamed(asked.precision);
  Result<std::shared_ptr<const data::Source>> clips = recipe->OpenTest();
  if (!clips.ok()) return clips.status();
  if (*clips == nullptr) {
    Result<engine::Sources> sources = recipe->Open(settings->config);
    if (!sources.ok()) return sources.status();
    if (!sources->validation) {
      return Status(Code::kUsage, "no clips to measure: the configuration has no data.test and holds none out",
                    "name them: --target DIR --input DIR");
    }
    *clips = sources->validation;
  }
  LOCKSTEP_RETURN_IF_ERROR(recipe->Build(settings->config, settings->config.run.seed));
  LOCKSTEP_RETURN_IF_ERROR(recipes::LoadForEvaluation(*recipe, found.weights));
  recipe->model().to(*device);
  const TimePoint began = Now();
  Result<recipes::VrtEvaluation> evaluation = Status(Code::kInternal, "not measured");
  {
    track::ProgressLine progress({.unit = "clip", .total = (*clips)->size(), .fd = 2});
    evaluation = recipes::EvaluateVrt(*recipe, *clips, *device, precision,
                                      cairo == nullptr ? 0 : static_cast<size_t>(asked.worst),
                                      [&](uint64_t done) { progress.Update({.step = done}); });
  }
  if (!evaluation.ok()) return evaluation.status();
  if (asked.strict && !evaluation->left_out.empty()) {
    const auto& [name, why] = evaluation->left_out.front();
    return Status(Code::kEnvironment, fmt::format("{}: {}", name, why), "repair it, or leave --strict out");
  }
  const double seconds = SecondsSince(began);
  if (cairo != nullptr) {
    track::Sheet& sheet = evaluation->sheet;
    sheet.title = found.weights;
    sheet.subtitle = fmt::format("the {} worst of {} by PSNR  ·  mean of all: {}, {}", sheet.rows.size(),
                                 Count(static_cast<int64_t>(evaluation->clips.size()), "clip"),
                                 track::ScoreText("psnr", evaluation->Mean("psnr")),
                                 track::ScoreText("ssim", evaluation->Mean("ssim")));
  }
  // After the numbers, which a full disk does not take away.
  const auto picture = [&] {
    return cairo == nullptr ? Status::Ok() : WritePicture(*cairo, asked.picture, evaluation->sheet);
  };
  if (!asked.json) {
    fmt::print("weights  {}\ndata     {}\nrun      {} in {:.1f} s on {}, {}\n\n", found.weights, (*clips)->Describe(),
               Count(evaluation->frames(), "frame"), seconds, device->str(), engine::PrecisionName(precision));
    PrintTable(*evaluation);
    if (cairo != nullptr) fmt::print("\npicture  {}\n", asked.picture);
    return picture();
  }
  ordered_json json = {{"recipe", "vrt"},
                       {"weights", found.weights},
                       {"device", device->str()},
                       {"precision", engine::PrecisionName(precision)},
                       {"data", (*clips)->Describe()},
                       {"frames", evaluation->frames()},
                       {"seconds", seconds},
                       {"overall", ordered_json::object()},
                       {"clips", ordered_json::array()},
                       {"left_out", ordered_json::array()}};
  for (const auto& [name, value] : evaluation->clips.front().scores) json["overall"][name] = evaluation->Mean(name);
  for (const VrtClip& clip : evaluation->clips) {
    ordered_json one = {{"name", clip.name}, {"frames", clip.frames}, {"height", clip.height}, {"width", clip.width}};
    one.update(Scores(clip));
    json["clips"].push_back(std::move(one));
  }
  for (const auto& [name, why] : evaluation->left_out) json["left_out"].push_back({{"name", name}, {"why", why}});
  if (cairo != nullptr) json["picture"] = asked.picture;
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  return picture();
}

}  // namespace

int EvalVrtMain(const Program& program, int argc, char** argv) {
  Arguments args(
      "Measures VRT on clips: PSNR, SSIM, PSNR_Y and SSIM_Y as KAIR computes them, per clip and overall. Model, "
      "windows,"
      "\ntiles and clips are those of the training's configuration; flags and --set change them.",
      "lockstep eval");
  VrtFlags asked;
  args.Option("RECIPE", &asked.recipe, "vrt").Required().OneOf({"vrt"});
  args.Option("--weights", &asked.weights,
              "a run (name, 'latest' or directory), a checkpoint folder, an export, or upstream's file")
      .Named("RUN|PATH")
      .Required();
  args.Option("--variant", &asked.variant, "shape of upstream's file: 001 to 009, 006-spike").Named("NAME");
  args.Option("--config", &asked.files.config, "a training's configuration (default: that of the run)").Named("FILE");
  args.Option("--opt", &asked.files.options, "an option file of KAIR or S-VRT instead").Named("FILE");
  args.Option("--set", &asked.overrides, "path.of.key=value").Named("KEY=VALUE").Repeated();
  Argument target = args.Option("--target", &asked.target, "clips as they should be: folders of frames, or an .lmdb");
  target.Named("DIR");
  Argument input = args.Option("--input", &asked.input, "the same clips, degraded");
  input.Named("DIR");
  target.Needs(input);
  input.Needs(target);
  args.Option("--spikes", &asked.spikes, "their spikes: CLIP/spike/NUMBER.dat").Named("DIR");
  args.Option("--sensor-height", &asked.sensor_height, "of the spike camera").Between(1, 1 << 20);
  args.Option("--sensor-width", &asked.sensor_width, "of the spike camera").Between(1, 1 << 20);
  args.Option("--picture", &asked.picture, "PNG of the worst clips: input, spikes, restored, target, error")
      .Named("FILE.png")
      .Check([](const std::string& path) { return path.ends_with(".png") ? "" : "expected NAME.png, found " + path; });
  args.Option("--worst", &asked.worst, "how many clips the picture shows (default 5)").Between(1, 1000);
  args.Option("--device", &asked.device).OneOf({"auto", "cpu", "cuda"});
  args.Option("--precision", &asked.precision, "auto: bf16 on a GPU, else fp32")
      .OneOf({"auto", "fp32", "bf16", "fp16"});
  args.Flag("--strict", &asked.strict, "an unreadable clip is an error, not left out");
  args.Flag("--json", &asked.json, "one JSON document instead of the table");
  args.Footer(
      "examples:\n  lockstep eval vrt --weights runs/deblur --picture worst.png\n"
      "  lockstep eval vrt --weights runs/deblur --target GoPro/test_GT --input GoPro/test_GT_blurred --json\n"
      "  lockstep eval vrt --weights 006.pth --opt options/006.json\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  Status status;
  try {
    status = Run(program.recipes, asked);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    status = Status(Code::kEnvironment, what.substr(0, what.find('\n')), "out of memory? --set recipe.test.tile=128");
  }
  std::fflush(nullptr);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep eval: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
