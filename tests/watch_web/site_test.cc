// What the page is told of runs, and their reports, without a socket. The page in a browser: test_watch_web.py.
#include "watch/web/site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "watch/web/report.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;

class SiteTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
    Write("run.json", R"({"format": 1, "name": "flaky", "world_size": 2, "nnodes": 1, "started": 1.79e9})");
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(*dir_ / "runs") / "flaky" / name;
    std::filesystem::create_directories(path.parent_path());
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
  }
  void WriteLog(int rank) const {
    std::string text;
    for (int step = 1; step <= 30; ++step) {
      text += fmt::format("step {}/30 loss {} 0.250 s/it\n", step, 30.0 / step);
    }
    Write(fmt::format("logs/attempt-0/node-0/rank-{}.log", rank), text);
  }
  std::unique_ptr<Watch> Open() const {
    Result<std::unique_ptr<Watch>> opened = Watch::Open(*dir_ / "runs", "flaky");
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return std::move(*opened);
  }
  Site Looked(Access access = {}) const {
    std::vector<std::unique_ptr<Watch>> runs;
    runs.push_back(Open());
    Site site(std::move(runs), std::move(access));
    site.Poll(1.79e9);
    while (site.Build(Millis(10))) {
    }
    return site;
  }
  static json Ask(Site* site, const std::string& path, std::map<std::string, std::string> query = {}) {
    const HttpResponse answer =
        site->Answer({.method = "GET", .path = path, .query = std::move(query), .headers = {{"host", "localhost"}}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body);
  }

  std::optional<TempDir> dir_;
};

TEST_F(SiteTest, AProgramWithoutMetricLinesHasTheCurveOfItsProgressLines) {
  WriteLog(0);
  Site site = Looked();
  EXPECT_EQ(Ask(&site, "/api/state")["runs"][0]["series"], json({"loss"}));
  for (const char* rank : {"", "0"}) {
    const json curve = Ask(&site, "/api/chart", {{"run", "0"}, {"name", "loss"}, {"rank", rank}});
    EXPECT_EQ(curve["x"].size(), 30u);
    EXPECT_EQ(curve["mean"][29], 1.0);
  }
  const HttpResponse page = site.Answer({.path = "/", .headers = {{"host", "localhost"}}});
  EXPECT_THAT(page.body, testing::ContainsRegex(R"("curves":\[\{"loss":)"));

  const Result<RunReport> report = MakeReport(Open());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_THAT(KeyFigures(*report), testing::Contains(testing::Pair("time per step", "250ms")));
  EXPECT_THAT(KeyFigures(*report), testing::Contains(testing::Pair("loss", "1 at the end, 1 at least")));
  EXPECT_THAT(ReportHtml(*report, nullptr), testing::HasSubstr("<svg"));
  EXPECT_EQ(StepsText(report->goodput, {}), "unknown") << "only metric lines say it of an attempt";
}

TEST_F(SiteTest, ALossInMetricLinesIsDrawnFromThem) {
  WriteLog(0);
  for (const char* name : {"loss", "rank/loss"}) {
    std::filesystem::remove_all(*dir_ / "runs/flaky/pyramid");
    Write("metrics/rank-0.jsonl",
          fmt::format(R"({{"t": 1.79e9, "attempt": 0, "rank": 0, "step": 7, "scalars": {{"{}": 0.5}}}})", name) + "\n");
    Site site = Looked();
    EXPECT_EQ(Ask(&site, "/api/state")["runs"][0]["series"], json({name}));
  }
}

TEST_F(SiteTest, AReportLeavesOutAStartThatIsNoTime) {
  for (const char* t : {"1e30", "-5", "\"soon\""}) {
    Write("events.jsonl", fmt::format(R"({{"t": {}, "type": "run_started"}})", t) + "\n");
    Write("run.json", fmt::format(R"({{"format": 1, "name": "flaky", "started": {}}})", t));
    for (const auto& [name, value] : KeyFigures(*MakeReport(Open()))) EXPECT_NE(name, "started") << value;
  }
}

