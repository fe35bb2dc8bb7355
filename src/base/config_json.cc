#include "base/config_json.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace lockstep {

using nlohmann::ordered_json;

ordered_json ToJson(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return nullptr;
    case ConfigNode::Kind::kList: {
      ordered_json list = ordered_json::array();
      for (const ConfigNode& item : node.items) list.push_back(ToJson(item));
      return list;
    }
    case ConfigNode::Kind::kMap: {
      ordered_json map = ordered_json::object();
      for (const ConfigEntry& entry : node.entries) map[entry.key] = ToJson(entry.value);
      return map;
    }
    case ConfigNode::Kind::kScalar:
      break;
  }
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (IsNullText(node.text)) return nullptr;
  if (!node.LooksNumber()) return node.text;
  const char* begin = node.text.data() + (node.text.front() == '+' ? 1 : 0);
  const char* end = node.text.data() + node.text.size();
  int64_t whole = 0;
  if (const auto read = std::from_chars(begin, end, whole); read.ec == std::errc() && read.ptr == end) return whole;
  double number = 0;
  if (std::from_chars(begin, end, number).ec == std::errc()) return number;
  return node.text;  // beyond a double
}

}  // namespace lockstep
