// The platforms that jobs are submitted to, as data: the template of the job file, what it needs, and the words of the
// platform's own client. One engine reads the rows (render.cc, client.cc); a new platform is a new row and a template.
// Immutable tables, any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "submit/template.h"

namespace lockstep::submit {

struct Platform {
  std::string_view name;
  std::string_view what;
  std::string_view text;  // of the template
  Language language = Language::kShell;
  std::string_view extension;                    // of the job file
  std::vector<std::string_view> keys;            // of the description that not every platform has a use for
  std::vector<std::string_view> placement = {};  // flags of the launcher, themselves templates
  std::vector<std::string_view> pod_keys = {};   // of a pod that `native` may have; empty: any
  // Flags of the directives that are keys of the description, and those keys.
  std::vector<std::pair<std::string_view, std::string_view>> taken = {};
  bool one_letter_flags = false;  // "-N4" is "-N 4"
  std::string_view kind = {};     // of the Kubernetes object; empty: a script
  bool shared_folder = true;      // the nodes see this machine's folders
  bool time_limit = true;         // the job file can end the job after a time
  // The client. {file}, {id}, {name}, {cluster}, {namespace}, {user}, {lines} and {since} are filled in; words with an
  // empty one are left out.
  std::string_view client = {}, from = {};  // the program, and where it comes from
  std::vector<std::string_view> check = {}, submit = {}, list = {}, show = {}, logs = {}, cancel = {};
  std::vector<std::string_view> pods = {};  // asked whether there is something to follow
  std::vector<std::string_view> past = {};  // asked for a job that `show` no longer knows; it may not be installed
  std::string_view unknown_id = {};         // what `show` says of such a job; any other failure says nothing of it
  std::vector<std::string_view> here = {};  // asked for the cluster that the client speaks to, where it knows several
  std::vector<std::string_view> here_space = {};  // asked for the namespace of jobs that name none
  std::string_view nothing = {};                  // what `list` says, and fails, when there is no job
  bool silent_cancel = false;                     // `cancel` says nothing of a job that is over: `show` is asked before
  bool file_as_input = false;                     // the job file is the client's standard input
  std::string_view id = {};                       // what stands before the job id in the client's answer
};

const std::vector<Platform>& Platforms();
std::vector<std::string> PlatformNames();
// The error names the nearest one.
Result<const Platform*> FindPlatform(const std::string& name);

// The part of templates that several platforms share, by the name of {{>name}}.
const std::map<std::string, std::string_view>& TemplateParts();

// Which platform this machine submits to, from the clients that are installed.
struct Detected {
  const Platform* platform = nullptr;  // null: none, or several
  std::vector<std::string> evidence;   // "sbatch is /usr/bin/sbatch: slurm"
};
using FindProgram = std::function<std::string(const std::string& name)>;  // its path, or empty
Detected Detect(const Environment& env, bool has_hosts, const FindProgram& find);

}  // namespace lockstep::submit
