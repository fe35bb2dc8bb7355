#include "track/wandb_sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/clock.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/json.h"
#include "base/process.h"
#include "base/resident.h"
#include "base/secrets.h"
#include "record/line_follower.h"
#include "track/sink.h"
#include "track/wandb_fragments.h"
#include "track/wandb_log.h"
#include "track/wandb_records.h"
#include "track/whole_append.h"

namespace lockstep::track {
namespace {

constexpr size_t kWriteWandbAt = 1u << 20;     // bytes collected before a write that nobody asked for
constexpr size_t kConsoleBytes = 256u << 10;   // of the log, with each flush
constexpr double kStatsEvery = 15;             // seconds
constexpr size_t kMostWandbBytes = 64u << 20;  // while a disk is full

std::string NewRunId() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string id;
  for (int i = 0; i < 8; ++i) id.push_back(kLetters[random() % kLetters.size()]);
  return id;
}

std::string Stamp(double t) {
  const auto whole = static_cast<time_t>(t);
  tm local{};
  char text[32] = {};
  ::localtime_r(&whole, &local);
  std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local);
  return text;
}

std::string Sha256Hex(std::string_view data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(data.data(), data.size(), digest, &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

// A tag as the name of a file.
std::string FileName(std::string_view tag) {
  std::string name(tag.substr(0, 64));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return name;
}

class WandbSink final : public Sink {
 public:
  WandbSink(WandbOptions options, WandbBefore before)
      : options_(std::move(options)), before_(std::move(before)), console_(options_.console) {
    if (options_.console_from_now) {
      console_.SkipToLast(1);
      console_.Read([](std::string_view) { return true; }, 1);
    }
    Begin(UnixSeconds(), options_.first_step);
  }

  ~WandbSink() override { Finish(UnixSeconds(), {.exit_code = 1}); }

  void Scalars(const record::MetricLine& line) override {
    for (const auto& [name, value] : line.scalars) Item(line.t, line.step.value_or(0), name, WandbNumber(value));
  }

  // A file holds one branch, so the run goes on in the next one.
  void Rewind(double t, uint64_t step) override {
    Finish(t, {.exit_code = 0});
    if (!fd_) return;  // the disk is full: there is nothing to go back to
    const std::optional<uint64_t> last_step = last_step_ ? last_step_ : kept_;
    before_ = {.id = before_.id, .newest = folder_, .last_step = last_step, .runtime = Runtime(t)};
    last_step_.reset();
    fd_.reset();
    Begin(t, step > 0 ? step - 1 : 0);
  }

  void Histogram(double t, uint64_t step, std::string_view tag, const HistogramData& histogram) override {
    if (histogram.counts.empty()) return;
    nlohmann::json value = {{"_type", "histogram"}, {"values", histogram.counts}, {"bins", histogram.edges}};
    Item(t, step, std::string(tag), ToJsonLine(value));
  }

  void Image(double t, uint64_t step, std::string_view tag, std::string_view png, int width, int height) override {
    SaveMedia(t, step, tag, png, "images", "png",
              {{"_type", "image-file"}, {"format", "png"}, {"width", width}, {"height", height}});
  }

  void Video(double t, uint64_t step, std::string_view tag, std::string_view gif, int width, int height) override {
    SaveMedia(t, step, tag, gif, "videos", "gif", {{"_type", "video-file"}, {"width", width}, {"height", height}});
  }

  void HParams(double /*t*/, const HParamMap& values) override {
    std::vector<JsonItem> items;
    for (const auto& [name, value] : values) {
      nlohmann::json json;
      if (const double* number = std::get_if<double>(&value)) json = *number;
      if (const std::string* text = std::get_if<std::string>(&value)) json = *text;
      if (const bool* flag = std::get_if<bool>(&value)) json = *flag;
      const HParamList* list = std::get_if<HParamList>(&value);
      items.emplace_back(name, list != nullptr ? list->json : ToJsonLine(json));
    }
    Put(WandbConfigRecord(items));
  }

  void Finish(double t, const StreamEnd& end) override {
    if (finished_) return;
    CommitRow();
    for (auto& [name, value] : std::exchange(late_, {})) changed_[name] = std::move(value);  // no row took them
    Summarise();
    while (Console()) {
    }
    System(t);
    if (end.preempted) Put(WandbPreemptingRecord());
    Put(WandbExitRecord(end.exit_code, Runtime(t)));
    Put(WandbFinalRecord());
    finished_ = true;
    if (Send().ok() && fd_) ::unlink(OpenRow().c_str());  // Flush says what failed
  }

  Status Flush() override {
    if (!finished_) {
      Summarise();
      Console();
      System(UnixSeconds());
    }
    Status sent = Send();
    if (sent.ok()) sent = KeepOpenRow();
    failed_ = !sent.ok();
    if (sent.ok() && lost_ > 0) {
      sent = Status(Code::kEnvironment,
                    fmt::format("{} W&B records were lost while '{}' could not be written", lost_, options_.dir));
      lost_ = 0;
    }
    return sent;
  }

 private:
  struct Row {
    double t = 0;
    uint64_t step = 0;
    std::map<std::string, std::string> items;
    bool kept = false;  // as it is, in the file of the open row
  };

  // A fragment, after `first_step` steps. It is in memory until the first Flush.
  void Begin(double t, uint64_t first_step) {
    const bool continues = !before_.newest.empty();
    const bool repeats = before_.last_step && *before_.last_step > first_step;
    // Where everything repeats there is no step to go back to: a run of its own.
    if (!continues || (repeats && first_step == 0)) before_ = {.id = NewRunId(), .newest = before_.newest};
    // Fragments are read by name and uploaded by start time: both in the order of attempts, also where a clock went
    // back.
    start_ = t;
    for (folder_ = Folder(); folder_ <= before_.newest && start_ < t + 1e7; folder_ = Folder()) start_ += 1;
    WandbRun run{.id = before_.id,
                 .project = options_.project,
                 .entity = options_.entity,
                 .group = options_.group,
                 .name = options_.name,
                 .host = HostName(),
                 .tags = options_.tags,
                 .start = start_,
                 .resumed = continues && before_.last_step,
                 .keep_up_to = {}};
    if (run.resumed && repeats) run.keep_up_to = first_step;
    kept_.reset();
    if (run.resumed) kept_ = std::min(first_step, *before_.last_step);
    finished_ = false;
    size_ = 0;
    buffer_ = WandbHeader();
    at_ = buffer_.size();
    Put(WandbHeaderRecord());
    Put(WandbRunRecord(run));
  }

  std::string Folder() const { return std::string(kFragmentPrefix) + Stamp(start_) + "-" + before_.id; }
  double Runtime(double t) const { return before_.runtime + std::max(0.0, t - start_); }

  void SaveMedia(double t, uint64_t step, std::string_view tag, std::string_view data, const char* kind,
                 const char* ending, nlohmann::json value) {
    const std::string digest = Sha256Hex(data);
    const std::string folder = fmt::format("media/{}", kind);
    const std::string path = fmt::format("{}/{}_{}_{}.{}", folder, FileName(tag), step, digest.substr(0, 20), ending);
    const std::string files = options_.dir + "/" + folder_ + "/files/";
    Status saved = MakeDirs(files + folder);
    if (saved.ok()) saved = WriteFileAtomic(files + path, data, 0644, Durability::kProcess);
    if (!saved.ok()) {
      ++lost_;
      return;
    }
    value["path"] = path;
    value["sha256"] = digest;
    value["size"] = data.size();
    Put(WandbMediaRecord(path));
    Item(t, step, std::string(tag), ToJsonLine(value));
  }

  // A W&B history has one row for each step, and steps rise: its uploader gives a second row of a step the next number,
  // and all that follow move on. So a row is open until a later step begins. What comes after that (a picture drawn in
  // the background) stands at the newest step; what belongs to a step of an earlier fragment, at the next one.
  void Item(double t, uint64_t step, const std::string& name, std::string value) {
    if (kept_ && step <= *kept_ && !last_step_) {
      late_[name] = std::move(value);
      return;
    }
    step = std::max(step, last_step_.value_or(0));
    if (row_ && row_->step != step) CommitRow();
    if (!row_) row_ = Row{.t = t, .step = step, .items = std::exchange(late_, {})};
    last_step_ = step;
    row_->items[name] = std::move(value);
    row_->kept = false;
  }

  std::string RowRecord() const {
    std::vector<JsonItem> items(row_->items.begin(), row_->items.end());
    items.emplace_back("_step", fmt::format("{}", row_->step));
    items.emplace_back("_timestamp", WandbNumber(row_->t));
    items.emplace_back("_runtime", WandbNumber(Runtime(row_->t)));
    return WandbHistoryRecord(items);
  }

  void CommitRow() {
    if (!row_) return;
    Put(RowRecord());
    for (auto& [name, value] : row_->items) changed_[name] = std::move(value);
    changed_["_step"] = fmt::format("{}", row_->step);
    changed_["_timestamp"] = WandbNumber(row_->t);
    changed_["_runtime"] = WandbNumber(Runtime(row_->t));
    row_.reset();
  }

  std::string OpenRow() const { return WandbOpenRowFile(options_.dir + "/" + folder_, before_.id); }

  // The open row beside the fragment: it is not lost if this process is killed.
  Status KeepOpenRow() {
    if (!row_ || row_->kept || !fd_) return Status::Ok();
    std::string file = WandbHeader();
    FrameWandbRecord(RowRecord(), file.size(), &file);
    const Status kept = WriteFileAtomic(OpenRow(), file, 0644, Durability::kProcess);
    row_->kept = kept.ok();
    return kept;
  }

  void Summarise() {
    if (changed_.empty()) return;
    Put(WandbSummaryRecord({changed_.begin(), changed_.end()}));
    changed_.clear();
  }

  // True when there is more.
  bool Console() {
    if (options_.console.empty()) return false;
    const double t = UnixSeconds();
    const auto take = [&](std::string_view line) {
      Put(WandbOutputRecord(t, MaskSecrets(std::string(line) + "\n", options_.secrets)));
      return true;
    };
    return console_.Read(take, kConsoleBytes);
  }

  // Memory and CPU of this process, as wandb's own monitor names them.
  void System(double t) {
    rusage used{};
    if (t - stats_time_ < kStatsEvery || ::getrusage(RUSAGE_SELF, &used) != 0) return;
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    const double cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
    std::vector<JsonItem> items = {
        {"proc.memory.rssMB", WandbNumber(static_cast<double>(ResidentBytes()) / (1 << 20))}};
    if (stats_time_ > 0) items.emplace_back("cpu", WandbNumber(100 * (cpu - stats_cpu_) / (t - stats_time_)));
    Put(WandbStatsRecord(t, items));
    stats_time_ = t;
    stats_cpu_ = cpu;
  }

  void Put(const std::string& record) {
    if (finished_) return;  // the uploader drops what follows an exit record
    if (buffer_.size() + record.size() > kMostWandbBytes) {
      ++lost_;
      return;
    }
    at_ = FrameWandbRecord(record, at_, &buffer_);
    if (buffer_.size() >= kWriteWandbAt && !failed_) failed_ = !Send().ok();
  }

  Status Create() {
    const std::string folder = options_.dir + "/" + folder_;
    LOCKSTEP_RETURN_IF_ERROR(MakeDirs(folder + "/files"));
    path_ = WandbFragmentFile(folder, before_.id);
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    return fd_ ? Status::Ok() : FileError("create", path_, errno);
  }

  // All or nothing: what a full disk cut short is cut off and written again.
  Status Send() {
    if (buffer_.empty()) return Status::Ok();
    if (!fd_) LOCKSTEP_RETURN_IF_ERROR(Create());
    return AppendWhole(fd_.get(), path_, &buffer_, &size_);
  }

  WandbOptions options_;
  WandbBefore before_;
  bool finished_ = false;
  double start_ = 0;
  std::string folder_, path_;
  UniqueFd fd_;
  off_t size_ = 0;   // bytes in the file
  uint64_t at_ = 0;  // and in the buffer
  std::string buffer_;
  std::optional<Row> row_;
  std::optional<uint64_t> last_step_;           // of this fragment's rows
  std::optional<uint64_t> kept_;                // the last step of earlier fragments that stays
  std::map<std::string, std::string> late_;     // values of such steps
  std::map<std::string, std::string> changed_;  // since the last summary record
  record::LineFollower console_;
  double stats_time_ = 0, stats_cpu_ = 0;  // when the last ones were written, and the CPU seconds then
  bool failed_ = false;
  uint64_t lost_ = 0;
};

}  // namespace

Result<std::unique_ptr<Sink>> OpenWandbSink(WandbOptions options) {
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(options.dir).Context("W&B"));
  Result<WandbBefore> before = TakeUpWandbRun(options.dir);
  if (!before.ok()) return before.status().Context("W&B");
  return std::unique_ptr<Sink>(std::make_unique<WandbSink>(std::move(options), std::move(*before)));
}

}  // namespace lockstep::track
