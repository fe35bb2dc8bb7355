#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <random>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(EditDistanceTest, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("train", "trian"), 1);
  EXPECT_EQ(EditDistance("abc", "abc"), 0);
}

TEST(EditDistanceTest, IsSymmetricAndNeverMoreThanTheLongerWord) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string a, b;
    for (unsigned n = random() % 8; n > 0; --n) a += static_cast<char>('a' + random() % 3);
    for (unsigned n = random() % 8; n > 0; --n) b += static_cast<char>('a' + random() % 3);
    int distance = EditDistance(a, b);
    EXPECT_EQ(distance, EditDistance(b, a)) << a << " " << b;
    EXPECT_LE(distance, static_cast<int>(std::max(a.size(), b.size())));
    EXPECT_EQ(distance == 0, a == b);
  }
}

TEST(NearestTest, FindsWhatAMisspeltNameMeant) {
  std::vector<std::string> names = {"bucket", "bucket_size", "lr", "weight_decay"};
  EXPECT_EQ(Nearest("buket", names), "bucket");
  EXPECT_EQ(Nearest("weight-decay", names), "weight_decay");
  EXPECT_EQ(Nearest("LR", names), "lr");
  EXPECT_EQ(Nearest("momentum", names), std::nullopt);
  EXPECT_EQ(Nearest("", names), std::nullopt);
  EXPECT_EQ(Nearest(std::string(100000, 'x'), names), std::nullopt);
  EXPECT_EQ(DidYouMean("buket", names), " (did you mean 'bucket'?)");
  EXPECT_EQ(DidYouMean("zzz", names), "");
}

TEST(SplitTest, KeepsEmptyFields) {
  EXPECT_THAT(Split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
  EXPECT_THAT(Split(",", ','), ElementsAre("", ""));
  EXPECT_EQ(Join(Split("x:y::z", ':'), ":"), "x:y::z");
}

TEST(TrimTest, TakesBlanksFromBothEnds) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim("  "), "");
}

TEST(ShellQuoteTest, ARealShellReadsEveryByteBack) {
  std::mt19937 random(4);
  std::vector<std::string> words = {"",   "plain", "a b", "it's", "$HOME", "`x`", "a\\b",
                                    "\"", "-n",    "*",   "~",    "a\nb",  "#x",  "!"};
  for (int i = 0; i < 20; ++i) {
    std::string word;
    for (unsigned n = random() % 10; n > 0; --n) word += static_cast<char>(1 + random() % 126);
    words.push_back(word);
  }
  std::string command = "printf '%s\\001' " + ShellQuote(words);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string out;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  ASSERT_EQ(::pclose(pipe), 0);
  std::string expected;
  for (const std::string& word : words) expected += word + "\001";
  EXPECT_EQ(out, expected);
  EXPECT_EQ(ShellQuote("train.py"), "train.py");
}

TEST(PrintableTest, NoControlByteSurvives) {
  EXPECT_EQ(Printable("a\nb\t\r"), "a\\nb\\t\\r");
  EXPECT_EQ(Printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(Printable("größe"), "größe");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");  // CSI as one character
  EXPECT_EQ(Printable(std::string(500, 'x')).size(), 203u);
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (unsigned n = random() % 40; n > 0; --n) text += static_cast<char>(random() % 256);
    std::string shown = Printable(text, 1000);
    EXPECT_TRUE(IsUtf8(shown));
    for (char c : shown) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
}

TEST(Utf8Test, KnowsValidFromInvalid) {
  for (const char* good : {"", "abc", "größe", "\u20ac", "\U0001f600", "\xf4\x8f\xbf\xbf"}) EXPECT_TRUE(IsUtf8(good));
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff"}) {
    EXPECT_FALSE(IsUtf8(bad));
    EXPECT_TRUE(IsUtf8(ValidUtf8(bad)));
  }
}

TEST(UseColourTest, AFileIsNeverColoured) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(UseColour(::fileno(file)));
  std::fclose(file);
}

}  // namespace
}  // namespace lockstep
