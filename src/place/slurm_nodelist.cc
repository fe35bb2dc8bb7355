#include "place/slurm_nodelist.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "base/digits.h"

namespace lockstep::place {
namespace {

Status Malformed(std::string_view list, size_t at, std::string_view what) {
  return Status(Code::kUsage, fmt::format("node list '{}': {} at character {}", list, what, at + 1));
}

// "0-3", "7" or "09-11" inside brackets; padding follows the width of the first number, as SLURM writes it.
Status ExpandRange(std::string_view list, size_t at, std::string_view range, std::vector<std::string>* out) {
  size_t dash = range.find('-');
  std::string_view low_text = range.substr(0, dash);
  std::string_view high_text = dash == std::string_view::npos ? low_text : range.substr(dash + 1);
  std::optional<uint64_t> low = ParseDigits<uint64_t>(low_text), high = ParseDigits<uint64_t>(high_text);
  if (!low || !high) return Malformed(list, at, fmt::format("'{}' is not a number or a range of numbers", range));
  if (*high < *low) return Malformed(list, at, fmt::format("range '{}' runs backwards", range));
  if (*high - *low >= kMaxListedNodes || out->size() + (*high - *low) >= kMaxListedNodes)
    return Malformed(list, at, fmt::format("more than {} nodes", kMaxListedNodes));
  for (uint64_t i = *low; i <= *high; ++i) out->push_back(fmt::format("{:0{}}", i, low_text.size()));
  return Status::Ok();
}

// One name with any number of brackets, from `*at` up to the comma or end that closes it.
Status ExpandName(std::string_view list, size_t* at, std::vector<std::string>* out) {
  std::vector<std::string> names{""};
  size_t start = *at;
  while (*at < list.size() && list[*at] != ',') {
    char c = list[*at];
    if (c == ']') return Malformed(list, *at, "']' without '['");
    if (static_cast<unsigned char>(c) <= ' ') return Malformed(list, *at, "a blank or control character");
    if (c != '[') {
      for (std::string& name : names) name += c;
      ++*at;
      continue;
    }
    size_t close = list.find(']', *at);
    if (close == std::string_view::npos) return Malformed(list, *at, "'[' without ']'");
    std::vector<std::string> numbers;
    for (size_t from = *at + 1; from <= close;) {
      size_t to = std::min(list.find(',', from), close);
      LOCKSTEP_RETURN_IF_ERROR(ExpandRange(list, from, list.substr(from, to - from), &numbers));
      from = to + 1;
    }
    if (names.size() * numbers.size() > kMaxListedNodes)
      return Malformed(list, *at, fmt::format("more than {} nodes", kMaxListedNodes));
    std::vector<std::string> product;
    product.reserve(names.size() * numbers.size());
    for (const std::string& name : names)
      for (const std::string& number : numbers) product.push_back(name + number);
    names = std::move(product);
    *at = close + 1;
  }
  if (*at == start) return Malformed(list, start, "an empty name");
  if (out->size() + names.size() > kMaxListedNodes)
    return Malformed(list, start, fmt::format("more than {} nodes", kMaxListedNodes));
  out->insert(out->end(), std::make_move_iterator(names.begin()), std::make_move_iterator(names.end()));
  return Status::Ok();
}

}  // namespace

Result<std::vector<std::string>> ExpandNodeList(std::string_view list) {
  std::vector<std::string> nodes;
  size_t at = 0;
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(ExpandName(list, &at, &nodes));
    if (at == list.size()) return nodes;
    ++at;  // the comma; a name must follow, so a trailing comma is an error
  }
}

Result<std::vector<int>> ExpandTaskCounts(std::string_view list) {
  auto malformed = [&](std::string_view item) {
    return Status(Code::kUsage, fmt::format("task counts '{}': '{}' is not a count such as 2 or 2(x3)", list, item));
  };
  std::vector<int> counts;
  for (size_t from = 0; from <= list.size();) {
    size_t to = std::min(list.find(',', from), list.size());
    std::string_view item = list.substr(from, to - from);
    size_t paren = item.find('(');
    std::optional<uint64_t> count = ParseDigits<uint64_t>(item.substr(0, paren));
    std::optional<uint64_t> times = 1;
    if (paren != std::string_view::npos) {
      std::string_view repeat = item.substr(paren);
      if (repeat.size() < 4 || repeat[1] != 'x' || repeat.back() != ')') return malformed(item);
      times = ParseDigits<uint64_t>(repeat.substr(2, repeat.size() - 3));
    }
    if (!count || !times || *count == 0 || *times == 0) return malformed(item);
    if (*count > kMaxListedNodes || *times > kMaxListedNodes || counts.size() + *times > kMaxListedNodes)
      return Status(Code::kUsage, fmt::format("task counts '{}': more than {} nodes or tasks", list, kMaxListedNodes));
    counts.insert(counts.end(), *times, static_cast<int>(*count));
    from = to + 1;
  }
  return counts;
}

}  // namespace lockstep::place
