// The annotation file (docs/formats/annotations.md): which videos a dataset consists of. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::data {

struct Annotations {
  std::vector<std::string> paths;  // as written: relative to the data root or absolute
  std::string digest;              // of the text
};

// `source` names the file in errors.
Result<Annotations> ParseAnnotations(std::string_view text, const std::string& source);
Result<Annotations> ReadAnnotations(const std::string& path);

}  // namespace lockstep::data
