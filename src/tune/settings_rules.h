// The rules behind Derive, one file per layer. Inside tune only. Each adds to the draft; none reads anything but its
// arguments. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tune/settings.h"

namespace lockstep::tune {

struct Draft {
  const hardware::Hardware& here;
  const JobShape& job;
  const Environment& user;
  Settings out;

  bool UserHas(const std::string& name) const { return user.contains(name) && !user.at(name).empty(); }
  std::string User(const std::string& name) const { return UserHas(name) ? user.at(name) : ""; }
  void Set(std::string name, std::string value, Confidence confidence, std::string because);
  void Leave(std::string name, std::string because) { out.left.push_back({std::move(name), std::move(because)}); }
  void Warn(std::string text) { out.warnings.push_back(std::move(text)); }
};

// The interface of the route to the peers; null: unknown.
const hardware::Interface* DeriveInterfaces(Draft* draft);
// What carries the data between nodes: RDMA, a vendor's plugin, or TCP over `route`.
void DeriveData(const hardware::Interface* route, Draft* draft);
// What makes a failure readable, and time-outs.
void DeriveEvidence(Draft* draft);

}  // namespace lockstep::tune
