// How ranks ended, as launchers and schedulers say it in a log: torchrun's table of failures and its "failed
// (exitcode: ...)" line, srun, mpirun, DeepSpeed, accelerate, torch.multiprocessing. One reader per file, lines in
// order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnose/findings.h"

namespace lockstep::diagnose {

// The pattern of lines worth giving to the reader.
extern const char* const kEndLines;

class RankEndReader {
 public:
  // Ends that this line completes; usually none.
  std::vector<RankEnd> Feed(std::string_view text, double time);
  // "-- Process 3 terminated with the following error:" was the last such line; -1: none. Reading it forgets it.
  int TakeSpawned();

 private:
  RankEnd pending_;
  bool root_ = false;
  int spawned_ = -1;
};

// "0-3,7" as numbers; at most 4096.
std::vector<int> ReadRanges(std::string_view text);

// The name of a signal as the shells and libc print it ("Killed", "Segmentation fault", "SIGBUS"); 0: none.
int SignalOfText(std::string_view text);
const char* SignalName(int signal);
// What a signal says about its cause when nobody else says anything.
const char* SignalMeaning(int signal);

// "exit-sigkill"; a signal without a name: "signal-42".
std::string SignalId(int signal);

// "ended with code 1", "was ended by SIGKILL: killed from outside; ...".
std::string EndWords(const RankEnd& end);
// An end as a finding that can be weighed against what the logs say; `explained`: the rank has said something itself.
LogFinding EndFinding(const RankEnd& end, bool explained);

// What is known about a rank that a signal ended when nobody else says anything.
struct SignalAdvice {
  int signal;
  int weight;
  Policy policy;
  const char* remedy;
};
const SignalAdvice& AdviceFor(int signal);

}  // namespace lockstep::diagnose
