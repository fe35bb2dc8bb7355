#include "preflight/compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/text.h"
#include "paths.h"
#include "preflight/all_nodes.h"

namespace lockstep::preflight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<NodeFacts> Nodes(int count) {
  std::vector<NodeFacts> all;
  for (int i = 0; i < count; ++i) {
    NodeFacts facts;
    facts.host = fmt::format("h{}", i);
    facts.boot_id = fmt::format("boot-{}", i);
    facts.gpus = {{fmt::format("GPU-{}a", i), "H800"}, {fmt::format("GPU-{}b", i), "H800"}};
    facts.software = {{"PyTorch", "2.5.1"}, {"driver", "550"}};
    facts.env = {{"NCCL_DEBUG", "WARN"}};
    facts.trees["code"] = {"/job", "xxh3-128:aaaabbbbcccc", "0123456789abcdef", 3, false, "", {}};
    facts.net.address = fmt::format("10.0.0.{}", i + 1);
    facts.net.addresses = {facts.net.address};
    facts.net.mtu = 1500;
    facts.net.gbit = 100;
    facts.net.probe.range_ports = {20000};
    all.push_back(facts);
  }
  return all;
}

std::vector<Findings> AllReached(int count) {
  std::vector<Findings> findings(static_cast<size_t>(count));
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      Reached reached;
      reached.node = to;
      reached.round_trip = 1e-4;
      reached.mtu_sent = reached.mtu_through = 1500;
      findings[static_cast<size_t>(from)].reached.push_back(reached);
    }
  }
  return findings;
}

CheckOutcome Find(const std::vector<CheckResult>& results, const std::string& id) {
  for (const CheckResult& result : results) {
    if (result.id == id) return result.outcome;
  }
  ADD_FAILURE() << "no result " << id;
  return {};
}

TEST(CompareFacts, EqualNodesAgreeOnEverything) {
  for (const CheckResult& result : CompareFacts(Nodes(4))) {
    EXPECT_LE(result.outcome.state(), State::kSkipped) << result.id << result.outcome.ToJson();
  }
}

TEST(CompareFacts, TheMinorityIsNamedFirst) {
  auto all = Nodes(4);
  all[2].software["PyTorch"] = "2.4.0";
  const CheckOutcome outcome = Find(CompareFacts(all), "same-software");
  EXPECT_EQ(outcome.state(), State::kFail);
  EXPECT_EQ(outcome.problems[0].text, "PyTorch: node 2 (h2) has 2.4.0, nodes 0, 1, 3 (h0, h1, h3) have 2.5.1");
  EXPECT_THAT(outcome.problems[0].nodes, ElementsAre(2));
}

TEST(CompareFacts, ADriverMayDifferWithAWarning) {
  auto all = Nodes(2);
  all[1].software["driver"] = "535";
  EXPECT_EQ(Find(CompareFacts(all), "same-software").state(), State::kWarn);
}

TEST(CompareFacts, AGpuLostOnOneNodeIsSeenByTheOthersCount) {
  auto all = Nodes(3);
  all[1].gpus.pop_back();
  const CheckOutcome outcome = Find(CompareFacts(all), "same-gpus");
  EXPECT_EQ(outcome.state(), State::kFail);
  EXPECT_THAT(outcome.problems[0].text, HasSubstr("node 1 (h1) has 1"));
}

TEST(CompareFacts, AMachineThatJoinedTwiceIsFoundByItsGpusOrByItself) {
  auto all = Nodes(3);
  all[2].gpus = all[0].gpus;
  EXPECT_THAT(Find(CompareFacts(all), "same-machine").problems[0].text,
              HasSubstr("nodes 0, 2 (h0, h2) all have GPU-0a"));
  all = Nodes(3);
  all[2] = all[1];
  all[2].gpus = all[1].gpus = {};
  EXPECT_EQ(Find(CompareFacts(all), "same-machine").state(), State::kFail);
}

TEST(CompareFacts, VariablesThatMustAgreeFailOthersWarn) {
  auto all = Nodes(2);
  all[1].env["NCCL_DEBUG"] = "INFO";
  EXPECT_EQ(Find(CompareFacts(all), "same-env").state(), State::kWarn);
  all[1].env["NCCL_ALGO"] = "Ring";
  const CheckOutcome outcome = Find(CompareFacts(all), "same-env");
  EXPECT_EQ(outcome.state(), State::kFail);
  EXPECT_EQ(outcome.problems[0].text, "NCCL_ALGO: node 1 (h1) has Ring, node 0 (h0) has none");
}

