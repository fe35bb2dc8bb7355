#include "record/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/files.h"
#include "base/json.h"
#include "base/run_python.h"
#include "base/safetensors.h"
#include "paths.h"
#include "record/checkpoint_folder.h"
#include "record/checkpoint_plan.h"
#include "small_state.h"

namespace lockstep::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  std::string Write(uint64_t step, size_t scale = 1) {
    const Status status = WriteCheckpoint(folder_, SmallState(step, scale).content, *disk_);
    EXPECT_TRUE(status.ok()) << status.message();
    return folder_ + "/" + CheckpointName(step);
  }
  std::vector<uint64_t> Steps() {
    std::vector<uint64_t> steps;
    for (const Candidate& candidate : *ScanCheckpoints(folder_)) steps.push_back(candidate.step);
    return steps;
  }
  std::vector<std::string> Names() { return *ListDir(folder_); }
  static void Flip(const std::string& path, size_t at) {
    std::string data = *ReadFile(path);
    data.at(at) = static_cast<char>(data[at] ^ 4);
    ASSERT_TRUE(WriteFileAtomic(path, data, 0644, Durability::kProcess).ok());
  }

  TempDir dir_ = *TempDir::Create();
  std::string folder_ = dir_ / "checkpoints";
  std::unique_ptr<Storage> disk_ = PosixStorage(Durability::kProcess);
};

TEST_F(CheckpointTest, WhatIsWrittenIsReadBackBitForBit) {
  const std::string path = Write(1200);
  EXPECT_TRUE(SmallState(1200).IsIn(path));
  EXPECT_FALSE(SmallState(1201).IsIn(path));
  EXPECT_THAT(Names(), ElementsAre("step-1200"));
  EXPECT_THAT(*ListDir(path), ElementsAre("ema.safetensors", "manifest.json", "model.safetensors",
                                          "optimizer.safetensors", "recipe.safetensors"));
  auto reader = CheckpointReader::Open(path + "/");
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->Verify().ok());
  EXPECT_EQ(reader->state()["seed"].get<uint64_t>(), 18446744073709551615u);
  EXPECT_EQ(reader->tensors()[0].name, "ema/encoder.0.weight");
  char byte = 0;
  EXPECT_THAT(reader->Read("model/nope", &byte, 1).message(), HasSubstr("has no tensor 'model/nope'"));
  EXPECT_THAT(reader->Read("model/steps", &byte, 1).message(), HasSubstr("I64 [] with 8 bytes, 1 are wanted"));
}

TEST_F(CheckpointTest, AStateOfSeveralChunksIsReadBackBitForBit) {
  EXPECT_TRUE(SmallState(3, 800).IsIn(Write(3, 800)));  // 9.6 MB tensors: chunk borders fall inside and between them
}

TEST_F(CheckpointTest, ADurableDiskGivesTheSameBytes) {
  const auto durable = PosixStorage(Durability::kPower);
  SmallState state(5, 300);
  ASSERT_TRUE(WriteCheckpoint(folder_, state.content, *durable).ok());
  EXPECT_TRUE(state.IsIn(folder_ + "/step-5"));
}

TEST_F(CheckpointTest, WeightsThatAreCopiedAwayStillSayWhatTheyAre) {
  SmallState state(9, 3);
  state.content.recipe = "taehv";
  state.content.state["identity"] = {{"name", "taecvx"}, {"cogvideox", true}};
  const auto storage = PosixStorage(Durability::kProcess);
  ASSERT_TRUE(WriteCheckpoint(folder_, state.content, *storage).ok());
  EXPECT_TRUE(state.IsIn(folder_ + "/step-9"));
  for (const char* name : {"model", "ema"}) {
    const auto file = SafetensorsFile::Open(fmt::format("{}/step-9/{}.safetensors", folder_, name));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(file->metadata().at("lockstep.taehv"), R"({"cogvideox":true,"name":"taecvx"})");
    EXPECT_EQ(file->metadata().at("format"), "pt");
  }
}

