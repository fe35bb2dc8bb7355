// `lockstep report`: one file that says how a run went.
#include "watch/web/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "base/files.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "record/run_dir.h"
#include "watch/model.h"

namespace lockstep::cli {
namespace {

Result<watch::RunReport> ReportOf(const std::string& root, const std::string& which) {
  Result<std::unique_ptr<watch::Watch>> opened = watch::Watch::Open(root, which);
  if (!opened.ok())
    return opened.status().WithHint("give a run (`lockstep runs` lists them; --log-dir says where they are)");
  return watch::MakeReport(std::move(*opened));
}

Status PutReport(const std::string& path, const std::string& text) {
  if (path != "-") return WriteFileAtomic(path, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) return Status(Code::kEnvironment, "cannot write: " + ErrnoText(errno));
  return Status::Ok();
}

}  // namespace

int ReportMain(int argc, char** argv) {
  Arguments args(
      "Writes how a run went, also one that still goes on: curves, throughput, goodput (training against time lost), "
      "restarts with their causes, environment, configuration, and the comparison with another run. One file that "
      "needs nothing else; without a flag Markdown on stdout.",
      "report");
  std::string root = record::kDefaultRoot, which = "latest", against, html, markdown;
  bool json = false;
  args.Option("RUN", &which, "name, unique beginning of a name, path, or 'latest'").ShowDefault();
  args.Option("--against", &against, "another run to compare with").Named("RUN");
  const Argument to_html = args.Option("--html", &html, "write HTML to this file ('-': stdout)").Named("FILE");
  const Argument to_markdown =
      args.Option("--markdown", &markdown, "write Markdown to this file ('-': stdout)").Named("FILE");
  args.Flag("--json", &json, "the figures as one JSON document on stdout");
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Footer(
      "examples:\n"
      "  lockstep report latest --html report.html\n"
      "  lockstep report second --against first --html second.html\n"
      "  lockstep report latest --json | jq '.goodput.ratio'");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  if (json && (html == "-" || markdown == "-")) {
    return Complain("report", Status(Code::kUsage, "--json and '-' both write to stdout", "give a file's name"));
  }
  Result<watch::RunReport> report = ReportOf(root, which);
  if (!report.ok()) return Complain("report", report.status());
  std::optional<watch::RunReport> other;
  if (!against.empty()) {
    Result<watch::RunReport> made = ReportOf(root, against);
    if (!made.ok()) return Complain("report", made.status().Context("--against"));
    other = std::move(*made);
  }
  const watch::RunReport* there = other ? &*other : nullptr;
  if (to_html.given()) {
    if (Status done = PutReport(html, watch::ReportHtml(*report, there)); !done.ok()) return Complain("report", done);
  }
  if (to_markdown.given() || (!json && !to_html.given())) {
    const std::string text = watch::ReportMarkdown(*report, there);
    if (Status done = PutReport(to_markdown.given() ? markdown : "-", text); !done.ok())
      return Complain("report", done);
  }
  if (json) {
    const nlohmann::json document = watch::ReportJson(*report, there);
    const std::string text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (Status done = PutReport("-", text); !done.ok()) return Complain("report", done);
  }
  return 0;
}

}  // namespace lockstep::cli
