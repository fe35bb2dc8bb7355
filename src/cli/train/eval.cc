// `lockstep eval RECIPE`: how good trained weights are, clip by clip and overall.
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/train/commands.h"
#include "cli/train/eval_clips.h"
#include "cli/train/eval_picture.h"
#include "cli/train/settings.h"
#include "cli/train/weights_file.h"
#include "data/image.h"
#include "engine/trainer.h"
#include "recipes/evaluation.h"
#include "track/progress_line.h"
#include "track/score_text.h"
#include "track/sheet.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using recipes::ClipScores;
using recipes::Metric;

constexpr size_t kMostRows = 60;        // of the table; beyond, the worst only
constexpr int64_t kPixels = 6'000'000;  // of frames in one piece
constexpr int64_t kWindow = 96;         // frames the baseline looks at together: whole latents for every variant

struct Asked {
  std::string recipe, weights, variant, config, picture;
  std::string device = "auto", precision = "fp32", execution = "fast";
  std::vector<std::string> overrides, lpips;
  ClipChoice clips;
  int worst = 5;
  bool baseline = false, json = false, strict = false;
};

// What bicubic scaling gives: at the latents' height and width, and with as many stored values.
struct Baseline {
  ClipScores grid, values;
  bool time = false;  // which of the two ways of storing as many values was better
};

struct Measured {
  std::string name;
  int64_t height = 0, width = 0;
  ClipScores scores;
  std::optional<Baseline> baseline;
  Strip strip;
};

struct LeftOut {
  std::string name, why;
};

// All ways of scaling beside each other.
class BaselineMeter {
 public:
  BaselineMeter(const models::TaehvConfig& config, const recipes::Lpips* lpips)
      : config_(config), meters_(3, recipes::ClipMeter(lpips)) {}

  void Add(const at::Tensor& target) {
    waiting_.push_back(target);
    count_ += target.size(0);
    while (count_ >= kWindow) Measure(kWindow);
  }
  Baseline Finish() {
    if (count_ > 0) Measure(count_);
    const ClipScores grid = meters_[0].Finish(), space = meters_[1].Finish(), time = meters_[2].Finish();
    return time.psnr > space.psnr ? Baseline{grid, time, true} : Baseline{grid, space, false};
  }

 private:
  void Measure(int64_t frames) {
    const at::Tensor all = at::cat(waiting_);
    const at::Tensor window = all.narrow(0, 0, frames);
    for (const auto way : {recipes::Scaling::kGrid, recipes::Scaling::kSpace, recipes::Scaling::kTime}) {
      meters_[static_cast<size_t>(way)].Add(recipes::ScaleDownAndUp(window, config_, way).frames, window);
    }
    count_ -= frames;
    waiting_.clear();
    if (count_ > 0) waiting_.push_back(all.narrow(0, frames, count_).clone());
  }

  const models::TaehvConfig& config_;
  std::vector<recipes::ClipMeter> meters_;  // by Scaling
  std::vector<at::Tensor> waiting_;
  int64_t count_ = 0;
};

class Evaluation {
 public:
  explicit Evaluation(const Asked& asked) : asked_(asked) {}

