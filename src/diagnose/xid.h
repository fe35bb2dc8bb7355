// NVIDIA's driver events by number: what they mean and whether the node can be used again. A table; any thread.
#pragma once

#include <string_view>

#include "diagnose/findings.h"

namespace lockstep::diagnose {

struct XidRow {
  int number;
  const char* meaning;
  Policy policy;
  int weight;  // as in the signature table; 2: a consequence, 0: a note only
  const char* remedy;
};

// Null when the number is not in the table.
const XidRow* FindXid(int number);

// Sharpens a finding whose text holds "Xid (PCI:...): <n>,".
void ApplyXidTable(std::string_view text, LogFinding* finding);

}  // namespace lockstep::diagnose
