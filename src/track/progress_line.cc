#include "track/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace lockstep::track {
namespace {

constexpr double kNewWeight = 0.1;  // of the newest step in the smoothed time

bool IsTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

size_t Columns(int fd) {
  winsize window{};
  return ::ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
}

std::string LossText(double loss) {
  if (std::isnan(loss)) return "nan";  // whatever its sign
  if (!std::isfinite(loss) || (std::abs(loss) >= 0.001 && std::abs(loss) < 1e4)) return fmt::format("{:.4f}", loss);
  return loss == 0 ? "0" : fmt::format("{:.3e}", loss);
}

std::string SecondsText(double seconds) {
  return seconds < 1 ? fmt::format("{:.3f}", seconds) : fmt::format("{:.2f}", seconds);
}

}  // namespace

std::string ProgressText(const ProgressValues& values, uint64_t total, double seconds_per_step, size_t columns,
                         const std::string& unit) {
  std::vector<std::string> parts;
  parts.push_back(total > 0 ? fmt::format("{} {}/{}", unit, values.step, total)
                            : fmt::format("{} {}", unit, values.step));
  if (values.loss) parts.push_back("loss " + LossText(*values.loss));
  if (values.lr) parts.push_back(fmt::format("lr {:.2e}", *values.lr));
  if (seconds_per_step > 0) {
    parts.push_back(unit == "step" ? SecondsText(seconds_per_step) + " s/it"
                                   : fmt::format("{:.1f} {}s/s", 1 / seconds_per_step, unit));
  }
  if (values.samples_per_second) parts.push_back(fmt::format("{:.1f} samples/s", *values.samples_per_second));
  if (values.data_wait) parts.push_back(fmt::format("data wait {:.0f}%", 100 * *values.data_wait));
  if (seconds_per_step > 0 && total > values.step) {
    const double left = seconds_per_step * static_cast<double>(total - values.step);
    if (left < 1e10) parts.push_back("ETA " + FormatDuration(Millis(static_cast<int64_t>(left * 1000))));
  }
  std::string text;
  for (const std::string& part : parts) {
    const std::string longer = text.empty() ? part : text + " | " + part;
    if (columns > 0 && longer.size() > columns) break;
    text = longer;
  }
  return text;
}

ProgressLine::ProgressLine(ProgressLineOptions options)
    : options_(std::move(options)), terminal_(options_.terminal.value_or(IsTerminal(options_.fd))) {}

ProgressLine::~ProgressLine() { Finish(); }

void ProgressLine::Update(const ProgressValues& values, TimePoint now) {
  if (finished_) return;
  const uint64_t before = last_ ? last_->step : options_.first_step;
  double seconds = values.seconds_per_step.value_or(0);
  if (!values.seconds_per_step && last_update_ && values.step > before) {
    seconds = std::chrono::duration<double>(now - *last_update_).count() / static_cast<double>(values.step - before);
  }
  if (seconds > 0) {
    // Divided by the weight so far, so that the first steps count fully.
    smoothed_sum_ = (1 - kNewWeight) * smoothed_sum_ + kNewWeight * seconds;
    smoothing_weight_ = (1 - kNewWeight) * smoothing_weight_ + kNewWeight;
    seconds_per_step_ = smoothed_sum_ / smoothing_weight_;
  }
  last_ = values;
  last_update_ = now;
  const bool last_step = options_.total > 0 && values.step >= options_.total;
  if (terminal_) {
    if (!last_shown_ || last_step || now - *last_shown_ >= options_.redraw) {
      Draw();
      last_shown_ = now;
    }
  } else if (!last_shown_ || last_step || now - *last_shown_ >= options_.every) {
    Plain();
    last_shown_ = now;
  }
}

void ProgressLine::Say(const std::string& line) {
  Clear();
  Write(line + "\n");
  if (terminal_ && last_ && !finished_) Draw();
}

void ProgressLine::Finish() {
  if (finished_) return;
  finished_ = true;
  Clear();
  if (last_) Plain();
}

void ProgressLine::Plain() {
  if (printed_step_ == last_->step) return;
  printed_step_ = last_->step;
  Write(ProgressText(*last_, options_.total, seconds_per_step_, 0, options_.unit) + "\n");
}

void ProgressLine::Draw() {
  // One column stays free: a full line would move the cursor to the next.
  const size_t columns = std::max<size_t>(Columns(options_.fd), 2) - 1;
  Write("\r" + ProgressText(*last_, options_.total, seconds_per_step_, columns, options_.unit) + "\x1b[K");
  drawn_ = true;
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  Write("\r\x1b[K");
  drawn_ = false;
}

// Whoever reads may have gone; progress is not worth dying for, and a terminal that blocks is the user's wish.
void ProgressLine::Write(const std::string& text) const {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(options_.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace lockstep::track
