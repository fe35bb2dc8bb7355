// Rows about the program: interpreter, PyTorch, NCCL, the environment.
#include <fmt/format.h>

#include "base/files.h"
#include "base/text.h"
#include "lint/lint.h"
#include "preflight/rows.h"

namespace lockstep::preflight {
namespace {

// Does the script itself speak of PyTorch?
bool WantsTorch(const std::string& program) {
  if (program.empty()) return false;
  auto text = ReadFile(program, 4 << 20);
  if (!text.ok()) return false;
  for (const std::string& line : Split(*text, '\n')) {
    const std::string_view code = Trim(line);
    const bool from = code.starts_with("from ");
    if (!from && !code.starts_with("import ")) continue;
    for (const std::string& part : Split(code.substr(from ? 5 : 7), ',')) {  // "import os, torch"
      const std::string_view name = Trim(part);
      if (name == "torch" || name.starts_with("torch ") || name.starts_with("torch.")) return true;
      if (from) break;
    }
  }
  return false;
}

std::optional<lint::KnownLibrary> Known(const std::optional<hardware::Library>& library) {
  if (!library) return std::nullopt;
  auto known = lint::ReadKnownLibrary(library->path, library->version);
  if (!known.ok()) return std::nullopt;
  return std::move(*known);
}

bool Sets(const Environment& env, const std::string& prefix) {
  const auto first = env.lower_bound(prefix);
  return first != env.end() && first->first.starts_with(prefix);
}

}  // namespace

CheckOutcome CheckPython(const CheckInput& input) {
  CheckOutcome outcome;
  if (!input.program_error.ok()) {
    outcome.Fail(input.program_error.message(), input.program_error.hint().empty()
                                                    ? "correct the path of the program, on this node"
                                                    : input.program_error.hint());
    return outcome;
  }
  if (input.python.path.empty()) return CheckOutcome::Skip("the program is started without an interpreter");
  if (!input.python.trouble.empty()) {
    outcome.Fail(input.python.trouble, "choose the environment with --venv, --conda or PATH, on this node");
    return outcome;
  }
  outcome.note = fmt::format("{} ({})", input.python.version, input.python.path);
  return outcome;
}

CheckOutcome CheckTorch(const CheckInput& input) {
  const Python& python = input.python;
  if (python.path.empty() || !python.trouble.empty()) return CheckOutcome::Skip("no interpreter to ask");
  CheckOutcome outcome;
  if (python.torch_path.empty()) {
    const std::string text = fmt::format("{} finds no PyTorch", python.path);
    const std::string remedy = "install it into that environment, or choose another with --venv, --conda or PATH";
    if (WantsTorch(input.program)) {
      outcome.Fail(text + ", and the program imports it", remedy);
    } else {
      outcome.Warn(text, remedy);
    }
    return outcome;
  }
  if (python.torch_version.empty()) {
    outcome.Fail(fmt::format("`import torch` would load {}, which is not PyTorch", python.torch_path),
                 "a file or folder called torch lies in the way: rename it");
    return outcome;
  }
  outcome.note =
      fmt::format("{}{}", python.torch_version, python.torch_cuda.empty() ? "" : ", CUDA " + python.torch_cuda);
  return outcome;
}

CheckOutcome CheckNccl(const CheckInput& input) {
  if (input.visible.empty()) return CheckOutcome::Skip("no GPU here");
  CheckOutcome outcome;
  if (!input.here.nccl) {
    if (input.python.torch_version.empty()) return CheckOutcome::Skip("no PyTorch found");
    outcome.Warn("no NCCL library was found where this PyTorch would look",
                 "it may be built in; else install nvidia-nccl for this CUDA, or correct LD_LIBRARY_PATH");
    return outcome;
  }
  const hardware::Library& nccl = *input.here.nccl;
  outcome.note = fmt::format("{} ({})", nccl.version.empty() ? "unknown version" : nccl.version, nccl.found_by);
  if (nccl.found_by == "LD_PRELOAD" || nccl.found_by == "LD_LIBRARY_PATH") {
    outcome.Warn(fmt::format("{} names {} {} instead of PyTorch's own NCCL", nccl.found_by, nccl.path, nccl.version),
                 "fine if meant, on every node; else clear it");
  }
  return outcome;
}

CheckOutcome CheckEnvironment(const CheckInput& input) {
  lint::LintContext context;
  context.hardware = input.here;
  // The libraries are large: they are read only when there is a name to look up.
  if (Sets(input.env, "NCCL_")) context.nccl = Known(input.here.nccl);
  if (Sets(input.env, "TORCH_") || Sets(input.env, "PYTORCH_")) context.torch = Known(input.here.torch);
  CheckOutcome outcome;
  int notes = 0;
  for (const lint::LintFinding& finding : lint::LintEnvironment(input.env, context)) {
    const std::string text = fmt::format("{}: {}", finding.variable, finding.what);
    const std::string remedy = finding.fix.empty() ? finding.why : finding.fix;
    if (finding.severity == lint::Severity::kNote) {
      ++notes;
    } else if (finding.severity == lint::Severity::kError) {
      outcome.Fail(text, remedy);
    } else {
      outcome.Warn(text, remedy);
    }
  }
  outcome.note = notes == 0 ? "nothing to say" : fmt::format("{} notes (lockstep lint)", notes);
  return outcome;
}

}  // namespace lockstep::preflight
