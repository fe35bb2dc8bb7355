// Files and folders as they are found: run directories, other launchers' folders, damage of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "base/files.h"
#include "diagnose/diagnosis.h"
#include "record/run_dir.h"

namespace lockstep::diagnose {
namespace {

using ::testing::HasSubstr;

const char kTrace[] =
    "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 31, in <module>\n    main()\nValueError: "
    "bad\n";

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(*std::move(dir));
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = *dir_ / name;
    EXPECT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomic(path, text, 0644, Durability::kProcess).ok());
    return path;
  }
  Diagnosis Of(const std::string& path, const DiagnoseOptions& options = {}) {
    Result<Diagnosis> found = Diagnose({path}, options);
    EXPECT_TRUE(found.ok()) << found.status().ToString();
    return found.ok() ? *found : Diagnosis();
  }
  std::optional<TempDir> dir_;
};

TEST_F(Files, ARunDirectoryIsReadWithItsEvents) {
  Write("run/run.json", "{\"format\":1,\"name\":\"run\"}");
  Write("run/events.jsonl",
        "{\"t\":1,\"type\":\"attempt_started\",\"attempt\":0,\"world_size\":2}\n"
        "{\"t\":5,\"type\":\"rank_exited\",\"attempt\":0,\"rank\":1,\"node\":0,\"exit_code\":1,\"after_stop\":false}\n"
        "{\"t\":6,\"type\":\"rank_exited\",\"attempt\":0,\"rank\":0,\"node\":0,\"signal\":15,\"after_stop\":true}\n");
  Write("run/logs/attempt-0/node-0/rank-0.log", "step 1/9 loss 1\n");
  Write("run/logs/attempt-0/node-0/rank-1.log", std::string("step 1/9 loss 1\n") + kTrace);
  const Diagnosis d = Of(*dir_ / "run");
  EXPECT_EQ(d.signature, "py-value-error");
  EXPECT_EQ(d.rank, 1);
  EXPECT_EQ(d.node, "node-0");
  EXPECT_THAT(d.evidence.at(0).file, HasSubstr("rank-1.log"));
  EXPECT_EQ(d.evidence.at(0).line, 5u);
}

TEST_F(Files, ThatARunWasStoppedIsSaid) {
  Write("run/report.json", R"({"outcome": "stopped", "end": "stopped", "reason": "stopped by SIGTERM at node 0"})");
  Write("run/events.jsonl",
        R"({"t": 5, "type": "rank_exited", "attempt": 0, "rank": 0, "node": 0, "signal": 15, "after_stop": true})"
        "\n");
  Write("run/logs/attempt-0/node-0/rank-0.log", "step 1/9 loss 1\nstep 2/9 loss 1\n");
  const Diagnosis d = Of(*dir_ / "run");
  EXPECT_THAT(d.notes, testing::ElementsAre("the launcher was asked to end this run: stopped by SIGTERM at node 0"));
}

TEST_F(Files, TheLastAttemptOfARunCountsUnlessAskedOtherwise) {
  Write("run/run.json", "{\"format\":1,\"name\":\"run\"}");
  Write("run/logs/attempt-0/node-0/rank-0.log", kTrace);
  Write("run/logs/attempt-1/node-0/rank-0.log", "step 1/3 loss 1\nstep 2/3 loss 1\nstep 3/3 loss 1\n");
  EXPECT_EQ(Of(*dir_ / "run").verdict, Verdict::kHealthy);
  DiagnoseOptions options;
  options.attempt = 0;
  EXPECT_EQ(Of(*dir_ / "run", options).verdict, Verdict::kFailure);
  options.attempt = 7;
  EXPECT_FALSE(Diagnose({*dir_ / "run"}, options).ok());
}

TEST_F(Files, TorchrunsFoldersNameTheRank) {
  Write("logs/none_x/attempt_0/0/stderr.log",
        "RuntimeError: [x] gloo/transport/tcp/pair.cc:1 Connection closed by peer\n");
  Write("logs/none_x/attempt_0/3/stderr.log", kTrace);
  const Diagnosis d = Of(*dir_ / "logs");
  EXPECT_EQ(d.rank, 3);
  EXPECT_EQ(d.signature, "py-value-error");
}

TEST_F(Files, OtherDataInAFolderIsPassedOver) {
  Write("logs/train.log", kTrace);
  Write("logs/model.pt", "CUDA out of memory. Tried to allocate 1 GiB\n");
  Write("logs/train.py", "raise MemoryError\n");
  EXPECT_EQ(Of(*dir_ / "logs").signature, "py-value-error");
}

