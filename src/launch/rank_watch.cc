#include "launch/rank_watch.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "base/quiet_thread.h"
#include "base/text.h"
#include "hang/flight.h"
#include "hang/stacks.h"
#include "record/metrics.h"

namespace lockstep::launch {
namespace {

constexpr double kWritingRate = 64 << 10;   // bytes a second beyond the log: a file is being written
constexpr size_t kMessageLimit = 6u << 20;  // well below a frame's
constexpr Millis kLookAtLastLine{2000};
constexpr Millis kFreshPulse{2000};

// Bytes handed to write() by a process and its direct children.
uint64_t WrittenBytes(pid_t pid) {
  uint64_t sum = 0;
  std::vector<pid_t> all = {pid};
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid));
  for (pid_t child = 0; children >> child;) all.push_back(child);
  for (pid_t one : all) {
    std::ifstream io(fmt::format("/proc/{}/io", one));
    std::string key;
    for (uint64_t value = 0; io >> key >> value;) {
      if (key == "wchar:") sum += value;
    }
  }
  return sum;
}

// A phase between steps that may last: its last line says so.
bool SpeaksOfAPause(std::string line) {
  for (char& c : line) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  static constexpr std::string_view kWords[] = {"eval",       "validat",    "testing",  "test set",
                                                "inference",  "generating", "sampling", "saving",
                                                "checkpoint", "compil",     "download", "autotun"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return line.find(word) != std::string::npos; });
}

struct Followed {
  RankWatch::Rank rank;
  record::MetricFollower metrics;
  std::optional<uint64_t> step;
  TimePoint metric_at{};
  bool any_metric = false;
  uint64_t written = 0, captured = 0;
  TimePoint looked{};
};

RankPulse Look(const logs::LogPump& pump, int attempt, Followed* of) {
  RankPulse pulse;
  pulse.rank = of->rank.rank;
  of->metrics.Read([&](const record::MetricLine& line) {
    if (line.attempt != attempt && line.attempt != 0) return;
    of->any_metric = true;
    of->metric_at = Now();
    if (line.step) of->step = line.step;
  });
  const record::ProgressState progress = pump.Progress(of->rank.rank);
  const logs::LogPump::Activity activity = pump.LastActivity(of->rank.rank);
  const uint64_t written = WrittenBytes(of->rank.pid);
  const TimePoint now = Now();
  const auto age = [&](TimePoint at) { return std::max(Millis(0), std::chrono::duration_cast<Millis>(now - at)); };
  if (progress.any()) pulse.progress = age(progress.last);
  if (of->any_metric) {
    pulse.progress = pulse.progress < Millis(0) ? age(of->metric_at) : std::min(pulse.progress, age(of->metric_at));
  }
  pulse.step = of->any_metric && of->step ? of->step : progress.step;
  if (activity.bytes > 0) pulse.output = age(activity.last);
  if (of->looked != TimePoint{}) {
    const double seconds = std::max(0.001, std::chrono::duration<double>(now - of->looked).count());
    const double own = static_cast<double>(written > of->written ? written - of->written : 0) -
                       static_cast<double>(activity.bytes - of->captured);
    pulse.writing = own / seconds > kWritingRate;
  }
  of->looked = now;
  of->written = written;
  of->captured = activity.bytes;
  // A bar that is full (of a download, of loaded shards, of an epoch) says that something else comes now.
  if (pulse.progress > kLookAtLastLine) pulse.evaluating = progress.full || SpeaksOfAPause(activity.last_line);
  return pulse;
}

// Everything fits into one message: what tells least goes first.
void Shrink(std::vector<hang::ProcessStacks>* ranks, int level) {
  for (hang::ProcessStacks& process : *ranks) {
    for (auto& thread : process.threads) {
      thread.kernel.resize(std::min<size_t>(thread.kernel.size(), 6));
      if (!thread.main) thread.native.resize(std::min<size_t>(thread.native.size(), level > 0 ? 4 : 24));
    }
    const size_t most = level == 0 ? 64 : level == 1 ? 8 : 1;
    if (process.threads.size() > most) {
      std::partition(process.threads.begin() + 1, process.threads.end(),
                     [](const auto& thread) { return !thread.python.empty(); });
      process.notes.push_back(fmt::format("{} threads, {} shown", process.threads.size(), most));
      process.threads.resize(most);
    }
    if (level > 1) process.children.clear();
    Shrink(&process.children, std::max(level, 1));
  }
}

}  // namespace

