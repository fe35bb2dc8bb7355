// What a file is, by what it says and then by its name.
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "lint/lint.h"
#include "lint/shell_lexer.h"

namespace lockstep::lint {
namespace {

struct TypeName {
  FileType type;
  std::string_view name;
};

constexpr TypeName kNames[] = {
    {FileType::kEnvironment, "env"},   {FileType::kShell, "shell"},           {FileType::kSbatch, "sbatch"},
    {FileType::kManifest, "manifest"}, {FileType::kDockerfile, "dockerfile"}, {FileType::kMarkdown, "markdown"},
    {FileType::kConf, "nccl.conf"},    {FileType::kConfig, "config"},         {FileType::kPython, "python"},
};

constexpr TypeName kOtherNames[] = {
    {FileType::kEnvironment, "environment"},
    {FileType::kShell, "sh"},
    {FileType::kShell, "bash"},
    {FileType::kManifest, "k8s"},
    {FileType::kManifest, "kubernetes"},
    {FileType::kDockerfile, "docker"},
    {FileType::kMarkdown, "md"},
    {FileType::kConf, "conf"},
    {FileType::kConfig, "json"},
    {FileType::kConfig, "yaml"},
    {FileType::kConfig, "deepspeed"},
    {FileType::kConfig, "accelerate"},
    {FileType::kPython, "py"},
};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool LineStarts(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with || text.find("\n" + std::string(with)) != std::string_view::npos;
}

// Shares of lines that look like what.
struct Lines {
  int all = 0, assignments = 0, exports = 0, fences = 0, headings = 0, instructions = 0, system = 0;
};

Lines CountLines(std::string_view text) {
  static constexpr std::string_view kInstructions[] = {"FROM ",    "RUN ",        "ENV ", "COPY ",
                                                       "WORKDIR ", "ENTRYPOINT ", "CMD ", "ARG "};
  Lines lines;
  for (const std::string& raw : Split(text.substr(0, 256 * 1024), '\n')) {
    const std::string_view row = Trim(raw);
    if (row.empty()) continue;
    ++lines.all;
    if (row.substr(0, 3) == "```" || row.substr(0, 3) == "~~~") ++lines.fences;
    if (row.substr(0, 2) == "# " || row.substr(0, 3) == "## ") ++lines.headings;
    if (row[0] == '#') {
      --lines.all;
      continue;
    }
    if (row.substr(0, 7) == "export " || row.substr(0, 11) == "declare -x ") ++lines.exports;
    if (row.substr(0, 5) == "PATH=" || row.substr(0, 5) == "HOME=" || row.substr(0, 2) == "_=") ++lines.system;
    const size_t equals = row.find('=');
    if (equals != std::string_view::npos && IsName(row.substr(0, equals))) ++lines.assignments;
    for (std::string_view instruction : kInstructions) {
      if (row.substr(0, instruction.size()) == instruction) ++lines.instructions;
    }
  }
  return lines;
}

}  // namespace

std::optional<FileType> FileTypeFromName(std::string_view name) {
  for (const TypeName& one : kNames) {
    if (one.name == name) return one.type;
  }
  for (const TypeName& one : kOtherNames) {
    if (one.name == name) return one.type;
  }
  return std::nullopt;
}

const char* Name(FileType type) {
  for (const TypeName& one : kNames) {
    if (one.type == type) return one.name.data();
  }
  return "";
}

std::optional<FileType> Recognise(std::string_view text, const std::string& file) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  std::string name = file.substr(file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view head = text.substr(0, 64 * 1024);
  if (head.find('\0') != std::string_view::npos) {
    // /proc/PID/environ, or data that is no text.
    const std::string_view first = head.substr(0, head.find('\0'));
    const size_t equals = first.find('=');
    return equals != std::string_view::npos && IsName(first.substr(0, equals)) ? std::optional(FileType::kEnvironment)
                                                                               : std::nullopt;
  }
  if (EndsWith(name, ".md") || EndsWith(name, ".markdown") || EndsWith(name, ".rst") || EndsWith(name, ".mdx")) {
    return FileType::kMarkdown;
  }
  if (name == "nccl.conf" || EndsWith(name, ".nccl.conf")) return FileType::kConf;
  const bool script = text.substr(0, 2) == "#!";
  const std::string_view shebang = script ? text.substr(0, text.find('\n')) : std::string_view();
  if (EndsWith(name, ".py") || shebang.find("python") != std::string_view::npos) return FileType::kPython;
  if (LineStarts(head, "#SBATCH")) return FileType::kSbatch;
  if (EndsWith(name, ".sbatch") || EndsWith(name, ".slurm")) return FileType::kSbatch;
  if (script) return FileType::kShell;
  for (std::string_view end :
       {".sh", ".bash", ".zsh", ".ksh", ".fish", ".csh", ".tcsh", "bashrc", ".profile", ".pbs", ".lsf", ".qsub"}) {
    if (EndsWith(name, end)) return FileType::kShell;
  }
  if (LineStarts(head, "apiVersion:") && LineStarts(head, "kind:")) return FileType::kManifest;
  if (name.rfind("dockerfile", 0) == 0 || EndsWith(name, ".dockerfile") || name == "containerfile") {
    return FileType::kDockerfile;
  }
  if (LineStarts(head, "apiVersion:") && head.find("kind:") != std::string_view::npos) return FileType::kManifest;
  if (EndsWith(name, ".json") || EndsWith(name, ".jsonc")) return FileType::kConfig;
  if (EndsWith(name, ".env") || name.rfind(".env.", 0) == 0 || name == "environ" || EndsWith(name, ".envfile") ||
      EndsWith(name, "deepspeed_env")) {
    return FileType::kEnvironment;
  }
  const std::string_view trimmed = Trim(head);
  if (EndsWith(name, ".yaml") || EndsWith(name, ".yml")) {
    if (head.find("apiVersion:") != std::string_view::npos) return FileType::kManifest;
    // A chart's template has containers and no head of its own.
    if (head.find("containers:") != std::string_view::npos) return FileType::kManifest;
    return FileType::kConfig;
  }
  if (!trimmed.empty() && trimmed[0] == '{' && trimmed.back() == '}' && trimmed.find('"') != std::string_view::npos) {
    return FileType::kConfig;
  }
  const Lines lines = CountLines(text);
  if (lines.fences >= 2) return FileType::kMarkdown;
  if (lines.instructions > 0 && LineStarts(head, "FROM ")) return FileType::kDockerfile;
  if (lines.all > 0 && lines.assignments == lines.all) return FileType::kEnvironment;
  if (lines.exports > 0) return FileType::kShell;
  if (lines.all > 0 && lines.assignments * 10 >= lines.all * 9) return FileType::kEnvironment;
  for (const char* word : {"torchrun ", "srun ", "mpirun ", "deepspeed ", "accelerate launch", "python ", "python3 "}) {
    if (LineStarts(head, word)) return FileType::kShell;
  }
  // Functions of the shell and values of several lines stand in an environment too.
  if (lines.system > 0 && lines.assignments * 2 >= lines.all) return FileType::kEnvironment;
  return std::nullopt;
}

}  // namespace lockstep::lint
