#include "engine/profile.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

#include "base/files.h"

namespace lockstep::engine {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

}  // namespace

TraceScope::TraceScope(const char* name) : record_(at::RecordScope::USER_SCOPE) {
  if (record_.isActive()) record_.before(name);
}

TraceScope::TraceScope(const char* prefix, uint64_t number) : record_(at::RecordScope::USER_SCOPE) {
  if (record_.isActive()) record_.before(fmt::format("{}{}", prefix, number));
}

Profile::~Profile() {
  if (running_) profiler::disableProfiler();
}

Result<std::optional<record::TraceSummary>> Profile::Turn() {
  if (!running_) {
    std::set<ActivityType> what = {ActivityType::CPU};
    if (cuda_) what.insert(ActivityType::CUDA);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
    profiler::prepareProfiler(config, what);
    profiler::enableProfiler(
        config, what, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
    running_ = true;
    return std::optional<record::TraceSummary>();
  }
  const auto result = profiler::disableProfiler();
  running_ = false;
  const std::string folder = file_.substr(0, file_.rfind('/'));
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder));
  result->save(file_);
  Result<record::TraceSummary> summary = record::SummariseTrace(file_, rank_);
  if (!summary.ok()) return summary.status();
  return std::optional(std::move(*summary));
}

}  // namespace lockstep::engine
