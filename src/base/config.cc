#include "base/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/digits.h"
#include "base/text.h"
#include "base/units.h"

namespace lockstep {

struct ConfigReader::State {
  struct Unknown {
    ConfigEntry const* entry;
    std::string path;
    std::vector<std::string> siblings;
  };
  ConfigLocation root;
  std::vector<ConfigError> errors;
  std::vector<Unknown> unknown;  // judged in Finish, when every section has declared its keys
  struct Unused {
    ConfigError error;
    bool command_line;
  };
  std::vector<Unused> unused;         // given, but without effect
  std::vector<std::string> declared;  // full paths of keys that have an effect
  std::vector<std::string> renamed;
};

namespace {

// 010 is eight to one reader and ten to the next.
bool HasLeadingZero(std::string_view text) {
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && IsDigit(text[1]);
}

struct WholeNumber {
  bool negative = false;
  uint64_t magnitude = 0;
};

enum class WholeError { kNone, kFraction, kTooLarge };

// The exact integer that a number's text means ("5e8", "1.50e2"), without a detour over floating point.
WholeError ToWhole(std::string_view text, WholeNumber* whole) {
  if (text.front() == '+' || text.front() == '-') {
    whole->negative = text.front() == '-';
    text.remove_prefix(1);
  }
  std::string digits;
  long shift = 0;  // the value is digits * 10^shift
  size_t i = 0;
  bool point = false;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      point = true;
    } else {
      digits += text[i];
      if (point) --shift;
    }
  }
  if (i < text.size()) {
    std::string_view exponent = text.substr(i + 1);
    bool minus = exponent.front() == '-';
    if (minus || exponent.front() == '+') exponent.remove_prefix(1);
    long value = 0;
    for (char c : exponent) value = std::min(1000000L, value * 10 + (c - '0'));
    shift += minus ? -value : value;
  }
  while (!digits.empty() && digits.back() == '0') {
    digits.pop_back();
    ++shift;
  }
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.empty()) return WholeError::kNone;
  if (shift < 0) return WholeError::kFraction;
  if (static_cast<long>(digits.size()) + shift > 20) return WholeError::kTooLarge;
  digits.append(static_cast<size_t>(shift), '0');
  const auto magnitude = ParseDigits<decltype(whole->magnitude)>(digits);
  if (!magnitude) return WholeError::kTooLarge;
  whole->magnitude = *magnitude;
  return WholeError::kNone;
}

std::string Limits(const ConfigRule& rule, const std::function<std::string(double)>& show) {
  std::vector<std::string> parts;
  if (rule.min) parts.push_back("at least " + show(*rule.min));
  if (rule.above) parts.push_back("more than " + show(*rule.above));
  if (rule.max) parts.push_back("at most " + show(*rule.max));
  return Join(parts, " and ");
}

bool InRange(const ConfigRule& rule, double value) {
  return !(rule.min && value < *rule.min) && !(rule.above && value <= *rule.above) && !(rule.max && value > *rule.max);
}

std::string ShowNumber(double value) { return fmt::format("{}", value); }

// Written alike, whatever the quotes.
bool SameText(const ConfigNode& a, const ConfigNode& b) {
  if (a.kind != b.kind || a.text != b.text) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), SameText);
}

}  // namespace

ConfigReader::ConfigReader(const ConfigTree& tree)
    : owned_(std::make_unique<State>()), state_(owned_.get()), node_(&tree.root()) {
  effective_.kind = ConfigNode::Kind::kMap;
  state_->root = tree.root().where;
  state_->errors = tree.errors();
}

ConfigReader::ConfigReader(State* state, const ConfigNode* node, std::string path)
    : state_(state), node_(node), path_(std::move(path)) {
  effective_.kind = ConfigNode::Kind::kMap;
}

ConfigReader::~ConfigReader() = default;

std::string ConfigReader::Path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

std::string ConfigReader::Item(const std::string& path, size_t index) { return fmt::format("{}[{}]", path, index); }

// By its name, or by the one it had before. The command line wins over a file, whichever name it uses.
const ConfigNode* ConfigReader::FindGiven(std::string_view name, const std::string& was) {
  if (node_ == nullptr) return nullptr;
  const ConfigNode* found = node_->Find(name);
  const ConfigNode* old = was.empty() ? nullptr : node_->Find(was);
  if (old == nullptr) return found;
  claimed_.push_back(was);
  if (found != nullptr && found->loose == old->loose) {
    state_->errors.push_back(
        {old->where, Path(was), fmt::format("the old name of {}, which is given too", Path(name))});
    return found;
  }
  state_->renamed.push_back(
      fmt::format("{} is now {}; the old name still works in this release", Path(was), Path(name)));
  return found == nullptr || old->loose ? old : found;
}

