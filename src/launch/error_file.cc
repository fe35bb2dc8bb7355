#include "launch/error_file.h"

#include <fmt/format.h>

#include "base/files.h"

namespace lockstep::launch {

Json ErrorFileJson(const std::string& reason, const RankExit* first, double now) {
  const double time = first == nullptr ? now : first->error_time > 0 ? first->error_time : first->time;
  Json message = {{"message", reason},
                  {"extraInfo",
                   {{"py_callstack", first == nullptr ? "" : first->error_detail},
                    {"timestamp", std::to_string(static_cast<int64_t>(time > 0 ? time : now))}}}};
  if (first != nullptr) {
    if (!first->error_message.empty()) message["message"] = first->error_message;
    if (!first->error_hint.empty()) message["extraInfo"]["hint"] = first->error_hint;
    message["errorCode"] = first->signal != 0 ? -first->signal : first->code;
  }
  return {{"message", message}};
}

Status WriteErrorFile(const std::string& path, const Json& error) {
  if (path.empty()) return {};
  return WriteFileAtomic(path, error.dump(-1, ' ', false, Json::error_handler_t::replace), 0644, Durability::kProcess);
}

}  // namespace lockstep::launch
