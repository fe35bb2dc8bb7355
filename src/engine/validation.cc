#include "engine/validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/tree_sum.h"
#include "record/json_number.h"

namespace lockstep::engine {
namespace {

// One batch's sums, as text that keeps every bit.
nlohmann::json Measure(Recipe& recipe, const TensorBatch& batch) {
  nlohmann::json sums = nlohmann::json::array();
  const Loss loss = recipe.ComputeValidationLoss(batch);
  sums.push_back({"loss", record::NumberToJson(loss.mean.item<double>() * loss.weight)});
  // A score may be infinite: the PSNR of what equals its target.
  for (const Score& score : recipe.Validate(batch)) sums.push_back({score.name, record::NumberToJson(score.sum)});
  return {{"count", batch.count()}, {"weight", recipe.Weight(batch).value_or(loss.weight)}, {"sums", std::move(sums)}};
}

// Samples [first, end) of a source.
struct Range {
  uint64_t first = 0, end = 0;
};

// All samples in their order, at most `most` at once and of one shape.
std::vector<Range> BatchesOf(const data::Source& source, uint64_t most) {
  std::vector<Range> batches;
  uint64_t first = 0;
  for (const uint64_t bucket : data::BucketSizes(source)) {
    for (const uint64_t end = first + bucket; first < end; first = batches.back().end) {
      batches.push_back({first, std::min(first + most, end)});
    }
  }
  return batches;
}

constexpr size_t kShown = 4;  // samples on the sheet

// The first samples of a batch.
TensorBatch First(const TensorBatch& batch, size_t count) {
  TensorBatch first;
  count = std::min(count, batch.ids.size());
  for (const auto& [name, field] : batch.fields) first.fields[name] = field.narrow(0, 0, static_cast<int64_t>(count));
  first.ids.assign(batch.ids.begin(), batch.ids.begin() + static_cast<ptrdiff_t>(count));
  first.lanes.assign(batch.lanes.begin(),
                     batch.lanes.begin() + static_cast<ptrdiff_t>(std::min(count, batch.lanes.size())));
  return first;
}

// Adds rows until the sheet is full. A picture never ends a validation.
void Show(Recipe& recipe, const TensorBatch& batch, const data::Source& source, ValidationResult* result) {
  std::vector<track::SheetRow>& rows = result->sheet.rows;
  const size_t before = rows.size();
  if (before >= kShown || !result->shown.ok()) return;
  const TensorBatch first = First(batch, kShown - before);
  try {
    recipe.Show(first, &result->sheet);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    result->shown = Status(Code::kRankFailed, what.substr(0, what.find('\n')));
    return;
  }
  for (size_t i = before; i < rows.size() && i - before < first.ids.size(); ++i) {
    if (rows[i].title.empty()) rows[i].title = source.Name(first.ids[i - before].index);
  }
}

}  // namespace

double ValidationResult::Find(const std::string& name) const {
  for (const auto& [key, value] : means) {
    if (key == name) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

Result<ValidationResult> RunValidation(const ValidationPlan& plan, Recipe& recipe, Ranks& ranks,
                                       ParallelStrategy& strategy) {
  const std::vector<Range> batches = BatchesOf(*plan.source, plan.batch);
  const LeafRange mine = LeavesOf(batches.size(), ranks.rank(), ranks.size());
  const auto ids_of = [&](uint64_t n) {
    Feed::Planned planned;
    const Range& batch = batches[mine.first + n];
    for (uint64_t i = batch.first; i < batch.end; ++i) planned.ids.push_back({0, i, i});
    return planned;
  };
  ValidationResult result;
  std::string told;
  Status status;
  const auto own_batches = [&] {
    try {
      const at::NoGradGuard no_grad;
      recipe.model().eval();
      Feed feed(plan.source, ids_of, mine.count, plan.loader, plan.device);
      for (uint64_t n = 0; n < mine.count; ++n) {
        Result<FeedItem> item = feed.Next();
        if (!item.ok()) {
          status = item.status();
          break;
        }
        result.bad.insert(result.bad.end(), item->bad.begin(), item->bad.end());
        if (item->batch.count() == 0) continue;
        const AutocastGuard autocast(plan.device.type(), plan.precision);
        status = recipe.PrepareValidation(&item->batch);
        if (!status.ok()) break;
        nlohmann::json line = Measure(recipe, item->batch);
        if (recipe.ScoresEachSample() && item->batch.count() == 1) {
          line["sample"] = plan.source->Name(item->batch.ids.front().index);
        }
        told += ToJsonLine(line) + "\n";
        if (ranks.is_main()) Show(recipe, item->batch, *plan.source, &result);
      }
    } catch (const std::exception& error) {
      status = Status(Code::kRankFailed, fmt::format("validation failed on rank {}: {}", ranks.rank(), error.what()));
    }
  };
  LOCKSTEP_RETURN_IF_ERROR(strategy.Evaluate(own_batches));
  recipe.model().train();
  LOCKSTEP_RETURN_IF_ERROR(ranks.Agree(status));
  Result<std::vector<std::string>> all = ranks.host().Gather(told);
  if (!all.ok()) return all.status();
  double weight = 0;  // of the loss; other scores are means over samples
  for (const std::string& text : *all) {
    for (const nlohmann::json& line : ParseJsonLines(text).lines) {
      result.samples += static_cast<uint64_t>(GetInt(line, "count"));
      weight += line["weight"].get<double>();
      if (line.contains("sample")) {
        nlohmann::json row = {{"sample", line["sample"]}};
        for (const nlohmann::json& sum : line["sums"]) row[sum[0].get<std::string>()] = sum[1];
        result.rows.push_back(std::move(row));
      }
      for (const nlohmann::json& sum : line["sums"]) {
        const auto name = sum[0].get<std::string>();
        const double value = record::ReadNumber(sum[1]).value_or(std::numeric_limits<double>::quiet_NaN());
        auto it =
            std::find_if(result.means.begin(), result.means.end(), [&](const auto& m) { return m.first == name; });
        if (it == result.means.end()) {
          result.means.emplace_back(name, value);
        } else {
          it->second += value;
        }
      }
    }
  }
  const auto samples = static_cast<double>(std::max<uint64_t>(1, result.samples));
  for (auto& [name, mean] : result.means) mean /= name == "loss" && weight > 0 ? weight : samples;
  for (auto& derived : recipe.Derive(result.means)) result.means.push_back(std::move(derived));
  return result;
}

}  // namespace lockstep::engine
