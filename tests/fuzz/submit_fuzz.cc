// What people write for `lockstep submit`: templates, command lines and descriptions of jobs, and what clients print.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/text.h"
#include "submit/client.h"
#include "submit/render.h"

using namespace lockstep;
using namespace lockstep::submit;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Platform& platform = Platforms()[size % Platforms().size()];
  const Surroundings here{"lockstep", "/project", "token", "/project/file"};

  Job job;
  job.program = {text};
  job.env["A"] = text;
  job.name = "name";
  const Result<std::string> filled = RenderTemplate(text, "template", Complete(job, platform, here), platform, here);
  // Nothing to fill in, no byte order mark, no line ends of Windows: the same text.
  const bool plain = text.find("{{") == std::string::npos && text.find("\r\n") == std::string::npos;
  if (filled.ok() && plain && !text.starts_with("\xEF\xBB\xBF") && *filled != text) std::abort();

  // What was split comes back from its quoted form.
  if (const Result<std::vector<std::string>> words = SplitWords(text); words.ok()) {
    const Result<std::vector<std::string>> again = SplitWords(ShellQuote(*words));
    if (!again.ok() || *again != *words) std::abort();
  }

  Result<ConfigTree> tree = ConfigTree::Parse(text, "job.yaml", ConfigTree::Format::kYaml);
  if (tree.ok()) {
    if (Result<Job> read = ReadJob(*tree); read.ok()) {
      const Job whole = Complete(*read, platform, here);
      // A job that is found right can be written.
      if (Check(whole, platform).errors.empty() && !Render(whole, platform, here).ok()) std::abort();
    }
  }
  (void)ReadList(platform, text);
  if (const std::optional<JobState> job = ReadOne(platform, "1", text); job && job->id != "1") std::abort();
  (void)ReadPast(platform, "1", text);
  (void)ReadPods(text, 1);
  return 0;
}
