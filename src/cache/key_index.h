// Where each key of a namespace lies: 16 bytes a record in memory, from the units' own tables. So that a start need not
// open every unit, what was learnt is stored in one file of the namespace (docs/formats/feature-cache.md). That file is
// a hint: it has a checksum, units it does not know are opened, units that are gone or were replaced are dropped, and a
// record is handed out by its unit's own table alone. Not for several threads at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "cache/folder.h"
#include "cache/unit.h"

namespace lockstep::cache {

class KeyIndex {
 public:
  struct Entry {
    uint64_t prefix;  // first bytes of the key; the unit has all of them
    uint32_t unit;
    uint32_t row;
  };

  // Looks for units that were published since; the first time also into the stored index. Units that do not open are
  // named in warnings() and passed over.
  Status Refresh(const Folder& folder);
  // Forgets all, the stored index as well, and opens every unit. After an error everything is as it was.
  Status Rebuild(const Folder& folder);
  // False: the stored index said something else about this unit than the unit does.
  bool Agrees(uint32_t number, const UnitFile& unit) const;
  // For later starts. Others may do so at the same time.
  Status Save(const Folder& folder);

  // Entries that may be of this key.
  std::span<const Entry> Find(const Digest& key) const;
  const std::string& unit(uint32_t number) const { return units_[number].name; }
  uint64_t records() const { return entries_.size(); }
  uint64_t units() const { return units_.size(); }
  // Units that were opened, and are not in the stored index.
  uint64_t unsaved() const { return unsaved_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Unit {
    std::string name;
    uint64_t inode = 0;
    uint64_t rows = 0;
    bool stored = false;  // known from the stored index alone
  };
  Status Load(const Folder& folder, const std::vector<UnitPlace>& there);
  Status OpenNew(const Folder& folder, const std::vector<UnitPlace>& there);

  std::vector<Unit> units_;
  std::unordered_set<std::string> known_;
  std::vector<Entry> entries_;  // by prefix
  std::vector<std::string> warnings_;
  uint64_t unsaved_ = 0;
  bool looked_ = false;
};

// Removes the stored index: before a unit is taken away, whose name another one may get.
Status ForgetIndex(const Folder& folder);

}  // namespace lockstep::cache
