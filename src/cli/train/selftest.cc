// `lockstep-train selftest`: one rank of `lockstep selftest` where the job's Python has no torch: collectives of the
// engine's own communicator with known answers, then their speed. Leaves rank-<r>.json as selftest.py does.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/digits.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/train/commands.h"
#include "comm/communicator.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string out, progress, sizes, failed;
  double limit = 15;
};

class Rank {
 public:
  explicit Rank(Options options) : options_(std::move(options)) {}
  int Run();

 private:
  Status Test();
  Status Check(const char* what, const std::function<Result<std::set<int>>()>& action);
  Result<std::set<int>> Sum();
  Result<std::set<int>> Gathered();
  Result<std::set<int>> Scattered();
  Result<std::set<int>> Told();
  Status Measure(size_t bytes);
  void Progress(const std::string& doing);

  Options options_;
  std::shared_ptr<comm::Communicator> comm_;
  int rank_ = 0, world_ = 1;
  std::vector<std::string> hosts_;
  int done_ = 0, steps_ = 10;
  TimePoint began_ = Now();
  Json result_ = {{"ok", false},
                  {"checks", Json::array()},
                  {"sizes", Json::array()},
                  {"pairs", Json::array()},
                  {"notes", Json::array()}};
};

void Rank::Progress(const std::string& doing) {
  result_["during"] = doing;
  ++done_;
  if (rank_ != 0 || options_.progress.empty()) return;
  const double left = SecondsSince(began_) / done_ * std::max(0, steps_ - done_);
  (void)WriteFileAtomic(options_.progress,
                        Json{{"doing", doing}, {"done", done_}, {"of", steps_}, {"eta", left}}.dump(), 0644,
                        Durability::kProcess);
}

// Element r is rank r's alone: a wrong one names its rank.
Result<std::set<int>> Rank::Sum() {
  std::vector<int64_t> x(static_cast<size_t>(world_) + 5000, rank_ % 7 + 1);
  std::fill(x.begin(), x.begin() + world_, 0);
  x[static_cast<size_t>(rank_)] = rank_ + 1;
  LOCKSTEP_RETURN_IF_ERROR(comm_->AllReduceNow(x.data(), x.size(), comm::DType::kI64));
  int64_t rest = 0;
  for (int r = 0; r < world_; ++r) rest += r % 7 + 1;
  std::set<int> wrong;
  for (int r = 0; r < world_; ++r) {
    if (x[static_cast<size_t>(r)] != r + 1) wrong.insert(r);
  }
  const bool ok = std::all_of(x.begin() + world_, x.end(), [&](int64_t value) { return value == rest; });
  if (!ok && wrong.empty()) wrong.insert(rank_);
  return wrong;
}

Result<std::set<int>> Rank::Gathered() {
  const size_t count = 1000;
  std::vector<int64_t> mine(count), all(count * static_cast<size_t>(world_));
  std::iota(mine.begin(), mine.end(), static_cast<int64_t>(rank_) * 1000003);
  LOCKSTEP_RETURN_IF_ERROR(comm_->AllGatherNow(mine.data(), all.data(), count, comm::DType::kI64));
  std::set<int> wrong;
  for (int r = 0; r < world_; ++r) {
    for (size_t i = 0; i < count; ++i) {
      if (all[static_cast<size_t>(r) * count + i] != static_cast<int64_t>(r) * 1000003 + static_cast<int64_t>(i))
        wrong.insert(r);
    }
  }
  return wrong;
}

Result<std::set<int>> Rank::Scattered() {
  const size_t count = 1000;
  std::vector<int64_t> in(count * static_cast<size_t>(world_)), out(count);
  for (size_t i = 0; i < in.size(); ++i) in[i] = (rank_ + 1) * static_cast<int64_t>(i / count + 1);
  LOCKSTEP_RETURN_IF_ERROR(comm_->ReduceScatterNow(in.data(), out.data(), count, comm::DType::kI64));
  const int64_t want = static_cast<int64_t>(world_) * (world_ + 1) / 2 * (rank_ + 1);
  const bool ok = std::all_of(out.begin(), out.end(), [&](int64_t value) { return value == want; });
  return ok ? std::set<int>() : std::set<int>{rank_};
}

Result<std::set<int>> Rank::Told() {
  std::set<int> wrong;
  for (int root : std::set<int>{0, world_ / 2, world_ - 1}) {
    std::vector<int64_t> x(1000, rank_);
    LOCKSTEP_RETURN_IF_ERROR(comm_->BroadcastNow(x.data(), x.size() * sizeof(int64_t), root));
    if (std::any_of(x.begin(), x.end(), [&](int64_t value) { return value != root; })) wrong.insert(root);
  }
  return wrong;
}

Status Rank::Check(const char* what, const std::function<Result<std::set<int>>()>& action) {
  Progress(what);
  auto found = action();
  if (!found.ok()) return found.status().Context(what);
  auto told = comm_->Gather(Json(*found).dump());
  if (!told.ok()) return told.status().Context(what);
  std::set<int> wrong;
  for (const std::string& text : *told) {
    const Json list = Json::parse(text, nullptr, false);
    if (list.is_array()) wrong.merge(list.get<std::set<int>>());
  }
  result_["checks"].push_back({{"what", what}, {"ok", wrong.empty()}});
  if (wrong.empty()) return Status::Ok();
  result_["blame"] = {{"kind", "wrong answer"}, {"ranks", wrong}};
  return Status(Code::kEnvironment, fmt::format("{}: the contribution of rank {} ({}) arrived altered", what,
                                                *wrong.begin(), hosts_[static_cast<size_t>(*wrong.begin())]));
}

