// `lockstep eval RECIPE`: how good trained weights are, clip by clip and overall.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/arguments.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/train/commands.h"
#include "cli/train/settings.h"
#include "media/evaluate.h"

namespace lockstep::cli {
namespace {

using media::ClipScores;
using media::MeasuredClip;
using media::Metric;
using nlohmann::ordered_json;

constexpr size_t kMostRows = 60;  // of the table; beyond, the worst only

struct EvalFlags {
  std::string recipe, config;
  std::vector<std::string> overrides;
  media::EvaluationOptions evaluation;
  media::ClipChoice clips;
  bool json = false;
};

Result<std::unique_ptr<media::ClipSet>> FindData(const recipes::Registry& recipes, const EvalFlags& asked,
                                                 const std::string& weights) {
  std::string config = asked.config;
  if (config.empty() && asked.clips.data.empty() && asked.clips.annotations.empty()) {
    config = ConfigOfRun(weights);
    if (config.empty()) {
      return Status(Code::kUsage, "no clips to measure: neither --data nor --config is given",
                    "--data FOLDER|FILE..., or --config FILE for the validation data of a training; weights in a run "
                    "directory bring theirs along");
    }
    fmt::print(stderr, "lockstep eval: the validation data of {}\n", config);
  }
  if (config.empty()) return media::FindClips(asked.clips);
  if (!asked.clips.data.empty() || !asked.clips.annotations.empty()) {
    return Status(Code::kUsage, "--config brings the data of a training, --data and --annotations others: give one");
  }
  Result<Settings> settings = ReadSettings(recipes, asked.recipe, {config}, asked.overrides, false, 0);
  if (!settings.ok()) return settings.status();
  Result<engine::Sources> sources = settings->recipe->Open(settings->config);
  if (!sources.ok()) return sources.status();
  if (!sources->validation) {
    return Status(Code::kUsage, fmt::format("{}: data.validation.fraction is 0: nothing is held out", config),
                  "name clips with --data");
  }
  return media::SourceClips(sources->validation);
}

// What an evaluation found, as JSON or as a table.
class EvaluationView {
 public:
  EvaluationView(const EvalFlags& asked, const media::Evaluation& evaluation) : asked_(asked), found_(evaluation) {}