const ConfigNode* ConfigReader::Claim(std::string_view name, const ConfigRule& rule,
                                      const std::vector<std::string>& choices) {
  std::string path = Path(name);
  std::vector<std::string> notes;
  if (!rule.help.empty()) notes.push_back(rule.help);
  if (!choices.empty()) notes.push_back(Join(choices, " | "));
  if (const std::string limits = Limits(rule, ShowNumber); !limits.empty()) notes.push_back(limits);
  if (rule.required) notes.emplace_back("required");
  comment_ = Join(notes, "; ");
  claimed_.emplace_back(name);
  const ConfigNode* found = FindGiven(name, rule.was);
  if (!off_.empty()) {
    given_ = found;
    return nullptr;
  }
  settable_.emplace_back(name);
  state_->declared.push_back(path);
  if (found == nullptr && rule.required) {
    state_->errors.push_back({node_ != nullptr ? node_->where : state_->root, path, "required, but not given"});
  }
  return found;
}

void ConfigReader::Record(std::string_view name, ConfigNode value) {
  if (off_.empty()) {
    effective_.entries.push_back({std::string(name), {}, std::move(value), comment_});
    return;
  }
  if (given_ != nullptr && (given_->loose || !SameText(*given_, value))) {
    state_->unused.push_back({{given_->where, Path(name), fmt::format("has no effect here: {}", off_)}, given_->loose});
  }
  effective_.entries.push_back({std::string(name), {}, {}, off_, /*unused=*/true});
}

void ConfigReader::Replace(std::string_view name, const ConfigNode& value) {
  for (ConfigEntry& entry : effective_.entries) {
    if (entry.key == name) entry.value = value;
  }
}

void ConfigReader::EndSection() {
  if (node_ == nullptr) return;
  for (const ConfigEntry& entry : node_->entries) {
    if (std::find(claimed_.begin(), claimed_.end(), entry.key) == claimed_.end()) {
      state_->unknown.push_back({&entry, Path(entry.key), settable_});
    }
  }
}

void ConfigReader::Section(std::string_view name, const std::function<void(ConfigReader&)>& read) {
  const ConfigNode* node = Claim(name, {});
  if (node != nullptr && node->kind == ConfigNode::Kind::kNull) node = nullptr;
  Record(name, ReadItem(node, Path(name), read));
}

ConfigNode ConfigReader::ReadItem(const ConfigNode* node, const std::string& path,
                                  const std::function<void(ConfigReader&)>& read) {
  if (node != nullptr && node->kind != ConfigNode::Kind::kMap) {
    Mistyped(*node, path, "a section with keys");
    // Asking for its required keys would only repeat the complaint.
    return ReadDefaults(path, read);
  }
  ConfigReader reader(state_, node, path);
  read(reader);
  reader.EndSection();
  return std::move(reader.effective_);
}

ConfigNode ConfigReader::ReadDefaults(const std::string& path, const std::function<void(ConfigReader&)>& read) {
  size_t before = state_->errors.size();
  ConfigReader reader(state_, nullptr, path);
  read(reader);
  state_->errors.resize(before);
  return std::move(reader.effective_);
}

ConfigReader::Origin ConfigReader::OriginOf(std::string_view name) const {
  const ConfigNode* node = node_ != nullptr ? node_->Find(name) : nullptr;
  if (node == nullptr) return Origin::kDefault;
  return node->loose ? Origin::kCommandLine : Origin::kDocument;
}

void ConfigReader::When(bool used, const std::string& why, const std::function<void()>& declare) {
  const std::string before = off_;
  if (!used && off_.empty()) off_ = why;
  declare();
  off_ = before;
}

void ConfigReader::Fail(std::string_view name, const std::string& message) {
  const ConfigNode* node = node_ != nullptr ? node_->Find(name) : nullptr;
  ConfigLocation where = node != nullptr ? node->where : node_ != nullptr ? node_->where : state_->root;
  state_->errors.push_back({where, Path(name), message});
}

