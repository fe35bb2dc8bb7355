// Everything here is judged by TensorBoard's own readers (read_events.py): the one of its server, and the
// EventAccumulator of scripts.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "paths.h"
#include "track/gif.h"
#include "track/metrics.h"

namespace lockstep::track {
namespace {

using nlohmann::json;

class TensorBoardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
  }

  std::string Dir() const { return *dir_ / "tensorboard"; }

  std::unique_ptr<Metrics> Open(int attempt = 0, int flush_ms = 1000) {
    Result<std::unique_ptr<Metrics>> metrics =
        Metrics::Start({.tensorboard_dir = Dir(), .attempt = attempt, .flush = std::chrono::milliseconds(flush_ms)});
    EXPECT_TRUE(metrics.ok()) << metrics.status().ToString();
    return std::move(*metrics);
  }

  json Read(const std::vector<std::string>& flags = {}) const {
    const char* given = std::getenv("LOCKSTEP_PYTHON");
    const std::string source = SourceDir();
    std::vector<std::string> words = {given != nullptr ? given : source + "/.venv/bin/python",
                                      source + "/tests/track/read_events.py"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back(Dir());
    std::FILE* pipe = ::popen(ShellQuote(words).c_str(), "r");
    std::string text;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    EXPECT_EQ(::pclose(pipe), 0) << "needs the virtual environment (deps/venv): " << ShellQuote(words);
    Result<json> value = ParseJson(text, "read_events.py");
    EXPECT_TRUE(value.ok()) << value.status().ToString();
    return value.ok() ? *value : json();
  }

  std::optional<TempDir> dir_;
};

const std::vector<std::string> kReaders[] = {{}, {"--api"}};

TEST_F(TensorBoardTest, ScalarsOfEveryStepAreRead) {
  std::unique_ptr<Metrics> metrics = Open();
  const MetricId loss = metrics->Register("loss"), data = metrics->Register("time/data");
  for (uint64_t step = 0; step < 300; ++step) {
    metrics->Set(loss, step, 0.5 + static_cast<double>(step));
    if (step % 100 == 0) metrics->Set(data, step, 0.25);
    metrics->EndStep(step);
  }
  metrics->Set(data, 1000, std::nan(""));
  metrics->EndStep(1000);
  metrics.reset();
  for (const std::vector<std::string>& flags : kReaders) {
    const json found = Read(flags);
    ASSERT_EQ(found["scalars"]["loss"].size(), 300u);
    EXPECT_EQ(found["scalars"]["loss"][299], json({299, "299.5"}));
    EXPECT_EQ(found["scalars"]["time/data"], json({{0, "0.25"}, {100, "0.25"}, {200, "0.25"}, {1000, "nan"}}));
  }
}

TEST_F(TensorBoardTest, TextsPicturesAndHyperparametersAreRead) {
  std::unique_ptr<Metrics> metrics = Open();
  metrics->HParams(
      {{"lr", 1e-4}, {"recipe", std::string("taehv")}, {"reproducible", true}, {"betas", HParamList{"[0.9]"}}});
  metrics->Text("config", 0, "# größe\n\n| a | b |");
  metrics->Image("validation/clip", 10, std::string("\x89PNG not decoded here\0!", 23), 64, 32);
  metrics->Image("validation/clip", 20, std::string(300000, 'p'), 640, 320);
  metrics.reset();
  for (const std::vector<std::string>& flags : kReaders) {
    const json found = Read(flags);
    EXPECT_EQ(found["hparams"]["lr"], json({"number_value", 1e-4}));
    EXPECT_EQ(found["hparams"]["recipe"], json({"string_value", "taehv"}));
    EXPECT_EQ(found["hparams"]["betas"], json({"string_value", "[0.9]"}));
    EXPECT_EQ(found["hparams"]["reproducible"], json({"bool_value", true}));
    EXPECT_EQ(found["text"]["config"], json({{0, "# größe\n\n| a | b |"}}));
    ASSERT_EQ(found["images"]["validation/clip"].size(), 2u);
    EXPECT_EQ(found["images"]["validation/clip"][0], json({10, 64, 32, "iVBORyBub3QgZGVjb2RlZCBoZXJlACE="}));
    EXPECT_EQ(found["images"]["validation/clip"][1][1], 640);
    EXPECT_EQ(found["images"]["validation/clip"][1][3].get<std::string>().size(), 400000u);
  }
}

TEST_F(TensorBoardTest, AByteThatIsNoUtf8HidesNothing) {
  std::unique_ptr<Metrics> metrics = Open();
  metrics->HParams({{"data.path", std::string("caf\xe9")}});
  metrics->Text("config", 0, "path: caf\xe9");
  metrics->Set(metrics->Register("l\xf6ss"), 1, 2);
  metrics->EndStep(1);
  metrics.reset();
  for (const std::vector<std::string>& flags : kReaders) {
    const json found = Read(flags);
    EXPECT_EQ(found["hparams"]["data.path"], json({"string_value", "caf\uFFFD"}));
    EXPECT_EQ(found["text"]["config"], json({{0, "path: caf\uFFFD"}}));
    EXPECT_EQ(found["scalars"]["l\uFFFDss"].size(), 1u);
  }
}

TEST_F(TensorBoardTest, HistogramsAndVideosAreRead) {
  std::unique_ptr<Metrics> metrics = Open();
  metrics->Histogram("weights/a", 5, {.edges = {-2, -1, 0, 0.5, 1}, .counts = {0, 3, 4, 0}});
  // Frames of noise around a colour, large enough that the table of codes fills several times.
  std::vector<Picture> frames;
  uint32_t random = 1;
  for (const int colour : {40, 200}) {
    Picture frame{.width = 160, .height = 120, .rgb = {}};
    for (int i = 0; i < 160 * 120; ++i) {
      random = random * 1664525 + 1013904223;
      for (const int base : {colour, 128, 240 - colour}) {
        frame.rgb.push_back(static_cast<uint8_t>(base + static_cast<int>(random >> 28) - 8));
      }
    }
    frames.push_back(frame);
  }
  const Result<std::string> gif = EncodeGif(frames, 8);
  ASSERT_TRUE(gif.ok());
  metrics->Video("clip", 7, *gif, 160, 120);
  metrics.reset();
  for (const std::vector<std::string>& flags : kReaders) {
    const json found = Read(flags);
    EXPECT_EQ(found["histograms"]["weights/a"], json({{5, {{-1.0, 0.0, 3.0}, {0.0, 0.5, 4.0}}}}));
    const json clip = found["videos"]["clip"][0];
    EXPECT_EQ(clip[0], 7);
    EXPECT_EQ(clip[1], 160);
    ASSERT_EQ(clip[3].size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const double colour = i == 0 ? 40 : 200;
      EXPECT_NEAR(clip[3][i][0].get<double>(), colour - 0.5, 2);
      EXPECT_NEAR(clip[3][i][1].get<double>(), 127.5, 2);
      EXPECT_NEAR(clip[3][i][2].get<double>(), 239.5 - colour, 2);
    }
  }
}

TEST_F(TensorBoardTest, ARestartReplacesTheStepsItRepeats) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::unique_ptr<Metrics> metrics = Open(attempt);
    metrics->HParams({{"attempt", static_cast<double>(attempt)}});
    metrics->Text("note", 0, "kept");
    const MetricId loss = metrics->Register("loss");
    for (uint64_t step = attempt == 0 ? 0 : 6; step < 10; ++step) {
      if (attempt == 1 && step == 8) break;
      metrics->Set(loss, step, attempt * 100 + static_cast<double>(step));
      metrics->EndStep(step);
    }
  }
  EXPECT_EQ(Read({"--files"}).size(), 2u) << "an attempt never writes into the file of another";
  for (const std::vector<std::string>& flags : kReaders) {
    const json found = Read(flags);
    EXPECT_EQ(
        found["scalars"]["loss"],
        json({{0, "0.0"}, {1, "1.0"}, {2, "2.0"}, {3, "3.0"}, {4, "4.0"}, {5, "5.0"}, {6, "106.0"}, {7, "107.0"}}));
    EXPECT_TRUE(found["text"].contains("note"));
    EXPECT_TRUE(found["hparams"].contains("attempt"));
  }
}

