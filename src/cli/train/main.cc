// `lockstep-train`: the training engine and its recipes, on LibTorch. Started by `lockstep train`, or by any launcher
// that says who is who.
#include <torch/version.h>

int main() { return 0; }
