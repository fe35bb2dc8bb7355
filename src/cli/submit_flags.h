// The command line of `lockstep submit`: its own flags, those of `lockstep run`, and a job description or a program.
// Reads the description file; otherwise pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/config_tree.h"
#include "base/status.h"
#include "submit/job.h"

namespace lockstep::cli {

struct SubmitAsk {
  submit::Job job;
  std::string source = "command line";    // or the path of the description, for messages
  std::optional<ConfigTree> description;  // without the keys that flags took the place of
  std::string template_file;
  bool ranks_from_cpus = false;  // --nproc-per-node=auto: without GPUs, a rank per CPU
  bool render = false, check = false, dry_run = false, json = false, help = false;
};

Result<SubmitAsk> ParseSubmit(const std::vector<std::string>& args);

std::string SubmitHelp();

}  // namespace lockstep::cli
