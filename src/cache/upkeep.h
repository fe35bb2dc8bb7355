// What keeps a cache in order: sizes, verification of everything, taking damaged units out, removing what nobody needs.
// Safe while others build and read. One thread each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/folder.h"

namespace lockstep::cache {

struct PlanCoverage {
  Plan plan;
  uint64_t published = 0;  // units
  // Samples of published units; those that could not be read count.
  uint64_t samples() const;
};

struct Summary {
  std::string id;
  Description description;
  uint64_t units = 0, records = 0, bytes = 0;
  uint64_t leases = 0, leftovers = 0, quarantined = 0;
  double used = 0;                      // seconds since 1970, of the last reader or writer
  std::map<std::string, double> error;  // field -> largest relative error of a unit
  std::vector<PlanCoverage> plans;
  std::vector<std::string> damaged;  // units that were opened and do not open, with the reason
};

// Reads no rows. Opens only the units that the stored index does not know; every one if asked for, or where units have
// an error to tell (of a smaller type).
Result<Summary> Summarise(const Folder& folder, bool every_unit = false);

struct Verified {
  uint64_t units = 0, records = 0, bytes = 0;
  std::map<std::string, std::string> damaged;  // unit -> why
};
// Reads every byte. `progress(done, all)` in units.
Result<Verified> VerifyAll(
    const Folder& folder, int threads,
    const std::function<void(uint64_t, uint64_t)>& progress = [](uint64_t, uint64_t) {});
// Moves the units into quarantine/: they are missing then, and a build makes them again.
Status Quarantine(const Folder& folder, const std::vector<std::string>& units);

struct GarbageOptions {
  uint64_t max_bytes = 0;           // of the whole root; 0: no limit. Namespaces least recently used go first
  double old_seconds = 3600;        // temporary files and leases not touched for so long
  std::vector<std::string> remove;  // namespaces to remove
  bool dry_run = false;
};
struct Removed {
  std::string path, why;
  uint64_t bytes = 0;
};
Result<std::vector<Removed>> CollectGarbage(const std::string& root, const GarbageOptions& options);

// Copies the records of `plan` (empty: all) into safetensors files OUT/<unit>.safetensors with the fields alone, in the
// encoder's own types, every row verified. `progress(done, all)` in units. Returns the number of records.
Result<uint64_t> Export(
    const Folder& folder, const std::string& plan, const std::string& out,
    const std::function<void(uint64_t, uint64_t)>& progress = [](uint64_t, uint64_t) {});

// Marks the namespace as used now.
void Touch(const Folder& folder);

}  // namespace lockstep::cache
