#include "record/metric_csv.h"

#include <algorithm>
#include <cctype>

namespace lockstep::record {
namespace {

constexpr size_t kLongestLine = 16u << 10;
constexpr std::string_view kCounts[] = {"step", "global_step", "iter", "iteration", "epoch"};

bool IsCount(std::string_view name) {
  return std::find(std::begin(kCounts), std::end(kCounts), name) != std::end(kCounts);
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '"')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '"' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> Fields(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t end = line.find(separator);
    fields.push_back(Trim(line.substr(0, end)));
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

// Letters, digits and what stands between them in names of metrics, not more than a few words.
bool IsName(std::string_view field) {
  if (field.empty() || field.size() > 80 || (std::isalpha(static_cast<unsigned char>(field.front())) == 0))
    return false;
  return std::count(field.begin(), field.end(), ' ') < 3 &&
         std::all_of(
             field.begin(), field.end(),
             [](char c) {
               return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view("_/-.() @%").find(c) != std::string_view::npos;
             });
}

}  // namespace

bool MetricCsv::TakeHeading(std::string_view line) {
  for (const char separator : {',', ';', '\t'}) {
    const std::vector<std::string_view> fields = Fields(line, separator);
    if (fields.size() < 2 || !std::all_of(fields.begin(), fields.end(), IsName)) continue;
    std::vector<std::string> columns;
    for (const std::string_view field : fields) {
      std::string& name = columns.emplace_back(field);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    }
    if (std::none_of(columns.begin(), columns.end(), IsCount)) continue;
    separator_ = separator;
    columns_ = std::move(columns);
    return true;
  }
  return false;
}

std::optional<std::string> MetricCsv::Take(std::string_view line) {
  if (line.size() > kLongestLine) return std::nullopt;
  std::string_view start = Trim(line);
  if (start.starts_with("\xef\xbb\xbf")) start = Trim(start.substr(3));  // a byte order mark
  if (start.empty()) return std::nullopt;
  if (std::isalpha(static_cast<unsigned char>(start.front())) != 0 && TakeHeading(start)) return "";
  if (columns_.empty()) return std::nullopt;
  const std::vector<std::string_view> fields = Fields(line, separator_);
  if (fields.size() != columns_.size()) return std::nullopt;
  // "49.0" where a table was written with empty cells.
  const auto whole = [](std::string_view number) {
    return number.ends_with(".0") ? number.substr(0, number.size() - 2) : number;
  };
  std::string counts, values;
  std::string_view name;  // of a file with a row for each value
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].empty()) continue;
    if (IsCount(columns_[i])) {
      counts += std::string(counts.empty() ? "" : ", ").append(columns_[i]).append("=").append(whole(fields[i]));
    } else if (columns_[i] == "name") {
      name = fields[i];
    } else {
      values.append(", ")
          .append(columns_[i] == "value" && !name.empty() ? name : columns_[i])
          .append("=")
          .append(fields[i]);
    }
  }
  if (counts.empty()) return std::nullopt;
  return counts + values;
}

}  // namespace lockstep::record
