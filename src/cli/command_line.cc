#include "cli/command_line.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"

namespace lockstep::cli {

int Complain(const std::string& command, const Status& status) {
  fmt::print(stderr, "lockstep {}: {}\n", command, status.message());
  if (!status.hint().empty()) fmt::print(stderr, "  do: {}\n", status.hint());
  return ExitCode(status);
}

std::optional<int> ParseCommand(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}\n", app.help("lockstep"));
    return 0;
  } catch (const CLI::ParseError& error) {
    std::string message = Printable(error.what(), 500);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && app.remaining_size() > 0) {
      std::string word = app.remaining().front();
      std::vector<std::string> flags;
      for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
      }
      bool flag = !word.empty() && word.front() == '-';
      message = flag ? fmt::format("unknown flag '{}'{}", Printable(word), DidYouMean(word, flags))
                     : fmt::format("unexpected argument '{}'", Printable(word));
    }
    return Complain(app.get_name(),
                    Status(Code::kUsage, message, fmt::format("see `lockstep {} --help`", app.get_name())));
  }
}

}  // namespace lockstep::cli
