// Markdown: every fenced code block is read in its own language, with the places of the file.
#include <algorithm>
#include <cctype>
#include <set>

#include "base/text.h"
#include "lint/lint.h"
#include "lint/readers.h"

namespace lockstep::lint {
namespace {

struct Block {
  std::string language;
  std::string text;  // indented as in the file, so that columns stay true
  int line = 0;      // of the first line inside
};

std::vector<Block> Blocks(std::string_view text) {
  std::vector<Block> blocks;
  std::string fence;    // that closes the open block
  bool quoted = false;  // the block stands in a quotation: '>' before each line
  int line = 0;
  for (std::string row : Split(text, '\n')) {
    ++line;
    const size_t mark_at = row.find_first_not_of(" \t");
    const bool quote = mark_at != std::string::npos && row[mark_at] == '>';
    if (quote && (quoted || (fence.empty() && row.find("```") != std::string::npos))) row[mark_at] = ' ';
    const std::string_view trimmed = Trim(row);
    const char mark = trimmed.empty() ? ' ' : trimmed[0];
    size_t length = 0;
    while (length < trimmed.size() && trimmed[length] == mark) ++length;
    const bool fencing = (mark == '`' || mark == '~') && length >= 3;
    if (fence.empty()) {
      if (!fencing) continue;
      const std::string_view info = Trim(trimmed.substr(length));
      if (mark == '`' && info.find('`') != std::string_view::npos) continue;  // inline code
      fence = std::string(length, mark);
      quoted = quote;
      Block block;
      block.language = info.substr(0, info.find_first_of(" ,{\t:"));
      if (!info.empty() && info[0] == '{') block.language = info.substr(1, info.find_first_of("} ,", 1) - 1);
      if (block.language == "code-block" || block.language == "code" || block.language == "sourcecode") {
        const std::string_view rest = Trim(info.substr(std::min(info.find('}'), info.size() - 1) + 1));
        block.language = rest.substr(0, rest.find_first_of(" ,\t"));
      }
      std::transform(block.language.begin(), block.language.end(), block.language.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      block.line = line + 1;
      blocks.push_back(std::move(block));
    } else if (fencing && mark == fence[0] && length >= fence.size() && length == trimmed.size()) {
      fence.clear();
      quoted = false;
    } else {
      blocks.back().text += row + "\n";
    }
  }
  return blocks;
}

// .. code-block:: bash, and the indented lines behind it.
std::vector<Block> RstBlocks(std::string_view text) {
  std::vector<Block> blocks;
  bool inside = false;
  size_t indent = 0;
  int line = 0;
  for (const std::string& row : Split(text, '\n')) {
    ++line;
    const std::string_view trimmed = Trim(row);
    const size_t start = row.find_first_not_of(" \t");
    if (inside && !trimmed.empty() && start <= indent) inside = false;
    if (inside) {
      const bool option = trimmed.substr(0, 1) == ":" && Trim(blocks.back().text).empty();
      blocks.back().text += (option ? "" : row) + "\n";
      continue;
    }
    for (std::string_view directive : {".. code-block::", ".. code::", ".. sourcecode::"}) {
      if (trimmed.substr(0, directive.size()) != directive) continue;
      inside = true;
      indent = start;
      Block block;
      block.language = Trim(trimmed.substr(directive.size()));
      block.line = line + 1;
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

// Lines indented by four and more behind an empty one, outside of fences, if they are settings or a script.
std::vector<Block> IndentedBlocks(std::string_view text) {
  std::vector<Block> blocks;
  bool inside = false, empty = true, fenced = false;
  int line = 0;
  for (const std::string& row : Split(text, '\n')) {
    ++line;
    const std::string_view trimmed = Trim(row);
    if (trimmed.substr(0, 3) == "```" || trimmed.substr(0, 3) == "~~~") fenced = !fenced;
    const bool indented = !trimmed.empty() && !fenced && (row.substr(0, 4) == "    " || row[0] == '\t');
    if (indented && !inside && empty) {
      Block block;
      block.line = line;
      blocks.push_back(std::move(block));
      inside = true;
    } else if (!indented && !trimmed.empty()) {
      inside = false;
    }
    if (inside) blocks.back().text += row + "\n";
    empty = trimmed.empty();
  }
  std::erase_if(blocks, [](const Block& block) {
    const std::optional<FileType> type = Recognise(block.text, "");
    return type != FileType::kShell && type != FileType::kSbatch && type != FileType::kEnvironment;
  });
  return blocks;
}

// A session as typed at a prompt: the prompt goes, the output with it.
std::string WithoutPrompts(const std::string& text) {
  std::string commands;
  bool prompts = false;
  for (const std::string& row : Split(text, '\n')) {
    const std::string_view trimmed = Trim(row);
    if (trimmed.substr(0, 2) == "$ " || trimmed.substr(0, 2) == "> ") prompts = true;
  }
  if (!prompts) return text;
  for (const std::string& row : Split(text, '\n')) {
    const size_t start = std::min(row.find_first_not_of(" \t"), row.size());
    if (row.substr(start, 2) == "$ " || row.substr(start, 2) == "> ") {
      commands += std::string(start + 2, ' ') + row.substr(start + 2);
    }
    commands += '\n';
  }
  return commands;
}

// What stands after the change: lines that go are blank, the marks of those that come too.
std::string WithoutMarks(const std::string& text) {
  std::vector<std::string> rows = Split(text, '\n');
  for (std::string& row : rows) {
    if (row.substr(0, 2) == "- ") row.clear();
    if (row.substr(0, 1) == "+") row[0] = ' ';
  }
  return Join(rows, "\n");
}

void ReadBlock(Block block, Units& units) {
  if (block.language == "diff") block.text = WithoutMarks(block.text);
  static const std::set<std::string> kShell = {"bash",          "sh",           "shell",     "zsh",    "console",
                                               "shell-session", "terminal",     "slurm",     "sbatch", "ksh",
                                               "shellscript",   "bash-session", "sh-session"};
  const std::string& language = block.language;
  std::optional<FileType> type;
  if (kShell.count(language) != 0) {
    type = FileType::kShell;
  } else if (language == "json" || language == "jsonc" || language == "json5") {
    type = FileType::kConfig;
  } else if (language == "yaml" || language == "yml") {
    type = Recognise(block.text, "block.yaml");
  } else if (language == "python" || language == "py" || language == "python3") {
    type = FileType::kPython;
  } else if (language == "diff") {
    type = Recognise(block.text, "");
    if (type != FileType::kShell && type != FileType::kSbatch) return;
  } else if (language == "dockerfile" || language == "docker") {
    type = FileType::kDockerfile;
  } else if (language == "env" || language == "dotenv" || language == "properties") {
    type = FileType::kEnvironment;
  } else if (language == "ini" || language == "conf") {
    type = block.text.find("NCCL_") != std::string::npos ? FileType::kConf : std::optional<FileType>();
  } else if (language.empty() || language == "text" || language == "txt" || language == "plaintext" ||
             language == "log" || language == "plain") {
    type = Recognise(block.text, "");
    if (type == FileType::kMarkdown || type == FileType::kConf) type.reset();
  } else {
    return;
  }
  if (!type) return ReadPlainText(block.text, block.line, units);
  switch (*type) {
    case FileType::kShell:
    case FileType::kSbatch: {
      const bool sbatch = block.text.find("#SBATCH") != std::string::npos;
      ReadScript(WithoutPrompts(block.text), block.line, 1, true, sbatch ? "sbatch" : "script", units);
      break;
    }
    case FileType::kManifest:
      ReadManifest(block.text, block.line, units);
      break;
    case FileType::kDockerfile:
      ReadDockerfile(block.text, block.line, units);
      break;
    case FileType::kConfig:
      ReadConfig(block.text, block.line, true, units, language == "jsonc" || language == "json5");
      break;
    case FileType::kPython:
      ReadPython(block.text, block.line, 1, units);
      break;
    case FileType::kEnvironment:
      ReadScript(block.text, block.line, 1, true, "script", units);
      break;
    case FileType::kConf:
    case FileType::kMarkdown:
      ReadPlainText(block.text, block.line, units);
      break;
  }
}

// kubectl logs JOB-worker-0 for a Job of the same document: its pods have other names.
void PodNames(Units& units) {
  std::set<std::string> jobs;
  for (const Unit& unit : units) {
    for (const Fact& fact : unit.facts) {
      if (fact.kind == "object" && fact.name == "Job" && !fact.value.empty()) jobs.insert(fact.value);
    }
  }
  for (Unit& unit : units) {
    std::vector<Fact> found;
    for (const Fact& fact : unit.facts) {
      if (fact.kind != "operands" || fact.name != "kubectl") continue;
      for (const std::string& word : Split(fact.value, ' ')) {
        for (const std::string& job : jobs) {
          const std::string tail = word.rfind(job + "-", 0) == 0 ? word.substr(job.size() + 1) : "";
          // <job>-<random> has five letters and digits, <job>-<index>-<random> a number before them.
          if (tail.rfind("worker", 0) != 0 && tail.rfind("master", 0) != 0 &&
              tail.find_first_not_of("0123456789") != std::string::npos) {
            continue;
          }
          if (tail.empty()) continue;
          Fact shape = fact;
          shape.kind = "shape";
          shape.name = "k8s-job-pod-name";
          shape.detail = word;
          found.push_back(std::move(shape));
        }
      }
    }
    for (Fact& fact : found) unit.facts.push_back(std::move(fact));
  }
}

}  // namespace

void ReadMarkdown(std::string_view text, Units& units) {
  for (const Block& block : Blocks(text)) ReadBlock(block, units);
  const std::vector<Block> directives = RstBlocks(text);
  for (const Block& block : directives) ReadBlock(block, units);
  if (directives.empty()) {
    for (const Block& block : IndentedBlocks(text)) ReadBlock(block, units);
  }
  PodNames(units);
}

}  // namespace lockstep::lint
