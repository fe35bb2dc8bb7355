#include "data/episodes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EpisodesTest : public testing::Test {
 protected:
  void SetUp() override {
    Walk("walk-2", {"MOVE_FORWARD", "TURN_LEFT", "STOP"});
    Walk("walk-10", {"FORWARD", "RIGHT"});
  }
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(dir_ / name, text, 0644, Durability::kProcess).ok());
  }
  // Step i of an episode has level 10 * i; the second one has no description of landmarks.
  void Walk(const std::string& name, const std::vector<std::string>& actions) {
    ASSERT_TRUE(MakeDirs(dir_ / name).ok());
    Put(name + "/milestones_result.json",
        R"({"instruction_text": "to the )" + name + R"(", "subinstructions": ["go", "turn"],
        "completion_checkpoints": [{"checkpoint_frame_index": 1}, {"checkpoint_frame_index": 1}]})");
    for (size_t i = 0; i < actions.size(); ++i) {
      const std::string stem = fmt::format("{}/step_{:04d}_{}", name, i, actions[i]);
      WritePng(dir_ / (stem + ".png"), Flat(8, 8, static_cast<uint8_t>(10 * i)));
      Put(stem + ".json", i == 1 ? R"({"spatial_description": "near"})"
                                 : R"({"landmark_description": "a chair", "spatial_description": "near"})");
    }
  }
  SourceConfig Config(const std::string& path, int frames = 4) {
    return {.kind = "episodes", .path = path, .frames = frames, .height = 8, .width = 8};
  }
  std::vector<int> Read(const Source& source, uint64_t index) {
    std::vector<uint8_t> frames(source.fields()[0].bytes());
    int64_t action = -1;
    std::byte* out[] = {reinterpret_cast<std::byte*>(frames.data()), reinterpret_cast<std::byte*>(&action)};
    status_ = source.Read({.index = index}, out);
    std::vector<int> found;
    for (int64_t t = 0; t < source.fields()[0].shape[0]; ++t) found.push_back(frames[t * 3 * 64]);
    found.push_back(static_cast<int>(action));
    return found;
  }

  TempDir dir_ = *TempDir::Create();
  Status status_;
};

TEST_F(EpisodesTest, AStepIsASampleWithItsHistoryAndAction) {
  const auto source = *OpenEpisodes(Config(dir_.path()));
  ASSERT_EQ(source->size(), 3);
  EXPECT_THAT(source->Describe(), HasSubstr("3 steps of 2 episodes"));
  EXPECT_THAT(source->Describe(), HasSubstr("2 without descriptions are history only"));
  EXPECT_THAT(Read(*source, 0), ElementsAre(0, 0, 0, 0, 1));
  EXPECT_THAT(Read(*source, 1), ElementsAre(0, 0, 10, 20, 0)) << "a step without description is history";
  EXPECT_THAT(Read(*source, 2), ElementsAre(0, 0, 0, 0, 1));
  EXPECT_EQ(source->Origin(1), "walk-2");
  EXPECT_EQ(source->Name(1), dir_ / "walk-2/step_0002_STOP.png");
  const EpisodeText text = *source->Text(1);
  EXPECT_EQ(text.instruction, "to the walk-2");
  EXPECT_EQ(text.subinstruction, "turn");
  EXPECT_EQ(source->Text(0)->subinstruction, "go");
  EXPECT_EQ(text.description_2d + "," + text.description_3d, "a chair,near");
}

// By numpy: np.linspace(0, j, H + 1).astype(int).
TEST_F(EpisodesTest, HistoryIsSpreadAsNumpySpreadsIt) {
  EXPECT_THAT(HistoryOf(0, 1), ElementsAre(0));
  EXPECT_THAT(HistoryOf(7, 1), ElementsAre(7));
  EXPECT_THAT(HistoryOf(2, 5), ElementsAre(0, 0, 0, 1, 2));
  EXPECT_THAT(HistoryOf(8, 9), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(HistoryOf(9, 9), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 9));
  EXPECT_THAT(HistoryOf(37, 9), ElementsAre(0, 4, 9, 13, 18, 23, 27, 32, 37));
  EXPECT_THAT(HistoryOf(100, 4), ElementsAre(0, 33, 66, 100));
}

TEST_F(EpisodesTest, ActionsHaveManySpellings) {
  for (const char* left : {"TURN_LEFT", "turn left", "Turn-Left", "left", "2"})
    EXPECT_EQ(ActionNumber(left), 2) << left;
  for (const char* none : {"", "4", "JUMP", "-1"}) EXPECT_FALSE(ActionNumber(none)) << none;
}

