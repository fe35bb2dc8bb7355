#include "cli/watch_http.h"

#include "base/environment.h"
#include "cli/command_line.h"
#include "watch/web/serve.h"

namespace lockstep::cli {

bool IsHttpAddress(const std::string& text) {
  return text.empty() || text.find(':') != std::string::npos ||
         text.find_first_not_of("0123456789.") == std::string::npos || text == "localhost";
}

int WatchHttp(std::vector<std::unique_ptr<watch::Watch>> runs, const std::string& address,
              const std::string& token_file, Millis interval) {
  Result<watch::ServeOptions> options = watch::ParseHttp(address);
  if (!options.ok()) return Complain("watch", options.status());
  options->interval = interval;
  if (Status chosen = watch::ChooseToken(token_file, CurrentEnvironment(), &*options); !chosen.ok()) {
    return Complain("watch", chosen);
  }
  if (Status served = watch::Serve(std::move(runs), *options); !served.ok()) return Complain("watch", served);
  return 0;
}

}  // namespace lockstep::cli
