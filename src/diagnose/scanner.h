// Text -> findings, in one pass over chunks of whole lines. Most lines are never looked at one by one: the matcher says
// which may matter, and only inside a traceback every line is read. One Scanner reads all files one after the other;
// one thread.
//
//   Scanner scanner(matcher, rows, &findings);
//   scanner.Begin(source_index, year);
//   while (...) scanner.Feed(chunk);   // whole lines; the last one may lack its newline
//   scanner.End();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/findings.h"
#include "diagnose/matcher.h"
#include "diagnose/rank_ends.h"
#include "diagnose/signatures.h"
#include "diagnose/traceback.h"
#include "record/progress_tracker.h"

namespace lockstep::diagnose {

// The rows and the scanner's own patterns, compiled. Keep the rows alive as long as the result.
Result<std::unique_ptr<Matcher>> CompilePatterns(const std::vector<Signature>& rows,
                                                 Matcher::Engine engine = Matcher::Engine::kBest);

class Scanner {
 public:
  Scanner(Matcher& matcher, const std::vector<Signature>& rows, Findings* findings);

  void Begin(uint32_t source, int year, uint64_t first_line = 1);
  void Feed(std::string_view chunk);
  void End();

  // The row that speaks for a line (the program's own words), or -1. Also used by the table's tests.
  int BestRow(std::string_view text, Match* match);

 private:
  struct Speaker {
    uint32_t stream = 0;
    record::ProgressTracker progress;
    bool epoch_seen = false;
    uint64_t epoch_position = 0;
    std::unique_ptr<Traceback> traceback;
    double traceback_time = 0;
    bool traceback_exact = false;
    Level traceback_level = Level::kNone;
    int traceback_rank = -1;
    std::string traceback_node;
    bool traceback_thread = false;  // not of the main thread
  };
  struct Line {
    uint64_t number = 0;
    std::string_view raw;  // with nothing taken off
    Origin origin;
    double time = 0;
    bool exact = false;
  };

  void Visit(std::string_view chunk, size_t begin, size_t end, size_t at, const std::vector<uint32_t>& patterns);
  Speaker& SpeakerOf(const Origin& origin);
  void Match_(const Line& line, Speaker& speaker, const std::vector<uint32_t>& patterns);
  void CloseTraceback(Speaker& speaker);
  static bool ReadEpochLine(std::string_view text, Speaker* speaker);
  void KeepLastWords(std::string_view chunk);
  bool ReadEscaped(const Line& line, Speaker& speaker);
  void ReadProgress(std::string_view raw, uint64_t number, Speaker& speaker, double time);
  double TimeBefore(std::string_view chunk, size_t begin) const;
  void AddErrorLine(const Line& line, Speaker& speaker);
  LogFinding NewFinding(const Line& line, const Speaker& speaker) const;
  void FillFromRow(int row, const Match& match, LogFinding* finding) const;
  bool Better(int row, const Match& match, int than, const Match& other) const;

  Matcher& matcher_;
  const std::vector<Signature>& rows_;
  Findings* findings_;
  uint32_t source_ = 0;
  int year_ = 1970;
  LineStyle style_;
  bool styled_ = false;
  uint64_t lines_ = 0;  // complete lines before the chunk
  int open_ = 0;        // speakers inside a traceback
  std::map<std::string, Speaker> speakers_;
  RankEndReader ends_;
  std::string clean_, uncoloured_;
  std::optional<Frame> place_;  // of a syntax error that has no traceback
  std::vector<Matcher::Candidate> candidates_;
};

}  // namespace lockstep::diagnose