// Root reads everything; for a while it is somebody else.
class AsNobody {
 public:
  AsNobody() : root_(geteuid() == 0) {
    if (root_) EXPECT_EQ(seteuid(kNobody), 0);
  }
  ~AsNobody() {
    if (root_) EXPECT_EQ(seteuid(0), 0);
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  static constexpr uid_t kNobody = 65534;

 private:
  bool root_;
};

TEST_F(Files, WhatCannotBeReadIsNamedAndTheRestRead) {
  const std::string readable = Write("logs/a.log", kTrace);
  const std::string closed = Write("logs/b.log", "x\n");
  ASSERT_EQ(chmod(closed.c_str(), 0), 0);
  if (geteuid() == 0) {
    const std::string folder = *dir_ / "logs", outer = *dir_ / "";
    for (const std::string& path : {readable, closed, folder, outer}) {
      ASSERT_EQ(chown(path.c_str(), AsNobody::kNobody, AsNobody::kNobody), 0) << path;
    }
  }
  const AsNobody nobody;
  const Diagnosis d = Of(*dir_ / "logs");
  EXPECT_EQ(d.signature, "py-value-error");
  ASSERT_FALSE(d.notes.empty());
  EXPECT_THAT(d.notes[0], HasSubstr("b.log"));
  EXPECT_FALSE(Diagnose({closed}, {}).ok());
}

TEST_F(Files, NothingToReadIsAnErrorOfTheEnvironment) {
  const auto absent = Diagnose({*dir_ / "absent"}, {});
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(ExitCode(absent.status()), 3);
  ASSERT_TRUE(MakeDirs(*dir_ / "empty").ok());
  const auto empty = Diagnose({*dir_ / "empty"}, {});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(ExitCode(empty.status()), 3);
  EXPECT_EQ(ExitCode(Diagnose({}, {}).status()), 2);
}

TEST_F(Files, CompressedFilesSayHowToReadThem) {
  const auto found = Diagnose({Write("a.log.gz", "\x1f\x8b\x08zzzzzzzzz")}, {});
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().ToString(), HasSubstr("zcat"));
}

TEST_F(Files, GarbageIsNoFailure) {
  std::mt19937 random(11);
  std::string bytes(3 << 20, 0);
  for (char& c : bytes) c = static_cast<char>(random());
  EXPECT_EQ(Of(Write("g.log", bytes)).verdict, Verdict::kUnknown);
}

TEST_F(Files, LinesOfEveryKindAreCountedRight) {
  // Carriage returns, NUL bytes, colours, a cut character, a line longer than the buffer.
  std::string text = " 1%|x| 1/100 [00:01<00:10, 1.0it/s]\r 2%|x| 2/100 [00:02<00:10, 1.0it/s]\n";
  text += std::string("nul\0byte\n", 9) + "\xe4\xb8\n";
  text += std::string(9 << 20, 'x') + "\n";
  text +=
      "\x1b[31mTraceback (most recent call last):\x1b[0m\r\n  File \"a.py\", line 3, in f\r\n    g()\r\nKeyError: "
      "'k'\r\n";
  const Diagnosis d = Of(Write("l.log", text));
  EXPECT_EQ(d.signature, "py-key-error");
  EXPECT_EQ(d.evidence.at(0).line, 8u);
  EXPECT_EQ(d.evidence.at(0).text, "KeyError: 'k'");
}

TEST_F(Files, AnErrorAtTheEndOfMuchOutputIsFoundWithItsLine) {
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "noise noise noise noise noise noise noise\n";
  const Diagnosis d = Of(Write("big.log", text + kTrace + text.substr(0, 4200)));
  EXPECT_EQ(d.signature, "py-value-error");
  EXPECT_EQ(d.evidence.at(0).line, 300004u);
}

TEST_F(Files, FurtherSignaturesAreUsed) {
  DiagnoseOptions options;
  options.signatures =
      Write("s.tsv", "id\trole\tregex\tcause\tpolicy\nflux\tR\tflux (\\w+) lost\tthe {1} is gone\tSTOP\n");
  const Diagnosis d = Of(Write("a.log", "x\nflux capacitor lost\n"), options);
  EXPECT_EQ(d.signature, "flux");
  EXPECT_EQ(d.cause, "the capacitor is gone");
  EXPECT_EQ(d.restart, Restart::kNo);
}

}  // namespace
}  // namespace lockstep::diagnose
