// What every unit test pays for: the shared header plus GoogleTest. Precompiled once, used by all programs of tests/.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pch.h"
