#include "cli/train/program.h"

std::unique_ptr<lockstep::engine::Recipe> MakeSpirals();  // spirals.cc

int main(int argc, char** argv) { return lockstep::TrainProgram(argc, argv, {{"spirals", MakeSpirals}}); }
