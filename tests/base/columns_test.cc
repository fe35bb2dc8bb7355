#include "base/columns.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Columns, WideCharactersTakeTwoAndCombiningOnesNone) {
  EXPECT_EQ(TextWidth(""), 0u);
  EXPECT_EQ(TextWidth("abc"), 3u);
  EXPECT_EQ(TextWidth("gr\xc3\xbc\xc3\x9f"), 4u);        // grüß
  EXPECT_EQ(TextWidth("\xe8\xae\xad\xe7\xbb\x83"), 4u);  // two Chinese characters
  EXPECT_EQ(TextWidth("\xf0\x9f\x9a\x80"), 2u);          // a rocket
  EXPECT_EQ(TextWidth("e\xcc\x81"), 1u);                 // e and an accent of its own
  EXPECT_EQ(TextWidth("\xff\xe8\xae"), 3u) << "bytes that are no text are shown one by one";
}

TEST(Columns, CutAndPaddedTextHasTheWidthAskedFor) {
  const struct {
    const char* text;
    size_t columns;
    const char* cut;
  } rows[] = {{"short", 10, "short"},     {"just fits", 9, "just fits"},
              {"too long", 7, "too ..."}, {"\xe8\xae\xad\xe7\xbb\x83\xe8\xae\xad\xe7\xbb\x83", 6, "\xe8\xae\xad..."},
              {"abc", 2, ".."},           {"abc", 0, ""}};
  for (const auto& row : rows) {
    EXPECT_EQ(CutToWidth(row.text, row.columns), row.cut);
    EXPECT_LE(TextWidth(CutToWidth(row.text, row.columns)), row.columns);
    EXPECT_EQ(TextWidth(PadToWidth(CutToWidth(row.text, row.columns), row.columns)), row.columns);
  }
  EXPECT_EQ(PadToWidth("longer", 3), "longer");
}

TEST(Columns, ForeignTextBecomesOnePlainLine) {
  const struct {
    const char* text;
    const char* expected;
  } rows[] = {{"one\ntwo\r\n\tthree  ", "one two three"},
              {"\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m", "red and bold"},
              {"\x1b]0;title\atext \x1b]8;;http://x\x1b\\link", "text link"},
              {"bell\a and \xff", "bell\\x07 and \\xff"},
              {"\x1b", ""},
              {"\x1b[", ""},
              {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"}};
  for (const auto& row : rows) EXPECT_EQ(OneLine(row.text), row.expected);
  EXPECT_EQ(OneLine(std::string(1000, 'x'), 10), std::string(10, 'x') + "...");
}

}  // namespace
}  // namespace lockstep
