// A command line taken apart: `srun -n 8 env A=1 torchrun --nnodes=2 train.py --lr 1` is srun, torchrun and the script,
// each with its flags, and one variable. Pure functions. Any thread.
#pragma once

#include <string>
#include <vector>

#include "lint/shell_reader.h"

namespace lockstep::lint {

struct Flag {
  std::string name;  // "--nproc-per-node": dashes for underscores
  ShellWord value;   // empty text: none
  bool has_value = false;
  ShellWord word;  // where it is written
};

// One program of the chain.
struct Invocation {
  // "torchrun", "accelerate", "deepspeed", "srun", "mpirun", "docker", "python", "script" (what a launcher or Python
  // was given), "bare" (a line of flags without a program), else the program's own name.
  std::string program;
  std::string name;  // of a script: its path
  std::vector<Flag> flags;
  std::vector<ShellWord> operands;  // words that are no flags and no values of flags
  ShellWord word;                   // where the program is written
};

struct CommandLine {
  std::vector<Invocation> chain;             // outermost first
  std::vector<ShellAssignment> environment;  // A=1 before the command, env A=1, docker -e A=1, mpirun -x A=1
  std::vector<ShellWord> scripts;            // text given to a shell: bash -c '...', ssh host '...'
};

CommandLine TakeApart(const ShellCommand& command);

const Flag* FindFlag(const Invocation& program, const std::string& name);
const Invocation* FindProgram(const CommandLine& line, const std::string& program);

// Whether the program runs the job: a launcher, Python, a script. What comes before and after it is looked at.
bool RunsJob(const CommandLine& line);

}  // namespace lockstep::lint