TEST_F(CheckpointTest, PythonLoadsTheModelByItsPlainNames) {
  const char* given = std::getenv("LOCKSTEP_PYTHON");
  const std::string python = given != nullptr ? given : SourceDir() + "/.venv/bin/python";
  const char* allowed = std::getenv("LOCKSTEP_ALLOW_SKIP");
  if (::access(python.c_str(), X_OK) != 0 && allowed != nullptr && std::strstr(allowed, "torch") != nullptr) {
    GTEST_SKIP() << "no Python with torch, which LOCKSTEP_ALLOW_SKIP allows";
  }
  const std::string path = Write(7);
  const std::string script = SourceDir() + "/tests/base/weights_cases.py";
  FILE* pipe = ::popen(fmt::format("'{}' '{}' check '{}/model.safetensors' 2>&1", python, script, path).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output(4096, '\0');
  output.resize(::fread(output.data(), 1, output.size(), pipe));
  EXPECT_EQ(::pclose(pipe), 0) << output;
  EXPECT_THAT(output, HasSubstr("encoder.0.bias torch.bfloat16 [17] "));
  EXPECT_THAT(output, HasSubstr("encoder.0.weight torch.float32 [16, 3, 9] "));
  EXPECT_THAT(output, HasSubstr("empty torch.float32 [0, 4] 0\n"));
  EXPECT_THAT(output, HasSubstr("metadata [('format', 'pt')]"));
}

TEST_F(CheckpointTest, TheManifestIsPlainJsonWithItsOwnChecksum) {
  const std::string path = Write(7) + "/manifest.json";
  auto manifest = ReadJsonFile(path);
  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ((*manifest)["format"], "lockstep-checkpoint");
  EXPECT_EQ((*manifest)["version"], 2);
  EXPECT_EQ((*manifest)["step"], 7);
  EXPECT_EQ((*manifest)["tensors"].size(), 8u);
  EXPECT_THAT((*manifest)["checksum"].get<std::string>(), HasSubstr("xxh3-128:"));
}

TEST_F(CheckpointTest, EveryByteOfTheManifestIsGuarded) {
  const std::string path = Write(7);
  const std::string text = *ReadFile(path + "/manifest.json");
  for (size_t i = 0; i < text.size(); i += text.size() / 97) {
    Flip(path + "/manifest.json", i);
    EXPECT_FALSE(CheckpointReader::Open(path).ok()) << i;
    Flip(path + "/manifest.json", i);
  }
  EXPECT_TRUE(CheckpointReader::Open(path).ok());
}

TEST_F(CheckpointTest, AFlippedTensorIsRefusedByNameAndTheOthersAreStillRead) {
  const std::string path = Write(7);
  const auto clean = CheckpointReader::Open(path);
  const uint64_t at = clean->Find("model/encoder.0.bias")->offset;
  Flip(path + "/model.safetensors", at + 3);
  auto reader = CheckpointReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::string buffer(34, '\0');
  EXPECT_THAT(reader->Read("model/encoder.0.bias", buffer.data(), 34).message(),
              HasSubstr("tensor 'model/encoder.0.bias' in"));
  EXPECT_TRUE(reader->Read("model/steps", buffer.data(), 8).ok());
  EXPECT_FALSE(reader->Verify().ok());
}

TEST_F(CheckpointTest, AManifestOfANewerFormatSaysSo) {
  const std::string path = Write(7) + "/manifest.json";
  nlohmann::json manifest = *ReadJsonFile(path);
  manifest.erase("checksum");
  manifest["version"] = 3;
  ASSERT_TRUE(WriteFileAtomic(path, SealManifest(manifest)).ok());
  EXPECT_THAT(CheckpointReader::Open(folder_ + "/step-7").status().message(),
              HasSubstr("format version 3, this program reads 1 and 2"));
  manifest["version"] = 2;
  ASSERT_TRUE(WriteFileAtomic(path, SealManifest(manifest)).ok());
  EXPECT_TRUE(CheckpointReader::Open(folder_ + "/step-7").ok());
}

// Written by the last program that wrote version 1: five steps of the toy training of tests/engine.
TEST_F(CheckpointTest, AVersion1CheckpointIsVerifiedReadAndItsFilesAreWrittenTheSameToday) {
  const std::string old = SourceDir() + "/tests/record/version-1/step-5";
  ASSERT_EQ((*ReadJsonFile(old + "/manifest.json"))["version"], 1);
  const auto reader = CheckpointReader::Open(old);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_TRUE(reader->Verify().ok());
  EXPECT_EQ(reader->step(), 5u);
  EXPECT_EQ(reader->recipe(), "toy");
  ASSERT_EQ(reader->tensors().size(), 17u);
  std::vector<std::string> data;
  CheckpointContent content{5, reader->recipe(), reader->state(), {}};
  for (const TensorInfo& tensor : reader->tensors()) {
    std::string& bytes = data.emplace_back(tensor.bytes, '\0');
    ASSERT_TRUE(reader->Read(tensor.name, bytes.data(), bytes.size()).ok()) << tensor.name;
  }
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorInfo& tensor = reader->tensors()[i];
    content.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, data[i].data(), data[i].size()});
  }
  ASSERT_TRUE(WriteCheckpoint(folder_, content, *disk_).ok());
  for (const char* name : {"model", "optimizer", "ema", "recipe"}) {
    const std::string file = fmt::format("step-5/{}.safetensors", name);
    EXPECT_EQ(*ReadFile(folder_ + "/" + file), *ReadFile(SourceDir() + "/tests/record/version-1/" + file)) << name;
  }
}

