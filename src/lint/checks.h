// The conditions of rules that need more than a comparison: knowledge of variables (is ...) and of the machine
// (hardware ...). Tables of named functions; a rule names one. Pure functions. Any thread.
#pragma once

#include <map>
#include <span>
#include <string>

#include "lint/fact.h"
#include "lint/lint.h"

namespace lockstep::lint {

// What a condition found out, for the message: {detail}, {nearest}, {new}, {note}, {default}, {range}, {other}, ...
using Words = std::map<std::string, std::string>;

using Check = bool (*)(const Fact& fact, const Unit& unit, const LintContext& context, Words& words);

struct NamedCheck {
  const char* name;
  Check check;
};

Check FindIn(std::span<const NamedCheck> table, const std::string& name);  // null: there is none

Check FindCheck(const std::string& name);          // of `is NAME`; null: there is none
Check FindValueCheck(const std::string& name);     // those of value_checks.cc among them
Check FindHardwareCheck(const std::string& name);  // of `hardware NAME`

// The text as a number: decimal, hexadecimal, 5e8; nothing when there is more to it.
bool AsNumber(const std::string& text, double& number);

}  // namespace lockstep::lint