struct RankWatch::Shared : std::enable_shared_from_this<RankWatch::Shared> {
  Loop& loop;
  logs::LogPump& pump;
  std::function<void(Json)> send;  // loop's thread; empty once the watch is gone

  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Rank> ranks;
  int attempt = 0, node = 0;
  Millis every{0};
  uint64_t generation = 0;       // of the attempt; a thread of an older one ends
  uint64_t asked = 0, told = 0;  // pulses wanted at once, and those that were sent
  std::vector<int> ended;

  Shared(Loop& l, logs::LogPump& p, std::function<void(Json)> s) : loop(l), pump(p), send(std::move(s)) {}

  void Post(Json message) {
    loop.Post([self = shared_from_this(), message = std::move(message)] {
      if (self->send) self->send(message);
    });
  }

  void Run(uint64_t mine) {
    std::vector<Followed> all;
    std::unique_lock lock(mutex);
    for (const Rank& rank : ranks) {
      Followed followed{rank, record::MetricFollower(rank.metrics), {}, {}, false, 0, 0, {}};
      followed.metrics.SkipToLast(0);
      all.push_back(std::move(followed));
    }
    const int number = attempt;
    const Millis pause = every;
    while (generation == mine) {
      const uint64_t answers = asked;
      const std::vector<int> over = ended;
      lock.unlock();
      std::erase_if(
          all, [&](const Followed& one) { return std::find(over.begin(), over.end(), one.rank.rank) != over.end(); });
      message::Pulse pulse{number, {}};
      for (Followed& one : all) pulse.ranks.push_back(Look(pump, number, &one));
      Post(ToJson(pulse));
      lock.lock();
      told = std::max(told, answers);
      wake.notify_all();
      wake.wait_for(lock, pause, [&] { return generation != mine || asked > told; });
    }
  }

  // Before a job is ended for standing still: does it, now?
  void TellNow() {
    std::unique_lock lock(mutex);
    if (every <= Millis(0)) return;
    const uint64_t mine = generation, wanted = ++asked;
    wake.notify_all();
    wake.wait_for(lock, kFreshPulse, [&] { return generation != mine || told >= wanted; });
  }
};

RankWatch::RankWatch(Loop& loop, logs::LogPump& pump, std::function<void(Json)> send)
    : shared_(std::make_shared<Shared>(loop, pump, std::move(send))) {}

RankWatch::~RankWatch() {
  shared_->send = nullptr;
  Stop();
}

void RankWatch::Start(int attempt, int node, std::vector<Rank> ranks, Millis every) {
  uint64_t mine = 0;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->ranks = std::move(ranks);
    shared_->attempt = attempt;
    shared_->node = node;
    shared_->every = every;
    shared_->ended.clear();
    mine = ++shared_->generation;
  }
  shared_->wake.notify_all();
  if (every <= Millis(0)) return;
  // Detached: a look into a dead file system may never return, and must not hold up the end of the job.
  StartQuietThread([shared = shared_, mine] { shared->Run(mine); }).detach();
}

void RankWatch::Stop() {
  {
    std::lock_guard lock(shared_->mutex);
    ++shared_->generation;
    shared_->ranks.clear();
  }
  shared_->wake.notify_all();
}

void RankWatch::Ended(int rank) {
  std::lock_guard lock(shared_->mutex);
  shared_->ended.push_back(rank);
}

void RankWatch::Collect(const message::StacksQuestion& question) {
  std::vector<hang::StackTarget> targets;
  std::vector<hang::FlightSource> flights;
  {
    std::lock_guard lock(shared_->mutex);
    for (const Rank& rank : shared_->ranks) {
      if (std::find(shared_->ended.begin(), shared_->ended.end(), rank.rank) != shared_->ended.end()) continue;
      targets.push_back({rank.rank, shared_->node, rank.pid});
      if (!rank.flight.empty()) flights.push_back({rank.rank, rank.pid, rank.flight});
    }
  }
  hang::StackOptions options;
  options.pause = question.pause;
  options.all = question.limit;
  StartQuietThread([shared = shared_, targets, flights, options, id = question.id] {
    message::Stacks answer;
    answer.id = id;
    shared->TellNow();
    try {
      std::vector<hang::ProcessStacks> found = hang::CollectStacks(targets, options);
      for (int level = 0; level < 3; ++level) {
        Shrink(&found, level);
        answer.ranks.clear();
        for (const auto& process : found) answer.ranks.push_back(hang::ToJson(process));
        if (ToJsonLine(ToJson(answer)).size() < kMessageLimit) break;
      }
      for (const auto& [rank, words] : hang::LastCollectives(flights)) answer.collectives[rank] = words;
      answer.ras = hang::AskRas();
    } catch (const std::exception& error) {
      answer.error = error.what();
    }
    shared->Post(ToJson(answer));
  }).detach();
}

}  // namespace lockstep::launch
