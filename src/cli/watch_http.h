// `lockstep watch --http`: the flags around the page. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "watch/model.h"

namespace lockstep::cli {

// Serves until interrupted; returns the exit code.
int WatchHttp(std::vector<std::unique_ptr<watch::Watch>> runs, const std::string& address,
              const std::string& token_file, Millis interval);

// Whether the word behind --http is an address; else it is a run that stands behind a bare `--http`.
bool IsHttpAddress(const std::string& text);

}  // namespace lockstep::cli
