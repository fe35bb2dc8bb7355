// Settings as people, shells and programs read them.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "tune/settings.h"

namespace lockstep::tune {
namespace {

constexpr char kBold[] = "\x1b[1m", kDim[] = "\x1b[2m", kYellow[] = "\x1b[33m", kGreen[] = "\x1b[32m";
constexpr size_t kWidth = 110;

// Words from `column` on, broken before kWidth.
std::string Wrapped(const std::string& text, size_t column) {
  std::string out;
  size_t at = column;
  for (const std::string& word : Split(text, ' ')) {
    if (at > column && at + 1 + word.size() > kWidth) {
      out += "\n" + std::string(column, ' ');
      at = column;
    }
    if (at > column) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
  }
  return out;
}

}  // namespace

const char* Name(Confidence confidence) {
  switch (confidence) {
    case Confidence::kCertain:
      return "certain";
    case Confidence::kLikely:
      return "likely";
    case Confidence::kGuess:
      return "guess";
  }
  return "guess";
}

std::string ToText(const Settings& settings, bool colour) {
  const auto paint = [&](const char* code, const std::string& text) {
    return colour ? fmt::format("{}{}\x1b[0m", code, text) : text;
  };
  std::string out;
  const auto rows = [&](const char* title, auto wanted) {
    bool any = false;
    for (const Setting& s : settings.set) {
      if (!wanted(s)) continue;
      if (!std::exchange(any, true)) out += paint(kBold, title) + "\n";
      const std::string assignment = fmt::format("{}={}", s.name, Printable(s.value));
      out += fmt::format("  {}  {}\n", paint(kGreen, fmt::format("{:<44}", assignment)), Name(s.confidence));
      if (s.user_value) {
        out += fmt::format("      {}\n",
                           Wrapped(fmt::format("yours, {}, is kept",
                                               s.user_value->empty() ? "empty" : "'" + Printable(*s.user_value) + "'"),
                                   6));
      }
      out += fmt::format("      {}\n", Wrapped(s.because, 6));
    }
    if (any) out += "\n";
  };
  rows("set", [](const Setting& s) { return s.applies(); });
  rows("yours wins", [](const Setting& s) { return s.user_value.has_value(); });
  rows("worth a try (not set)", [](const Setting& s) { return !s.user_value && !s.applies(); });
  if (!settings.left.empty()) {
    out += paint(kBold, "left alone") + "\n";
    for (const LeftAlone& left : settings.left) {
      out += fmt::format("  {}\n      {}\n", left.name, paint(kDim, Wrapped(left.because, 6)));
    }
    out += "\n";
  }
  if (!settings.warnings.empty()) {
    out += paint(kBold, "warnings") + "\n";
    for (const std::string& warning : settings.warnings) out += "  " + paint(kYellow, Wrapped(warning, 2)) + "\n";
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

std::string ToShell(const Settings& settings) {
  std::string out;
  for (const Setting& s : settings.set) {
    if (!s.applies()) continue;
    // zsh takes a word behind "==" for the path of a program.
    const bool equals = s.value.starts_with('=') && s.value.find('\'') == std::string::npos;
    out += fmt::format("export {}={}\n", s.name, equals ? "'" + s.value + "'" : ShellQuote(s.value));
  }
  return out;
}

std::vector<std::string> StartLines(const Settings& settings) {
  std::vector<std::string> out;
  std::vector<std::string> likely;
  for (const Setting& s : settings.set) {
    if (s.differs()) {
      out.push_back(fmt::format("{}={} is yours and is kept; this node suggests {} ({})", s.name,
                                Printable(*s.user_value), Printable(s.value), s.because));
    } else if (!s.user_value && s.confidence == Confidence::kLikely) {
      likely.push_back(fmt::format("{}={}", s.name, s.value));
    }
  }
  if (!likely.empty()) {
    out.push_back(fmt::format("worth a try, not set: {} (`lockstep tune` says why)", Join(likely, " ")));
  }
  return out;
}

nlohmann::json ToJson(const Settings& settings) {
  nlohmann::json set = nlohmann::json::array();
  for (const Setting& s : settings.set) {
    set.push_back({{"name", s.name},
                   {"value", s.value},
                   {"because", s.because},
                   {"confidence", Name(s.confidence)},
                   {"applies", s.applies()},
                   {"user_value", s.user_value ? nlohmann::json(*s.user_value) : nlohmann::json()}});
  }
  nlohmann::json left = nlohmann::json::array();
  for (const LeftAlone& l : settings.left) left.push_back({{"name", l.name}, {"because", l.because}});
  return {{"set", set}, {"left_alone", left}, {"warnings", settings.warnings}};
}

}  // namespace lockstep::tune
