#include "engine/ranks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace lockstep::engine {

Status Ranks::AllReduceSum(std::vector<double>* values) {
  return comm_->host().AllReduce(values->data(), values->size(), comm::DType::kF64).Wait();
}

Result<double> Ranks::AllReduceMean(double value) {
  std::vector<double> values = {value};
  LOCKSTEP_RETURN_IF_ERROR(AllReduceSum(&values));
  return values[0] / size();
}

Status Ranks::MainFirst(const std::function<Status()>& work) {
  Status outcome;
  if (is_main()) outcome = work();
  LOCKSTEP_RETURN_IF_ERROR(Agree(outcome));
  if (!is_main()) outcome = work();
  return Agree(outcome);
}

Status Ranks::Agree(const Status& outcome, bool* mine) {
  bool agreed = false;
  Status all = AgreeOver(comm_->host(), outcome, mine, &agreed);
  agreed_to_fail_ = agreed && !all.ok();
  return all;
}

Status AgreeOver(comm::Communicator& comm, const Status& outcome, bool* mine, bool* agreed) {
  if (mine != nullptr) *mine = false;
  if (agreed != nullptr) *agreed = false;
  const nlohmann::json told = {
      {"code", static_cast<int>(outcome.code())}, {"message", outcome.message()}, {"hint", outcome.hint()}};
  const auto all = comm.Gather(outcome.ok() ? std::string() : ToJsonLine(told));
  if (!all.ok()) return all.status();
  if (agreed != nullptr) *agreed = true;
  const auto rank = static_cast<size_t>(comm.identity().rank);
  for (size_t r = 0; r < all->size(); ++r) {
    if ((*all)[r].empty()) continue;
    if (mine != nullptr) *mine = r == rank;
    if (r == rank) return outcome;
    const auto json = ParseJson((*all)[r], "outcome of a rank");
    if (!json.ok()) return json.status();
    return Status(static_cast<Code>(GetInt(*json, "code")), GetString(*json, "message"), GetString(*json, "hint"));
  }
  return Status::Ok();
}

}  // namespace lockstep::engine
