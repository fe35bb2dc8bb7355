// Many patterns in one pass: nothing is missed, lines are what counts, and both engines agree.
#include "diagnose/matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::diagnose {
namespace {

std::unique_ptr<Matcher> Make(std::vector<std::string> regexes, Matcher::Engine engine = Matcher::Engine::kBest) {
  std::vector<NamedPattern> patterns;
  for (std::string& regex : regexes) patterns.push_back({"p", std::move(regex)});
  auto matcher = Matcher::Create(std::move(patterns), engine);
  EXPECT_TRUE(matcher.ok()) << matcher.status().ToString();
  return matcher.ok() ? *std::move(matcher) : nullptr;
}

// Which lines (from 0) each pattern is a candidate on.
std::set<std::pair<size_t, uint32_t>> Lines(Matcher& matcher, const std::string& text) {
  std::vector<Matcher::Candidate> found;
  matcher.Scan(text, &found);
  std::set<std::pair<size_t, uint32_t>> lines;
  for (const auto& one : found) {
    lines.insert({static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(one.at), '\n')),
                  one.pattern});
  }
  return lines;
}

TEST(Matcher, FindsEveryLineAndOnlyOncePerLine) {
  auto matcher = Make({"abc", "x+y", "^start"});
  const std::string text = "abc abc abc\nnothing\nxxxxy\n[tag] start abc\n";
  const auto lines = Lines(*matcher, text);
  EXPECT_EQ(lines, (std::set<std::pair<size_t, uint32_t>>{{0, 0}, {2, 1}, {3, 0}, {3, 2}}));
  std::vector<Matcher::Candidate> found;
  matcher->Scan(text, &found);
  EXPECT_EQ(found.size(), 4u);
}

TEST(Matcher, OfVeryManyHitsKeepsTheFirstAndTheLast) {
  auto matcher = Make({"hit"});
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "hit\n";
  const auto lines = Lines(*matcher, text);
  EXPECT_EQ(lines.size(), 2 * Matcher::kKeep);
  EXPECT_EQ(lines.begin()->first, 0u);
  EXPECT_EQ(lines.rbegin()->first, 9999u);
}

TEST(Matcher, GivesTheGroupsOfALine) {
  auto matcher = Make({R"(rank (\d+) of (\d+)( x)?)"});
  Match match;
  ASSERT_TRUE(matcher->Find(0, "this is rank 3 of 8.", &match));
  EXPECT_EQ(match.groups[1], "3");
  EXPECT_EQ(match.groups[2], "8");
  EXPECT_EQ(match.groups[3], "");
  EXPECT_EQ(match.begin, 8u);
  EXPECT_FALSE(matcher->Find(0, "rank x of 8", &match));
}

TEST(Matcher, SurvivesBytesOfAnyKind) {
  for (auto engine : {Matcher::Engine::kBest, Matcher::Engine::kLineByLine}) {
    auto matcher = Make({"needle", "\\d+/\\d+"}, engine);
    std::mt19937 random(7);
    std::string text(200000, 0);
    for (char& c : text) c = static_cast<char>(random());
    text += "\nneedle\n";
    EXPECT_TRUE(
        Lines(*matcher, text).contains({static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) - 1, 0u}));
  }
}

TEST(Matcher, BothEnginesSeeTheSameLines) {
  const std::vector<std::string> regexes = {"(error.*|fatal: (.+))", "^begin (now|later).*",   "end$",
                                            "(a|b(c|d)e).*f",        R"((x [(]y.*|[|)] z.*))", "tail (.+)"};
  auto fast = Make(regexes);
  auto slow = Make(regexes, Matcher::Engine::kLineByLine);
  ASSERT_TRUE(fast->fast());
  ASSERT_FALSE(slow->fast());
  std::mt19937 random(3);
  const std::vector<std::string> words = {"error", "fatal: ", "x",   "begin now", " end",  "a", "bce",
                                          "f",     "x (y",    ") z", "| z",       "tail ", " ", "\t"};
  std::string text;
  for (int line = 0; line < 40; ++line) {
    for (int i = 0; i < 6; ++i) text += words[random() % words.size()];
    text += '\n';
  }
  // The first pass may report more than matches; what truly matches must be in both.
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  const auto from_fast = Lines(*fast, text), from_slow = Lines(*slow, text);
  int matches = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<uint32_t> a, b;
    fast->ScanLine(lines[i], &a);
    slow->ScanLine(lines[i], &b);
    EXPECT_EQ(a, b) << lines[i];
    for (uint32_t pattern = 0; pattern < regexes.size(); ++pattern) {
      if (!fast->Find(pattern, lines[i], nullptr)) continue;
      ++matches;
      EXPECT_TRUE(from_fast.contains({i, pattern})) << lines[i] << " / " << regexes[pattern];
      EXPECT_TRUE(from_slow.contains({i, pattern})) << lines[i] << " / " << regexes[pattern];
    }
  }
  EXPECT_GT(matches, 20);
}

TEST(Matcher, RefusesWhatDoesNotCompile) {
  EXPECT_FALSE(Matcher::Create({{"bad", "(("}}).ok());
  EXPECT_FALSE(Matcher::Create({{"look", "(?=x)y"}}).ok());
}

}  // namespace
}  // namespace lockstep::diagnose