bool ConfigReader::Mistyped(const ConfigNode& node, const std::string& path, const std::string& expected,
                            const std::string& advice) {
  std::string advice_text = advice;
  if (node.kind == ConfigNode::Kind::kNull) advice_text = "leave the key out to take its default";
  state_->errors.push_back({node.where, path,
                            fmt::format("expected {}, found {}{}{}", expected, node.Describe(),
                                        advice_text.empty() ? "" : "; ", advice_text)});
  return false;
}

bool ConfigReader::CheckRange(const ConfigNode& node, const std::string& path, const ConfigRule& rule, double value,
                              const std::string& what) {
  if (InRange(rule, value)) return true;
  return Mistyped(node, path, fmt::format("{} of {}", what, Limits(rule, ShowNumber)));
}

bool ConfigReader::Read(const ConfigNode& node, const std::string& path, const ConfigRule&, bool* value) {
  if (node.kind == ConfigNode::Kind::kScalar && !node.quoted && (node.text == "true" || node.text == "false")) {
    *value = node.text == "true";
    return true;
  }
  std::string advice;
  if (node.kind == ConfigNode::Kind::kScalar) {
    std::string lower = node.text;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    for (std::string_view word : {"true", "yes", "on", "y", "1"}) {
      if (lower == word) advice = "write true";
    }
    for (std::string_view word : {"false", "no", "off", "n", "0"}) {
      if (lower == word) advice = "write false";
    }
    if (!advice.empty() && node.quoted) advice += " without quotes";
  }
  return Mistyped(node, path, "true or false", advice);
}

bool ConfigReader::ReadInteger(const ConfigNode& node, const std::string& path, const ConfigRule& rule, int64_t low,
                               uint64_t high, uint64_t* bits) {
  if (node.kind != ConfigNode::Kind::kScalar || node.quoted || !IsNumberText(node.text)) {
    bool number_in_quotes = node.quoted && IsNumberText(node.text);
    return Mistyped(node, path, "an integer", number_in_quotes ? "remove the quotes" : "");
  }
  if (HasLeadingZero(node.text)) return Mistyped(node, path, "an integer", "remove the leading zero");
  WholeNumber whole;
  WholeError error = ToWhole(node.text, &whole);
  if (error == WholeError::kFraction) return Mistyped(node, path, "an integer");
  uint64_t lowest = low < 0 ? ~static_cast<uint64_t>(low) + 1 : 0;  // |low|
  bool fits = error == WholeError::kNone && (whole.negative ? whole.magnitude <= lowest : whole.magnitude <= high);
  if (!fits) {
    std::string floor = low < 0 ? fmt::format("{}", low) : "0";
    return Mistyped(node, path, fmt::format("an integer from {} to {}", floor, high));
  }
  double value = static_cast<double>(whole.magnitude);
  if (!CheckRange(node, path, rule, whole.negative ? -value : value, "an integer")) return false;
  *bits = whole.negative ? ~whole.magnitude + 1 : whole.magnitude;
  return true;
}

namespace {

enum class RealError { kNone, kNotNumber, kNan, kTooLarge, kTooSmall };

template <typename T>
RealError ToReal(std::string_view text, T* value) {
  std::string_view unsigned_text = text;
  if (!unsigned_text.empty() && (text.front() == '+' || text.front() == '-')) unsigned_text.remove_prefix(1);
  if (unsigned_text == ".inf" || unsigned_text == ".Inf" || unsigned_text == ".INF") {
    *value = text.front() == '-' ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
    return RealError::kNone;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return RealError::kNan;
  if (!IsNumberText(text)) return RealError::kNotNumber;
  if (text.front() == '+') text.remove_prefix(1);
  std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), *value);
  std::string_view mantissa = text.substr(0, text.find_first_of("eE"));
  bool zero = mantissa.find_first_of("123456789") == std::string_view::npos;
  if (zero) return RealError::kNone;
  if (result.ec == std::errc::result_out_of_range) {
    size_t e = text.find_first_of("eE");
    bool small = mantissa.find('.') < 2 || (e != std::string_view::npos && text[e + 1] == '-');
    return small ? RealError::kTooSmall : RealError::kTooLarge;
  }
  if (result.ec != std::errc()) return RealError::kNotNumber;
  if (std::isinf(*value)) return RealError::kTooLarge;
  return *value == 0 ? RealError::kTooSmall : RealError::kNone;
}

}  // namespace

