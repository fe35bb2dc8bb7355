#include "diagnose/signatures.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
extern const unsigned char signature_table[];  // NOLINT(readability-identifier-naming)
extern const size_t signature_table_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::diagnose {
namespace {

constexpr size_t kMaxTable = 16u << 20;

template <typename T>
struct NamedValue {
  const char* text;
  T value;
};

constexpr NamedValue<Role> kRoles[] = {
    {"R", Role::kRoot}, {"C", Role::kConsequence}, {"T", Role::kTrigger}, {"K", Role::kKernel}, {"I", Role::kAdvice}};
constexpr NamedValue<Policy> kPolicies[] = {
    {"", Policy::kNone},     {"-", Policy::kNone},    {"SAME", Policy::kSame}, {"EXCL", Policy::kExclude},
    {"ONCE", Policy::kOnce}, {"WAIT", Policy::kWait}, {"FIX", Policy::kFix},   {"STOP", Policy::kStop}};

template <typename T, size_t N>
const T* Find(const NamedValue<T> (&words)[N], std::string_view text) {
  for (const NamedValue<T>& word : words) {
    if (text == word.text) return &word.value;
  }
  return nullptr;
}

int DefaultWeight(Role role) {
  switch (role) {
    case Role::kRoot:
      return 5;
    case Role::kKernel:
      return 6;
    case Role::kConsequence:
      return 2;
    case Role::kTrigger:
      return 1;
    case Role::kAdvice:
      return 0;
  }
  return 0;
}

bool IsId(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return false;
  }
  return true;
}

Status Wrong(const std::string& source, size_t line, const std::string& what) {
  return Status(Code::kUsage, fmt::format("{}:{}: {}", source, line, what),
                "docs/formats/signatures.md describes the columns; fields are separated by single tabs");
}

Result<Signature> ParseRow(const std::vector<std::string>& names, const std::vector<std::string>& fields,
                           const std::string& source, size_t line) {
  Signature row;
  std::string weight, role, policy, over;
  const std::map<std::string, std::string*> columns = {
      {"id", &row.id},         {"domain", &row.domain}, {"role", &role},     {"regex", &row.regex},
      {"cause", &row.cause},   {"remedy", &row.remedy}, {"policy", &policy}, {"sample", &row.sample},
      {"source", &row.source}, {"weight", &weight},     {"over", &over}};
  for (size_t i = 0; i < names.size(); ++i) {
    if (auto column = columns.find(names[i]); column != columns.end()) *column->second = fields[i];
  }
  if (!IsId(row.id)) {
    return Wrong(source, line, fmt::format("'{}' is no id: a-z, 0-9 and '-' are expected", Printable(row.id)));
  }
  const Role* found_role = Find(kRoles, role);
  if (found_role == nullptr) {
    return Wrong(source, line, fmt::format("row '{}': role '{}', expected R, C, T, K or I", row.id, Printable(role)));
  }
  row.role = *found_role;
  const Policy* found_policy = Find(kPolicies, policy);
  if (found_policy == nullptr) {
    return Wrong(source, line,
                 fmt::format("row '{}': policy '{}', expected SAME, EXCL, ONCE, WAIT, FIX, STOP or -", row.id,
                             Printable(policy)));
  }
  row.policy = *found_policy;
  row.weight = DefaultWeight(row.role);
  if (!weight.empty()) {
    if (weight.size() != 1 || weight[0] < '0' || weight[0] > '9') {
      return Wrong(source, line, fmt::format("row '{}': weight '{}', expected 0 to 9", row.id, Printable(weight)));
    }
    row.weight = weight[0] - '0';
  }
  if (row.regex.empty()) return Wrong(source, line, fmt::format("row '{}' has no regex", row.id));
  if (row.cause.empty()) return Wrong(source, line, fmt::format("row '{}' has no cause", row.id));
  if (!over.empty()) row.over = Split(over, ',');
  return row;
}

std::string ConfigFile() {
  const char* base = std::getenv("XDG_CONFIG_HOME");
  if (base != nullptr && *base != 0) return std::string(base) + "/lockstep/signatures.tsv";
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == 0 ? "" : std::string(home) + "/.config/lockstep/signatures.tsv";
}

void Merge(std::vector<Signature> more, std::vector<Signature>* rows) {
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < rows->size(); ++i) known[(*rows)[i].id] = i;
  for (Signature& row : more) {
    auto [at, fresh] = known.try_emplace(row.id, rows->size());
    if (fresh) {
      rows->push_back(std::move(row));
    } else {
      (*rows)[at->second] = std::move(row);
    }
  }
}

}  // namespace

Result<std::vector<Signature>> ParseSignatures(std::string_view text, const std::string& source) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<Signature> rows;
  std::vector<std::string> names;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line[0] == '#') continue;
    if (line.find('\0') != std::string_view::npos || !IsUtf8(line)) {
      return Wrong(source, number, "the line is no UTF-8 text");
    }
    std::vector<std::string> fields = Split(line, '\t');
    if (names.empty()) {
      names = std::move(fields);
      for (const char* needed : {"id", "role", "regex", "cause"}) {
        if (std::find(names.begin(), names.end(), needed) == names.end()) {
          return Wrong(source, number, fmt::format("the first line names no column '{}'", needed));
        }
      }
      continue;
    }
    if (fields.size() != names.size()) {
      return Wrong(source, number, fmt::format("{} fields, the first line names {}", fields.size(), names.size()));
    }
    Result<Signature> row = ParseRow(names, fields, source, number);
    if (!row.ok()) return row.status();
    for (const Signature& earlier : rows) {
      if (earlier.id == row->id) return Wrong(source, number, fmt::format("id '{}' appears twice", row->id));
    }
    rows.push_back(*std::move(row));
  }
  if (names.empty()) return Wrong(source, 1, "the table is empty: a first line with the column names is expected");
  return rows;
}

std::string_view EmbeddedSignatureText() {
  return {reinterpret_cast<const char*>(signature_table), signature_table_size};
}

Result<std::vector<Signature>> LoadSignatures(const std::string& file) {
  Result<std::vector<Signature>> rows = ParseSignatures(EmbeddedSignatureText(), "signatures.tsv");
  if (!rows.ok()) return rows;
  std::vector<std::string> files;
  std::error_code none;
  if (const std::string config = ConfigFile(); !config.empty() && std::filesystem::exists(config, none)) {
    files.push_back(config);
  }
  if (const char* named = std::getenv("LOCKSTEP_SIGNATURES"); named != nullptr && *named != 0)
    files.emplace_back(named);
  if (!file.empty()) files.push_back(file);
  for (const std::string& path : files) {
    Result<std::string> text = ReadFile(path, kMaxTable);
    if (!text.ok()) return text.status();
    Result<std::vector<Signature>> more = ParseSignatures(*text, path);
    if (!more.ok()) return more.status();
    Merge(*std::move(more), &*rows);
  }
  return rows;
}

}  // namespace lockstep::diagnose
