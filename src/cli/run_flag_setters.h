// What the flags of `lockstep run` do with their values: parse, check, store into the draft; errors name what was
// expected. Used by the table of flags alone. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "cli/flag_values.h"
#include "cli/run_flags_table.h"

namespace lockstep::cli {

// Stores a parsed value, or passes the error on.
template <typename T, typename Slot>
Status Put(Result<T> parsed, Slot* slot) {
  if (!parsed.ok()) return parsed.status();
  *slot = std::move(*parsed);
  return Status::Ok();
}

template <typename Slot>
Status PutCount(const std::string& text, const char* what, long low, long high, Slot* slot) {
  const Result<long> value = ParseCount(text, what, low, high);
  if (!value.ok()) return value.status();
  *slot = static_cast<int>(*value);
  return Status::Ok();
}

template <typename Slot>
Status PutDuration(const std::string& text, Slot* slot) {
  const auto value = ParseDuration(text, BareNumber::kSeconds);
  if (!value.ok()) return value.status().WithCode(Code::kUsage);
  *slot = *value;
  return Status::Ok();
}

Status Choose(const std::string& text, const std::vector<std::string>& choices);
Status NotEmpty(const std::string& text, std::string* slot);
Status SetTune(const std::string& text, Draft* draft);
Status SetAgentStore(const std::string& text, Draft* draft);
Status SetStallTimeout(const std::string& text, Draft* draft);
Status SetSampleEvery(const std::string& text, Draft* draft);
Status SetBackend(const std::string& text, Draft* draft);
Status SetRendezvousConf(const std::string& text, Draft* draft);
Status SetMasterAddr(const std::string& text, Draft* draft);
Status SetMasterPort(const std::string& text, Draft* draft);
Status SetNumaBinding(const std::string& text, Draft* draft);
Status SetBind(const std::string& text, Draft* draft);
Status SetEventHandler(const std::string& text, Draft* draft);
Status AddEnv(const std::string& text, Draft* draft);
Status AddModules(const std::string& text, Draft* draft);
Status SetLevel(const std::string& text, Draft* draft);
Status SetName(const std::string& text, Draft* draft);
Status SetPreflight(const std::string& text, Draft* draft);
Status SetShutdownTimeout(const std::string& text, Draft* draft);
Status RefuseDuplicates(const std::string& text, Draft*);
Status RefuseToken(const std::string&, Draft*);

}  // namespace lockstep::cli
