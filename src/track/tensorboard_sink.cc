#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/digits.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "track/crc32c.h"
#include "track/event_proto.h"
#include "track/sink.h"
#include "track/whole_append.h"

namespace lockstep::track {
namespace {

constexpr size_t kWriteAt = 1u << 20;          // bytes collected before a write that nobody asked for
constexpr size_t kMostEventBytes = 64u << 20;  // while a disk is full; pictures are large

// Values of the messages' enumerations.
constexpr uint64_t kFloat = 1, kString = 7;                           // DataType
constexpr uint64_t kScalarClass = 1, kTensorClass = 2, kBlobs = 3;    // DataClass
constexpr uint64_t kSessionStart = 1;                                 // SessionLog.SessionStatus
constexpr int kSimpleValue = 2, kImage = 4, kHisto = 5, kTensor = 8;  // of Summary.Value: what it is
constexpr uint64_t kRgb = 3;                                          // colorspace of an image

constexpr std::string_view kFilePrefix = "events.out.tfevents.";

Proto Metadata(std::string_view plugin, uint64_t data_class, std::string_view content = "") {
  Proto plugin_data, metadata;
  plugin_data.Bytes(1, plugin);
  if (!content.empty()) plugin_data.Bytes(2, content);
  metadata.Message(1, plugin_data);
  if (data_class != 0) metadata.Varint(4, data_class);
  return metadata;
}

Proto Shape(std::initializer_list<uint64_t> sizes) {
  Proto shape;
  for (uint64_t size : sizes) {
    Proto dim;
    dim.Varint(1, size);
    shape.Message(2, dim);
  }
  return shape;
}

void AppendDouble(double value, std::string* out) {
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int byte = 0; byte < 8; ++byte) out->push_back(static_cast<char>(bits >> (8 * byte) & 0xff));
}

std::string Record(const Proto& event) {
  const std::string& data = event.out();
  std::string record;
  record.reserve(data.size() + 16);
  auto put = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) record.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  };
  put(data.size(), 8);
  put(MaskedCrc32c(record), 4);
  record += data;
  put(MaskedCrc32c(data), 4);
  return record;
}

class TensorBoardSink final : public Sink {
 public:
  TensorBoardSink(std::string path, UniqueFd fd, bool resumed)
      : path_(std::move(path)), fd_(std::move(fd)), waits_for_step_(resumed) {
    Proto source, event;
    source.Bytes(1, "lockstep");
    event.Double(1, UnixSeconds()).Bytes(3, "brain.Event:2").Message(10, source);
    buffer_ = Record(event);
    // TensorBoard takes the first such mark of a folder for the beginning and only later ones for restarts.
    if (!resumed) Rewind(UnixSeconds(), 0);
  }

  ~TensorBoardSink() override {
    ReleaseHeld();
    static_cast<void>(Send());
  }

  void Scalars(const record::MetricLine& line) override {
    const uint64_t step = line.step.value_or(0);
    if (waits_for_step_) {
      // Only now is it known where this attempt began; TensorBoard forgets what older files say from there on.
      waits_for_step_ = false;
      Rewind(line.t, step);
      ReleaseHeld();
    }
    if (line.scalars.empty()) return;
    Proto summary;
    for (const auto& [name, number] : line.scalars) {
      Proto value = Tagged(name, "scalars", kScalarClass);
      summary.Message(1, value.Float(kSimpleValue, static_cast<float>(number)));
    }
    Put(Event(line.t, step, summary));
  }

  void Rewind(double t, uint64_t step) override {
    Proto log, event;
    log.Varint(1, kSessionStart);
    event.Double(1, t).Varint(2, step).Message(7, log);
    Put(Record(event));
  }

  void Text(double t, uint64_t step, std::string_view tag, std::string_view markdown) override {
    Proto tensor, summary;
    tensor.Varint(1, kString).Message(2, Proto()).Text(8, markdown);
    summary.Message(1, Tagged(tag, "text", kTensorClass).Message(kTensor, tensor));
    Hold(Event(t, step, summary));
  }

  void Image(double t, uint64_t step, std::string_view tag, std::string_view png, int width, int height) override {
    Proto image, summary;
    image.Varint(1, static_cast<uint64_t>(height))
        .Varint(2, static_cast<uint64_t>(width))
        .Varint(3, kRgb)
        .Bytes(4, png);
    summary.Message(1, Tagged(tag, "images", kBlobs).Message(kImage, image));
    Hold(Event(t, step, summary));
  }

  // Browsers show an animated GIF where a picture is expected.
  void Video(double t, uint64_t step, std::string_view tag, std::string_view gif, int width, int height) override {
    Image(t, step, tag, gif, width, height);
  }