TEST_F(EpisodesTest, EntriesOfAFileAreTheSameSamples) {
  const std::string a = R"({"images": ["walk-2/step_0000_MOVE_FORWARD.png", "walk-2/step_0002_STOP.png"], "action": 0,
                            "instructions": ["go home", "x"], "2d_description": "a chair"})";
  const std::string b = R"({"history_images": ["walk-10/step_0000_FORWARD.png"],
                            "current_image": "walk-10/step_0001_RIGHT.png", "actions": ["turn right"]})";
  std::string lines = a + "\n\n" + b + "\n";
  std::erase(lines, '\n');
  lines.insert(lines.find("}{") + 1, "\n\n");
  Put("s.jsonl", lines);
  Put("s.json", "[" + a + "," + b + "]");
  for (const char* file : {"s.jsonl", "s.json"}) {
    const auto source = OpenEpisodes(Config(dir_ / file, 3));
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ASSERT_EQ((*source)->size(), 2);
    EXPECT_THAT(Read(**source, 0), ElementsAre(0, 0, 20, 0));
    EXPECT_THAT(Read(**source, 1), ElementsAre(0, 0, 10, 3));
    EXPECT_EQ((*source)->Text(0)->instruction, "go home");
    EXPECT_EQ((*source)->Text(0)->description_2d, "a chair");
    EXPECT_EQ((*source)->Origin(1), "walk-10");
  }
}

TEST_F(EpisodesTest, TheIndexOfOneRankServesTheOthers) {
  SourceConfig config = Config(dir_.path());
  const auto own = *OpenSource(config);
  config.index = std::make_shared<const std::string>(*IndexSource(config));
  const auto indexed = *OpenSource(config);
  EXPECT_EQ(indexed->Digest(), own->Digest());
  EXPECT_EQ(indexed->Describe(), own->Describe());
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(Read(*indexed, i), Read(*own, i));
  for (const char* damaged : {"", "{}", "[]", R"({"episodes": [[1]], "digest": "", "without": 0})"}) {
    config.index = std::make_shared<const std::string>(damaged);
    EXPECT_THAT(OpenSource(config).status().message(), HasSubstr("damaged"));
  }
}

TEST_F(EpisodesTest, AnotherCopyOfThePicturesIsNoticed) {
  Put("list.json", R"([{"images": ["walk-2/step_0000_MOVE_FORWARD.png", "gone.png"], "action": "STOP"}])");
  for (const std::string& path : {dir_.path(), dir_ / "list.json"}) {
    SourceConfig config = Config(path);
    config.index = std::make_shared<const std::string>(*IndexSource(config));
    EXPECT_TRUE(OpenSource(config).ok()) << "what was missing on rank 0 too is an unreadable sample";
    const std::string picture = dir_ / "walk-2/step_0000_MOVE_FORWARD.png";
    WritePng(picture, Pattern(30, 30));
    EXPECT_THAT(OpenSource(config).status().message(), HasSubstr(picture));
    WritePng(picture, Flat(8, 8, 0));
  }
}

TEST_F(EpisodesTest, EveryMistakeHasItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"images\": []}", "line 1: expected 'images'"},
      {"{\"image\": \"a.png\", \"action\": \"JUMP\"}", "line 1: action 'JUMP'"},
      {"{\"image\": \"a.png\"}", "action ''"},
      {"{\"image\": 3, \"action\": 0}", "no text"},
      {"{\"image\": \"a.png\", \"action\": 0}\n[", "line 2"},
      {"\n7", "line 2: expected an object"},
      {"", "no step has"},
  };
  for (const auto& [text, message] : cases) {
    Put("bad.jsonl", text);
    EXPECT_THAT(OpenEpisodes(Config(dir_ / "bad.jsonl")).status().message(), HasSubstr(message)) << text;
  }
  Put("bad.json", "{}");
  EXPECT_THAT(OpenEpisodes(Config(dir_ / "bad.json")).status().message(), HasSubstr("expected an array"));
  ASSERT_TRUE(MakeDirs(dir_ / "none").ok());
  EXPECT_THAT(OpenEpisodes(Config(dir_ / "none")).status().message(), HasSubstr("no episode in"));
  Put("walk-2/step_0000_MOVE_FORWARD.json", "{");
  EXPECT_THAT(OpenEpisodes(Config(dir_.path())).status().message(), HasSubstr("step_0000_MOVE_FORWARD.json"));
  Put("walk-2/step_0000_MOVE_FORWARD.json", "{}");
  const auto source = *OpenEpisodes(Config(dir_.path()));
  Put("walk-2/step_0001_TURN_LEFT.png", "");
  Read(*source, 0);
  EXPECT_THAT(status_.message(), HasSubstr("step_0001_TURN_LEFT.png' cannot be decoded"));
}

}  // namespace
}  // namespace lockstep::data
