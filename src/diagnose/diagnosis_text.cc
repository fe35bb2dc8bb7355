// A diagnosis for people and for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "diagnose/diagnosis.h"

namespace lockstep::diagnose {
namespace {

const char* Word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFailure:
      return "failure";
    case Verdict::kHealthy:
      return "healthy";
    case Verdict::kUnknown:
      return "unknown";
  }
  return "unknown";
}

// Nothing known counts as yes: a run that could have gone on costs more than one try too many.
const char* Word(Restart restart) {
  switch (restart) {
    case Restart::kNo:
      return "no";
    case Restart::kAfterFix:
      return "after-fix";
    case Restart::kYes:
    case Restart::kUndecided:
      return "yes";
  }
  return "yes";
}

std::string RestartText(const Diagnosis& d) {
  switch (d.restart) {
    case Restart::kYes:
      return d.exclude_node ? "can help, without this node" : "can help";
    case Restart::kNo:
      return "will fail in the same way";
    case Restart::kAfterFix:
      return "helps after the setting is changed";
    case Restart::kUndecided:
      return "nothing speaks against it";
  }
  return "";
}

std::string Where(const Diagnosis& d) {
  std::string where = d.rank >= 0 ? fmt::format("rank {}", d.rank) : "";
  if (!d.node.empty()) where += fmt::format("{}{}", where.empty() ? "" : " on ", Printable(d.node, 80));
  if (d.last_step) where += fmt::format("{}last step {}", where.empty() ? "" : ", ", *d.last_step);
  if (!d.alike.empty()) {
    const std::vector<int> shown(d.alike.begin(), d.alike.begin() + std::min<std::ptrdiff_t>(d.alike.size(), 8));
    where += fmt::format("; the same on rank{} {}{}", d.alike.size() == 1 ? "" : "s", fmt::join(shown, ", "),
                         d.alike.size() > 8 ? fmt::format(" and {} more", d.alike.size() - 8) : "");
  }
  return where;
}

std::string Place(const EvidenceLine& line) {
  return line.file.empty() ? "" : fmt::format("{}:{}", Printable(line.file, 300), line.line);
}

std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return fmt::format("rank {}: ", ranks[0]);
  if (ranks.size() <= 4) return fmt::format("ranks {}: ", fmt::join(ranks, ", "));
  return fmt::format("{} ranks: ", ranks.size());
}

double Rounded(double value) { return static_cast<double>(std::lround(value * 100)) / 100; }

nlohmann::json Number(int value) { return value < 0 ? nlohmann::json(nullptr) : nlohmann::json(value); }

}  // namespace

nlohmann::json ToJson(const Diagnosis& d) {
  nlohmann::json out = {
      {"verdict", Word(d.verdict)},
      {"signature", d.signature},
      {"cause", d.cause},
      {"remedy", d.remedy},
      {"restart", d.verdict == Verdict::kFailure ? nlohmann::json(Word(d.restart)) : nlohmann::json(nullptr)},
      {"exclude_node", d.exclude_node},
      {"confidence", Rounded(d.confidence)},
      {"rank", Number(d.rank)},
      {"node", d.node.empty() ? nlohmann::json(nullptr) : nlohmann::json(d.node)},
      {"alike", d.alike},
      {"last_step", d.last_step ? nlohmann::json(*d.last_step) : nlohmann::json(nullptr)},
      {"evidence", nlohmann::json::array()},
      {"consequences", nlohmann::json::array()},
      {"alternatives", nlohmann::json::array()},
      {"notes", d.notes}};
  for (const EvidenceLine& line : d.evidence) {
    out["evidence"].push_back({{"file", line.file},
                               {"line", line.line},
                               {"text", line.text},
                               {"rank", Number(line.rank)},
                               {"node", line.node}});
  }
  for (const Consequence& one : d.consequences) {
    out["consequences"].push_back(
        {{"what", one.what}, {"signature", one.signature}, {"ranks", one.ranks}, {"why", one.why}});
  }
  for (const Alternative& one : d.alternatives) {
    out["alternatives"].push_back({{"signature", one.signature},
                                   {"cause", one.cause},
                                   {"remedy", one.remedy},
                                   {"confidence", Rounded(one.confidence)},
                                   {"rank", Number(one.rank)},
                                   {"node", one.node}});
  }
  return out;
}

std::string DiagnosisText(const Diagnosis& d, bool brief, bool colour) {
  const char* bold = colour ? "\x1b[1m" : "";
  const char* off = colour ? "\x1b[0m" : "";
  std::string out;
  auto line = [&](std::string_view label, const std::string& text) {
    if (!text.empty()) out += fmt::format("{}{:<14}{}{}\n", bold, label, off, text);
  };
  const size_t evidence = brief ? 2 : d.evidence.size(), consequences = brief ? 2 : d.consequences.size();
  if (d.verdict != Verdict::kFailure) {
    line(d.verdict == Verdict::kHealthy ? "healthy" : "unknown", d.cause);
    if (d.last_step) line("last step", fmt::format("{}", *d.last_step));
    line("do", d.remedy);
  } else {
    line("cause", fmt::format("{} [{}, {:.0f} %]", d.cause, d.signature, d.confidence * 100));
    line("where", Where(d));
    for (size_t i = 0; i < d.evidence.size() && i < evidence; ++i) {
      const EvidenceLine& shown = d.evidence[i];
      const std::string place = Place(shown);
      line(i == 0 ? "evidence" : "", place.empty() ? shown.text : fmt::format("{}: {}", place, shown.text));
    }
    line("do", d.remedy);
    line("restart", RestartText(d));
  }
  for (size_t i = 0; i < d.consequences.size() && i < consequences; ++i) {
    const Consequence& one = d.consequences[i];
    line(i == 0 ? "not the cause" : "",
         fmt::format("{}{} [{}]: {}", Ranks(one.ranks), one.what, one.signature, one.why));
  }
  if (!brief) {
    for (size_t i = 0; i < d.alternatives.size(); ++i) {
      const Alternative& one = d.alternatives[i];
      line(i == 0 ? "or" : "", fmt::format("{} [{}, {:.0f} %]", one.cause, one.signature, one.confidence * 100));
    }
  }
  for (size_t i = 0; i < d.notes.size() && i < (brief ? 1u : d.notes.size()); ++i)
    line(i == 0 ? "note" : "", d.notes[i]);
  return out;
}

}  // namespace lockstep::diagnose
