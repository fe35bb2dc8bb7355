#include "place/reader.h"

#include <fmt/format.h>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::place {

std::optional<int> ParseNumber(std::string_view text) { return ParseDigits(Trim(text)); }

bool IsLoopback(std::string_view host) {
  if (!host.empty() && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host == "localhost" || host.starts_with("localhost.") || host.starts_with("127.") || host == "::1" ||
         host == "0.0.0.0" || host == "::";
}

bool Reader::Has(std::string_view name) const {
  auto it = env_.find(std::string(name));
  return it != env_.end() && !Trim(it->second).empty();
}

std::optional<std::string> Reader::AnyWith(std::string_view prefix) const {
  for (auto it = env_.lower_bound(std::string(prefix)); it != env_.end() && it->first.starts_with(prefix); ++it)
    if (!Trim(it->second).empty()) return it->first;
  return std::nullopt;
}

std::string Reader::Source(std::string_view name) const {
  auto it = env_.find(std::string(name));
  return fmt::format("{}={}", name, it == env_.end() ? "" : Printable(it->second, 120));
}

std::optional<std::string> Reader::Text(std::string_view name) {
  auto it = env_.find(std::string(name));
  if (it == env_.end()) return std::nullopt;
  std::string_view value = Trim(it->second);
  if (!value.empty()) return std::string(value);
  if (blanks_.insert(std::string(name)).second) Ignored(Source(name), "empty, as if it were not set");
  return std::nullopt;
}

std::optional<Said<int>> Reader::Number(std::string_view name, int least) {
  std::optional<std::string> text = Text(name);
  if (!text) return std::nullopt;
  std::optional<int> value = ParseNumber(*text);
  if (value && *value >= least && *value <= kMaxCount) return Said<int>{*value, Source(name)};
  Fail(fmt::format("{}: expected a number from {} to {}", Source(name), least, kMaxCount),
       fmt::format("correct or unset {}, or say the placement by flags (--nnodes, --node-rank, --level)", name));
  return std::nullopt;
}

std::optional<Said<int>> Reader::Number(const Names& names, int least) {
  for (std::string_view name : names)
    if (Text(name)) return Number(name, least);
  return std::nullopt;
}

std::optional<Said<int>> Reader::NumberUnless(bool overruled, const Names& names, int least) {
  if (!overruled) return Number(names, least);
  for (std::string_view name : names) {
    std::optional<std::string> text = Text(name);
    if (!text) continue;
    std::optional<int> value = ParseNumber(*text);
    if (value && *value >= least && *value <= kMaxCount) return Said<int>{*value, Source(name)};
    Ignored(Source(name), "no count, and a flag says it");
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Said<std::string>> Reader::Text(const Names& names) {
  for (std::string_view name : names)
    if (std::optional<std::string> text = Text(name)) return Said<std::string>{*text, Source(name)};
  return std::nullopt;
}

void Reader::Note(std::string source, std::string says, const char* weight) {
  for (const Evidence& known : out_->evidence)
    if (known.source == source && known.says == says) return;
  out_->evidence.push_back({std::move(source), std::move(says), weight});
}

void Reader::Warn(std::string text) {
  for (const std::string& known : out_->warnings)
    if (known == text) return;
  out_->warnings.push_back(std::move(text));
}

void Reader::Fail(std::string message, std::string hint) {
  if (failed())
    Warn(std::move(message));
  else
    out_->error = Status(Code::kUsage, std::move(message), std::move(hint));
}

}  // namespace lockstep::place
