#include "data/key_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

class Numbers {
 public:
  explicit Numbers(std::string_view text) : rest_(text) {}
  bool Next(int64_t* value) {
    const size_t end = std::min(rest_.find(' '), rest_.size());
    std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    const std::optional<uint64_t> number = ParseDigits<uint64_t>(text);
    if (!number || *number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    *value = negative ? -static_cast<int64_t>(*number) : static_cast<int64_t>(*number);
    return true;
  }
  bool Next(uint64_t* value) {
    int64_t number = 0;
    if (!Next(&number) || number < 0) return false;
    *value = static_cast<uint64_t>(number);
    return true;
  }
  // Of things that follow.
  bool NextCount(uint64_t* count) { return Next(count) && *count <= rest_.size(); }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace

uint64_t KeyFrames::frames() const {
  uint64_t count = 1;
  for (const Run& run : runs) count += run.count;
  return keys.empty() ? 0 : count;
}

int64_t KeyFrames::TimeOf(uint64_t frame) const {
  int64_t time = first;
  for (const Run& run : runs) {
    const uint64_t here = std::min(run.count, frame);
    time += run.step * static_cast<int64_t>(here);
    frame -= here;
  }
  return time;
}

const KeyFrames::Key& KeyFrames::Before(uint64_t frame) const {
  const auto after = std::ranges::upper_bound(keys, frame, {}, &Key::frame);
  return after == keys.begin() ? keys.front() : *(after - 1);
}

std::string WriteKeyFrames(const KeyFrames& keys) {
  std::string text = fmt::format("{} {} {} {}", keys.stamp.bytes, keys.stamp.changed, keys.first, keys.runs.size());
  for (const KeyFrames::Run& run : keys.runs) text += fmt::format(" {} {}", run.step, run.count);
  text += fmt::format(" {}", keys.keys.size());
  for (const KeyFrames::Key& key : keys.keys) text += fmt::format(" {} {} {}", key.frame, key.time, key.place);
  return text;
}

std::optional<KeyFrames> ReadKeyFrames(std::string_view text) {
  Numbers numbers(text);
  KeyFrames keys;
  uint64_t runs = 0, count = 0;
  if (!numbers.Next(&keys.stamp.bytes) || !numbers.Next(&keys.stamp.changed) || !numbers.Next(&keys.first) ||
      !numbers.NextCount(&runs)) {
    return std::nullopt;
  }
  keys.runs.resize(runs);
  for (KeyFrames::Run& run : keys.runs) {
    if (!numbers.Next(&run.step) || !numbers.Next(&run.count)) return std::nullopt;
  }
  if (!numbers.NextCount(&count)) return std::nullopt;
  keys.keys.resize(count);
  for (KeyFrames::Key& key : keys.keys) {
    if (!numbers.Next(&key.frame) || !numbers.Next(&key.time) || !numbers.Next(&key.place)) return std::nullopt;
  }
  const bool sorted = std::ranges::is_sorted(keys.keys, {}, &KeyFrames::Key::frame);
  if (!numbers.done() || keys.keys.empty() || !sorted) return std::nullopt;
  return keys;
}

void KeyFrameCache::Store(const VideoPart& part, std::string text) {
  const std::lock_guard lock(mutex_);
  known_[{part.path, part.offset}].text = std::move(text);
}

void KeyFrameCache::Forget(const VideoPart& part) {
  const std::lock_guard lock(mutex_);
  Known& known = known_[{part.path, part.offset}];
  known.keys = nullptr;
  known.looked = true;
}

std::shared_ptr<const KeyFrames> KeyFrameCache::Find(const VideoPart& part, const std::atomic<bool>* cancelled) {
  const FileStamp stamp = StampOf(part.path);
  {
    const std::lock_guard lock(mutex_);
    Known& known = known_[{part.path, part.offset}];
    if (known.looked && known.stamp == stamp) return known.keys;
    known.stamp = stamp;
    if (const std::optional<KeyFrames> stored = ReadKeyFrames(known.text)) {
      known.text.clear();
      if (stored->stamp == stamp) {
        known.looked = true;
        known.keys = std::make_shared<const KeyFrames>(*stored);
        return known.keys;
      }
    }
  }
  // Two threads that want the same file at once both read it.
  ++scans_;
  Result<KeyFrames> found = FindKeyFrames(part, cancelled);
  if (!found.ok() && found.status().code() == Code::kInterrupted) return nullptr;
  const std::lock_guard lock(mutex_);
  Known& known = known_[{part.path, part.offset}];
  known.looked = true;
  known.keys = found.ok() ? std::make_shared<const KeyFrames>(std::move(*found)) : nullptr;
  return known.keys;
}

}  // namespace lockstep::data
