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
  std::vector<std::string> unreadable;
  const std::vector<submit::JobRecord> records = submit::ReadRecords(*root, &unreadable);
  FoundJob found;
  if (const submit::JobRecord* record = submit::FindRecord(records, which, platform, name_space)) {
    found.record = *record;
    for (const submit::JobRecord& one : records) {
      const bool asked = (platform.empty() || one.platform == platform) &&
                         (name_space.empty() || one.name_space == name_space) && (one.name == which || one.id == which);
      if (asked && &one != record) found.others.push_back(one);
    }
  } else if (const std::optional<submit::JobRecord> part = submit::FindInArray(records, which, platform)) {
    found.record = *part;
  } else if (!platform.empty() && platform != "ssh" && !which.empty() && !which.starts_with('-')) {
    found.record.name = found.record.id = which;
    found.record.platform = platform;
    found.record.name_space = name_space;
  } else {
    std::vector<std::string> names;
    for (const submit::JobRecord& one : records) names.push_back(one.name);
    const std::string space = name_space.empty() ? "" : " in namespace " + Printable(name_space);
    std::string message = fmt::format("job '{}' was not submitted from this account{}{}", Printable(which), space,
                                      DidYouMean(which, names));
    if (!unreadable.empty()) message += fmt::format(", or its record cannot be read\n  {}", Join(unreadable, "\n  "));
    return Status(Code::kUsage, message,
                  "lockstep jobs lists them; --platform NAME takes an id that was submitted elsewhere");
  }
  Result<const submit::Platform*> row = submit::FindPlatform(found.record.platform);
  if (!row.ok()) return row.status();
  found.platform = *row;
  return found;
}

}  // namespace lockstep::cli
