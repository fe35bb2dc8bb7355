#include "track/wandb_records.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "track/event_proto.h"
#include "track/wandb_log.h"

namespace lockstep::track {
namespace {

// Fields of Record.
constexpr int kHistory = 2, kSummary = 3, kConfig = 5, kFiles = 6, kStats = 7, kOutputRaw = 13, kRun = 17, kExit = 18,
              kFinal = 20, kHeaderField = 21, kPreempting = 23;
constexpr int kValueJson = 16;  // of every item
constexpr uint64_t kStdout = 1;

std::string RecordOf(int field, const Proto& message) {
  Proto record;
  record.Message(field, message);
  return record.out();
}

Proto Timestamp(double t) {
  Proto time;
  const double whole = std::floor(t);
  time.Varint(1, static_cast<uint64_t>(whole)).Varint(2, static_cast<uint64_t>((t - whole) * 1e9));
  return time;
}

Proto Items(int field, const std::vector<JsonItem>& items) {
  Proto list;
  for (const auto& [key, value] : items) {
    Proto item;
    item.Text(1, key).Bytes(kValueJson, value);
    list.Message(field, item);
  }
  return list;
}

// Reads one message field by field; what is damaged ends it.
class Fields {
 public:
  explicit Fields(std::string_view data) : data_(data) {}

  bool Next() {
    uint64_t key = 0;
    if (!Varint(&key)) return false;
    field = static_cast<int>(key >> 3 & 0xffff);
    bytes = {};
    switch (key & 7) {
      case 0:
        return Varint(&number);
      case 1:
        return Skip(8);
      case 2: {
        uint64_t size = 0;
        if (!Varint(&size) || size > data_.size()) return false;
        bytes = data_.substr(0, size);
        return Skip(size);
      }
      case 5:
        return Skip(4);
      default:
        return false;
    }
  }

  int field = 0;
  uint64_t number = 0;
  std::string_view bytes;

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !data_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(data_.front());
      data_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Skip(uint64_t size) {
    if (size > data_.size()) return false;
    data_.remove_prefix(size);
    return true;
  }

  std::string_view data_;
};

void TakeHistory(std::string_view history, WandbFragment* fragment) {
  for (Fields items(history); items.Next();) {
    if (items.field != 1) continue;
    std::string_view key, value;
    for (Fields item(items.bytes); item.Next();) {
      if (item.field == 1) key = item.bytes;
      if (item.field == kValueJson) value = item.bytes;
    }
    const double number = std::strtod(std::string(value).c_str(), nullptr);
    if (!(number >= 0 && number < 1e18)) continue;
    if (key == "_step") fragment->last_step = static_cast<uint64_t>(number);
    if (key == "_runtime") fragment->runtime = number;
  }
}

}  // namespace

std::string WandbNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string WandbHeaderRecord() {
  Proto version, header;
  version.Bytes(1, "0.31.0").Bytes(2, "0.12.0");  // whose records these are like; the oldest that reads them
  header.Message(1, version);
  return RecordOf(kHeaderField, header);
}

std::string WandbRunRecord(const WandbRun& run) {
  Proto message;
  message.Text(1, run.id);
  if (!run.entity.empty()) message.Text(2, run.entity);
  if (!run.project.empty()) message.Text(3, run.project);
  if (!run.group.empty()) message.Text(6, run.group);
  if (!run.name.empty()) message.Text(8, run.name);
  for (const std::string& tag : run.tags) message.Text(10, tag);
  if (!run.host.empty()) message.Text(13, run.host);
  if (run.keep_up_to) message.Varint(14, *run.keep_up_to + 1);
  message.Message(17, Timestamp(run.start));
  if (run.resumed) message.Varint(18, 1);
  if (run.keep_up_to) {
    Proto point;
    point.Bytes(1, run.id).Double(2, static_cast<double>(*run.keep_up_to)).Bytes(3, "_step");
    message.Varint(22, 1).Message(23, point);
  }
  if (run.resumed && !run.keep_up_to) message.Varint(24, 1);
  return RecordOf(kRun, message);
}

std::string WandbConfigRecord(const std::vector<JsonItem>& items) {
  Proto config;
  for (const auto& [key, value] : items) {
    Proto item;
    const std::vector<std::string> parts = Split(key, '.');
    if (parts.size() == 1) item.Text(1, key);
    for (size_t i = 0; parts.size() > 1 && i < parts.size(); ++i) item.Text(2, parts[i]);
    item.Bytes(kValueJson, value);
    config.Message(1, item);
  }
  return RecordOf(kConfig, config);
}

std::string WandbHistoryRecord(const std::vector<JsonItem>& items) { return RecordOf(kHistory, Items(1, items)); }
std::string WandbSummaryRecord(const std::vector<JsonItem>& items) { return RecordOf(kSummary, Items(1, items)); }

std::string WandbOutputRecord(double t, std::string_view line) {
  Proto output;
  output.Varint(1, kStdout).Message(2, Timestamp(t)).Text(3, line);
  return RecordOf(kOutputRaw, output);
}

std::string WandbStatsRecord(double t, const std::vector<JsonItem>& items) {
  Proto stats;
  stats.Message(2, Timestamp(t));
  Proto list = Items(3, items);
  return RecordOf(kStats, stats.Append(list));
}

std::string WandbMediaRecord(std::string_view path) {
  Proto file, files;
  file.Bytes(1, path);
  files.Message(1, file);
  return RecordOf(kFiles, files);
}

std::string WandbPreemptingRecord() { return RecordOf(kPreempting, Proto()); }

std::string WandbExitRecord(int exit_code, double runtime) {
  Proto exit;
  exit.Varint(1, static_cast<uint64_t>(exit_code)).Varint(2, static_cast<uint64_t>(std::max(0.0, runtime)));
  return RecordOf(kExit, exit);
}

std::string WandbFinalRecord() { return RecordOf(kFinal, Proto()); }

WandbFragment ReadWandbFragment(std::string_view file) {
  WandbFragment fragment;
  const WandbScan scan = ScanWandbFile(file, [&](std::string_view record) {
    for (Fields fields(record); fields.Next();) {
      if (fields.field == kRun) fragment.run = true;
      if (fields.field == kExit) fragment.ended = true;
      if (fields.field == kHistory) TakeHistory(fields.bytes, &fragment);
    }
  });
  fragment.header = scan.header;
  fragment.whole = scan.whole;
  return fragment;
}

}  // namespace lockstep::track
