// The command line of a small command: what it takes, where the values go, its --help. CLI11 does the work, inside
// arguments.cc alone, because its headers cost every file that includes them seconds to compile. Variables and the
// objects here outlive Parse(). Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep {

// One argument of a command. A handle: copies mean the same argument.
class Argument {
 public:
  Argument Required();
  Argument Between(int64_t least, int64_t most);
  Argument NonNegative();
  Argument OneOf(const std::vector<std::string>& words);
  // The reason why a value is wrong, empty for a right one.
  Argument Check(std::function<std::string(const std::string&)> why_wrong);
  // --help tells the value the variable has now.
  Argument ShowDefault();
  // How --help calls the value, instead of its type.
  Argument Named(const std::string& value);
  // A list out of one word: "1,2,3".
  Argument SplitAt(char delimiter);
  // A list that gets one value whenever the flag is given; without this it takes all words up to the next flag.
  Argument Repeated();
  // The same, and --help still calls it a list.
  Argument OneWordEach();
  // The flag may stand alone; given() tells that from its absence.
  Argument ValueOptional();
  Argument Needs(Argument other);
  Argument Excludes(Argument other);

  // After parsing.
  bool given() const;

 private:
  friend class Arguments;
  Argument(CLI::Option* option, bool is_unsigned) : option_(option), unsigned_(is_unsigned) {}

  CLI::Option* option_;
  bool unsigned_;
};

// What a word that no argument takes was probably meant as, of the flags there are: "--config taehv.yaml" for a
// configuration file, "--set train.steps=3" for an assignment; empty: no idea.
std::string MeantFlag(const std::string& word, const std::vector<std::string>& flags);

// The words of a text in lines of at most `width` columns, every line but the first indented; ends with a newline. The
// first line continues one that has `indent` columns already. For help texts.
std::string WrapText(std::string_view text, size_t indent, size_t width);

class Arguments {
 public:
  // The name stands in the usage line; an empty one becomes the program's.
  Arguments(const std::string& about, const std::string& name);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // `names` are "--steps", "-n,--lines", or a word without dashes for what is told by its place.
  Argument Option(const std::string& names, std::string* value, const std::string& help = "");
  Argument Option(const std::string& names, int* value, const std::string& help = "");
  Argument Option(const std::string& names, int64_t* value, const std::string& help = "");
  Argument Option(const std::string& names, uint64_t* value, const std::string& help = "");
  Argument Option(const std::string& names, double* value, const std::string& help = "");
  Argument Option(const std::string& names, std::optional<int>* value, const std::string& help = "");
  Argument Option(const std::string& names, std::optional<uint64_t>* value, const std::string& help = "");
  Argument Option(const std::string& names, std::vector<std::string>* value, const std::string& help = "");
  Argument Option(const std::string& names, std::vector<int>* value, const std::string& help = "");
  Argument Flag(const std::string& names, bool* value, const std::string& help = "");
  void Footer(const std::string& text);

  // Read, and says what is to be said; nothing when the command should go on, else the exit code to leave with
  // (0 after --help, 2 after a mistake).
  std::optional<int> Parse(int argc, char** argv);

  // The same for a caller with its own way to say it: false when the help is asked for, kUsage for a mistake.
  Result<bool> Read(int argc, char** argv);
  // The usage line says "<program> <name>".
  std::string Help(const std::string& program) const;
  std::string name() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace lockstep
