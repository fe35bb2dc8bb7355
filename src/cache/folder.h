// The folder of a namespace (docs/formats/feature-cache.md): made once by whoever comes first, then only added to. Any
// number of processes may call everything here at once; values may be copied.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/description.h"

namespace lockstep::cache {

struct UnitPlace {
  std::string name;
  uint64_t inode = 0;  // of the file: another one has another, as a rule
};

class Folder {
 public:
  // Makes it where it is missing.
  static Result<Folder> Create(const std::string& root, const Description& description);
  // `path` is ROOT/<namespace>. Errors: another format version, a name that is not the digest of its description.
  static Result<Folder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& id() const { return id_; }
  const Description& description() const { return description_; }

  std::string UnitPath(std::string_view unit) const { return path_ + "/units/" + std::string(unit) + ".safetensors"; }
  std::string LeasePath(std::string_view unit) const { return path_ + "/leases/" + std::string(unit); }
  std::string QuarantinePath() const { return path_ + "/quarantine"; }
  // Names of the published units, sorted.
  Result<std::vector<std::string>> Units() const;
  // The same with what tells a file from one that took its place; no file is looked at.
  Result<std::vector<UnitPlace>> UnitPlaces() const;
  Status WritePlan(const Plan& plan) const;
  Result<std::vector<Plan>> Plans() const;

 private:
  std::string path_, id_;
  Description description_;
};

// The ids of a root's namespaces, sorted; folders that are none are passed over. An error if the root cannot be read.
Result<std::vector<std::string>> Namespaces(const std::string& root);

// Puts the finished file `from` under the name `to` without replacing anything. False: somebody was first, and `from`
// is gone.
Result<bool> PublishNew(const std::string& from, const std::string& to);

}  // namespace lockstep::cache