TEST_F(CheckpointTest, AManifestWhosePartsDoNotMakeUpATensorIsRefused) {
  const std::string path = Write(7) + "/manifest.json";
  const nlohmann::json whole = *ReadJsonFile(path);
  const auto damaged = [&](const std::function<void(nlohmann::json & parts)>& change) {
    nlohmann::json manifest = whole;
    manifest.erase("checksum");
    for (nlohmann::json& tensor : manifest["tensors"]) {
      if (tensor["name"] == "recipe/replay") change(tensor["parts"]);
    }
    EXPECT_TRUE(WriteFileAtomic(path, SealManifest(manifest)).ok());
    return CheckpointReader::Open(folder_ + "/step-7").status().message();
  };
  EXPECT_EQ(damaged([](auto&) {}), "");
  EXPECT_THAT(damaged([](auto& parts) { parts[0]["end"] = 4098; }), HasSubstr("do not make up U8 [4099]"));
  EXPECT_THAT(damaged([](auto& parts) { parts[0]["begin"] = 1; }), HasSubstr("do not make up"));
  EXPECT_THAT(damaged([](auto& parts) { parts.push_back(parts[0]); }), HasSubstr("do not make up"));
  EXPECT_THAT(damaged([](auto& parts) { parts.clear(); }), HasSubstr("do not make up"));
  EXPECT_THAT(damaged([](auto& parts) { parts[0]["file"] = "x"; }), HasSubstr("no file of it"));
  EXPECT_THAT(damaged([](auto& parts) { parts[0]["key"] = "x"; }), HasSubstr("not in its file"));
}

TEST_F(CheckpointTest, ACheckpointUnderAnotherStepsNameIsRefusedUnderAnyOtherNameItLoads) {
  const std::string path = Write(7);
  fs::rename(path, folder_ + "/step-8");
  EXPECT_THAT(CheckpointReader::Open(folder_ + "/step-8").status().message(), HasSubstr("manifest is that of step 7"));
  fs::rename(folder_ + "/step-8", dir_ / "good-one");
  EXPECT_TRUE(SmallState(7).IsIn(dir_ / "good-one"));
}

TEST_F(CheckpointTest, WritingTheSameStepAgainReplacesIt) {
  Write(7);
  SmallState other(8);
  other.content.step = 7;
  ASSERT_TRUE(WriteCheckpoint(folder_, other.content, *disk_).ok());
  EXPECT_TRUE(other.IsIn(folder_ + "/step-7"));
  EXPECT_THAT(Names(), ElementsAre("step-7"));
}

