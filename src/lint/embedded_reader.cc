// Text inside another file: a document of a shell script, an entry of a ConfigMap, a file a Dockerfile writes.
#include "lint/lint.h"
#include "lint/readers.h"

namespace lockstep::lint {

void ReadEmbedded(std::string_view text, int line, int column, const std::string& name, Units& units) {
  const std::optional<FileType> type = Recognise(text, name);
  if (!type) return;
  switch (*type) {
    case FileType::kShell:
      return ReadScript(text, line, column, true, "script", units, column);
    case FileType::kSbatch:
      return ReadScript(text, line, column, false, "sbatch", units, column);
    case FileType::kPython:
      return ReadPython(text, line, column, units);
    case FileType::kMarkdown:
      return;
    case FileType::kManifest:
    case FileType::kDockerfile:
    case FileType::kConfig:
    case FileType::kConf:
    case FileType::kEnvironment: {
      Units read;
      if (type == FileType::kManifest) ReadManifest(text, line, read);
      if (type == FileType::kDockerfile) ReadDockerfile(text, line, read);
      if (type == FileType::kConfig) ReadConfig(text, line, true, read);
      if (type == FileType::kConf) ReadConf(text, line, read);
      if (type == FileType::kEnvironment) ReadEnvironment(text, read, line);
      for (Unit& unit : read) {
        for (Fact& fact : unit.facts) fact.column += column - 1;
        units.push_back(std::move(unit));
      }
      return;
    }
  }
}

}  // namespace lockstep::lint