Status Rank::Measure(size_t bytes) {
  const size_t count = std::max<size_t>(1, bytes / 4);
  Progress(fmt::format("all-reduce of {} bytes", bytes));
  auto buffer = comm_->Allocate(count * 4);
  if (!buffer.ok()) return buffer.status();
  const auto one = [&] { return comm_->AllReduceNow(buffer->data(), count, comm::DType::kF32); };
  LOCKSTEP_RETURN_IF_ERROR(one());
  TimePoint started = Now();
  LOCKSTEP_RETURN_IF_ERROR(one());
  int64_t rounds = std::clamp<int64_t>(static_cast<int64_t>(0.5 / std::max(1e-6, SecondsSince(started))), 3, 2000);
  LOCKSTEP_RETURN_IF_ERROR(comm_->BroadcastNow(&rounds, sizeof rounds, 0));
  LOCKSTEP_RETURN_IF_ERROR(comm_->Barrier());
  started = Now();
  for (int64_t i = 0; i < rounds; ++i) LOCKSTEP_RETURN_IF_ERROR(one());
  const double seconds = SecondsSince(started) / static_cast<double>(rounds);
  const double speed = static_cast<double>(count * 4) / seconds / 1e9;
  result_["sizes"].push_back(
      {{"bytes", count * 4}, {"us", seconds * 1e6}, {"algbw", speed}, {"busbw", speed * 2 * (world_ - 1) / world_}});
  return Status::Ok();
}

Status Rank::Test() {
  auto who = comm::BootstrapFromEnvironment();
  if (!who.ok()) return who.status();
  rank_ = who->rank;
  world_ = who->size;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const char* node = std::getenv("GROUP_RANK");
  result_.update({{"rank", rank_},
                  {"world", world_},
                  {"node", node == nullptr ? 0 : ParseDigits(node).value_or(0)},
                  {"host", host},
                  {"backend", "engine"}});
  Progress("rendezvous");
  comm::Options options;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(options_.limit * 1000));
  auto connected = comm::Communicator::Connect(*who, options);
  if (!connected.ok()) return connected.status();
  comm_ = *connected;
  result_["transport"] = comm_->transport();
  auto told = comm_->Gather(Json{{"host", host}, {"failed", options_.failed}}.dump());
  if (!told.ok()) return told.status();
  for (const std::string& text : *told) {
    const Json about = Json::parse(text, nullptr, false);
    hosts_.push_back(about.value("host", ""));
    if (const std::string failed = about.value("failed", ""); !failed.empty()) {
      return Status(Code::kEnvironment, fmt::format("{} failed by itself: {}", hosts_.back(), failed));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(Check("all-reduce of integers", [this] { return Sum(); }));
  LOCKSTEP_RETURN_IF_ERROR(Check("all-gather", [this] { return Gathered(); }));
  LOCKSTEP_RETURN_IF_ERROR(Check("reduce-scatter", [this] { return Scattered(); }));
  LOCKSTEP_RETURN_IF_ERROR(Check("broadcast", [this] { return Told(); }));
  if (world_ > 1) {
    const std::string sizes = options_.sizes.empty() ? "8,16384,262144,2097152,16777216" : options_.sizes;
    for (const std::string& size : Split(sizes, ',')) {
      const std::optional<uint64_t> bytes = ParseDigits<uint64_t>(size);
      if (!bytes) return Status(Code::kUsage, fmt::format("--sizes: expected numbers of bytes, found '{}'", size));
      LOCKSTEP_RETURN_IF_ERROR(Measure(*bytes));
    }
  }
  return Status::Ok();
}

int Rank::Run() {
  const Status status = Test();
  result_["ok"] = status.ok();
  if (!status.ok()) {
    result_["error"] = status.message();
    fmt::print(stderr, "selftest: {}\n", status.ToString());
  }
  (void)MakeDirs(options_.out);
  const Status written =
      WriteFileAtomic(fmt::format("{}/rank-{}.json", options_.out, rank_), result_.dump(), 0644, Durability::kProcess);
  if (!written.ok()) fmt::print(stderr, "selftest: {}\n", written.ToString());
  return status.ok() && written.ok() ? kExitOk : kExitEnvironment;
}

}  // namespace

int SelftestMain(int argc, char** argv) {
  Options options;
  Arguments args("One rank of `lockstep selftest`: collectives with known answers and their speed",
                 "lockstep-train selftest");
  args.Option("--out", &options.out, "folder for rank-<r>.json").Required();
  args.Option("--progress", &options.progress, "file that says how far rank 0 is");
  args.Option("--sizes", &options.sizes, "bytes to measure, separated by commas");
  args.Option("--limit", &options.limit, "seconds a collective may take");
  args.Option("--failed", &options.failed, "what this node failed at by itself");
  if (const auto code = args.Parse(argc, argv)) return *code;
  return Rank(std::move(options)).Run();
}

}  // namespace lockstep::cli