bool ConfigReader::Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, double* value) {
  if (node.kind != ConfigNode::Kind::kScalar || node.quoted) {
    bool number_in_quotes = node.quoted && IsNumberText(node.text);
    return Mistyped(node, path, "a number", number_in_quotes ? "remove the quotes" : "");
  }
  if (HasLeadingZero(node.text)) return Mistyped(node, path, "a number", "remove the leading zero");
  switch (ToReal(node.text, value)) {
    case RealError::kNone:
      return CheckRange(node, path, rule, *value, "a number");
    case RealError::kNotNumber:
      return Mistyped(node, path, "a number");
    case RealError::kNan:
      return Mistyped(node, path, "a number", "not-a-number cannot be a setting");
    case RealError::kTooLarge:
      return Mistyped(node, path, "a number", "it is too large for a double");
    case RealError::kTooSmall:
      return Mistyped(node, path, "a number", "it is too small for a double and would become 0");
  }
  return false;
}

bool ConfigReader::Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, float* value) {
  double wide = 0;
  if (!Read(node, path, rule, &wide)) return false;
  // Again from the text: by way of a double it would be rounded twice.
  if (ToReal(node.text, value) == RealError::kNone) return true;
  return Mistyped(node, path, "a number that fits a 32-bit float");
}

bool ConfigReader::Read(const ConfigNode& node, const std::string& path, const ConfigRule&, std::string* value) {
  if (node.kind != ConfigNode::Kind::kScalar) return Mistyped(node, path, "a string");
  bool other = node.LooksNumber() || node.text == "true" || node.text == "false";
  if (other && !node.quoted && !node.loose) return Mistyped(node, path, "a string", "put quotes around it");
  *value = node.text;
  return true;
}

bool ConfigReader::Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule,
                        std::chrono::milliseconds* value) {
  if (node.kind != ConfigNode::Kind::kScalar) return Mistyped(node, path, "a duration such as 30s");
  std::string text = node.text;
  bool bare = IsNumberText(text);
  if (bare && path.ends_with("_ms")) text += "ms";
  bool seconds = path.ends_with("_seconds");
  Result<std::chrono::milliseconds> parsed = ParseDuration(text, seconds ? BareNumber::kSeconds : BareNumber::kRefuse);
  if (!parsed.ok()) {
    state_->errors.push_back({node.where, path, parsed.status().message()});
    return false;
  }
  *value = *parsed;
  if (InRange(rule, static_cast<double>(value->count()) / 1000)) return true;
  return Mistyped(node, path, "a duration of " + Limits(rule, [](double s) {
                                return ExactDuration(std::chrono::milliseconds(std::llround(s * 1000)));
                              }));
}

void ConfigReader::Size(std::string_view name, uint64_t* value, const ConfigRule& rule) {
  if (const ConfigNode* node = Claim(name, rule)) {
    Result<uint64_t> parsed = 0;
    if (node->kind != ConfigNode::Kind::kScalar) {
      Mistyped(*node, Path(name), "a size such as 25MiB");
    } else if (parsed = ParseSize(node->text); !parsed.ok()) {
      state_->errors.push_back({node->where, Path(name), parsed.status().message()});
    } else if (!InRange(rule, static_cast<double>(*parsed))) {
      Mistyped(*node, Path(name),
               "a size of " + Limits(rule, [](double b) { return ExactSize(static_cast<uint64_t>(b)); }));
    } else {
      *value = *parsed;
    }
  }
  Record(name, Plain(ExactSize(*value)));
}

void ConfigReader::Choice(std::string_view name, std::string* value, const std::vector<std::string>& choices,
                          const ConfigRule& rule) {
  if (const ConfigNode* node = Claim(name, rule, choices)) {
    if (std::optional<size_t> index = ReadChoice(*node, Path(name), choices)) *value = choices[*index];
  }
  Record(name, Write(*value));
}

std::optional<size_t> ConfigReader::ReadChoice(const ConfigNode& node, const std::string& path,
                                               const std::vector<std::string>& choices) {
  std::string expected = choices.size() == 1 ? choices[0] : "one of " + Join(choices, ", ");
  if (node.kind != ConfigNode::Kind::kScalar) {
    Mistyped(node, path, expected);
    return std::nullopt;
  }
  auto it = std::find(choices.begin(), choices.end(), node.text);
  if (it != choices.end()) return static_cast<size_t>(it - choices.begin());
  std::optional<std::string> nearest = Nearest(node.text, choices);
  Mistyped(node, path, expected, nearest ? fmt::format("did you mean '{}'?", *nearest) : "");
  return std::nullopt;
}

