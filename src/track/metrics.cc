#include "track/metrics.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "record/metrics.h"
#include "track/ring.h"
#include "track/sink.h"

namespace lockstep::track {
namespace {

// What a ring item is when it is no scalar.
constexpr uint32_t kEndStep = UINT32_MAX - 1;
constexpr uint32_t kRewind = UINT32_MAX - 2;

constexpr char kDroppedName[] = "rank/metrics_dropped";
constexpr size_t kQueuedBytes = 256u << 20;  // pictures and texts that wait for the writer

// Something for the sinks that is no scalar, its step, and how large it is.
struct Extra {
  uint64_t step = 0;
  std::function<void(Sink&)> deliver;
  size_t bytes = 0;
};

}  // namespace

class Metrics::Impl {
 public:
  Impl(MetricsOptions options, std::vector<std::unique_ptr<Sink>> sinks)
      : options_(std::move(options)), ring_(options_.ring_capacity), sinks_(std::move(sinks)) {
    // The writer looks often enough that what it finds is written before it is `flush` old.
    look_ = std::clamp(options_.flush / 10, Millis(1), Millis(100));
    write_every_ = std::max(options_.flush - 2 * look_, Millis(0));
    // The program's signals belong to its own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    writer_ = std::thread([this] { Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Impl() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    writer_.join();
  }

  MetricId Register(std::string_view name) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto [it, added] = ids_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
    if (added) names_.emplace_back(name);
    return {it->second};
  }

  void Push(uint32_t id, uint64_t step, double value) {
    if (!ring_.Push({step, value, id})) dropped_.fetch_add(1, std::memory_order_relaxed);
  }

  void Add(Extra extra) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (extras_bytes_ + extra.bytes > kQueuedBytes) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    extras_bytes_ += extra.bytes;
    extras_.push_back(std::move(extra));
  }

  Status Flush(std::optional<StreamEnd> end = std::nullopt) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (end) end_ = end;
    const uint64_t ticket = ++flush_asked_;
    wake_.notify_all();
    flushed_.wait(lock, [&] { return flush_done_ >= ticket; });
    return std::exchange(error_, Status());
  }

  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  using Values = std::vector<std::pair<uint32_t, double>>;

  void Run() {
    TimePoint written = Now();
    for (bool stop = false; !stop;) {
      uint64_t ticket = 0;
      bool asked = false;
      std::optional<StreamEnd> end;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait_for(lock, look_, [&] { return stop_ || flush_asked_ > flush_done_; });
        stop = stop_;
        ticket = flush_asked_;
        asked = stop || ticket > flush_done_;
        if (asked) end.swap(end_);
      }
      // What a flush covers includes values whose producer is just now finishing its write.
      const uint64_t target = asked ? ring_.claimed() : 0;
      Drain();
      for (; ring_.taken() < target; Drain()) std::this_thread::yield();
      DeliverExtras(UINT64_MAX);
      if (asked) EmitUpTo(UINT64_MAX, UnixSeconds());
      for (size_t i = 0; end && i < sinks_.size(); ++i) sinks_[i]->Finish(UnixSeconds(), *end);
      if (!asked && Now() - written < write_every_) continue;
      Status status = Write();
      written = Now();
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (error_.ok()) error_ = status;
        if (asked) flush_done_ = ticket;
      }
      if (asked) flushed_.notify_all();
    }
  }

  // At most one ring full: producers may be as fast as this.
  void Drain() {
    RingItem item;
    for (size_t n = ring_.capacity(); n > 0 && ring_.Pop(&item); --n) {
      if (item.id == kEndStep) {
        pending_[item.step];  // a step without scalars is a sign of life too
        EmitUpTo(item.step, item.value);
      } else if (item.id == kRewind) {
        EmitUpTo(UINT64_MAX, item.value);
        for (auto& sink : sinks_) sink->Rewind(item.value, item.step);
      } else {
        pending_[item.step].emplace_back(item.id, item.value);
      }
    }
  }

  void EmitUpTo(uint64_t step, double t) {
    while (!pending_.empty() && pending_.begin()->first <= step) {
      DeliverExtras(pending_.begin()->first);
      Emit(pending_.begin()->first, t, pending_.begin()->second);
      pending_.erase(pending_.begin());
    }
  }

  void Emit(uint64_t step, double t, const Values& values) {
    record::MetricLine line{.t = t, .attempt = options_.attempt, .rank = options_.rank, .step = step, .scalars = {}};
    LearnNames();
    // Of values that were set twice the last one counts.
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].first < last_index_.size()) last_index_[values[i].first] = i;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t id = values[i].first;
      if (id < last_index_.size() && last_index_[id] == i)
        line.scalars.emplace_back(known_names_[id], values[i].second);
    }
    if (const uint64_t lost = dropped(); lost > dropped_said_) {
      if (dropped_said_ == 0) {
        LogWarn("rank {}: metrics are set faster than they are written; values were dropped, see {}", options_.rank,
                kDroppedName);
      }
      dropped_said_ = lost;
      line.scalars.emplace_back(kDroppedName, static_cast<double>(lost));
    }
    for (auto& sink : sinks_) sink->Scalars(line);
  }

  void LearnNames() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t id = known_names_.size(); id < names_.size(); ++id) known_names_.push_back(names_[id]);
    last_index_.resize(known_names_.size());
  }

  // Those up to this step, before the line of that step: W&B knows no way back.
  void DeliverExtras(uint64_t step) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::move(extras_.begin(), extras_.end(), std::back_inserter(taken_extras_));
      extras_.clear();
      extras_bytes_ = 0;
    }
    std::vector<Extra> later;
    for (Extra& extra : taken_extras_) {
      if (extra.step > step) {
        later.push_back(std::move(extra));
        continue;
      }
      for (auto& sink : sinks_) extra.deliver(*sink);
    }
    taken_extras_ = std::move(later);
  }

  Status Write() {
    Status first;
    for (auto& sink : sinks_) {
      Status status = sink->Flush();
      if (status.ok()) continue;
      if (!said_error_) LogWarn("rank {}: {}; training goes on", options_.rank, status.message());
      said_error_ = true;
      if (first.ok()) first = status;
    }
    return first;
  }

  const MetricsOptions options_;
  Millis look_{}, write_every_{};
  Ring ring_;
  std::atomic<uint64_t> dropped_{0};

  std::mutex mutex_;  // everything down to the blank line
  std::condition_variable wake_, flushed_;
  bool stop_ = false;
  uint64_t flush_asked_ = 0, flush_done_ = 0;
  Status error_;
  std::optional<StreamEnd> end_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::deque<std::string> names_;
  std::deque<Extra> extras_;
  size_t extras_bytes_ = 0;

  // The writer's own.
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<Extra> taken_extras_;
  std::map<uint64_t, Values> pending_;  // by step
  std::vector<std::string> known_names_;
  std::vector<size_t> last_index_;
  uint64_t dropped_said_ = 0;
  bool said_error_ = false;

  std::thread writer_;
};

