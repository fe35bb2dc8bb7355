// Where things of this build lie. A generated file says so (tests/CMakeLists.txt), not a flag of the compiler: so a
// compiler cache knows the tests of another clone again.
#pragma once

#include <string>

namespace lockstep {

// The root of the tree.
std::string SourceDir();

// The folder of the unit test programs.
std::string TestProgramDir();

}  // namespace lockstep