TEST_F(TensorBoardTest, ARestartFromTheBeginningKeepsItsOwnTextsAndHyperparameters) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::unique_ptr<Metrics> metrics = Open(attempt);
    metrics->Text("note", 0, "attempt " + std::to_string(attempt));
    metrics->Set(metrics->Register("loss"), 0, attempt);
    metrics->EndStep(0);
  }
  const json found = Read();
  EXPECT_EQ(found["scalars"]["loss"], json({{0, "1.0"}}));
  EXPECT_EQ(found["text"]["note"], json({{0, "attempt 1"}}));
}

TEST_F(TensorBoardTest, ARollbackInsideOneProcessForgetsWhatItUndoes) {
  std::unique_ptr<Metrics> metrics = Open();
  const MetricId loss = metrics->Register("loss");
  for (uint64_t step : {1, 2, 3, 4}) metrics->Set(loss, step, 1), metrics->EndStep(step);
  metrics->Rewind(3);
  metrics->Set(loss, 3, 2);
  metrics->EndStep(3);
  metrics.reset();
  EXPECT_EQ(Read()["scalars"]["loss"], json({{1, "1.0"}, {2, "1.0"}, {3, "2.0"}}));
}

TEST_F(TensorBoardTest, AfterAKillEverythingThatWasWrittenIsReadable) {
  int news[2];
  ASSERT_EQ(::pipe(news), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::unique_ptr<Metrics> metrics = Open(0, /*flush_ms=*/20);
    const MetricId loss = metrics->Register("loss");
    for (uint64_t step = 0;; ++step) {
      metrics->Set(loss, step, static_cast<double>(step));
      metrics->EndStep(step);
      if (step == 500) {
        if (!metrics->Flush().ok() || ::write(news[1], "x", 1) != 1) ::_exit(1);
      }
      if (step % 64 == 0) ::usleep(200);  // not faster than the writer
    }
  }
  char byte;
  ASSERT_EQ(::read(news[0], &byte, 1), 1);
  // Further writes are under way while it dies.
  auto size = [&] {
    uintmax_t sum = 0;
    for (const auto& entry : std::filesystem::directory_iterator(Dir())) sum += entry.file_size();
    return sum;
  };
  for (const uintmax_t before = size(); size() == before;) ::usleep(1000);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ::close(news[0]);
  ::close(news[1]);

  {  // The next attempt goes on after the torn tail.
    std::unique_ptr<Metrics> metrics = Open(1);
    metrics->Set(metrics->Register("loss"), 400, -1);
    metrics->EndStep(400);
  }
  const json files = Read({"--files"});
  ASSERT_EQ(files.size(), 2u);
  const json steps = *files.begin();
  ASSERT_GT(steps.size(), 501u);
  for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], i);
  for (const std::vector<std::string>& flags : kReaders) {
    const json loss = Read(flags)["scalars"]["loss"];
    ASSERT_EQ(loss.size(), 401u);
    EXPECT_EQ(loss[400], json({400, "-1.0"}));
  }
}

TEST_F(TensorBoardTest, FilesSortInTheOrderOfAttemptsHoweverQuicklyTheyFollow) {
  for (int attempt = 0; attempt < 12; ++attempt) Open(attempt);
  Result<std::vector<std::string>> names = ListDir(Dir());
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 12u);
  for (size_t i = 0; i < names->size(); ++i) {
    EXPECT_TRUE((*names)[i].ends_with("." + std::to_string(i))) << (*names)[i];
  }
}

}  // namespace
}  // namespace lockstep::track
