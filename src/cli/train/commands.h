// The commands of `lockstep-train`, one file each: parse, call, print.
#pragma once

namespace lockstep::cli {

int TrainMain(int argc, char** argv);   // lockstep-train train RECIPE ...
int ConfigMain(int argc, char** argv);  // lockstep-train config RECIPE ...
int EvalMain(int argc, char** argv);    // lockstep-train eval RECIPE ...
int ReconstructMain(int argc, char** argv);
int EncodeMain(int argc, char** argv);
int DecodeMain(int argc, char** argv);
int ExportMain(int argc, char** argv);
int SelftestMain(int argc, char** argv);
int LicensesMain();
int VersionMain(int argc, char** argv);  // lockstep-train --version

}  // namespace lockstep::cli
