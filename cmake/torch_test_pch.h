// What unit tests of torch code pay for: that code's shared header plus GoogleTest.
#pragma once
#include "test_pch.h"
#include "torch_pch.h"
