#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/files.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ParseJsonTest, ErrorsNameSourceLineAndColumn) {
  Result<json> bad = ParseJson("{\n  \"a\": 1,\n  \"b\": x\n}", "run.json");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("run.json:3:8: not valid JSON"));
  EXPECT_FALSE(ParseJson("", "f").ok());
  EXPECT_FALSE(ParseJson("{} {}", "f").ok());
  EXPECT_EQ((*ParseJson("\xef\xbb\xbf{\"a\": 1}", "f"))["a"], 1);
}

TEST(JsonCommentsTest, CommentsAndTrailingCommasAreAccepted) {
  const char* text = R"({
    // line comment with "quotes", {braces} and a comma,
    "lr": 1e-4, /* block
       over lines */ "betas": [0.9, 0.95, /* last */ ],
    "url": "http://x//y", "text": "/* no comment */, ]",
    "esc": "a\"//b\\",
    "inner": {"x": 1, },  // trailing
  })";
  Result<json> value = ParseJsonWithComments(text, "ds.json");
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ((*value)["lr"], 1e-4);
  EXPECT_EQ((*value)["betas"], json::array({0.9, 0.95}));
  EXPECT_EQ((*value)["url"], "http://x//y");
  EXPECT_EQ((*value)["text"], "/* no comment */, ]");
  EXPECT_EQ((*value)["esc"], "a\"//b\\");
  EXPECT_EQ((*value)["inner"]["x"], 1);
}

TEST(JsonCommentsTest, PositionsInErrorsAreThoseOfTheFile) {
  Result<json> bad = ParseJsonWithComments("{ /* a\nb */ \"x\": 1, // c\n  oops }", "f.json");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.status().message(), HasSubstr("f.json:3:3"));
}

TEST(JsonCommentsTest, WhatIsNotACommentStaysAnError) {
  EXPECT_THAT(ParseJsonWithComments("{\n /* never closed", "f").status().message(), HasSubstr("f:2:2: this comment"));
  for (const char* text :
       {"{,}", "[,]", "[1,,2]", "{\"a\": 1,,}", "[1] ,", "# hash", "{\"a\" 1}", "[1 / 2]", "\"unclosed"}) {
    EXPECT_FALSE(ParseJsonWithComments(text, "f").ok()) << text;
  }
}

TEST(JsonCommentsTest, BlankingKeepsEveryPosition) {
  std::mt19937 random(6);
  const std::string alphabet = "{}[]\",:/*\\ \n1a";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 30; n > 0; --n) text += alphabet[random() % alphabet.size()];
    Result<std::string> blank = BlankJsonComments(text, "f");
    if (!blank.ok()) continue;
    ASSERT_EQ(blank->size(), text.size());
    for (size_t at = 0; at < text.size(); ++at) {
      ASSERT_EQ((*blank)[at] == '\n', text[at] == '\n') << text;
      ASSERT_TRUE((*blank)[at] == text[at] || (*blank)[at] == ' ') << text;
    }
  }
}

TEST(JsonCommentsTest, TextThatIsValidJsonMeansTheSame) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    json value = json::array();
    for (unsigned n = random() % 5; n > 0; --n) {
      std::string text;
      for (unsigned m = random() % 8; m > 0; --m) text += "/*\\\",]}x\n"[random() % 9];
      value.push_back(json{{text, random() % 100}});
    }
    EXPECT_EQ(*ParseJsonWithComments(value.dump(static_cast<int>(random() % 3) - 1), "f"), value);
  }
}

TEST(JsonLinesTest, TornAndForeignLinesAreCountedNotFatal) {
  JsonLines lines = ParseJsonLines("{\"a\": 1}\n\nnot json\n[1]\n{\"a\": 2}\r\n{\"a\": 3");
  ASSERT_EQ(lines.lines.size(), 2u);
  EXPECT_EQ(lines.lines[1]["a"], 2);
  EXPECT_THAT(lines.bad_lines, ElementsAre(3u, 4u, 6u));
  EXPECT_TRUE(lines.torn_tail);
}

TEST(JsonLinesTest, ALastLineThatOnlyLacksItsNewlineCounts) {
  JsonLines lines = ParseJsonLines("{\"a\": 1}\n{\"a\": 2}");
  EXPECT_EQ(lines.lines.size(), 2u);
  EXPECT_THAT(lines.bad_lines, IsEmpty());
  EXPECT_TRUE(lines.torn_tail);
  EXPECT_FALSE(ParseJsonLines("{\"a\": 1}\n").torn_tail);
  EXPECT_FALSE(ParseJsonLines("").torn_tail);
}

TEST(JsonLinesTest, AFileCutAtAnyByteKeepsItsCompleteLines) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += ToJsonLine({{"i", i}, {"s", "x\ny\"{"}}) + "\n";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    std::string part = text.substr(0, cut);
    size_t complete = static_cast<size_t>(std::count(part.begin(), part.end(), '\n'));
    JsonLines lines = ParseJsonLines(part);
    ASSERT_GE(lines.lines.size(), complete);
    ASSERT_LE(lines.lines.size(), complete + 1);
    for (size_t i = 0; i < lines.lines.size(); ++i) ASSERT_EQ(lines.lines[i]["i"], i);
  }
}

TEST(JsonLinesTest, AMissingFileIsAnError) {
  EXPECT_FALSE(ReadJsonLines("/nonexistent/x.jsonl").ok());
  EXPECT_FALSE(ReadJsonFile("/nonexistent/x.json").ok());
}

TEST(JsonLineTest, InvalidUtf8IsReplacedNotThrown) {
  EXPECT_EQ(ToJsonLine({{"s", "a\xff"}}), "{\"s\":\"a\xef\xbf\xbd\"}");
}

TEST(GettersTest, NeverThrowWhateverTheTypeIs) {
  json object = {{"s", "x"}, {"n", 1.5}, {"i", 7}, {"b", true}, {"big", 1e300}, {"null", nullptr}};
  EXPECT_EQ(GetString(object, "s"), "x");
  EXPECT_EQ(GetString(object, "n", "none"), "none");
  EXPECT_EQ(GetInt(object, "i"), 7);
  EXPECT_EQ(GetInt(object, "n", -1), -1);
  EXPECT_EQ(GetInt(object, "big", -1), -1);
  EXPECT_EQ(GetNumber(object, "i"), 7.0);
  EXPECT_TRUE(GetBool(object, "b"));
  EXPECT_FALSE(GetBool(object, "s"));
  EXPECT_EQ(GetInt(object, "null", 3), 3);
  for (const json& other : {json(), json(3), json::array(), json("s")}) {
    EXPECT_EQ(GetString(other, "s", "none"), "none");
    EXPECT_EQ(GetInt(other, "s", 5), 5);
  }
}

}  // namespace
}  // namespace lockstep
