// Fills a text with values (docs/submit.md, "Templates"): {{name}}, {{name:filter}}, {{#list}}...{{/list}},
// {{^list}}...{{/list}}, {{>part}}, {{! remark }}. Values are quoted for the language of the text unless a filter says
// otherwise, so that no value can become code. A name that does not exist is an error, also in a part that is not used.
// Pure; any thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::submit {

enum class Language { kShell, kYaml };

struct Schema {
  // Every name of the outermost level, and the names inside the items of those that are lists of sections.
  std::map<std::string, std::vector<std::string>> names;
  // Texts that {{>name}} stands for.
  std::map<std::string, std::string_view> parts;
};

// `source` names the text in errors: "ours.sh:3: ...".
Result<std::string> Fill(std::string_view text, const std::string& source, Language language, const Schema& schema,
                         const nlohmann::json& values);

// One word of a shell; one scalar of YAML that every reader takes for this string.
std::string QuoteYaml(std::string_view text);
// As Kubernetes reads it in args and env, where $(NAME) stands for a variable.
std::string EscapeKubernetes(std::string_view text);

}  // namespace lockstep::submit
