#include "record/samples.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "base/files.h"

namespace lockstep::record {
namespace {

NodeSample Full() {
  NodeSample sample;
  sample.t = 1763200000.123;
  sample.attempt = 2;
  sample.node = 1;
  sample.host = "gpu-7";
  sample.launcher = 4242;
  sample.n = 731;
  sample.cpu_percent = 812.5;
  sample.cpu_cores = 64;
  sample.memory_used = 51539607552.0;
  GpuSample gpu;
  gpu.gpu = 3;
  gpu.uuid = "GPU-8f";
  gpu.util = 97;
  gpu.power = 512.5;
  gpu.throttle = {"sw power cap"};
  gpu.xid = 94;
  sample.gpus = {gpu};
  RankSample rank;
  rank.rank = 8;
  rank.pid = 4711;
  rank.rss = 1e9;
  rank.step = 1200;
  rank.loss = std::nan("");
  rank.steps = 3;
  rank.seconds = {{"data", 0.25}, {"step", 0.9125}};
  rank.wait_peer = 0;
  rank.wait_seconds = 0.5;
  sample.ranks = {rank};
  LinkSample link;
  link.name = "mlx5_0:1";
  link.kind = "infiniband";
  link.errors = 7;
  sample.links = {link};
  return sample;
}

std::string Line(const NodeSample& sample) {
  std::string line;
  AppendSampleLine(sample, &line);
  return line;
}

TEST(Samples, AreReadBackAsTheyWereWritten) {
  const std::string line = Line(Full());
  ASSERT_EQ(line.back(), '\n');
  const auto read = ParseSampleLine(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(read);
  EXPECT_EQ(Line(*read), line);
  EXPECT_EQ(read->ranks.at(0).Seconds("data"), 0.25);
  EXPECT_TRUE(std::isnan(read->ranks.at(0).loss.value()));
  EXPECT_FALSE(read->ranks.at(0).cpu);  // unknown is not zero
  EXPECT_TRUE(read->gpus.at(0).ThrottledByPower());
  EXPECT_FALSE(read->gpus.at(0).ThrottledByHeat());
}

TEST(Samples, WhatIsMalformedIsLeftOut) {
  const std::pair<const char*, bool> cases[] = {
      {"", false},
      {"7", false},
      {"{}", false},
      {R"({"t": 1})", false},
      {R"({"t": "soon", "node": 1})", false},
      {R"({"t": "inf", "node": 1})", false},
      {R"({"t": 1, "node": -1})", false},
      {R"({"t": 1, "node": 99999999999})", false},
      {R"({"t": 1, "node": 0})", true},
      {R"({"t": 1, "node": 0, "ranks": [7, {"rank": "x"}, {"rank": 1e300}], "gpus": {"gpu": 0}, "links": [{}]})", true},
      {R"({"t": 1, "node": 0, "cpu": 3, "memory": [1], "n": -5, "launcher": "me"})", true},
  };
  for (const auto& [text, read] : cases) {
    const auto sample = ParseSampleLine(text);
    EXPECT_EQ(sample.has_value(), read) << text;
    if (!sample) continue;
    EXPECT_TRUE(sample->ranks.empty() && sample->gpus.empty() && sample->links.empty()) << text;
  }
}

// Random changes of a line: what the scanner takes is what the parser of any JSON reads, and lines as they are written
// are taken.
TEST(Samples, TheScannerReadsWhatTheParserReads) {
  NodeSample full = Full();
  full.dropped = 3;
  full.cpu_load = 0.25;
  full.memory_total = 1e12;
  full.ranks.resize(3, full.ranks[0]);
  full.gpus[0].error = "lost";
  full.links.resize(2, full.links[0]);
  const std::string line = Line(full).substr(0, Line(full).size() - 1);
  NodeSample scanned;
  ASSERT_TRUE(ScanSampleLine(line, &scanned));
  EXPECT_EQ(Line(scanned), Line(full));
  const std::string_view pieces[] = {"0",
                                     "-0",
                                     "-0.0",
                                     "1e3",
                                     "1E-2",
                                     "007",
                                     "1.",
                                     ".5",
                                     "1e999",
                                     "1e-999",
                                     "-",
                                     "1e",
                                     "\"nan\"",
                                     "true",
                                     "null",
                                     "{}",
                                     "[]",
                                     "[",
                                     "}",
                                     ",",
                                     ":",
                                     "\"",
                                     "\\u0041",
                                     "\xc3\xa9",
                                     "\xff",
                                     " ",
                                     "\t",
                                     "\n",
                                     "9007199254740993",
                                     "18446744073709551615",
                                     "-1",
                                     "2147483648",
                                     "\"t\": 2, ",
                                     "\"node\": 7, ",
                                     "\"new\": [1], ",
                                     "\"gpus\": [], "};
  std::mt19937 draw(7);
  size_t taken = 0, read = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string text = line;
    for (unsigned change = draw() % 3; change < 3; ++change) {
      const std::string_view piece = pieces[draw() % std::size(pieces)];
      text.replace(draw() % text.size(), draw() % 4, draw() % 4 == 0 ? std::string_view() : piece);
    }
    const auto parsed = ReadSample(nlohmann::json::parse(text, nullptr, false));
    read += parsed.has_value();
    ASSERT_EQ(ParseSampleLine(text).has_value(), parsed.has_value()) << text;
    if (!ScanSampleLine(text, &scanned)) continue;
    ++taken;
    ASSERT_TRUE(parsed) << text;
    ASSERT_EQ(Line(scanned), Line(*parsed)) << text;
    ASSERT_EQ(scanned.t, parsed->t) << text;
  }
  EXPECT_GT(taken, 10u);
  EXPECT_GT(read, taken);
}

TEST(Samples, ALineThatWouldBeTooLongIsCutAtItsEnd) {
  NodeSample sample = Full();
  sample.ranks.resize(4000, sample.ranks[0]);
  sample.gpus.resize(1000, sample.gpus[0]);
  const std::string line = Line(sample);
  EXPECT_LE(line.size(), kLongestSampleLine);
  const auto read = ParseSampleLine(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(read);
  EXPECT_GT(read->ranks.size(), 500u);
  EXPECT_TRUE(read->links.empty());
}

TEST(Samples, AFileIsThinnedAndAFollowerSeesEachSampleOnce) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  const size_t limit = 40 * Line(Full()).size();
  SampleWriter writer(folder->path(), limit);
  SampleReader reader(folder->path());
  std::vector<uint64_t> seen;
  const uint64_t count = 500;
  for (uint64_t n = 0; n < count; ++n) {
    NodeSample sample = Full();
    sample.n = n;
    sample.t = static_cast<double>(count - n);  // a clock that goes backwards hides nothing
    writer.Write(sample);
    reader.Read([&](const NodeSample& one) { seen.push_back(one.n); });
  }
  EXPECT_EQ(writer.lost(), 0u) << writer.error().message();
  ASSERT_EQ(seen.size(), count);
  for (uint64_t n = 0; n < count; ++n) EXPECT_EQ(seen[n], n);
  const auto text = ReadFile(SamplePath(folder->path(), 1));
  ASSERT_TRUE(text.ok());
  EXPECT_LE(text->size(), limit);
  std::vector<uint64_t> kept;
  SampleFollower late(SamplePath(folder->path(), 1));
  late.Read([&](const NodeSample& one) { kept.push_back(one.n); });
  ASSERT_GT(kept.size(), 10u);
  EXPECT_EQ(kept.front(), 0u);  // the whole run is covered
  EXPECT_EQ(kept.back(), count - 1);
  EXPECT_EQ(kept[kept.size() - 5], count - 5);  // the newest part fully
}

TEST(Samples, ATornLineIsClosedAndWhatTheDiskRefusesIsCounted) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(MakeDirs(TelemetryDir(folder->path())).ok());
  std::ofstream(SamplePath(folder->path(), 1)) << "{\"t\": 1, \"no";
  SampleWriter writer(folder->path(), 1u << 20);
  writer.Write(Full());
  SampleReader reader(folder->path());
  int seen = 0;
  reader.Read([&](const NodeSample&) { ++seen; });
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(reader.bad_lines(), 1u);
  ASSERT_TRUE(MakeDirs(SamplePath(folder->path(), 2)).ok());  // a folder in its place
  NodeSample other = Full();
  other.node = 2;
  writer.Write(other);
  EXPECT_EQ(writer.lost(), 1u);
  EXPECT_EQ(SampledNodes(folder->path()), (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace lockstep::record
