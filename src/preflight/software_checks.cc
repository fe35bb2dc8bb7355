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

Outcome CheckPython(const Scene& scene) {
  Outcome outcome;
  if (!scene.program_trouble.ok()) {
    outcome.Fail(scene.program_trouble.message(), scene.program_trouble.hint().empty()
                                                      ? "correct the path of the program, on this node"
                                                      : scene.program_trouble.hint());
    return outcome;
  }
  if (scene.python.path.empty()) return Outcome::Skip("the program is started without an interpreter");
  if (!scene.python.trouble.empty()) {
    outcome.Fail(scene.python.trouble, "choose the environment with --venv, --conda or PATH, on this node");
    return outcome;
  }
  outcome.note = fmt::format("{} ({})", scene.python.version, scene.python.path);
  return outcome;
}

Outcome CheckTorch(const Scene& scene) {
  const Python& python = scene.python;
  if (python.path.empty() || !python.trouble.empty()) return Outcome::Skip("no interpreter to ask");
  Outcome outcome;
  if (python.torch_path.empty()) {
    const std::string text = fmt::format("{} finds no PyTorch", python.path);
    const std::string remedy = "install it into that environment, or choose another with --venv, --conda or PATH";
    if (WantsTorch(scene.program)) {
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

Outcome CheckNccl(const Scene& scene) {
  if (scene.visible.empty()) return Outcome::Skip("no GPU here");
  Outcome outcome;
  if (!scene.here.nccl) {
    if (scene.python.torch_version.empty()) return Outcome::Skip("no PyTorch found");
    outcome.Warn("no NCCL library was found where this PyTorch would look",
                 "it may be built in; else install nvidia-nccl for this CUDA, or correct LD_LIBRARY_PATH");
    return outcome;
  }
  const hardware::Library& nccl = *scene.here.nccl;
  outcome.note = fmt::format("{} ({})", nccl.version.empty() ? "unknown version" : nccl.version, nccl.found_by);
  if (nccl.found_by == "LD_PRELOAD" || nccl.found_by == "LD_LIBRARY_PATH") {
    outcome.Warn(fmt::format("{} names {} {} instead of PyTorch's own NCCL", nccl.found_by, nccl.path, nccl.version),
                 "fine if meant, on every node; else clear it");
  }
  return outcome;
}

Outcome CheckEnvironment(const Scene& scene) {
  lint::LintContext context;
  context.hardware = scene.here;
  // The libraries are large: they are read only when there is a name to look up.
  if (Sets(scene.env, "NCCL_")) context.nccl = Known(scene.here.nccl);
  if (Sets(scene.env, "TORCH_") || Sets(scene.env, "PYTORCH_")) context.torch = Known(scene.here.torch);
  Outcome outcome;
  int notes = 0;
  for (const lint::Finding& finding : lint::LintEnvironment(scene.env, context)) {
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
