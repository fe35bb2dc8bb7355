// The commands of `lockstep-train`, one file each: parse, call, print.
#pragma once

namespace lockstep::cli {

int TrainMain(int argc, char** argv);   // lockstep-train train RECIPE ...
int ConfigMain(int argc, char** argv);  // lockstep-train config RECIPE ...

}  // namespace lockstep::cli
