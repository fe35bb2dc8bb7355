// `lockstep-train`: the train program with the recipes of this tree.
#include "cli/train/program.h"

int main(int argc, char** argv) { return lockstep::TrainProgram(argc, argv); }
