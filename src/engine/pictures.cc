#include "engine/pictures.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/files.h"
#include "base/log.h"
#include "data/image.h"
#include "track/gif.h"
#include "track/score_text.h"

namespace lockstep::engine {
namespace {

constexpr double kClipRate = 8;  // frames a second: slow enough to look at

Result<std::string> Write(const std::string& path, const track::Picture& picture) {
  Result<std::string> png = data::EncodePng(picture.rgb, picture.width, picture.height);
  if (!png.ok()) return png;
  const Status written = WriteFileAtomic(path, *png, 0644, Durability::kProcess);
  if (!written.ok()) return written;
  return png;
}

}  // namespace

std::string RunName(const std::string& run_dir) {
  const std::filesystem::path path = std::filesystem::path(run_dir).lexically_normal();
  const std::string name = path.filename().string();
  return name == "smoke" ? path.parent_path().filename().string() + "/smoke" : name;
}

Pictures::Pictures(PicturesOptions options, track::Metrics* metrics) : options_(std::move(options)), metrics_(metrics) {
  curve_ = std::make_unique<track::RunCurve>(track::RunCurveOptions{.metrics_path = options_.metrics_path,
                                                                    .title = RunName(options_.run_dir),
                                                                    .recipe = options_.recipe,
                                                                    .score = options_.score,
                                                                    .more_is_better = options_.more_is_better,
                                                                    .steps = options_.steps});
  const Result<const track::Cairo*> cairo = track::LoadCairo();
  if (cairo.ok()) {
    cairo_ = *cairo;
  } else {
    painter_.Miss();  // loss.png
    LogWarn("this run draws no pictures (pictures/*.png, loss.png): {}; training goes on. To get them: {}",
            cairo.status().message(), cairo.status().hint());
  }
}

void Pictures::Show(const std::string& name, uint64_t step, const std::vector<std::pair<std::string, double>>& scores,
                    uint64_t samples, track::Sheet sheet) {
  if (cairo_ == nullptr) return painter_.Miss();
  std::string means;  // the loss last: it says least about a picture
  for (const bool loss : {false, true}) {
    for (const auto& [score, value] : scores) {
      if ((score == "loss") == loss) means += (means.empty() ? "" : ", ") + track::ScoreText(score, value);
    }
  }
  sheet.title = RunName(options_.run_dir);
  sheet.subtitle = fmt::format("{}  ·  step {} of {}  ·  validation, mean of {} sample{}: {}", options_.recipe, step,
                               options_.steps, samples, samples == 1 ? "" : "s", means);
  painter_.Add(fmt::format("{}-{}.png", name, step),
               [this, name, step, sheet = std::move(sheet)] { return WriteSheet(name, step, sheet); });
}

void Pictures::Fail(const std::string& name, const Status& why) {
  painter_.Add(name, [why] { return why; });
}

void Pictures::DrawCurve() {
  if (cairo_ == nullptr) return;
  // One that waits will show everything there is by then.
  if (curve_waits_.exchange(true)) return;
  painter_.Add("loss.png", [this] {
    curve_waits_ = false;
    return WriteCurve();
  });
}

Status Pictures::WriteSheet(const std::string& name, uint64_t step, const track::Sheet& sheet) {
  const Result<track::Picture> picture = track::DrawSheet(*cairo_, sheet);
  if (!picture.ok()) return picture.status();
  const std::string folder = options_.run_dir + "/pictures";
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  Result<std::string> png = Write(fmt::format("{}/{}-{}.png", folder, name, step), *picture);
  if (!png.ok()) return png.status();
  metrics_->Image(name, step, std::move(*png), picture->width, picture->height);
  for (const track::SheetRow& row : sheet.rows) {
    if (row.clip.size() > 1) return WriteClip(name, step, row.clip);
  }
  return Status::Ok();
}

Status Pictures::WriteClip(const std::string& name, uint64_t step, const std::vector<track::Picture>& frames) {
  Result<std::string> gif = track::EncodeGif(frames, kClipRate);
  if (!gif.ok()) return gif.status();
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(fmt::format("{}/pictures/{}-{}.gif", options_.run_dir, name, step), *gif,
                                           0644, Durability::kProcess));
  metrics_->Video(name + "/clip", step, std::move(*gif), frames[0].width, frames[0].height);
  return Status::Ok();
}

Status Pictures::WriteCurve() {
  const track::Curve curve = curve_->Read();
  if (curve_->size() == 0) return Status::Ok();
  const Result<track::Picture> picture = track::DrawCurve(*cairo_, curve);
  if (!picture.ok()) return picture.status();
  LOCKSTEP_RETURN_IF_ERROR(Write(options_.run_dir + "/loss.png", *picture).status());
  curve_drawn_ = true;
  return Status::Ok();
}

}  // namespace lockstep::engine