TEST_F(CheckpointTest, StatesThatCannotBeStoredAreRefusedBeforeAnythingIsWritten) {
  auto error = [&](auto change) {
    SmallState state(7);
    change(state.content);
    return WriteCheckpoint(folder_, state.content, *disk_).message();
  };
  EXPECT_THAT(error([](auto& c) { c.tensors[0].name = "plain"; }), HasSubstr("'plain' is not named <group>/<key>"));
  EXPECT_THAT(error([](auto& c) { c.tensors[0].name = "../x/y"; }), HasSubstr("not named"));
  EXPECT_THAT(error([](auto& c) { c.tensors[0].name = "model/"; }), HasSubstr("not named"));
  EXPECT_THAT(error([](auto& c) { c.tensors[0].name = c.tensors[1].name; }), HasSubstr("twice"));
  EXPECT_THAT(error([](auto& c) { c.tensors[0].bytes -= 1; }), HasSubstr("bytes"));
  EXPECT_THAT(error([](auto& c) { c.tensors[0].data = nullptr; }), HasSubstr("no data"));
  EXPECT_THAT(error([](auto& c) { c.state["scaler"]["scale"] = std::numeric_limits<double>::infinity(); }),
              HasSubstr("/scaler/scale is not finite"));
  EXPECT_THAT(error([](auto& c) { c.state["a"] = {1.0, std::nan("")}; }), HasSubstr("/a/1 is not finite"));
  EXPECT_THAT(error([](auto& c) { c.state["rng"] = "\xff\xfe"; }), HasSubstr("JSON"));
  EXPECT_THAT(error([](auto& c) { c.state = 3; }), HasSubstr("object"));
  EXPECT_FALSE(fs::exists(folder_) && !fs::is_empty(folder_));
}

TEST_F(CheckpointTest, OnlyCanonicalNamesAreSteps) {
  EXPECT_EQ(CheckpointStep("step-0"), 0u);
  EXPECT_EQ(CheckpointStep("step-18446744073709551615"), ~uint64_t{0});
  for (const char* name :
       {"step-", "step-007", "step-1x", "step-18446744073709551616", "step--1", "step-+1", "latest", "step-1.tmp-2"}) {
    EXPECT_EQ(CheckpointStep(name), std::nullopt) << name;
  }
}

TEST_F(CheckpointTest, TheScanOrdersByNumberAndKnowsTemporaries) {
  for (uint64_t step : {9u, 100u, 20u}) Write(step);
  fs::create_directories(folder_ + "/step-500.tmp-1-2");
  fs::create_directories(folder_ + "/step-3.deleting");
  fs::create_directories(folder_ + "/notes");
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/step-77", "a file").ok());
  EXPECT_THAT(Steps(), ElementsAre(500, 100, 20, 9, 3));
  std::vector<Candidate> rejected;
  EXPECT_EQ(**NewestGood(folder_, &rejected), folder_ + "/step-100");
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_TRUE(rejected[0].temporary);
  EXPECT_THAT(rejected[0].status.message(), HasSubstr("its writing did not finish"));
  ASSERT_TRUE(RemoveLeftovers(folder_, *disk_).ok());
  EXPECT_THAT(Names(), ElementsAre("notes", "step-100", "step-20", "step-77", "step-9"));
}

TEST_F(CheckpointTest, NoFolderAndAnEmptyFolderHaveNoCheckpoint) {
  EXPECT_EQ(*NewestGood(folder_, nullptr), std::nullopt);
  fs::create_directories(folder_);
  EXPECT_EQ(*NewestGood(folder_, nullptr), std::nullopt);
  EXPECT_FALSE(NewestGood(folder_ + "/x\0y", nullptr)->has_value());
}

TEST_F(CheckpointTest, ACheckpointMovedAwayByADeadWriterStillCountsAndComesBack) {
  Write(1);
  fs::rename(Write(2), folder_ + "/step-2.replaced-9-9-9");
  EXPECT_EQ(**NewestGood(folder_, nullptr), folder_ + "/step-2.replaced-9-9-9");
  ASSERT_TRUE(RemoveLeftovers(folder_, *disk_).ok());
  EXPECT_EQ(**NewestGood(folder_, nullptr), folder_ + "/step-2");
}

