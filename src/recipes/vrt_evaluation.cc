#include "recipes/vrt_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/feed.h"
#include "engine/state.h"

namespace lockstep::recipes {
namespace {

// The row of the best clip leaves when there are too many.
void KeepWorst(size_t most, std::vector<std::pair<double, track::SheetRow>>* rows) {
  if (rows->size() <= most) return;
  rows->erase(std::ranges::max_element(*rows, {}, [](const auto& row) { return row.first; }));
}

}  // namespace

double VrtClip::Score(const std::string& wanted) const {
  for (const auto& [key, value] : scores) {
    if (key == wanted) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

int64_t VrtEvaluation::frames() const {
  int64_t all = 0;
  for (const VrtClip& clip : clips) all += clip.frames;
  return all;
}

double VrtEvaluation::Mean(const std::string& name) const {
  double sum = 0;
  for (const VrtClip& clip : clips) sum += clip.Score(name);
  return sum / static_cast<double>(clips.size());
}

Status LoadForEvaluation(VrtRecipe& recipe, const std::string& weights) {
  auto tensors = engine::ReadWeights(weights);
  if (!tensors.ok()) return tensors.status().Context("--weights");
  recipe.settings().partial = false;
  const bool adapter =
      std::ranges::any_of(*tensors, [](const auto& item) { return item.first.find(kAdapter) != std::string::npos; });
  if (recipe.settings().fuses() && !adapter) {
    return Status(Code::kUsage,
                  fmt::format("--weights {}: has no fusion adapter, and recipe.fusion.operator is {}", weights,
                              recipe.settings().fusion_operator),
                  "give the weights of a training with it, or --set recipe.fusion.operator=concat");
  }
  return recipe.LoadWeights(*tensors, weights).Context("--weights");
}

Result<VrtEvaluation> EvaluateVrt(VrtRecipe& recipe, std::shared_ptr<const data::Source> clips, at::Device device,
                                  engine::Precision precision, size_t worst,
                                  const std::function<void(uint64_t)>& done) {
  VrtEvaluation found;
  std::vector<std::pair<double, track::SheetRow>> rows;
  const auto one = [](uint64_t n) { return engine::Feed::Planned{{{0, n, n}}, 0}; };
  engine::Feed feed(clips, one, clips->size(), {.prefetch = 1}, device);
  const at::NoGradGuard no_grad;
  recipe.model().eval();
  for (uint64_t n = 0; n < clips->size(); ++n) {
    Result<engine::FeedItem> item = feed.Next();
    if (!item.ok()) return item.status();
    for (const data::BadSample& bad : item->bad) found.left_out.emplace_back(bad.name, bad.status.message());
    if (item->batch.count() == 0) continue;
    const engine::AutocastGuard autocast(device.type(), precision);
    const at::IntArrayRef shape = item->batch["target"].sizes();
    VrtClip clip{clips->Name(n), shape[1], shape[3], shape[4], {}};
    for (const engine::Score& score : recipe.Validate(item->batch)) clip.scores.emplace_back(score.name, score.sum);
    if (worst > 0) {
      found.sheet.rows.clear();
      recipe.Show(item->batch, &found.sheet);
      found.sheet.rows.front().title = clip.name;
      rows.emplace_back(clip.Score("psnr"), std::move(found.sheet.rows.front()));
      KeepWorst(worst, &rows);
    }
    found.clips.push_back(std::move(clip));
    done(n + 1);
  }
  std::ranges::stable_sort(rows, {}, [](const auto& row) { return row.first; });
  found.sheet.rows.clear();
  for (auto& row : rows) found.sheet.rows.push_back(std::move(row.second));
  if (!found.clips.empty()) return found;
  return Status(Code::kEnvironment,
                fmt::format("none of the {} clips could be read; the first: {}", clips->size(),
                            found.left_out.empty() ? "there is none" : found.left_out.front().second));
}

}  // namespace lockstep::recipes