std::optional<size_t> ConfigReader::CheckList(const ConfigNode& node, const std::string& path, const ConfigRule& rule) {
  if (node.kind != ConfigNode::Kind::kList) {
    Mistyped(node, path, "a list", node.kind == ConfigNode::Kind::kScalar ? "put it in brackets: [...]" : "");
    return std::nullopt;
  }
  size_t count = node.items.size();
  if (count >= rule.min_items && count <= rule.max_items) return count;
  std::string expected = rule.min_items == rule.max_items ? fmt::format("a list of {}", rule.min_items)
                         : count < rule.min_items         ? fmt::format("a list of at least {}", rule.min_items)
                                                          : fmt::format("a list of at most {}", rule.max_items);
  Mistyped(node, path, expected);
  return std::nullopt;
}

ConfigNode ConfigReader::Plain(std::string text) {
  ConfigNode node;
  node.kind = ConfigNode::Kind::kScalar;
  node.text = std::move(text);
  return node;
}

namespace {

template <typename T>
std::string ShortestText(T value) {
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  if (std::isnan(value)) return ".nan";
  return fmt::format("{}", value);
}

}  // namespace

ConfigNode ConfigReader::Write(double value) { return Plain(ShortestText(value)); }
ConfigNode ConfigReader::Write(float value) { return Plain(ShortestText(value)); }
ConfigNode ConfigReader::Write(std::chrono::milliseconds value) { return Plain(ExactDuration(value)); }

ConfigNode ConfigReader::Write(const std::string& value) {
  ConfigNode node = Plain(value);
  node.quoted = true;
  return node;
}

Status ConfigReader::Finish(const ConfigReader* alone) {
  EndSection();
  for (const State::Unused& unused : state_->unused) {
    const auto same = [&](const State::Unused& other) { return other.error.path == unused.error.path; };
    const bool author = alone == nullptr || unused.command_line ||
                        std::any_of(alone->state_->unused.begin(), alone->state_->unused.end(), same);
    if (author) state_->errors.push_back(unused.error);
  }
  for (const State::Unknown& unknown : state_->unknown) {
    const std::string& key = unknown.entry->key;
    std::string advice = DidYouMean(key, unknown.siblings);
    if (advice.empty()) {
      // The right name in the wrong section is the other usual slip, perhaps misspelt too.
      std::vector<std::string> names;
      for (const std::string& path : state_->declared) names.push_back(path.substr(path.rfind('.') + 1));
      if (const std::optional<std::string> nearest = Nearest(key, names)) {
        const auto at = std::find(names.begin(), names.end(), *nearest) - names.begin();
        advice = fmt::format(" (did you mean '{}'?)", state_->declared[static_cast<size_t>(at)]);
      }
    }
    if (advice.empty() && !unknown.siblings.empty() && unknown.siblings.size() <= 16) {
      advice = fmt::format("; valid here: {}", Join(unknown.siblings, ", "));
    }
    state_->errors.push_back({unknown.entry->where, unknown.path, "unknown key" + advice});
  }
  state_->unknown.clear();
  std::vector<ConfigError>& errors = state_->errors;
  auto order = [](const ConfigError& e) {
    return std::make_tuple(e.where.line == 0, e.where.line, e.where.column, std::string_view(e.path));
  };
  std::sort(errors.begin(), errors.end(),
            [&](const ConfigError& a, const ConfigError& b) { return order(a) < order(b); });
  if (errors.empty()) return Status::Ok();
  if (errors.size() == 1) return Status(Code::kUsage, errors.front().ToString());
  std::string message = fmt::format("{} errors in the configuration:", errors.size());
  for (const ConfigError& error : errors) message += "\n  " + error.ToString();
  return Status(Code::kUsage, message);
}

const std::vector<std::string>& ConfigReader::renamed() const { return state_->renamed; }

const std::vector<ConfigError>& ConfigReader::errors() const { return state_->errors; }

std::string ConfigReader::Dump() const { return WriteYaml(effective_); }
std::string ConfigReader::DumpWithHelp() const { return WriteYaml(effective_, YamlComments::kShow); }

std::string ConfigReader::Digest() const {
  std::string text = Dump();
  return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(text.data(), text.size(), 0)));
}

}  // namespace lockstep
