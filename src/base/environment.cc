#include "base/environment.h"

#include <string_view>

extern char** environ;

namespace lockstep {

Environment CurrentEnvironment() {
  Environment env;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos && equals > 0) env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return env;
}

std::string ValueOf(const Environment& env, const std::string& name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

}  // namespace lockstep