  Status Run() {
    LOCKSTEP_RETURN_IF_ERROR(Prepare());
    const TimePoint began = Now();
    {
      track::ProgressLine progress({.unit = "clip", .total = clips_->size(), .fd = 2});
      for (uint64_t i = 0; i < clips_->size(); ++i) {
        Status status = MeasureClip(i);
        if (!status.ok()) {
          if (asked_.strict) return status.Context(clips_->Name(i));
          progress.Say(fmt::format("left out: {}", status.message()));
          left_out_.push_back({clips_->Name(i), status.message()});
        }
        progress.Update({.step = i + 1});
      }
    }
    seconds_ = std::chrono::duration<double>(Now() - began).count();
    if (measured_.empty()) {
      return Status(Code::kUsage,
                    fmt::format("none of the {} clips could be measured; the first: {}", clips_->size(),
                                left_out_.empty() ? "there is none" : left_out_.front().why),
                    "name videos, folders of frames or .safetensors with --data");
    }
    if (!asked_.picture.empty()) LOCKSTEP_RETURN_IF_ERROR(WritePicture());
    if (asked_.json) {
      fmt::print("{}\n", Json().dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      PrintTable();
    }
    return Status::Ok();
  }

 private:
  Status Prepare() {
    if (!asked_.picture.empty()) {
      Result<const track::Cairo*> cairo = track::LoadCairo();
      if (!cairo.ok()) return cairo.status().Context("--picture");
      cairo_ = *cairo;
    }
    Result<LoadedTaehv> loaded = LoadTaehv(asked_.weights, asked_.variant);
    if (!loaded.ok()) return loaded.status();
    loaded_ = std::move(*loaded);
    if (!loaded_.note.empty()) fmt::print(stderr, "lockstep eval: {}\n", loaded_.note);
    Result<at::Device> device = engine::ChooseDevice(asked_.device, 0, 1, comm::Backend::kAuto);
    if (!device.ok()) return device.status();
    device_ = *device;
    precision_ = asked_.precision == "bf16"   ? engine::Precision::kBf16
                 : asked_.precision == "fp16" ? engine::Precision::kFp16
                                              : engine::Precision::kFp32;
    loaded_.model->to(device_);
    loaded_.model->eval();
    loaded_.model->SetExecution(asked_.execution == "fast" ? models::Execution::kFast : models::Execution::kReference);
    if (!asked_.lpips.empty()) {
      Result<recipes::Lpips> lpips = recipes::Lpips::Load(asked_.lpips);
      if (!lpips.ok()) return lpips.status();
      lpips_ = std::move(*lpips);
      lpips_->To(device_);
    }
    return FindData();
  }

  Status FindData() {
    std::string config = asked_.config;
    if (config.empty() && asked_.clips.data.empty() && asked_.clips.annotations.empty()) {
      config = ConfigOfRun();
      if (config.empty()) {
        return Status(Code::kUsage, "no clips to measure: neither --data nor --config is given",
                      "--data FOLDER|FILE..., or --config FILE for the validation data of a training; weights in a run "
                      "directory bring theirs along");
      }
      fmt::print(stderr, "lockstep eval: the validation data of {}\n", config);
    }
    if (config.empty()) {
      Result<std::unique_ptr<ClipSet>> clips = FindClips(asked_.clips);
      if (!clips.ok()) return clips.status();
      clips_ = std::move(*clips);
      return Status::Ok();
    }
    if (!asked_.clips.data.empty() || !asked_.clips.annotations.empty()) {
      return Status(Code::kUsage, "--config brings the data of a training, --data and --annotations others: give one");
    }
    Result<Settings> settings = ReadSettings(asked_.recipe, config, asked_.overrides, false, 0);
    if (!settings.ok()) return settings.status();
    Result<engine::Sources> sources = settings->recipe->Open(settings->config);
    if (!sources.ok()) return sources.status();
    if (!sources->validation) {
      return Status(Code::kUsage, fmt::format("{}: data.validation.fraction is 0: nothing is held out", config),
                    "name clips with --data");
    }
    clips_ = SourceClips(sources->validation);
    return Status::Ok();
  }

  // train.yaml beside or above a checkpoint.
  std::string ConfigOfRun() const {
    std::error_code ignored;
    std::filesystem::path folder = std::filesystem::weakly_canonical(loaded_.path, ignored);
    for (int up = 0; up < 3 && !folder.empty(); ++up, folder = folder.parent_path()) {
      const std::filesystem::path file = folder / "train.yaml";
      if (std::filesystem::exists(file, ignored)) return file.string();
    }
    return "";
  }

  Status MeasureClip(uint64_t index) {
    try {
      Result<std::unique_ptr<ClipReader>> reader = clips_->Open(index);
      if (!reader.ok()) return reader.status();
      Measured clip;
      clip.name = clips_->Name(index);
      recipes::ClipMeter meter(lpips_ ? &*lpips_ : nullptr);
      BaselineMeter baseline(loaded_.model->config(), lpips_ ? &*lpips_ : nullptr);
      recipes::Reconstruction run(loaded_.model.get(), device_, precision_,
                                  [&](const at::Tensor& output, const at::Tensor& target) {
                                    meter.Add(output, target);
                                    if (asked_.baseline) baseline.Add(target);
                                    if (!asked_.picture.empty()) clip.strip.Add(output, target);
                                  });
      for (;;) {
        Result<at::Tensor> frames = (*reader)->Next(Piece(clip));
        if (!frames.ok()) return frames.status();
        if (!frames->defined()) break;
        clip.height = frames->size(2);
        clip.width = frames->size(3);
        run.Push(*frames);
      }
      run.Finish();
      clip.scores = meter.Finish();
      if (clip.scores.frames == 0) return Status(Code::kUsage, fmt::format("'{}' has no frames", clip.name));
      if (std::isnan(clip.scores.psnr)) {
        return Status(Code::kRankFailed, fmt::format("'{}': the model's output is not a number", clip.name),
                      "try --precision fp32");
      }
      if (asked_.baseline) clip.baseline = baseline.Finish();
      frames_ += clip.scores.frames;
      measured_.push_back(std::move(clip));
      ForgetPictures();
      return Status::Ok();
    } catch (const std::exception& error) {
      const std::string what = error.what();
      return Status(Code::kRankFailed, fmt::format("'{}': {}", clips_->Name(index), what.substr(0, what.find('\n'))),
                    "out of memory? --height and --width make frames smaller");
    }
  }

  // Whole latents; little for large frames. The first piece is small: the size is not known before.
  static int64_t Piece(const Measured& clip) {
    if (clip.height == 0) return 8;
    return std::clamp<int64_t>(kPixels / (clip.height * clip.width) / 8 * 8, 8, 64);
  }

  // By PSNR; a clip without error is the best.
  std::vector<const Measured*> Worst(size_t count) const {
    std::vector<const Measured*> worst;
    for (const Measured& clip : measured_) worst.push_back(&clip);
    std::stable_sort(worst.begin(), worst.end(),
                     [](const Measured* a, const Measured* b) { return a->scores.psnr < b->scores.psnr; });
    worst.resize(std::min(worst.size(), count));
    return worst;
  }

  // Frames are kept for the worst clips only; the newest clip joins them, the best of them leaves.
  void ForgetPictures() {
    if (asked_.picture.empty()) return;
    pictured_.push_back(measured_.size() - 1);
    if (pictured_.size() <= static_cast<size_t>(asked_.worst)) return;
    auto best = pictured_.begin();
    for (auto it = best; it != pictured_.end(); ++it) {
      if (measured_[*it].scores.psnr >= measured_[*best].scores.psnr) best = it;
    }
    measured_[*best].strip = Strip();
    pictured_.erase(best);
  }

  Status WritePicture() {
    const std::vector<const Measured*> worst = Worst(static_cast<size_t>(asked_.worst));
    track::Sheet sheet{.title = loaded_.path, .columns = recipes::kClipColumns, .map_label = track::kAbsoluteError};
    sheet.subtitle = loaded_.model->config().name + (loaded_.step ? fmt::format("  ·  step {}", *loaded_.step) : "");
    sheet.subtitle += fmt::format("  ·  the {} worst of {} clips by PSNR  ·  mean of all: {}, {}", worst.size(),
                                  measured_.size(), MeanText("psnr"), MeanText("ssim"));
    for (const Measured* clip : worst) {
      track::SheetRow row = clip->strip.Row();
      row.title = clip->name;
      row.score = track::ScoreText("psnr", clip->scores.psnr) + "   " + track::ScoreText("ssim", clip->scores.ssim);
      if (lpips_) row.score += "   " + track::ScoreText("lpips", clip->scores.lpips);
      sheet.rows.push_back(std::move(row));
    }
    const Result<track::Picture> picture = track::DrawSheet(*cairo_, sheet);
    if (!picture.ok()) return picture.status();
    Result<std::string> png = data::EncodePng(picture->rgb, picture->width, picture->height);
    if (!png.ok()) return png.status();
    return WriteFileAtomic(asked_.picture, *png);
  }

  std::string MeanText(std::string_view name) const {
    for (const Metric& metric : recipes::Metrics()) {
      if (metric.name == name) return track::ScoreText(name, recipes::Summarize(Values(metric, OfModel)).mean);
    }
    return "";
  }

  // Whose scores are summed up.
  using Of = const ClipScores& (*)(const Measured& clip);
  static const ClipScores& OfModel(const Measured& clip) { return clip.scores; }
  static const ClipScores& OfGrid(const Measured& clip) { return clip.baseline->grid; }
  static const ClipScores& OfValues(const Measured& clip) { return clip.baseline->values; }

  std::vector<double> Values(const Metric& metric, Of of) const {
    std::vector<double> values;
    for (const Measured& clip : measured_) values.push_back(of(clip).*metric.value);
    return values;
  }

  static ordered_json Number(double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
  }

  ordered_json Scores(const ClipScores& scores) const {
    ordered_json json = ordered_json::object();
    for (const Metric& metric : recipes::Metrics()) {
      if (Shown(metric)) json[metric.name] = Number(scores.*metric.value);
    }
    json["exact"] = std::isinf(scores.psnr);  // PSNR has no number then
    return json;
  }

  ordered_json Overall(Of of) const {
    ordered_json json = ordered_json::object();
    for (const Metric& metric : recipes::Metrics()) {
      if (!Shown(metric)) continue;
      const recipes::Summary s = recipes::Summarize(Values(metric, of));
      json[metric.name] = {{"mean", Number(s.mean)}, {"std", Number(s.std)}, {"min", Number(s.min)},
                           {"p10", Number(s.p10)},   {"p90", Number(s.p90)}, {"max", Number(s.max)},
                           {"count", s.count}};
    }
    return json;
  }

  ordered_json Json() const {
    const models::TaehvConfig& config = loaded_.model->config();
    ordered_json json = {{"recipe", asked_.recipe},
                         {"weights", loaded_.path},
                         {"model", config.name},
                         {"step", loaded_.step ? ordered_json(*loaded_.step) : ordered_json(nullptr)},
                         {"averaged", loaded_.averaged},
                         {"device", device_.str()},
                         {"precision", asked_.precision},
                         {"data", clips_->Describe()},
                         {"frames", frames_},
                         {"seconds", seconds_},
                         {"overall", Overall(OfModel)}};
    if (asked_.baseline) json["baseline"] = {{"grid", Overall(OfGrid)}, {"values", Overall(OfValues)}};
    json["clips"] = ordered_json::array();
    for (const Measured& clip : measured_) {
      ordered_json one = {
          {"name", clip.name}, {"frames", clip.scores.frames}, {"height", clip.height}, {"width", clip.width}};
      one.update(Scores(clip.scores));
      if (clip.baseline) {
        one["baseline"] = {{"grid", Scores(clip.baseline->grid)}, {"values", Scores(clip.baseline->values)}};
        one["baseline"]["values"]["way"] = clip.baseline->time ? "time" : "space";
      }
      json["clips"].push_back(std::move(one));
    }
    json["left_out"] = ordered_json::array();
    for (const LeftOut& clip : left_out_) json["left_out"].push_back({{"name", clip.name}, {"why", clip.why}});
    if (!asked_.picture.empty()) json["picture"] = asked_.picture;
    return json;
  }

  bool Shown(const Metric& metric) const { return lpips_ || metric.value != &ClipScores::lpips; }

  std::string Cell(const Metric& metric, double value) const {
    if (std::isnan(value)) return fmt::format("{:>9}", "-");
    return fmt::format("{:>9.{}f}", value, metric.digits);
  }

  void PrintRow(const Measured& clip, size_t width) const {
    std::string name = clip.name;
    if (name.size() > width) name = "..." + name.substr(name.size() - (width - 3));
    std::string line = fmt::format("{:<{}} {:>6} {:>9}", name, width, clip.scores.frames,
                                   fmt::format("{}x{}", clip.width, clip.height));
    for (const Metric& metric : recipes::Metrics()) {
      if (Shown(metric)) line += Cell(metric, clip.scores.*metric.value);
    }
    if (clip.baseline) {
      line += fmt::format("{:>9.2f}{:>9.2f} {}", clip.baseline->grid.psnr, clip.baseline->values.psnr,
                          clip.baseline->time ? "time" : "space");
    }
    fmt::print("{}\n", line);
  }

  void PrintOverall(const std::string& title, Of of, size_t width) const {
    fmt::print("\n{}\n", title);
    std::vector<recipes::Summary> columns;
    for (const Metric& metric : recipes::Metrics()) columns.push_back(recipes::Summarize(Values(metric, of)));
    const std::pair<const char*, double recipes::Summary::*> rows[] = {
        {"mean", &recipes::Summary::mean}, {"std", &recipes::Summary::std}, {"min", &recipes::Summary::min},
        {"p10", &recipes::Summary::p10},   {"p90", &recipes::Summary::p90}, {"max", &recipes::Summary::max}};
    for (const auto& [name, value] : rows) {
      std::string line = fmt::format("{:<{}}", name, width + 17);
      for (size_t i = 0; i < columns.size(); ++i) {
        if (Shown(recipes::Metrics()[i])) line += Cell(recipes::Metrics()[i], columns[i].*value);
      }
      fmt::print("{}\n", line);
    }
  }

  void PrintTable() const {
    const models::TaehvConfig& config = loaded_.model->config();
    fmt::print("weights  {} ({}{}{})\n", loaded_.path, config.name,
               loaded_.step ? fmt::format(", step {}", *loaded_.step) : "", loaded_.averaged ? ", averaged" : "");
    fmt::print("data     {}\n", clips_->Describe());
    fmt::print("run      {} in {:.1f} s ({:.1f} frames/s with the scores) on {}, {}\n\n",
               Count(static_cast<int64_t>(frames_), "frame"), seconds_,
               static_cast<double>(frames_) / std::max(seconds_, 1e-9), device_.str(), asked_.precision);
    size_t width = 4;
    for (const Measured& clip : measured_) width = std::max(width, std::min<size_t>(clip.name.size(), 40));
    std::string head = fmt::format("{:<{}} {:>6} {:>9}", "clip", width, "frames", "size");
    for (const Metric& metric : recipes::Metrics()) {
      if (Shown(metric)) head += fmt::format("{:>9}", metric.title);
    }
    fmt::print("{}{}\n", head, asked_.baseline ? "     grid   values" : "");
    if (measured_.size() <= kMostRows) {
      for (const Measured& clip : measured_) PrintRow(clip, width);
    } else {
      for (const Measured* clip : Worst(static_cast<size_t>(asked_.worst))) PrintRow(*clip, width);
      fmt::print("the worst {} of {}; --json has all\n", std::min<size_t>(asked_.worst, measured_.size()),
                 measured_.size());
    }
    PrintOverall(fmt::format("overall, {} clip{}", measured_.size(), measured_.size() == 1 ? "" : "s"), OfModel, width);
    if (asked_.baseline) {
      PrintOverall("bicubic down and up: every frame at the latents' height and width", OfGrid, width);
      PrintOverall("bicubic down and up: as many stored values as the latents", OfValues, width);
    }
    if (!left_out_.empty()) {
      fmt::print("\nleft out: {} of {}\n", left_out_.size(), clips_->size());
      for (const LeftOut& clip : left_out_) fmt::print("  {}\n", clip.why);
    }
    if (!asked_.picture.empty()) fmt::print("\npicture  {}\n", asked_.picture);
  }

  const Asked& asked_;
  const track::Cairo* cairo_ = nullptr;  // with --picture
  LoadedTaehv loaded_;
  at::Device device_ = at::kCPU;
  engine::Precision precision_ = engine::Precision::kFp32;
  std::optional<recipes::Lpips> lpips_;
  std::unique_ptr<ClipSet> clips_;
  std::vector<Measured> measured_;
  std::vector<size_t> pictured_;  // into measured_
  std::vector<LeftOut> left_out_;
  int64_t frames_ = 0;
  double seconds_ = 0;
};

}  // namespace

