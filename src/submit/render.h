// A job and a platform -> the text of the job file. Render() refuses what the platform cannot do, everything at once,
// before a line is written. Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "submit/job.h"
#include "submit/platforms.h"

namespace lockstep::submit {

// What comes from the machine that renders.
struct Surroundings {
  std::string lockstep;  // path of this program, for nodes that share its folders
  std::string folder;    // the working directory
  std::string token;     // of the launchers, where the file has to carry one
  std::string file;      // where the job file will be kept; empty: unknown
};

// A writable mount holds this folder of the container.
bool IsMounted(const Job& job, const std::string& folder);

// The job with everything filled in that it leaves to the platform: name, working directory, program of the launcher.
Job Complete(Job job, const Platform& platform, const Surroundings& here);

// What is wrong with the job on this platform, and what is worth a word. Of a completed job.
struct Findings {
  std::vector<std::string> errors, warnings;
};
Findings Check(const Job& job, const Platform& platform);

// One message with every error, or ok. Keys that stand in the description, where there is one, are named with their
// line.
Status ToStatus(const std::vector<std::string>& errors, const std::string& source, const ConfigTree* description);

// The values of templates, and their names.
nlohmann::json Values(const Job& job, const Platform& platform, const Surroundings& here);
const Schema& TemplateSchema();

// Of a completed and checked job.
Result<std::string> Render(const Job& job, const Platform& platform, const Surroundings& here);
// The same with a template of the user; `source` is its path.
Result<std::string> RenderTemplate(const std::string& text, const std::string& source, const Job& job,
                                   const Platform& platform, const Surroundings& here);

}  // namespace lockstep::submit
