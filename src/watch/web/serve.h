// `lockstep watch --http`: runs served on an address until SIGINT or SIGTERM. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/status.h"
#include "watch/model.h"

namespace lockstep::watch {

inline constexpr char kDefaultHttp[] = "127.0.0.1:7077";
inline constexpr char kTokenVariable[] = "LOCKSTEP_WATCH_TOKEN";

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 7077;
  std::string token;  // empty: loopback asks for none, elsewhere one is made and printed
  bool show_token = false;
  Millis interval{1000};
};

// "addr:port", "addr", ":port" or "port"; the parts that are missing are those of kDefaultHttp.
Result<ServeOptions> ParseHttp(const std::string& text);

// The token of the file (refused when others may read it), else of kTokenVariable, else a new one where the address is
// not loopback.
Status ChooseToken(const std::string& file, const Environment& env, ServeOptions* options);

// Returns when told to stop. Prints the address, and the progress of building pyramids.
Status Serve(std::vector<std::unique_ptr<Watch>> runs, const ServeOptions& options);

}  // namespace lockstep::watch
