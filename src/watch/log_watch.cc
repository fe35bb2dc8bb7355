#include "watch/log_watch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

namespace lockstep::watch {
namespace {

constexpr double kSilentAfter = 60;  // seconds without a line until a log counts as silent
constexpr double kEtaUnit = 1;       // seconds: what a stated ETA is cut to

}  // namespace

LogWatch::LogWatch(const std::string& path) : log_(path, std::nullopt) {
  view_.log = true;
  view_.path = path;
  view_.name = std::filesystem::path(path).filename().string();
  log_.SkipToHistory();
}

LogPlace LogWatch::LogOf(int rank) const {
  const bool several = view_.ranks.size() > 1;
  return {.path = view_.path, .only = several ? std::optional<int>(rank) : std::nullopt};
}

// What a line of an epoch says may be the time to the end of the epoch ("Epoch: [1] [110/117] eta: 0:00:01") or of the
// run: shortly before the end of an epoch they are told apart.
std::optional<double> LogWatch::EtaOfRun(const LogSign& sign, const RankView& rank) {
  const std::optional<double> eta = sign.values.eta;
  if (!eta || !rank.epoch || !rank.seconds_per_step || rank.epoch->total == 0) return eta;
  const double whole = static_cast<double>(rank.epoch->total) * *rank.seconds_per_step;
  const double left = whole - static_cast<double>(rank.epoch->step) * *rank.seconds_per_step;
  if (left < 0.1 * whole && *eta > 0.5 * whole) eta_is_of_run_ = true;
  const bool near = *eta <= 1.5 * left + kEtaUnit && *eta >= left / 1.5 - kEtaUnit;
  return near && !eta_is_of_run_ ? std::nullopt : eta;
}

void LogWatch::Poll(double now) {
  const double modified = log_.Read([&](const LogSign& sign) {
    TakeSign(sign, &ranks_[sign.rank]);
    // Lines that were there at first say nothing of when they were written.
    const bool advanced = sign.redrawn == LogSign::Redrawn::kNo;
    if (follows_ && advanced) {
      window_.AddProgress(sign.rank, now, sign.state.StepOfRun(), sign.state.seconds_per_step, sign.loss);
    }
    if (sign.state.total) view_.total = sign.state.TotalOfRun();
    if (ranks_.begin()->first != sign.rank) return;
    TakeLoss(sign);
    TakeValues(sign.values);
    if (advanced) eta_ = EtaOfRun(sign, ranks_.begin()->second.view);
  });
  view_.read = log_.part();
  WrittenAt(modified, now);
  machine_.Read(now, &view_.nodes);
  if (follows_) Find(now);
  follows_ = view_.read >= 1;
  Conclude();
  // Of a log that nobody writes any more, as its last line said it: like an ETA that follows from steps.
  if (!view_.eta && !view_.total && eta_) {
    const double age = std::max(0.0, now - modified);
    view_.eta = age > kSilentAfter ? *eta_ : std::max(0.0, *eta_ - age);
  }
  struct stat info{};
  if (::stat(view_.path.c_str(), &info) != 0) {
    view_.state = "removed";
    view_.ended = true;
    view_.reason = fmt::format("the file '{}' is no more", view_.path);
    return;
  }
  const bool epoch_complete = !view_.total && view_.epoch && view_.epoch->step >= view_.epoch->total;
  const bool complete = epoch_complete || (view_.total && view_.step && *view_.step >= *view_.total);
  const bool quiet = now - modified > kSilentAfter;
  view_.state = complete ? "complete" : quiet ? "silent" : "running";
  // A log has no end of its own: the last step is one when nothing follows it. A bar that starts again with every
  // epoch only pauses.
  view_.ended = complete && quiet;
  view_.reason = epoch_complete ? fmt::format("the last step of epoch {} was reached", view_.epoch->number)
                 : complete     ? fmt::format("step {} of {} was reached", *view_.step, *view_.total)
                                : "";
}

}  // namespace lockstep::watch
