#include "data/fault.h"

#include <string>
#include <string_view>

namespace lockstep::data {
namespace {

// By the words of the messages of src/data, base/files.h and base/safetensors.h; the first row that matches decides.
// Every row has a real damaged file in fault_test.cc.
struct Row {
  std::string_view words;
  const char* fault;
};
constexpr Row kRows[] = {
    {"became shorter", "truncated"}, {"ends early", "truncated"},
    {"ends within", "truncated"},    {"file is truncated", "truncated"},
    {"remature end", "truncated"},   {"too short", "shape"},
    {"mixed size", "shape"},         {"expected at most", "shape"},
    {"No such file", "vanished"},    {"Input/output error", "io"},
    {"cannot be decoded", "decode"}, {"cannot be read", "decode"},
    {"changed", "decode"},           {"no whole number", "shape"},
    {"are too few", "shape"},
};
// As FileError writes them; every other errno is "io".
constexpr Row kErrnos[] = {
    {"ENOENT", "vanished"}, {"ENOTDIR", "vanished"}, {"ESTALE", "vanished"}, {"ETIMEDOUT", "timeout"}};

// "ENOENT" of "cannot open 'x': ENOENT: No such file or directory"; empty where there is none.
std::string_view ErrnoIn(std::string_view text) {
  for (size_t at = text.find(": E"); at != std::string_view::npos; at = text.find(": E", at + 1)) {
    const std::string_view rest = text.substr(at + 2);
    const std::string_view name = rest.substr(0, rest.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"));
    if (name.size() > 2 && rest.substr(name.size()).starts_with(": ")) return name;
  }
  return {};
}

// Without what stands in quotation marks: a file's name decides nothing.
std::string Unquoted(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const char c : text) {
    if (c == '\'') {
      inside = !inside;
    } else if (!inside) {
      out += c;
    }
  }
  return out;
}

}  // namespace

const char* FaultOf(const Status& status) {
  if (status.code() == Code::kTimeout) return "timeout";
  const std::string text = Unquoted(status.message());
  if (const std::string_view name = ErrnoIn(text); !name.empty()) {
    for (const Row& row : kErrnos) {
      if (row.words == name) return row.fault;
    }
    return "io";
  }
  for (const Row& row : kRows) {
    if (text.find(row.words) != std::string::npos) return row.fault;
  }
  return "other";
}

}  // namespace lockstep::data
