// Many patterns over much text in one pass. Vectorscan finds candidates in megabytes at a time; RE2 decides on the few
// lines that were hit and gives the groups. Where the processor is too old for Vectorscan, RE2::Set does the first part
// line by line, slower with the same result. One thread per Matcher.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::diagnose {

struct NamedPattern {
  std::string name;  // for errors
  std::string regex;
};

struct Match {
  size_t begin = 0, end = 0;
  std::vector<std::string> groups;  // groups[0] is the whole match
};

class Matcher {
 public:
  enum class Engine { kBest, kLineByLine };

  static Result<std::unique_ptr<Matcher>> Create(std::vector<NamedPattern> patterns, Engine engine = Engine::kBest);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  struct Candidate {
    uint32_t pattern = 0;
    size_t at = 0;  // an offset within the line
  };

  // Lines of `text` that may match, at most one candidate per pattern and line, and of a pattern that hits very often
  // only the first and the last kKeep lines. Sorted by offset. A candidate may turn out not to match.
  static constexpr size_t kKeep = 48;
  void Scan(std::string_view text, std::vector<Candidate>* candidates);

  // Patterns that match this one line, ascending.
  void ScanLine(std::string_view line, std::vector<uint32_t>* patterns);

  // Whether the pattern is found in the line, with its groups.
  bool Find(uint32_t pattern, std::string_view line, Match* match);

  size_t size() const;
  bool fast() const;  // Vectorscan is at work

 private:
  struct State;
  explicit Matcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::diagnose
