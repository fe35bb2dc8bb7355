#include "cli/job_lookup.h"

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::cli {

Result<FoundJob> FindJob(const std::string& which, const std::string& platform, const std::string& name_space,
                         const Environment& env) {
  if (!platform.empty()) {
    Result<const submit::Platform*> row = submit::FindPlatform(platform);
    if (!row.ok()) return row.status();
    if ((*row)->kind.empty() && !name_space.empty()) {
      return Status(Code::kUsage, fmt::format("--namespace: {} has none", (*row)->what), "remove it");
    }
  }
  Result<std::string> root = submit::RecordsRoot(env);
  if (!root.ok()) return root.status();
  const std::vector<submit::JobRecord> records = submit::ReadRecords(*root);
  FoundJob found;
  if (const submit::JobRecord* record = submit::FindRecord(records, which, platform, name_space)) {
    found.record = *record;
  } else if (const std::optional<submit::JobRecord> part = submit::FindInArray(records, which, platform)) {
    found.record = *part;
  } else if (!platform.empty() && platform != "ssh" && !which.empty() && !which.starts_with('-')) {
    found.record.name = found.record.id = which;
    found.record.platform = platform;
    found.record.name_space = name_space;
  } else {
    std::vector<std::string> names;
    for (const submit::JobRecord& one : records) names.push_back(one.name);
    return Status(
        Code::kUsage,
        fmt::format("job '{}' was not submitted from this account{}{}", Printable(which),
                    name_space.empty() ? "" : " in namespace " + Printable(name_space), DidYouMean(which, names)),
        "lockstep jobs lists them; --platform NAME takes an id that was submitted elsewhere");
  }
  Result<const submit::Platform*> row = submit::FindPlatform(found.record.platform);
  if (!row.ok()) return row.status();
  found.platform = *row;
  return found;
}

}  // namespace lockstep::cli
