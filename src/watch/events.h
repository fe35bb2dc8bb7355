// The events of a run (docs/formats/run-directory.md) as lines for people, the last ones kept. Reads on from where it
// stopped. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/line_follower.h"
#include "watch/view.h"

namespace lockstep::watch {

// Nothing for events that say too little to be shown: ranks that start, ranks that end as they should.
std::string EventText(const nlohmann::json& event);

class EventReader {
 public:
  explicit EventReader(const std::string& run_path) : lines_(run_path + "/events.jsonl") {}

  // Appends what is new and forgets what is too old.
  void Read(std::vector<EventView>* events);

 private:
  record::LineFollower lines_;
};

}  // namespace lockstep::watch