int EvalMain(int argc, char** argv) {
  Arguments args("Measures trained weights on clips: PSNR, SSIM, LPIPS, temporal consistency, per clip and overall.",
                 "lockstep eval");
  Asked asked;
  args.Option("RECIPE", &asked.recipe, "taehv").Required().OneOf({"taehv"});
  args.Option("--weights", &asked.weights,
              "upstream's file, an export, a checkpoint folder, or a run: its name, 'latest' or its directory")
      .Named("RUN|PATH")
      .Required();
  args.Option("--variant", &asked.variant, "of the network, where a file does not say it").Named("NAME");
  args.Option("--data", &asked.clips.data, "videos, folders of videos or frames, .safetensors with 'frames'")
      .Named("PATH");
  args.Option("--annotations", &asked.clips.annotations, "a list of videos below --data").Named("FILE");
  args.Option("--config", &asked.config, "a training's configuration: its validation data are measured").Named("FILE");
  args.Option("--set", &asked.overrides, "path.of.key=value for --config").Named("KEY=VALUE").Repeated();
  args.Option("--frames", &asked.clips.frames, "at most so many of a clip; 0: all (default 49)").NonNegative();
  args.Option("--clips-per-video", &asked.clips.clips_per_video, "spread evenly over it (default 1)")
      .Between(1, 100000);
  Argument height = args.Option("--height", &asked.clips.height, "crop in the middle and resize; default: as they are")
                        .Between(8, 8192);
  Argument width = args.Option("--width", &asked.clips.width).Between(8, 8192);
  height.Needs(width);
  width.Needs(height);
  args.Option("--lpips", &asked.lpips, "AlexNet's and LPIPS' weights, one file or two").Named("FILE").Repeated();
  args.Flag("--baseline", &asked.baseline,
            "also measure bicubic scaling down and up: to the latents' size, to as many stored values");
  args.Option("--picture", &asked.picture, "PNG of the worst clips: input, reconstruction, error")
      .Named("FILE.png")
      .Check([](const std::string& path) { return path.ends_with(".png") ? "" : "expected NAME.png, found " + path; });
  args.Option("--worst", &asked.worst, "how many clips are worst (default 5)").Between(1, 1000);
  args.Option("--device", &asked.device).OneOf({"auto", "cpu", "cuda"});
  args.Option("--precision", &asked.precision).OneOf({"fp32", "bf16", "fp16"});
  args.Option("--execution", &asked.execution, "fast, or reference: upstream's operations one by one")
      .OneOf({"fast", "reference"});
  args.Flag("--strict", &asked.strict, "an unreadable clip is an error, not left out");
  args.Flag("--json", &asked.json, "one JSON document instead of the table");
  args.Footer(
      "examples:\n  lockstep eval taehv --weights runs/night-1 --picture worst.png\n"
      "  lockstep eval taehv --weights taew2_1.pth --data clips/ --lpips alexnet-owt-7be5be79.pth --lpips alex.pth\n"
      "  lockstep eval taehv --weights model.safetensors --data a.mp4 b.mp4 --frames 0 --baseline --json\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Evaluation(asked).Run();
  std::fflush(nullptr);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep eval: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
