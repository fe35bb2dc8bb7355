#include "cli/key_flag.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/text.h"

namespace lockstep::cli {

std::string KeyFlag(const nlohmann::ordered_json& config, const std::string& flag, const std::string& value) {
  const auto fold = [](std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return "." + name;
  };
  const std::string wanted = fold(flag.substr(std::min(flag.size(), flag.find_first_not_of('-'))));
  std::vector<std::string> meant;
  const std::function<void(const nlohmann::ordered_json&, const std::string&)> walk = [&](const auto& node,
                                                                                          const std::string& path) {
    if (node.is_object()) {
      for (const auto& [key, child] : node.items()) walk(child, path.empty() ? key : path + "." + key);
    } else if (wanted.size() > 1 && fold(path).ends_with(wanted)) {
      meant.push_back("--set " + ShellQuote(path + "=" + (value.empty() ? "VALUE" : value)));
    }
  };
  walk(config, "");
  return Join(meant, " or ");
}

}  // namespace lockstep::cli