TEST_F(CheckpointTest, PruningKeepsTheBestThatIsThereWhereABetterOneWasNotSaved) {
  for (uint64_t step : {10u, 30u, 40u}) Write(step);
  ASSERT_TRUE(Point(folder_, "best", 10, *disk_).ok());
  EXPECT_THAT(*Prune(folder_, {.last = 1}, 20, *disk_), ElementsAre(30));
  EXPECT_THAT(*Prune(folder_, {.last = 1}, 40, *disk_), ElementsAre(10));
}

TEST_F(CheckpointTest, PruningKeepsTheLastEveryAndTheBest) {
  for (uint64_t step : {10u, 20u, 30u, 40u, 50u, 60u}) Write(step);
  auto removed = Prune(folder_, {.last = 2, .every = 30, .best = true}, 10, *disk_);
  ASSERT_TRUE(removed.ok());
  EXPECT_THAT(*removed, ElementsAre(20, 40));
  EXPECT_THAT(Names(), ElementsAre("step-10", "step-30", "step-50", "step-60"));
  EXPECT_THAT(*Prune(folder_, {.last = 2, .every = 0, .best = false}, 10, *disk_), ElementsAre(10, 30));
  EXPECT_THAT(*Prune(folder_, {.last = 0}, std::nullopt, *disk_), ElementsAre(50));
  EXPECT_THAT(Names(), ElementsAre("step-60"));
  EXPECT_TRUE(Prune(folder_, {.last = 0}, std::nullopt, *disk_)->empty());
}

TEST_F(CheckpointTest, PruningRemovesNothingWhileTheNewestIsDamaged) {
  for (uint64_t step : {1u, 2u, 3u}) Write(step);
  const auto newest = CheckpointReader::Open(folder_ + "/step-3");
  Flip(folder_ + "/step-3/recipe.safetensors", newest->Find("recipe/replay")->offset + 4000);
  auto removed = Prune(folder_, {.last = 1}, std::nullopt, *disk_);
  ASSERT_FALSE(removed.ok());
  EXPECT_THAT(removed.status().message(), HasSubstr("the newest is damaged"));
  EXPECT_EQ(Names().size(), 3u);
  EXPECT_FALSE(Prune(folder_, {.last = 1}, std::nullopt, *disk_, 2).ok());  // a voucher for another is none
  EXPECT_THAT(*Prune(folder_, {.last = 2}, std::nullopt, *disk_, 3), ElementsAre(1));
}

TEST_F(CheckpointTest, DamagedOnesAreNeitherCountedNorRemoved) {
  for (uint64_t step : {1u, 2u, 3u}) Write(step);
  fs::remove(folder_ + "/step-3/manifest.json");
  EXPECT_THAT(*Prune(folder_, {.last = 1}, std::nullopt, *disk_), ElementsAre(1));
  EXPECT_THAT(Names(), ElementsAre("step-2", "step-3"));
}

TEST_F(CheckpointTest, PointersAreLinksThatMayGoWrong) {
  Write(4);
  ASSERT_TRUE(Point(folder_, "latest", 4, *disk_).ok());
  EXPECT_EQ(ReadPointer(folder_, "latest"), folder_ + "/step-4");
  EXPECT_TRUE(SmallState(4).IsIn(folder_ + "/latest"));
  Write(5);
  ASSERT_TRUE(Point(folder_, "latest", 5, *disk_).ok());
  EXPECT_EQ(ReadPointer(folder_, "latest"), folder_ + "/step-5");
  fs::remove_all(folder_ + "/step-5");
  EXPECT_EQ(ReadPointer(folder_, "latest"), std::nullopt);
  EXPECT_EQ(ReadPointer(folder_, "best"), std::nullopt);
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/best", "step-4\n").ok());
  EXPECT_EQ(ReadPointer(folder_, "best"), folder_ + "/step-4");
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/best", "../../etc").ok());
  EXPECT_EQ(ReadPointer(folder_, "best"), std::nullopt);
  EXPECT_EQ(**NewestGood(folder_, nullptr), folder_ + "/step-4");
}

}  // namespace
}  // namespace lockstep::record
