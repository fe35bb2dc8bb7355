// The readers of lint against arbitrary text, as every kind of file: they must never crash, hang, or point outside of
// the text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lint/lint.h"
#include "lint/rules.h"
#include "lint/variables.h"

using namespace lockstep::lint;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 4096) return 0;
  static const FileType kTypes[] = {FileType::kEnvironment, FileType::kShell,      FileType::kSbatch,
                                    FileType::kManifest,    FileType::kDockerfile, FileType::kMarkdown,
                                    FileType::kConf,        FileType::kConfig,     FileType::kPython};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t kind = data[0] % 11;
  if (kind == 9) {
    (void)ParseRules(text);
    return 0;
  }
  if (kind == 10) {
    (void)Variables::Parse(text);
    return 0;
  }
  (void)Recognise(text, "file");
  int lines = 1;
  for (char c : text) lines += c == '\n' ? 1 : 0;
  const lockstep::Result<std::vector<LintFinding>> found = LintText(text, "file", kTypes[kind], {});
  if (!found.ok()) return 0;
  for (const LintFinding& finding : *found) {
    if (finding.line < 0 || finding.line > lines + 1 || finding.column < 0) abort();
    (void)ToJson(finding);
  }
  return 0;
}
