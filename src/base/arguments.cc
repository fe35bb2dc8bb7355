#include "base/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "base/text.h"

namespace lockstep {

Argument Argument::Required() {
  option_->required();
  return *this;
}

Argument Argument::Between(int64_t least, int64_t most) {
  if (unsigned_) {
    option_->check(CLI::Range(static_cast<uint64_t>(least), static_cast<uint64_t>(most)));
  } else {
    option_->check(CLI::Range(least, most));
  }
  return *this;
}

Argument Argument::NonNegative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Argument Argument::OneOf(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Argument Argument::Check(std::function<std::string(const std::string&)> why_wrong) {
  option_->check(std::move(why_wrong));
  return *this;
}

Argument Argument::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

Argument Argument::Named(const std::string& value) {
  option_->type_name(value);
  return *this;
}

Argument Argument::SplitAt(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

Argument Argument::Repeated() {
  option_->expected(1)->take_all();
  return *this;
}

Argument Argument::OneWordEach() {
  option_->allow_extra_args(false);
  return *this;
}

Argument Argument::ValueOptional() {
  option_->expected(0, 1);
  return *this;
}

Argument Argument::Needs(Argument other) {
  option_->needs(other.option_);
  return *this;
}

Argument Argument::Excludes(Argument other) {
  option_->excludes(other.option_);
  return *this;
}

bool Argument::given() const { return option_->count() > 0; }

Arguments::Arguments(const std::string& about, const std::string& name)
    : app_(std::make_unique<CLI::App>(about, name)) {}

Arguments::~Arguments() = default;

Argument Arguments::Option(const std::string& names, std::string* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Option(const std::string& names, int* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Option(const std::string& names, int64_t* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Option(const std::string& names, uint64_t* value, const std::string& help) {
  return {app_->add_option(names, *value, help), true};
}

Argument Arguments::Option(const std::string& names, double* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Option(const std::string& names, std::optional<int>* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Option(const std::string& names, std::optional<uint64_t>* value, const std::string& help) {
  return {app_->add_option(names, *value, help), true};
}

Argument Arguments::Option(const std::string& names, std::vector<std::string>* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Option(const std::string& names, std::vector<int>* value, const std::string& help) {
  return {app_->add_option(names, *value, help), false};
}

Argument Arguments::Flag(const std::string& names, bool* value, const std::string& help) {
  return {app_->add_flag(names, *value, help), false};
}

void Arguments::Footer(const std::string& text) { app_->footer(text); }

std::optional<int> Arguments::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 2;
  }
}

Result<bool> Arguments::Read(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || app_->remaining_size() == 0) {
      return Status(Code::kUsage, Printable(error.what(), 500));
    }
    const std::string word = app_->remaining().front();
    if (word.empty() || word.front() != '-') {
      return Status(Code::kUsage, fmt::format("unexpected argument '{}'", Printable(word)));
    }
    std::vector<std::string> flags;
    for (const CLI::Option* option : app_->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    return Status(Code::kUsage, fmt::format("unknown flag '{}'{}", Printable(word), DidYouMean(word, flags)));
  }
}

std::string Arguments::Help(const std::string& program) const { return app_->help(program); }

std::string Arguments::name() const { return app_->get_name(); }

}  // namespace lockstep
