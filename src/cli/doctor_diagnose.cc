// `lockstep doctor diagnose`: why did a run fail.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "diagnose/diagnosis.h"

namespace lockstep::cli {
namespace {

// One line on a terminal that rewrites itself, one every ten seconds elsewhere; nothing for what is quick.
class ReadingLine {
 public:
  void Update(uint64_t done, uint64_t total) {
    const auto now = Clock::now();
    const std::chrono::duration<double> since = now - start_;
    const double pause = terminal_ ? 0.2 : 10;
    if (since.count() < 2 || std::chrono::duration<double>(now - last_).count() < pause) return;
    last_ = now;
    const double speed = static_cast<double>(done) / since.count();
    std::string text = fmt::format("reading: {:.1f} GB at {:.0f} MB/s", static_cast<double>(done) / 1e9, speed / 1e6);
    if (total > done && speed > 0) {
      text = fmt::format("reading: {:.0f} % of {:.1f} GB at {:.0f} MB/s, {:.0f} s left",
                         100.0 * static_cast<double>(done) / static_cast<double>(total),
                         static_cast<double>(total) / 1e9, speed / 1e6, static_cast<double>(total - done) / speed);
    }
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", text, terminal_ ? "" : "\n");
    std::fflush(stderr);
    shown_ = true;
  }
  void Done() const {
    if (shown_ && terminal_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now(), last_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
};

}  // namespace

int DoctorDiagnoseMain(int argc, char** argv) {
  Arguments args("Finds why a run failed: cause, rank, evidence, remedy, and whether a restart can help.",
                 "doctor diagnose");
  std::vector<std::string> paths, offsets;
  diagnose::DiagnoseOptions options;
  bool json = false, brief = false;
  int attempt = -1;
  args.Option("PATH", &paths, "run directories, log files or folders of any launcher; - reads standard input")
      .Required();
  args.Flag("--json", &json, "one JSON document");
  args.Flag("--brief", &brief, "ten lines or fewer");
  args.Option("--attempt", &attempt, "attempt of a run directory (default: the last)").NonNegative();
  args.Option("--signatures", &options.signatures, "further signatures (docs/formats/signatures.md)").Named("FILE");
  args.Option("--clock-offset", &offsets, "NODE=SECONDS to add to the time stamps of a node's logs")
      .Named("NODE=SECONDS");
  args.Footer(
      "Exit code: 0 when the logs were read, whatever they say; 2 for a mistake in the command; 3 when nothing could "
      "be read.\n\n"
      "examples:\n"
      "  lockstep doctor diagnose runs/latest\n"
      "  lockstep doctor diagnose slurm-4711.out logs/\n"
      "  kubectl logs -l job=train --prefix --timestamps | lockstep doctor diagnose -\n"
      "  lockstep doctor diagnose runs/a --json | jq -r .cause");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  if (attempt >= 0) options.attempt = attempt;
  for (const std::string& text : offsets) {
    const size_t equals = text.find('=');
    char* end = nullptr;
    const double seconds = equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
    if (end == nullptr || *end != 0 || equals == 0) {
      return Complain("doctor diagnose", Status(Code::kUsage, fmt::format("--clock-offset '{}'", Printable(text)),
                                                "write NODE=SECONDS, as in node-1=-2.5"));
    }
    options.clock_offsets[text.substr(0, equals)] = seconds;
  }
  ReadingLine reading;
  options.progress = [&](uint64_t done, uint64_t total) { reading.Update(done, total); };
  Result<diagnose::Diagnosis> found = diagnose::Diagnose(paths, options);
  reading.Done();
  if (!found.ok()) return Complain("doctor diagnose", found.status());
  if (json) {
    fmt::print("{}\n", diagnose::ToJson(*found).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", diagnose::DiagnosisText(*found, brief, UseColour(STDOUT_FILENO)));
  }
  if (std::fflush(stdout) != 0) {
    return Complain("doctor diagnose",
                    Status(Code::kEnvironment, fmt::format("cannot write the result: {}", ErrnoText(errno))));
  }
  return 0;
}

}  // namespace lockstep::cli
