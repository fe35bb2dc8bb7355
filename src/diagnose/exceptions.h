// General rules for Python exceptions that no signature knows: what the class alone says, whether it is likely a
// consequence of another rank's end, and whether trying again makes sense. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "diagnose/signatures.h"
#include "diagnose/traceback.h"

namespace lockstep::diagnose {

struct ExceptionRule {
  const char* type;  // class name without modules
  Role role;
  int weight;
  Policy policy;
  const char* cause;  // {m} is the message
  const char* remedy;
};

// Never null: the last row speaks for every class.
const ExceptionRule& RuleFor(std::string_view type, std::string_view message);

// Whether the class is raised by programs rather than by the machine or the network around them.
bool IsProgramError(std::string_view type);

// "torch.cuda.OutOfMemoryError" -> "OutOfMemoryError".
std::string_view ClassName(std::string_view type);
// "py-out-of-memory-error".
std::string ExceptionId(std::string_view type);

// The rule's sentence with the class ({t}) and the message ({m}) put in.
std::string FillException(const char* pattern, const Raised& raised);

// Interruptions: what is printed after them is not their message.
bool IsInterruption(std::string_view type);

// A line before a traceback that says it was dealt with.
bool IntroducesHandled(std::string_view line);

}  // namespace lockstep::diagnose
