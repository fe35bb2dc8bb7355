// What files of the engine, the models and the recipes pay for, compiled once: LibTorch's C++ interface and the shared
// header of torch-free code. Not torch/torch.h: its layers are templates that every file would instantiate, two seconds
// each; whoever needs a layer includes it.
#pragma once
#include <torch/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include "pch.h"
