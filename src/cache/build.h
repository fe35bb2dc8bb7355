// Fills a namespace: each process takes units that nobody has, encodes and publishes them, until the plan is complete.
// Processes know of each other only through leases and published units, so any number may run, end or be killed at any
// time. While one unit is written the next is encoded. Called by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "cache/folder.h"
#include "cache/lease.h"
#include "cache/quantise.h"
#include "cache/reader.h"
#include "cache/unit.h"

namespace lockstep::cache {

// Where the encoder puts the records of one unit.
class UnitSink {
 public:
  UnitSink(const Folder& folder, const Reader* there, uint64_t rows);

  // False: the record is already in this or another unit.
  bool Wanted(const Digest& key) const;
  // One pointer per field, as the encoder gives it. Items of a reference+set record in the order of `key`.
  Status Put(const RecordKey& key, std::span<const std::byte* const> fields);
  // A sample that cannot be encoded, and has no record.
  void Bad() { ++bad_; }

  const UnitBuilder& unit() const { return unit_; }
  uint64_t bad() const { return bad_; }
  // Relative error of each field that is stored in another type.
  std::map<std::string, double> Errors() const;

 private:
  const Folder& folder_;
  const Reader* there_;
  UnitBuilder unit_;
  std::vector<PackError> errors_;
  uint64_t bad_ = 0;
};

// Samples [first, first + count) of the plan. kInterrupted: the unit is given back.
using EncodeUnit = std::function<Status(uint64_t first, uint64_t count, UnitSink& sink)>;

struct BuildProgress {
  uint64_t units = 0;                        // of the plan
  uint64_t published = 0;                    // of them, by anybody
  uint64_t own = 0;                          // published by this process
  uint64_t records = 0, bytes = 0, bad = 0;  // by this process
  uint64_t taken_over = 0;                   // leases of others that had lapsed
  double seconds = 0;
  double left = 0;        // seconds, from the pace of all processes; 0: unknown
  double write_wait = 0;  // seconds in which the encoder waited for the disk
};

struct BuildOptions {
  int rank = 0, world = 1;   // where in the plan to begin; correctness does not depend on it
  double error_limit = 0.1;  // relative; a unit above it ends the build
  uint64_t records_per_sample = 1;
  LeaseTiming timing = {};
  std::function<bool()> stop = [] { return false; };
  std::function<void(const BuildProgress&)> progress = [](const BuildProgress&) {};  // about every second
};

// Returns when every unit of the plan is published, by whomever.
Result<BuildProgress> Build(const Folder& folder, const Plan& plan, const EncodeUnit& encode,
                            const BuildOptions& options);

}  // namespace lockstep::cache