TEST(CompareFacts, DifferentCodeNamesCommitAndFiles) {
  auto all = Nodes(3);
  all[1].trees["code"].digest = "xxh3-128:ddddeeeeffff";
  all[1].trees["code"].commit = "fedcba9876543210";
  auto results = CompareFacts(all);
  EXPECT_EQ(Find(results, "same-code").state(), State::kFail);
  EXPECT_THAT(DifferingTrees(all), ElementsAre("code"));
  std::vector<Findings> findings(3);
  for (size_t i = 0; i < 3; ++i) {
    findings[i].trees["code"] = all[i].trees["code"];
    findings[i].trees["code"].entries = {{"train.py", "1"}, {"model.py", i == 1 ? "9" : "2"}};
  }
  findings[1].trees["code"].entries["extra.py"] = "3";
  NameDifferences(findings, &results);
  const std::string text = Find(results, "same-code").problems[0].text;
  EXPECT_THAT(text, HasSubstr("node 1 (h1) has 3 files at commit fedcba9876"));
  EXPECT_THAT(text, HasSubstr("different: extra.py, model.py"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("train.py")));
}

TEST(CompareClocks, OneWrongClockIsNamedEvenOnNodeZero) {
  const auto all = Nodes(3);
  EXPECT_EQ(CompareClocks(all, {{0, 0}, {0.01, 0.001}, {-0.02, 0.001}}).outcome.state(), State::kOk);
  // Measured against node 0, whose own clock is 100 s slow.
  const CheckOutcome outcome = CompareClocks(all, {{0, 0}, {100, 0.001}, {100.01, 0.001}}).outcome;
  EXPECT_EQ(outcome.state(), State::kFail);
  ASSERT_EQ(outcome.problems.size(), 1u);
  EXPECT_EQ(outcome.problems[0].text, "the clock of node 0 (h0) is 100.00 s behind the others");
  EXPECT_EQ(CompareClocks(all, {{0, 0}, {1, 0.001}, {0, 0.001}}).outcome.state(), State::kWarn);
  // Within the error of the reading nothing can be said.
  EXPECT_EQ(CompareClocks(all, {{0, 0}, {1, 0.9}, {0, 0.001}}).outcome.state(), State::kOk);
  EXPECT_THAT(CompareClocks(Nodes(2), {{0, 0}, {60, 0.001}}).outcome.problems[0].text,
              HasSubstr("the clocks of nodes 0, 1 (h0, h1) differ by 60.00 s"));
}

TEST(CompareReach, APairAndAHub) {
  const auto all = Nodes(4);
  auto findings = AllReached(4);
  EXPECT_EQ(CompareReach(all, findings, false).outcome.state(), State::kOk);
  findings[0].reached[1].trouble = "Connection refused";  // 0 -> 2
  CheckOutcome outcome = CompareReach(all, findings, false).outcome;
  EXPECT_EQ(outcome.state(), State::kFail);
  EXPECT_THAT(outcome.problems[0].text, HasSubstr("node 0 (h0) to node 2 (h2): cannot connect to 10.0.0.3"));
  // Node 2 reaches nobody: one problem, not six.
  for (Reached& reached : findings[2].reached) reached.trouble = "no answer";
  outcome = CompareReach(all, findings, false).outcome;
  ASSERT_EQ(outcome.problems.size(), 1u);
  EXPECT_THAT(outcome.problems[0].nodes, ElementsAre(2));
}

TEST(CompareRange, ClosedPortsFailTowardsNodeZeroAndWarnElsewhere) {
  const auto all = Nodes(3);
  auto findings = AllReached(3);
  findings[1].reached[0].closed = {{20000, "no answer"}};
  EXPECT_EQ(CompareRange(all, findings).outcome.state(), State::kFail);
  findings = AllReached(3);
  findings[1].reached[1].closed = {{20000, "no answer"}};
  EXPECT_EQ(CompareRange(all, findings).outcome.state(), State::kWarn);
  // A node that cannot be reached at all is not this row's.
  findings[1].reached[1].trouble = "no answer";
  EXPECT_EQ(CompareRange(all, findings).outcome.state(), State::kOk);
}

TEST(CompareMtu, NamesThePairAndTheSizeThatCameThrough) {
  const auto all = Nodes(2);
  auto findings = AllReached(2);
  EXPECT_EQ(CompareMtu(all, findings).outcome.state(), State::kOk);
  findings[0].reached[0].mtu_through = 1400;
  const CheckOutcome outcome = CompareMtu(all, findings).outcome;
  EXPECT_EQ(outcome.state(), State::kFail);
  EXPECT_THAT(outcome.problems[0].text,
              HasSubstr("node 0 (h0) to node 1 (h1): a packet of 1500 bytes is lost, 1400 came through"));
  findings[0].reached[0].udp = false;
  findings[0].reached[0].mtu_through = 0;
  EXPECT_EQ(CompareMtu(all, findings).outcome.state(), State::kWarn);
}