TEST_F(SiteTest, AReportSaysOfALossThatBecameNanThatItIsNoNumber) {
  const auto loss_figure = [&] {
    const Result<RunReport> report = MakeReport(Open());
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    for (const auto& [name, value] : KeyFigures(*report)) {
      if (name == "loss") return value;
    }
    return std::string();
  };
  Write("logs/attempt-0/node-0/rank-0.log", "step 1/9 loss 2.0\nstep 2/9 loss 1.0\nstep 3/9 loss nan\n");
  EXPECT_EQ(loss_figure(), "nan at the end, 1 at least");
  std::string lines;
  for (const auto& [step, value] : {std::pair(1, "0.5"), std::pair(2, "\"nan\"")}) {
    lines +=
        fmt::format(R"({{"t": 1.79e9, "step": {}, "scalars": {{"loss": {}, "norm": "inf"}}}})", step, value) + "\n";
  }
  Write("metrics/rank-0.jsonl", lines);
  EXPECT_EQ(loss_figure(), "nan at the end, 0.5 at least");
  const json metrics = ReportJson(*MakeReport(Open()), nullptr)["metrics"];
  EXPECT_EQ(metrics["loss"]["last"], "nan");
  EXPECT_EQ(metrics["loss"]["mean"], 0.5);
  EXPECT_EQ(metrics["norm"]["greatest"], "nan");
}

TEST_F(SiteTest, RanksComeByColumnsAndWhatAllHaveInCommonOnce) {
  for (int rank = 0; rank < 2; ++rank) {
    Write(fmt::format("metrics/rank-{}.jsonl", rank),
          fmt::format(R"({{"t": 1.79e9, "attempt": 0, "rank": {0}, "step": 7, "scalars": {{"rank/loss": 0.{0}}}}})",
                      rank) +
              "\n");
  }
  Site site = Looked();
  const json run = Ask(&site, "/api/state")["runs"][0];
  EXPECT_EQ(run["ranks"]["n"], 2);
  EXPECT_EQ(run["ranks"]["rank"], json({0, 1}));
  EXPECT_EQ(run["ranks"]["step"], json::array({7}));
  EXPECT_EQ(run["ranks"]["loss"], json({0.0, 0.1}));
  EXPECT_EQ(run["ranks"]["cpu"], json::array({nullptr}));
  EXPECT_FALSE(run.contains("loss_curve"));
}

TEST_F(SiteTest, ChartsOfAnyNumberOfRanksKeepFewFilesOpen) {
  const int ranks = 150;
  std::filesystem::create_directories(*dir_ / "runs/flaky/metrics");
  for (int rank = 0; rank < ranks; ++rank) {
    std::ofstream(*dir_ / fmt::format("runs/flaky/metrics/rank-{}.jsonl", rank))
        << fmt::format(R"({{"t": 1.79e9, "attempt": 0, "rank": {0}, "step": 7, "scalars": {{"rank/loss": {0}}}}})",
                       rank)
        << "\n";
  }
  Site site = Looked();
  const auto open = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const auto before = open();
  for (int rank : {0, 1, 2})
    Ask(&site, "/api/chart", {{"run", "0"}, {"name", "rank/loss"}, {"rank", fmt::to_string(rank)}});
  for (int rank = ranks - 1; rank >= 0; --rank) {
    const json curve = Ask(&site, "/api/chart", {{"run", "0"}, {"name", "rank/loss"}, {"rank", fmt::to_string(rank)}});
    EXPECT_EQ(curve["mean"], json::array({rank}));
  }
  EXPECT_LE(open() - before, 32);
}

TEST_F(SiteTest, TheTokenMayComeInAnySpellingOfItsScheme) {
  Site site = Looked({.token = "0123456789abcdef"});
  const std::pair<const char*, int> cases[] = {{"Bearer 0123456789abcdef", 200},
                                               {"bearer 0123456789abcdef", 200},
                                               {"BEARER 0123456789abcdef", 200},
                                               {"bearer 0123456789ABCDEF", 401},
                                               {"Bearer", 401},
                                               {"Basic 0123456789abcdef", 401}};
  for (const auto& [given, status] : cases) {
    EXPECT_EQ(site.Answer({.path = "/api/state", .headers = {{"authorization", given}}}).status, status) << given;
  }
}

TEST_F(SiteTest, ServersOnTwoPortsOfAHostHaveTheirOwnCookies) {
  const std::string token = "0123456789abcdef";
  Site site = Looked({.token = token});
  const HttpResponse moved =
      site.Answer({.path = "/", .query = {{"token", token}}, .headers = {{"host", "node-a:7077"}}});
  EXPECT_EQ(moved.status, 303);
  EXPECT_THAT(moved.headers.at("Set-Cookie"), testing::StartsWith("lockstep_watch_7077=" + token + ";"));
  const std::string both = "lockstep_watch_8000=another-token-here; lockstep_watch_7077=" + token;
  for (const auto& [host, status] : {std::pair("node-a:7077", 200), {"node-a:8000", 401}, {"node-a", 401}}) {
    const HttpResponse answer = site.Answer({.path = "/api/state", .headers = {{"host", host}, {"cookie", both}}});
    EXPECT_EQ(answer.status, status) << host;
  }
}

}  // namespace
}  // namespace lockstep::watch
