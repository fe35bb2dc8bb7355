#include "data/annotations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/random.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(AnnotationsTest, ReadsPathsAndIgnoresTheRest) {
  Result<Annotations> annotations = ParseAnnotations(
      R"({"total": 3, "note": null, "list": [{"path": "a/1.mp4", "duration": 3.5}, {"full_path": "/x/2.mp4", "frames": [1]},
          {"path": "a/1.mp4", "full_path": "ignored"}]})",
      "x.json");
  ASSERT_TRUE(annotations.ok()) << annotations.status().message();
  EXPECT_THAT(annotations->paths, ElementsAre("a/1.mp4", "/x/2.mp4", "a/1.mp4"));
  EXPECT_EQ(annotations->digest.size(), 16);
}

TEST(AnnotationsTest, LinesAndBareListsHoldTheSameEntries) {
  const char* const lines = "{\"path\": \"a.mp4\"}\r\n\n  {\"full_path\": \"/b.mp4\", \"n\": 1}";
  EXPECT_THAT(ParseAnnotations(lines, "x.jsonl")->paths, ElementsAre("a.mp4", "/b.mp4"));
  EXPECT_THAT(ParseAnnotations(R"([{"path": "a.mp4"}, {"full_path": "/b.mp4"}])", "x.json")->paths,
              ElementsAre("a.mp4", "/b.mp4"));
  const std::pair<const char*, const char*> cases[] = {{"{\"path\": \"a\"}\n{\"path\"", "x.jsonl line 2"},
                                                       {"{\"path\": \"a\"}\n\n7\n", "x.jsonl line 3: expected"},
                                                       {"\n", "it has no entry"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseAnnotations(text, "x.jsonl").status().message(), HasSubstr(message));
  }
}

TEST(AnnotationsTest, EveryMistakeHasItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "x.json"},
      {"{\"list\": [\n{\"path\": }]}", "x.json:2:"},
      {"[]", "'list' is empty"},
      {"7", "expected an object with 'list', found number"},
      {"[{\"path\": \"a\"}, {}]", "x.json: [1]: expected 'path'"},
      {"{\"lst\": []}", "the object has no 'list'"},
      {"{\"list\": {}}", "'list' must be an array, found object"},
      {"{\"list\": []}", "'list' is empty"},
      {"{\"list\": [{\"path\": \"a\"}, 7]}", "list[1]: expected an object, found number"},
      {"{\"list\": [{\"name\": \"a\"}]}", "list[0]: expected 'path' or 'full_path'"},
      {"{\"list\": [{\"path\": null}]}", "list[0].path: expected text, found null"},
      {"{\"list\": [{\"full_path\": 3}]}", "list[0].full_path: expected text"},
      {"{\"list\": [{\"path\": \"\"}]}", "list[0].path: the path is empty"},
      {"{\"list\": [{\"path\": \"a\\u0000b\"}]}", "zero byte"},
      {"{\"list\": [{\"path\": \"\xff\"}]}", "x.json"},
  };
  for (const auto& [text, message] : cases) {
    Result<Annotations> annotations = ParseAnnotations(text, "x.json");
    ASSERT_FALSE(annotations.ok()) << text;
    EXPECT_THAT(annotations.status().message(), HasSubstr(message)) << text;
  }
}

TEST(AnnotationsTest, DamagedTextIsSurvived) {
  const std::string good =
      R"({"total": 2, "list": [{"path": "a/1.mp4"}, {"full_path": "/x/2.mp4", "n": {"m": [1.5e3]}}]})";
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(ParseAnnotations(good.substr(0, size), "x").ok());
  Random random(3);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = good;
    for (uint64_t i = 0; i <= random.Below(3); ++i)
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Next());
    refused += ParseAnnotations(damaged, "x").ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_FALSE(ParseAnnotations(std::string(100'000, '['), "x").ok());
}

}  // namespace
}  // namespace lockstep::data
