// Every platform contract and every trap as a pair of files: <case>.env is the environment, <case>.json what the
// contract says about it (written from the contract, not from the program's output).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/env_file.h"
#include "paths.h"
#include "place/describe.h"
#include "place/machine.h"
#include "place/placement.h"
#include "place/platforms.h"

namespace lockstep::place {
namespace {

using nlohmann::json;

const std::string kFixtures = SourceDir() + "/tests/place/fixtures/";

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

Flags FlagsOf(const json& spec) {
  Flags flags;
  for (const auto& [key, value] : spec.items()) {
    if (key == "nnodes")
      flags.nnodes = value;
    else if (key == "node_rank")
      flags.node_rank = value;
    else if (key == "nproc_per_node")
      flags.nproc_per_node = value;
    else if (key == "level")
      flags.level = value == "node" ? Level::kNode : Level::kProcess;
    else if (key == "master_addr")
      flags.master_addr = value;
    else if (key == "master_port")
      flags.master_port = value;
    else if (key == "rdzv_backend")
      flags.rdzv_backend = value;
    else if (key == "rdzv_endpoint")
      flags.rdzv_endpoint = value;
    else if (key == "standalone")
      flags.standalone = value;
    else
      ADD_FAILURE() << "unknown flag " << key;
  }
  return flags;
}

Placement Place(const Environment& env, const json& spec) {
  MachineOptions options;
  options.gpus = spec.at("gpus");
  options.cpus = spec.at("cpus");
  options.host = spec.at("host");
  options.foreign_environment = true;
  Machine machine = ReadMachine(env, options);
  machine.sibling_ranks = spec.value("sibling_ranks", std::vector<int>{});
  machine.outer_launcher = spec.value("outer_launcher", "");
  return Resolve(env, FlagsOf(spec.value("flags", json::object())), machine);
}

class Fixture : public testing::TestWithParam<std::string> {};

TEST_P(Fixture, SaysWhatTheContractSays) {
  const json spec = json::parse(Slurp(kFixtures + GetParam() + ".json"));
  Result<Environment> env = ParseEnvFile(Slurp(kFixtures + GetParam() + ".env"), GetParam());
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  const Placement placement = Place(*env, spec);
  const json got = ToJson(placement);
  SCOPED_TRACE(spec.at("about").get<std::string>() + "\n" + ToText(placement, false));

  for (const auto& [key, value] : spec.at("expect").items()) EXPECT_EQ(got.at(key), value) << key;
  if (spec.contains("hosts")) EXPECT_EQ(json(placement.hosts), spec.at("hosts"));
  if (spec.contains("nproc_by_node")) EXPECT_EQ(json(placement.nproc_by_node), spec.at("nproc_by_node"));

  std::string evidence;
  for (const Evidence& item : placement.evidence) {
    evidence += item.source + " | " + item.says + "\n";
    EXPECT_THAT(item.weight, testing::AnyOf("decides", "supports", "contradicts", "ignored"));
  }
  for (const std::string& part : spec.value("evidence", std::vector<std::string>{}))
    EXPECT_THAT(evidence, testing::HasSubstr(part));
  EXPECT_FALSE(placement.evidence.empty());

  std::string warnings;
  for (const std::string& warning : placement.warnings) warnings += warning + "\n";
  for (const std::string part : spec.at("warnings")) EXPECT_THAT(warnings, testing::HasSubstr(part));

  if (spec.at("error").is_null()) {
    EXPECT_TRUE(placement.error.ok()) << placement.error.ToString();
    EXPECT_EQ(placement.warnings.empty(), spec.at("warnings").empty()) << warnings;
    EXPECT_TRUE(placement.level.has_value());
    if (placement.nproc_per_node) EXPECT_FALSE(placement.nproc_source.empty());
  } else {
    ASSERT_FALSE(placement.error.ok());
    for (const std::string part : spec.at("error")) EXPECT_THAT(placement.error.ToString(), testing::HasSubstr(part));
    EXPECT_FALSE(placement.error.hint().empty());
    EXPECT_EQ(ExitCode(placement.error), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Contracts, Fixture, testing::ValuesIn(Cases()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Fixtures, EveryRowOfThePlatformTableHasOne) {
  std::set<std::string> seen;
  for (const std::string& name : Cases())
    seen.insert(json::parse(Slurp(kFixtures + name + ".json")).at("expect").value("platform", ""));
  // Rows whose placement goes by a finer name once the level is known.
  if (seen.contains("slurm-step") && seen.contains("slurm-batch") && seen.contains("slurm-allocation"))
    seen.insert("slurm");
  if (seen.contains("bare-node") && seen.contains("bare-process")) seen.insert("bare");
  for (const Platform& row : Platforms()) EXPECT_TRUE(seen.contains(std::string(row.name))) << row.name;
}

// `eval "$(lockstep env)"` and then `lockstep run`: the second answer must be the first.
TEST(Fixtures, ExportedVariablesAreReadBackAsTheSamePlacement) {
  for (const std::string& name : Cases()) {
    const json spec = json::parse(Slurp(kFixtures + name + ".json"));
    Environment env = *ParseEnvFile(Slurp(kFixtures + name + ".env"), name);
    const Placement first = Place(env, spec);
    // A job started once is not the one that its srun starts; what is unknown stays unknown.
    if (!first.error.ok() || first.starts == Starts::kOnce || !first.nnodes || !first.node_rank) continue;
    std::istringstream lines(ToShell(first));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("unset "))
        env.erase(line.substr(6));
      else
        env[line.substr(7, line.find('=') - 7)] = line.substr(line.find('=') + 1);
    }
    const Placement second = Place(env, spec);
    SCOPED_TRACE(name + "\n" + ToText(first, false) + ToText(second, false));
    EXPECT_TRUE(second.error.ok());
    EXPECT_EQ(first.nnodes, second.nnodes);
    EXPECT_EQ(first.node_rank, second.node_rank);
    EXPECT_EQ(first.nproc_per_node, second.nproc_per_node);
    EXPECT_EQ(first.world_size, second.world_size);
    EXPECT_EQ(first.rank, second.rank);
    if (first.nproc_per_node != 1) EXPECT_EQ(first.level, second.level);  // one rank is both
    EXPECT_EQ(first.master_addr, second.master_addr);
  }
}

}  // namespace
}  // namespace lockstep::place