Result<std::unique_ptr<Metrics>> Metrics::Start(MetricsOptions options) {
  std::vector<std::unique_ptr<Sink>> sinks;
  if (!options.jsonl_path.empty()) {
    Result<std::unique_ptr<Sink>> sink = OpenJsonlSink(options.jsonl_path);
    if (!sink.ok()) return sink.status();
    sinks.push_back(std::move(*sink));
  }
  if (!options.tensorboard_dir.empty()) {
    Result<std::unique_ptr<Sink>> sink = OpenTensorBoardSink(options.tensorboard_dir, options.attempt);
    if (!sink.ok()) return sink.status();
    sinks.push_back(std::move(*sink));
  }
  if (!options.csv_path.empty()) {
    Result<std::unique_ptr<Sink>> sink = OpenCsvSink(options.csv_path, options.first_step);
    if (!sink.ok()) return sink.status();
    sinks.push_back(std::move(*sink));
  }
  if (!options.wandb.dir.empty()) {
    options.wandb.first_step = options.first_step;
    Result<std::unique_ptr<Sink>> sink = OpenWandbSink(options.wandb);
    if (!sink.ok()) return sink.status();
    sinks.push_back(std::move(*sink));
  }
  return std::unique_ptr<Metrics>(new Metrics(std::make_unique<Impl>(std::move(options), std::move(sinks))));
}

Metrics::Metrics(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Metrics::~Metrics() = default;

MetricId Metrics::Register(std::string_view name) { return impl_->Register(name); }
void Metrics::Set(MetricId id, uint64_t step, double value) { impl_->Push(id.index, step, value); }
void Metrics::EndStep(uint64_t step) { impl_->Push(kEndStep, step, UnixSeconds()); }
void Metrics::Rewind(uint64_t step) { impl_->Push(kRewind, step, UnixSeconds()); }

void Metrics::Text(std::string tag, uint64_t step, std::string markdown) {
  const size_t bytes = markdown.size();
  impl_->Add({step,
              [t = UnixSeconds(), step, tag = std::move(tag), markdown = std::move(markdown)](Sink& sink) {
                sink.Text(t, step, tag, markdown);
              },
              bytes});
}

void Metrics::Image(std::string tag, uint64_t step, std::string png, int width, int height) {
  const size_t bytes = png.size();
  impl_->Add({step,
              [t = UnixSeconds(), step, tag = std::move(tag), png = std::move(png), width, height](Sink& sink) {
                sink.Image(t, step, tag, png, width, height);
              },
              bytes});
}

void Metrics::Video(std::string tag, uint64_t step, std::string gif, int width, int height) {
  const size_t bytes = gif.size();
  impl_->Add({step,
              [t = UnixSeconds(), step, tag = std::move(tag), gif = std::move(gif), width, height](Sink& sink) {
                sink.Video(t, step, tag, gif, width, height);
              },
              bytes});
}

void Metrics::Histogram(std::string tag, uint64_t step, HistogramData data) {
  const size_t bytes = 16 * data.edges.size();
  impl_->Add({step,
              [t = UnixSeconds(), step, tag = std::move(tag), data = std::move(data)](Sink& sink) {
                sink.Histogram(t, step, tag, data);
              },
              bytes});
}

void Metrics::HParams(HParamMap values) {
  impl_->Add({0, [t = UnixSeconds(), values = std::move(values)](Sink& sink) { sink.HParams(t, values); }, 4096});
}

Status Metrics::Finish(const StreamEnd& end) { return impl_->Flush(end); }
Status Metrics::Flush() { return impl_->Flush(); }
uint64_t Metrics::dropped() const { return impl_->dropped(); }

}  // namespace lockstep::track
