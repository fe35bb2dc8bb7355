// Command lines of well-known projects, with the meaning torchrun's own parser gives them (torchrun_lines.json; an
// integration test derives it again from the installed torch). Replacing the word torchrun must not change any of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "cli/run_flags.h"
#include "paths.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

std::string StreamText(const launch::StreamSet& set) {
  if (set.by_local_rank.empty()) return std::to_string(set.all);
  std::vector<std::string> parts;
  for (const auto& [rank, streams] : set.by_local_rank) parts.push_back(fmt::format("{}:{}", rank, streams));
  return fmt::format("{}", fmt::join(parts, ","));
}

// The options in torchrun's words, without what equals torchrun's defaults.
json InTorchrunsWords(const launch::RunOptions& o) {
  json out = {{"program", o.program}, {"args", o.args}};
  if (o.place.nnodes) out["nnodes"] = *o.place.nnodes;
  if (o.place.nproc_per_node && *o.place.nproc_per_node != "1") out["nproc_per_node"] = *o.place.nproc_per_node;
  if (o.place.node_rank.value_or(0) != 0) out["node_rank"] = *o.place.node_rank;
  if (o.place.master_addr.value_or("127.0.0.1") != "127.0.0.1") out["master_addr"] = *o.place.master_addr;
  if (o.place.master_port) out["master_port"] = *o.place.master_port;
  if (!o.place.rdzv_backend.empty()) out["rdzv_backend"] = o.place.rdzv_backend;
  if (!o.place.rdzv_endpoint.empty()) out["rdzv_endpoint"] = o.place.rdzv_endpoint;
  if (!o.rdzv_id.empty()) out["rdzv_id"] = o.rdzv_id;
  if (!o.rdzv_conf.empty()) out["rdzv_conf"] = o.rdzv_conf;
  if (o.max_restarts) out["max_restarts"] = o.max_restarts;
  if (o.role != "default") out["role"] = o.role;
  if (!o.log_dir.empty()) out["log_dir"] = o.log_dir;
  if (!o.local_addr.empty()) out["local_addr"] = o.local_addr;
  if (StreamText(o.redirects) != "0") out["redirects"] = StreamText(o.redirects);
  if (o.tee && StreamText(*o.tee) != "0") out["tee"] = StreamText(*o.tee);
  if (o.local_ranks_filter) out["local_ranks_filter"] = fmt::format("{}", fmt::join(*o.local_ranks_filter, ","));
  if (o.bind == launch::Bind::kCores) out["numa_binding"] = "exclusive";
  if (o.grace != std::chrono::seconds(15)) out["shutdown_timeout"] = o.grace.count() / 1000;
  if (!o.signals.empty()) {
    std::vector<std::string> names;
    for (int signal : o.signals) names.push_back(SignalName(signal));
    out["signals_to_handle"] = fmt::format("{}", fmt::join(names, ","));
  }
  for (const auto& [name, on] :
       std::vector<std::pair<const char*, bool>>{{"standalone", o.place.standalone},
                                                 {"module", o.module},
                                                 {"no_python", o.no_python},
                                                 {"run_path", o.run_path},
                                                 {"virtual_local_rank", o.virtual_local_rank}}) {
    if (on) out[name] = true;
  }
  return out;
}

// Brings the two forms in which the same thing may be written to one.
json Normal(json expect) {
  if (expect.contains("nnodes")) {
    const std::string text = expect["nnodes"];
    expect["nnodes"] = std::stoi(text.substr(text.find(':') == std::string::npos ? 0 : text.find(':') + 1));
  }
  if (expect.contains("rdzv_conf")) {
    std::map<std::string, std::string> conf;
    std::stringstream text(expect["rdzv_conf"].get<std::string>());
    for (std::string pair; std::getline(text, pair, ',');) {
      conf[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
    }
    expect["rdzv_conf"] = conf;
  }
  return expect;
}

json Lines() {
  std::ifstream file(SourceDir() + "/tests/cli/torchrun_lines.json");
  return json::parse(file);
}

TEST(TorchrunLines, EveryKnownCommandLineMeansWhatTorchrunMakesOfIt) {
  const json lines = Lines();
  ASSERT_GE(lines.size(), 25u);
  for (const json& line : lines) {
    SCOPED_TRACE(line["name"].get<std::string>());
    std::vector<std::string> args = {"run"};
    for (const json& arg : line["argv"]) args.push_back(arg);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    const Environment env = line.value("variables", Environment{});
    const auto flags = ParseRunFlags(static_cast<int>(argv.size()), argv.data(), env, ParseMode::kRun);
    ASSERT_TRUE(flags.ok()) << flags.status().ToString();
    EXPECT_EQ(InTorchrunsWords(flags->options), Normal(line["expect"]));
  }
}

}  // namespace
}  // namespace lockstep::cli
