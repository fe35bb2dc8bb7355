// The commands of a train program, one file each: parse, call, print.
#pragma once

#include <string>

#include "recipes/registry.h"

namespace lockstep::cli {

// The program they are commands of.
struct Program {
  std::string name;  // its file's, for messages
  recipes::Registry recipes;
};

int TrainMain(const Program& program, int argc, char** argv);   // lockstep-train train RECIPE ...
int ConfigMain(const Program& program, int argc, char** argv);  // lockstep-train config RECIPE ...
int PlanModelMain(const Program& program, int argc, char** argv);
int PlanMeasureMain(int argc, char** argv);
int EvalMain(const Program& program, int argc, char** argv);  // lockstep-train eval RECIPE ...
int EvalVrtMain(const Program& program, int argc, char** argv);
int CacheBuildMain(const Program& program, int argc, char** argv);  // lockstep-train cache-build [RECIPE] ...
int ReconstructMain(int argc, char** argv);
int RestoreMain(int argc, char** argv);
int EncodeMain(int argc, char** argv);
int DecodeMain(int argc, char** argv);
int ExportMain(int argc, char** argv);
int TokensMain(int argc, char** argv);
int DataMain(const Program& program, int argc, char** argv);  // lockstep-train data COMMAND ...
int GenerateMain(int argc, char** argv);
int SelftestMain(int argc, char** argv);
int LicensesMain();
int VersionMain(const Program& program, int argc, char** argv);  // lockstep-train --version

}  // namespace lockstep::cli
