#include "base/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/digits.h"
#include "base/exit_codes.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kIndent = 30, kWidth = 110;

// The name and form of --help that all commands of ours have, those with parsers of their own included.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    std::string usage = fmt::format("usage: {} [options]", name.empty() ? app->get_name() : name);
    std::string arguments, options;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) {
        const std::string word = option->get_name(true) + (TakesSeveral(option) ? "..." : "");
        usage += option->get_required() ? " " + word : " [" + word + "]";
        arguments += Row("  " + word, option->get_description());
      } else {
        options += Row("  " + Names(option), Description(option));
      }
    }
    std::string text = fmt::format("{}\n\n{}", usage, WrapText(app->get_description(), 0, kWidth));
    if (!arguments.empty()) text += "\narguments:\n" + arguments;
    text += "\noptions:\n" + options;
    if (const std::string footer(Trim(app->get_footer())); !footer.empty()) text += fmt::format("\n{}\n", footer);
    return text;
  }

 private:
  static bool TakesSeveral(const CLI::Option* option) {
    return option->get_items_expected_max() > 1 && option->get_allow_extra_args();
  }

  static std::string Row(std::string left, const std::string& right) {
    if (left.size() + 2 > kIndent) {
      left += '\n';
      left.append(kIndent, ' ');
    } else {
      left.append(kIndent - left.size(), ' ');
    }
    return left + WrapText(right, kIndent, kWidth);
  }

  // "-n, --lines N"
  static std::string Names(const CLI::Option* option) {
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    std::string text = Join(names, ", ");
    if (option->get_items_expected_max() == 0) return text;  // a flag
    std::string value = option->get_type_name();
    value = value.substr(0, value.find(':'));  // what follows are checks
    if (value == "INT" || value == "UINT") value = "N";
    if (value == "FLOAT") value = "X";
    if (value == "TEXT") value = "VALUE";
    text += option->get_items_expected_min() == 0 ? "[=" + value + "]" : " " + value;
    return TakesSeveral(option) ? text + "..." : text;
  }

  static std::string Description(const CLI::Option* option) {
    std::string text = option->get_description();
    if (option->get_required()) text += text.empty() ? "required" : " (required)";
    if (!option->get_default_str().empty()) text += fmt::format(" (default: {})", option->get_default_str());
    return text;
  }
};

}  // namespace

std::string WrapText(std::string_view text, size_t indent, size_t width) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (column != indent && column + 1 + word.size() > width) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (column != indent) {
      out += ' ';
      ++column;
    }
    out.append(word);
    column += word.size();
  }
  return out + '\n';
}

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
  return Check([](const std::string& text) -> std::string {
    if (ParseDigits<uint64_t>(text)) return "";
    return fmt::format("expected a whole number of at least 0, found '{}'", Printable(text));
  });
}

Argument Argument::OneOf(const std::vector<std::string>& words) {
  option_->type_name(Join(words, "|"));
  return Check([words](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    return fmt::format("expected {}, found '{}'{}", Join(words, ", "), Printable(text), DidYouMean(text, words));
  });
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

std::string MeantFlag(const std::string& word, const std::vector<std::string>& flags) {
  const auto has = [&](const char* flag) { return std::find(flags.begin(), flags.end(), flag) != flags.end(); };
  const bool file = word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
  if (file && has("--config")) return "--config " + Printable(word);
  const size_t equals = word.find('=');
  if (equals != std::string::npos && equals > 0 && word.front() != '-' && has("--set"))
    return "--set " + Printable(word);
  return "";
}

Arguments::Arguments(const std::string& about, const std::string& name)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->formatter(std::make_shared<HelpFormat>());
  app_->set_help_flag("-h,--help", "print this help and exit");
}

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
  const Result<bool> go_on = Read(argc, argv);
  if (go_on.ok() && *go_on) return std::nullopt;
  if (go_on.ok()) {
    fmt::print("{}", Help(""));
    return 0;
  }
  fmt::print(stderr, "{}: {}\n", name(), go_on.status().WithHint(fmt::format("see `{} --help`", name())).ToString());
  return kExitUsage;
}

Result<bool> Arguments::Read(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    // A misspelt flag is often what makes another one missing.
    const std::vector<std::string> left = app_->remaining();
    const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& w) { return w.starts_with('-'); });
    const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty();
    if (!extra && flag == left.end()) return Status(Code::kUsage, Printable(error.what(), 500));
    const std::string word = flag != left.end() ? *flag : left.front();
    std::vector<std::string> flags;
    for (const CLI::Option* option : app_->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    if (word.empty() || word.front() != '-') {
      const std::string meant = MeantFlag(word, flags);
      return Status(Code::kUsage, fmt::format("unexpected argument '{}'{}", Printable(word),
                                              meant.empty() ? "" : fmt::format(" (did you mean '{}'?)", meant)));
    }
    return Status(Code::kUsage, fmt::format("unknown flag '{}'{}", Printable(word), DidYouMean(word, flags)));
  }
}

std::string Arguments::Help(const std::string& program) const { return app_->help(program); }

std::string Arguments::name() const { return app_->get_name(); }

}  // namespace lockstep