  ordered_json Json() const {
    const models::TaehvConfig& config = found_.loaded().model->config();
    ordered_json json = {{"recipe", asked_.recipe},
                         {"weights", found_.loaded().path},
                         {"model", config.name},
                         {"step", found_.loaded().step ? ordered_json(*found_.loaded().step) : ordered_json(nullptr)},
                         {"averaged", found_.loaded().averaged},
                         {"device", found_.device().str()},
                         {"precision", asked_.evaluation.precision},
                         {"data", found_.clips().Describe()},
                         {"frames", found_.frames()},
                         {"seconds", found_.seconds()},
                         {"overall", Overall(OfModel)}};
    if (asked_.evaluation.baseline) json["baseline"] = {{"grid", Overall(OfGrid)}, {"values", Overall(OfValues)}};
    json["clips"] = ordered_json::array();
    for (const MeasuredClip& clip : found_.measured()) {
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
    for (const media::LeftOutClip& clip : found_.left_out())
      json["left_out"].push_back({{"name", clip.name}, {"why", clip.why}});
    if (!asked_.evaluation.picture.empty()) json["picture"] = asked_.evaluation.picture;
    return json;
  }

  void PrintTable() const {
    const models::TaehvConfig& config = found_.loaded().model->config();
    fmt::print("weights  {} ({}{}{})\n", found_.loaded().path, config.name,
               found_.loaded().step ? fmt::format(", step {}", *found_.loaded().step) : "",
               found_.loaded().averaged ? ", averaged" : "");
    fmt::print("data     {}\n", found_.clips().Describe());
    fmt::print("run      {} in {:.1f} s ({:.1f} frames/s with the scores) on {}, {}\n\n",
               Count(static_cast<int64_t>(found_.frames()), "frame"), found_.seconds(),
               static_cast<double>(found_.frames()) / std::max(found_.seconds(), 1e-9), found_.device().str(),
               asked_.evaluation.precision);
    size_t width = 4;
    for (const MeasuredClip& clip : found_.measured()) width = std::max(width, std::min<size_t>(clip.name.size(), 40));
    std::string head = fmt::format("{:<{}} {:>6} {:>9}", "clip", width, "frames", "size");
    for (const Metric& metric : media::Metrics()) {
      if (found_.Has(metric)) head += fmt::format("{:>9}", metric.title);
    }
    fmt::print("{}{}\n", head, asked_.evaluation.baseline ? "     grid   values" : "");
    if (found_.measured().size() <= kMostRows) {
      for (const MeasuredClip& clip : found_.measured()) PrintRow(clip, width);
    } else {
      for (const MeasuredClip* clip : found_.Worst(static_cast<size_t>(asked_.evaluation.worst)))
        PrintRow(*clip, width);
      fmt::print("the worst {} of {}; --json has all\n",
                 std::min<size_t>(asked_.evaluation.worst, found_.measured().size()), found_.measured().size());
    }
    PrintOverall(fmt::format("overall, {} clip{}", found_.measured().size(), found_.measured().size() == 1 ? "" : "s"),
                 OfModel, width);
    if (asked_.evaluation.baseline) {
      PrintOverall("bicubic down and up: every frame at the latents' height and width", OfGrid, width);
      PrintOverall("bicubic down and up: as many stored values as the latents", OfValues, width);
    }
    if (!found_.left_out().empty()) {
      fmt::print("\nleft out: {} of {}\n", found_.left_out().size(), found_.clips().size());
      for (const media::LeftOutClip& clip : found_.left_out()) fmt::print("  {}\n", clip.why);
    }
    if (!asked_.evaluation.picture.empty()) fmt::print("\npicture  {}\n", asked_.evaluation.picture);
  }

 private:
  // Whose scores are summed up.
  using Of = const ClipScores& (*)(const MeasuredClip& clip);
  static const ClipScores& OfModel(const MeasuredClip& clip) { return clip.scores; }
  static const ClipScores& OfGrid(const MeasuredClip& clip) { return clip.baseline->grid; }
  static const ClipScores& OfValues(const MeasuredClip& clip) { return clip.baseline->values; }

  std::vector<double> Values(const Metric& metric, Of of) const {
    std::vector<double> values;
    for (const MeasuredClip& clip : found_.measured()) values.push_back(of(clip).*metric.value);
    return values;
  }

  static ordered_json Number(double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
  }

  ordered_json Scores(const ClipScores& scores) const {
    ordered_json json = ordered_json::object();
    for (const Metric& metric : media::Metrics()) {
      if (found_.Has(metric)) json[metric.name] = Number(scores.*metric.value);
    }
    json["exact"] = std::isinf(scores.psnr);  // PSNR has no number then
    return json;
  }

  ordered_json Overall(Of of) const {
    ordered_json json = ordered_json::object();
    for (const Metric& metric : media::Metrics()) {
      if (!found_.Has(metric)) continue;
      const media::Summary s = media::Summarize(Values(metric, of));
      json[metric.name] = {{"mean", Number(s.mean)}, {"std", Number(s.std)}, {"min", Number(s.min)},
                           {"p10", Number(s.p10)},   {"p90", Number(s.p90)}, {"max", Number(s.max)},
                           {"count", s.count}};
    }
    return json;
  }

  std::string Cell(const Metric& metric, double value) const {
    if (std::isnan(value)) return fmt::format("{:>9}", "-");
    return fmt::format("{:>9.{}f}", value, metric.digits);
  }

  void PrintRow(const MeasuredClip& clip, size_t width) const {
    std::string name = clip.name;
    if (name.size() > width) name = "..." + name.substr(name.size() - (width - 3));
    std::string line = fmt::format("{:<{}} {:>6} {:>9}", name, width, clip.scores.frames,
                                   fmt::format("{}x{}", clip.width, clip.height));
    for (const Metric& metric : media::Metrics()) {
      if (found_.Has(metric)) line += Cell(metric, clip.scores.*metric.value);
    }
    if (clip.baseline) {
      line += fmt::format("{:>9.2f}{:>9.2f} {}", clip.baseline->grid.psnr, clip.baseline->values.psnr,
                          clip.baseline->time ? "time" : "space");
    }
    fmt::print("{}\n", line);
  }

  void PrintOverall(const std::string& title, Of of, size_t width) const {
    fmt::print("\n{}\n", title);
    std::vector<media::Summary> columns;
    for (const Metric& metric : media::Metrics()) columns.push_back(media::Summarize(Values(metric, of)));
    const std::pair<const char*, double media::Summary::*> rows[] = {
        {"mean", &media::Summary::mean}, {"std", &media::Summary::std}, {"min", &media::Summary::min},
        {"p10", &media::Summary::p10},   {"p90", &media::Summary::p90}, {"max", &media::Summary::max}};
    for (const auto& [name, value] : rows) {
      std::string line = fmt::format("{:<{}}", name, width + 17);
      for (size_t i = 0; i < columns.size(); ++i) {
        if (found_.Has(media::Metrics()[i])) line += Cell(media::Metrics()[i], columns[i].*value);
      }
      fmt::print("{}\n", line);
    }
  }

  const EvalFlags& asked_;
  const media::Evaluation& found_;
};

Status Run(const recipes::Registry& recipes, const EvalFlags& asked) {
  media::Evaluation evaluation(asked.evaluation);
  LOCKSTEP_RETURN_IF_ERROR(evaluation.Load());
  Result<std::unique_ptr<media::ClipSet>> clips = FindData(recipes, asked, evaluation.loaded().path);
  if (!clips.ok()) return clips.status();
  LOCKSTEP_RETURN_IF_ERROR(evaluation.Measure(std::move(*clips)));
  const EvaluationView view(asked, evaluation);
  if (asked.json) {
    fmt::print("{}\n", view.Json().dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    view.PrintTable();
  }
  return evaluation.WritePicture();
}

}  // namespace

int EvalMain(const Program& program, int argc, char** argv) {
  const auto is_recipe = [](std::string_view word) { return word == "taehv" || word == "vrt"; };
  if (char** recipe = std::find_if(argv + 1, argv + argc, is_recipe);
      recipe != argv + argc && std::string_view(*recipe) == "vrt") {
    return EvalVrtMain(program, argc, argv);
  }
  Arguments args("Measures trained weights on clips: PSNR, SSIM, LPIPS, temporal consistency, per clip and overall.",
                 "lockstep eval");
  EvalFlags asked;
  args.Option("RECIPE", &asked.recipe, "taehv, or vrt: `lockstep eval vrt --help`").Required().OneOf({"taehv", "vrt"});
  args.Option("--weights", &asked.evaluation.weights,
              "upstream's file, an export, a checkpoint folder, or a run: its name, 'latest' or its directory")
      .Named("RUN|PATH")
      .Required();
  args.Option("--variant", &asked.evaluation.variant, "of the network, where a file does not say it").Named("NAME");
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
  args.Option("--lpips", &asked.evaluation.lpips, "AlexNet's and LPIPS' weights, one file or two")
      .Named("FILE")
      .Repeated();
  args.Flag("--baseline", &asked.evaluation.baseline,
            "also measure bicubic scaling down and up: to the latents' size, to as many stored values");
  args.Option("--picture", &asked.evaluation.picture, "PNG of the worst clips: input, reconstruction, error")
      .Named("FILE.png")
      .Check([](const std::string& path) { return path.ends_with(".png") ? "" : "expected NAME.png, found " + path; });
  args.Option("--worst", &asked.evaluation.worst, "how many clips are worst (default 5)").Between(1, 1000);
  args.Option("--device", &asked.evaluation.device).OneOf({"auto", "cpu", "cuda"});
  args.Option("--precision", &asked.evaluation.precision).OneOf({"fp32", "bf16", "fp16"});
  args.Option("--execution", &asked.evaluation.execution, "fast, or reference: upstream's operations one by one")
      .OneOf({"fast", "reference"});
  args.Flag("--strict", &asked.evaluation.strict, "an unreadable clip is an error, not left out");
  args.Flag("--json", &asked.json, "one JSON document instead of the table");
  args.Footer(
      "examples:\n  lockstep eval taehv --weights runs/night-1 --picture worst.png\n"
      "  lockstep eval taehv --weights taew2_1.pth --data clips/ --lpips alexnet-owt-7be5be79.pth --lpips alex.pth\n"
      "  lockstep eval taehv --weights model.safetensors --data a.mp4 b.mp4 --frames 0 --baseline --json\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Run(program.recipes, asked);
  std::fflush(nullptr);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep eval: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