TEST(CompareRates, OfTwoNodesOneDirectionTellsAboutTheOther) {
  std::vector<NodeFacts> all = Nodes(2);
  for (NodeFacts& facts : all) facts.net.gbit = 0;  // no card says how fast it is
  std::vector<PairRate> rates = {{0, 1, 18e9, ""}, {1, 0, 0.02e9, ""}};
  const CheckOutcome outcome = CompareRates(all, rates, false).outcome;
  EXPECT_EQ(outcome.state(), State::kWarn);
  ASSERT_EQ(outcome.problems.size(), 1u);
  EXPECT_THAT(outcome.problems[0].text, HasSubstr("node 1 (h1) to node 0 (h0): slow: 0.02 Gbit/s, the way back 18"));
  rates[0].bits = 0.03e9;  // both are slower than any cluster
  EXPECT_EQ(CompareRates(all, rates, false).outcome.problems.size(), 2u);
  rates[0].bits = rates[1].bits = 2e9;
  EXPECT_EQ(CompareRates(all, rates, false).outcome.state(), State::kOk);
}

TEST(CompareRates, ASlowPairAmongFastOnesAndASlowLink) {
  const auto all = Nodes(4);
  std::vector<PairRate> rates;
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (from != to) rates.push_back({from, to, 20e9, ""});
    }
  }
  EXPECT_EQ(CompareRates(all, rates, false).outcome.state(), State::kOk);
  rates[3].bits = 5e9;
  EXPECT_THAT(CompareRates(all, rates, false).outcome.problems[0].text, HasSubstr("5.00 Gbit/s, the median is 20.00"));
  rates[3].bits = 0.9e9;
  EXPECT_THAT(CompareRates(all, rates, false).outcome.problems[0].text,
              HasSubstr("0.90 Gbit/s over links of 100 Gbit/s"));
}

TEST(Tournament, EverybodyMeetsEverybodyOnceAndPlaysOneAtATime) {
  for (int players : {2, 3, 4, 7, 16, 33}) {
    std::set<std::pair<int, int>> met;
    for (const auto& round : Tournament(players)) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second);
        EXPECT_TRUE(busy.insert(b).second);
        EXPECT_TRUE(met.insert({a, b}).second);
      }
    }
    EXPECT_EQ(static_cast<int>(met.size()), players * (players - 1) / 2);
  }
}

TEST(Contacts, OfManyNodesEachTriesAFewAndNobodyIsLeftOut) {
  EXPECT_EQ(Contacts(3, 8, false).size(), 7u);
  EXPECT_EQ(Contacts(3, 1000, true).size(), 999u);
  std::set<int> tried;
  size_t most = 0;
  for (int node = 0; node < 1000; ++node) {
    const auto contacts = Contacts(node, 1000, false);
    most = std::max(most, contacts.size());
    for (int peer : contacts) {
      EXPECT_NE(peer, node);
      tried.insert(peer);
    }
  }
  EXPECT_EQ(tried.size(), 1000u);
  EXPECT_LT(most, 32u);
}

TEST(NodeFacts, SurviveTheWireAndForeignDocuments) {
  auto facts = Nodes(1)[0];
  CheckOutcome outcome;
  outcome.Fail("full", "make room");
  facts.checks = {{"log-dir", outcome}, {"shm", CheckOutcome::Ok("64 GiB")}, {"data", CheckOutcome::Skip("none")}};
  EXPECT_EQ(NodeFacts::FromJson(facts.ToJson()).ToJson(), facts.ToJson());
  for (const char* text : {"null", "[]", "{\"checks\":7,\"gpus\":[1],\"network\":[],\"trees\":{\"code\":3}}"}) {
    (void)NodeFacts::FromJson(Json::parse(text)).ToJson();
    (void)Findings::FromJson(Json::parse(text)).ToJson();
    (void)PreflightReport::FromJson(Json::parse(text)).ToJson();
  }
}

TEST(Page, ListsEveryCheckAndNoOther) {
  auto page = ReadFile(SourceDir() + "/docs/preflight.md");
  ASSERT_TRUE(page.ok());
  std::set<std::string> listed, known;
  for (const std::string& line : Split(*page, '\n')) {
    if (line.starts_with("| `") && !line.starts_with("| `--")) listed.insert(line.substr(3, line.find('`', 3) - 3));
  }
  for (const Check& check : Checks()) known.insert(check.id);
  EXPECT_EQ(listed, known);
}

TEST(KeyEnvironment, TakesWhatDecidesAndNoSecrets) {
  const auto key = KeyEnvironment({{"NCCL_DEBUG", "INFO"},
                                   {"HOME", "/root"},
                                   {"CUDA_VISIBLE_DEVICES", "0"},
                                   {"TORCH_API_TOKEN", "s3cret"},
                                   {"OMP_NUM_THREADS", "8"}});
  EXPECT_EQ(key, (std::map<std::string, std::string>{{"NCCL_DEBUG", "INFO"}, {"OMP_NUM_THREADS", "8"}}));
}

}  // namespace
}  // namespace lockstep::preflight