  void Histogram(double t, uint64_t step, std::string_view tag, const HistogramData& data) override {
    // Readers take the least and the greatest value for the outer edges of the outermost buckets that are not empty.
    size_t begin = 0, end = data.counts.size();
    while (begin < end && data.counts[begin] == 0) ++begin;
    while (end > begin && data.counts[end - 1] == 0) --end;
    double count = 0, sum = 0, squares = 0;  // the sums are those of the middles: the values themselves are not known
    std::string limits, counts;
    for (size_t i = begin; i < end; ++i) {
      const double middle = (data.edges[i] + data.edges[i + 1]) / 2;
      count += data.counts[i];
      sum += data.counts[i] * middle;
      squares += data.counts[i] * middle * middle;
      AppendDouble(data.edges[i + 1], &limits);
      AppendDouble(data.counts[i], &counts);
    }
    Proto histo, summary;
    if (begin < end) histo.Double(1, data.edges[begin]).Double(2, data.edges[end]);
    histo.Double(3, count).Double(4, sum).Double(5, squares).Bytes(6, limits).Bytes(7, counts);
    summary.Message(1, Tagged(tag, "histograms", kTensorClass).Message(kHisto, histo));
    Hold(Event(t, step, summary));
  }

  void HParams(double t, const HParamMap& values) override {
    Proto session;
    for (const auto& [name, value] : values) {
      Proto entry, content;
      if (const double* number = std::get_if<double>(&value)) content.Double(2, *number);
      if (const std::string* text = std::get_if<std::string>(&value)) content.Text(3, *text);
      if (const bool* flag = std::get_if<bool>(&value)) content.Varint(4, *flag ? 1 : 0);
      if (const HParamList* list = std::get_if<HParamList>(&value)) content.Text(3, list->json);
      entry.Text(1, name).Message(2, content);
      session.Message(1, entry);
    }
    session.Double(5, t);
    Proto plugin, tensor, tagged, summary;
    plugin.Message(3, session);
    tensor.Varint(1, kFloat).Message(2, Shape({0}));
    tagged.Bytes(1, "_hparams_/session_start_info").Message(kTensor, tensor);
    tagged.Message(9, Metadata("hparams", 0, plugin.out()));
    summary.Message(1, tagged);
    Hold(Event(t, 0, summary));
  }

  Status Flush() override {
    Status sent = Send();
    failed_ = !sent.ok();
    if (sent.ok() && lost_ > 0) {
      sent =
          Status(Code::kEnvironment, fmt::format("{} records were lost while '{}' could not be written", lost_, path_));
      lost_ = 0;
    }
    return sent;
  }

 private:
  // A value without what it is. Scalars, pictures and histograms are written in the fields that torch's SummaryWriter
  // uses: scripts read them by EventAccumulator's Scalars(), Images() and Histograms(), which know no tensors, and only
  // for these does it forget the steps that a restart repeats. TensorBoard itself takes both.
  Proto Tagged(std::string_view tag, std::string_view plugin, uint64_t data_class) {
    Proto value;
    value.Text(1, tag);
    // The plugin stands with the first value of a tag only.
    if (tags_.emplace(tag).second) value.Message(9, Metadata(plugin, data_class));
    return value;
  }

  static std::string Event(double t, uint64_t step, const Proto& summary) {
    Proto event;
    event.Double(1, t).Varint(2, step).Message(5, summary);
    return Record(event);
  }

  // Waits behind the first step of a resumed run: the mark that goes before it would remove what came earlier.
  void Hold(std::string record) {
    if (waits_for_step_) {
      held_.push_back(std::move(record));
    } else {
      Put(record);
    }
  }

  void ReleaseHeld() {
    for (const std::string& record : held_) Put(record);
    held_.clear();
  }

  void Put(const std::string& record) {
    if (buffer_.size() + record.size() > kMostEventBytes) {
      ++lost_;
      return;
    }
    buffer_ += record;
    if (buffer_.size() >= kWriteAt && !failed_) failed_ = !Send().ok();
  }

  // All or nothing: TensorBoard's reader stops for good at a damaged record, so what a full disk cut short is cut off.
  Status Send() { return AppendWhole(fd_.get(), path_, &buffer_, &size_); }

  std::string path_;
  UniqueFd fd_;
  off_t size_ = 0;  // whole records in the file
  std::string buffer_;
  bool waits_for_step_;
  std::vector<std::string> held_;
  std::unordered_set<std::string> tags_;
  bool failed_ = false;  // wait for the next Flush before trying again
  uint64_t lost_ = 0;
};

}  // namespace

Result<std::unique_ptr<Sink>> OpenTensorBoardSink(const std::string& dir, int attempt) {
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(dir).Context("TensorBoard"));
  Result<std::vector<std::string>> names = ListDir(dir);
  if (!names.ok()) return names.status().Context("TensorBoard");
  // Files are read in the order of their names, so ours must be the last, also after a quick restart or with a clock
  // that went back.
  auto seconds = static_cast<int64_t>(UnixSeconds());
  bool resumed = false;
  for (const std::string& name : *names) {
    if (name.find("tfevents") == std::string::npos) continue;
    resumed = true;
    if (!name.starts_with(kFilePrefix)) continue;
    const auto taken = LeadingDigits<int64_t>(std::string_view(name).substr(kFilePrefix.size()));
    if (taken && *taken < 9'999'999'999) seconds = std::max(seconds, *taken + 1);
  }
  const std::string path =
      fmt::format("{}/{}{:010d}.{}.{}.{}", dir, kFilePrefix, seconds, HostName(), ::getpid(), attempt);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return FileError("create", path, errno).Context("TensorBoard");
  return std::unique_ptr<Sink>(std::make_unique<TensorBoardSink>(path, std::move(fd), resumed));
}

}  // namespace lockstep::track
