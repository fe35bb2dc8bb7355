#include "logs/log_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lockstep::logs {
namespace {

constexpr size_t kBatch = 64 << 10;

// Readable on dark and on light ground; neighbours differ.
constexpr int kColours[] = {36, 33, 35, 32, 34, 31, 96, 93, 95, 92, 94, 91};

std::string Prefix(const LogView::Look& look, char mark) {
  std::string text = fmt::format("{}:{}{}", look.node, look.rank, mark);
  if (!look.colour) return text + " ";
  const size_t n = static_cast<size_t>(look.rank < 0 ? 0 : look.rank) % std::size(kColours);
  return fmt::format("\x1b[{}m{}\x1b[0m ", kColours[n], text);
}

}  // namespace

LogView::LogView(Console* console, std::string* scratch, int source, Look look)
    : console_(console),
      batch_(*scratch),
      source_(source),
      look_(look),
      prefix_(Prefix(look, '|')),
      more_(Prefix(look, '+')) {}

void LogView::Flush() {
  if (batch_.empty()) return;
  console_->Write(source_, look_.err, batch_, count_);
  batch_.clear();
  count_ = 0;
}

void LogView::Emit(std::string_view line) {
  do {
    std::string_view piece = line.substr(0, kLongest);
    line.remove_prefix(piece.size());
    batch_.append(continued_ ? more_ : prefix_).append(piece).push_back('\n');
    ++count_;
    continued_ = true;
    if (batch_.size() >= kBatch) Flush();
  } while (!line.empty());
  continued_ = false;
}

void LogView::FinishLine() {
  // A line cut exactly at its end has nothing more to say.
  if (!(continued_ && line_.text().empty())) Emit(line_.text());
  continued_ = false;
  line_.Clear();
  if (bar_shown_) {
    console_->SetBar(source_, look_.err, {});
    bar_shown_ = false;
  }
}

// A piece of a line that is unfinished, continued, or holds carriage returns.
void LogView::AppendSlow(std::string_view piece, TimePoint now) {
  while (!piece.empty()) {
    const size_t room = kLongest - std::min(kLongest, line_.text().size());
    std::string_view part = piece.substr(0, std::max<size_t>(room, 1));
    if (room == 0 && piece.front() != '\r') {
      batch_.append(continued_ ? more_ : prefix_).append(line_.text()).push_back('\n');
      ++count_;
      continued_ = true;
      line_.Clear();
      if (batch_.size() >= kBatch) Flush();
      continue;
    }
    piece.remove_prefix(part.size());
    line_.Append(part, kLongest, [&](std::string_view state) {
      if (look_.terminal || now - bar_at_ < look_.bar_interval) return;
      bar_at_ = now;
      batch_.append(prefix_).append(state).push_back('\n');
      ++count_;
    });
  }
}

void LogView::Feed(std::string_view data, TimePoint now) {
  const bool returns = std::memchr(data.data(), '\r', data.size()) != nullptr;
  while (!data.empty()) {
    const char* eol = static_cast<const char*>(std::memchr(data.data(), '\n', data.size()));
    if (eol == nullptr) {
      AppendSlow(data, now);
      break;
    }
    std::string_view line = data.substr(0, static_cast<size_t>(eol - data.data()));
    data.remove_prefix(line.size() + 1);
    if (returns || continued_ || line_.started()) {
      AppendSlow(line, now);
      FinishLine();
    } else {
      Emit(line);
    }
  }
  Flush();
  if (look_.terminal && !line_.text().empty()) {
    console_->SetBar(source_, look_.err, prefix_ + line_.text());
    bar_shown_ = true;
  }
}

void LogView::End(TimePoint) {
  if (line_.started() || bar_shown_) {
    if (line_.text().empty()) {
      line_.Clear();
    } else {
      FinishLine();
    }
  }
  if (bar_shown_) console_->SetBar(source_, look_.err, {});
  bar_shown_ = false;
  Flush();
}

}  // namespace lockstep::logs
