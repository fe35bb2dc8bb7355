// One job as its author describes it (docs/formats/job.md), before any platform: what to start, on how many nodes, with
// what. Read from a file, then changed by flags; Problems() says what is wrong with it, everything at once.
// Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config_tree.h"
#include "base/status.h"

namespace lockstep::submit {

struct Mount {
  std::string from;  // an absolute path of the node, or pvc/NAME
  std::string to;    // an absolute path in the container
  bool read_only = false;
};

struct Job {
  std::string name;                  // empty: from the program
  std::string platform;              // empty: detected
  std::vector<std::string> program;  // a command line; "lockstep train ..." and "lockstep run ..." are known
  std::vector<std::string> flags;    // further flags of `lockstep run`
  int nodes = 1;
  bool nodes_given = false;              // else as many as hosts
  std::optional<int> gpus, ranks, cpus;  // per node
  std::optional<uint64_t> memory, shm;   // per node, bytes
  std::optional<std::chrono::milliseconds> time;
  std::chrono::milliseconds grace{120000};  // to save the state when stopped
  int failures = 0;                         // restarts of a failed job
  int resumes = 100;                        // times that a job which saved its state is queued again
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> secrets;  // variable -> SECRET/KEY of Kubernetes, or a file of the nodes
  std::vector<Mount> mounts;
  std::map<std::string, int> rdma;  // resources of Kubernetes
  std::string image, container, workdir, lockstep;
  std::string queue, partition, account, name_space, service_account, runtime, array, output;
  std::vector<std::string> hosts, native, setup;
};

// Reads a description; every mistake at once, each with line and nearest name.
Result<Job> ReadJob(const ConfigTree& tree);

// The words of a command line as a shell reads them: quotes and backslashes, no expansion. What only a shell could do
// (pipes, variables, redirections) is an error.
Result<std::vector<std::string>> SplitWords(std::string_view text);

// The command line taken apart: "lockstep train taehv" is {"train", {"taehv"}}; anything else is {"run", all of it}.
struct Command {
  std::string lockstep;  // as written, where it has a slash
  std::string subcommand;
  std::vector<std::string> words;
};
Command CommandOf(const Job& job);

// A name for a job that has none: the program's, in lower case, as every platform allows it.
std::string DefaultName(const Job& job);

// Why this variable must not stand in a file; empty for one that may.
std::string SecretReason(std::string_view name, std::string_view value);

// The same for words of a command line or of a line of bash: "HF_TOKEN: its name says ...", without the value.
// References (TOKEN=$TOKEN, $(cat FILE)) hide nothing.
std::string SecretIn(const std::vector<std::string>& words);

// What is wrong with the job whatever the platform; empty when nothing is.
std::vector<std::string> Problems(const Job& job);

}  // namespace lockstep::submit
