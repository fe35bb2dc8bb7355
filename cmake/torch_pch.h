// What files of the engine, the models and the recipes pay for, compiled once: LibTorch's C++ interface and the shared
// header of torch-free code. Tests use it as well, hence GoogleTest.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "pch.h"
