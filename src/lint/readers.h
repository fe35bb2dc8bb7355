// The readers: text of one kind of file becomes units of facts. Each is tolerant: what it does not understand it passes
// over. `line` and `column` are those of the text's first character in the file. Pure functions. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "lint/fact.h"
#include "lint/invocation.h"
#include "lint/shell_reader.h"

namespace lockstep::lint {

using Units = std::vector<Unit>;

// Facts of shell text, and of text inside it (bash -c, documents). `fragment`: an excerpt, whose surroundings are not
// seen. `left`: the column of the first character of its lines but the first.
void ReadScript(std::string_view text, int line, int column, bool fragment, const std::string& dialect, Units& units,
                int left = 1);

// A command given as a list of words (a container's command).
void ReadWords(const std::vector<ShellWord>& words, Unit& unit);

// Shapes of a script as a whole: status handling under set -e, exit codes of handlers, pipes (script_shapes.cc).
void ScriptShapes(const ShellScript& script, const std::vector<CommandLine>& lines, Unit& unit);
// Shapes of an sbatch file: tasks and launchers, missing rank variables (slurm_shapes.cc).
void SlurmShapes(const ShellScript& script, const std::vector<CommandLine>& lines, Unit& unit);

// Text inside another file, of the kind its name and content speak of; nothing where they say nothing.
void ReadEmbedded(std::string_view text, int line, int column, const std::string& name, Units& units);

void ReadManifest(std::string_view text, int line, Units& units);  // Kubernetes YAML, several documents
void ReadDockerfile(std::string_view text, int line, Units& units);
void ReadMarkdown(std::string_view text, Units& units);
// DeepSpeed, accelerate, other JSON and YAML. A fragment need not be whole.
void ReadConfig(std::string_view text, int line, bool fragment, Units& units, bool comments_allowed = false);
void ReadPython(std::string_view text, int line, int column, Units& units);
void ReadPlainText(std::string_view text, int line, Units& units);        // output in a document
void ReadConf(std::string_view text, int line, Units& units);             // nccl.conf
void ReadEnvironment(std::string_view text, Units& units, int line = 1);  // env, /proc/PID/environ, docker --env-file
Unit EnvironmentFacts(const Environment& env);

}  // namespace lockstep::lint
