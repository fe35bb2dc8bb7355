#include "record/time_stamp.h"

#include <cstdint>

#include "base/digits.h"

namespace lockstep::record {
namespace {

// Reads pieces of a stamp off the front of a text; once one is missing, it stays failed.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  size_t at() const { return at_; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  int Digits(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) {
      if (!IsDigit(peek())) return Fail();
      value = value * 10 + (text_[at_++] - '0');
    }
    return value;
  }
  void One(std::string_view any_of) {
    if (at_ < text_.size() && any_of.find(text_[at_]) != std::string_view::npos) {
      ++at_;
    } else {
      ok_ = false;
    }
  }
  bool Maybe(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  // "Jan" ... "Dec" as 1 ... 12.
  int Month() {
    static constexpr std::string_view kNames = "JanFebMarAprMayJunJulAugSepOctNovDec";
    if (at_ + 3 > text_.size()) return Fail();
    const size_t found = kNames.find(text_.substr(at_, 3));
    if (found == std::string_view::npos || found % 3 != 0) return Fail();
    at_ += 3;
    return static_cast<int>(found / 3) + 1;
  }
  bool DayName() {
    static constexpr std::string_view kNames = "MonTueWedThuFriSatSun";
    if (at_ + 3 > text_.size()) return false;
    const size_t found = kNames.find(text_.substr(at_, 3));
    if (found == std::string_view::npos || found % 3 != 0) return false;
    at_ += 3;
    return true;
  }
  double Fraction() {
    double value = 0, scale = 0.1;
    for (; IsDigit(peek()); ++at_, scale /= 10) value += (text_[at_] - '0') * scale;
    return value;
  }
  int Fail() {
    ok_ = false;
    return 0;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  bool ok_ = true;
};

struct Date {
  int year = 0, month = 0, day = 0;
};

// Days since 1970 of a date of the Gregorian calendar.
int64_t Days(const Date& date) {
  const int64_t y = date.year - (date.month <= 2 ? 1 : 0);
  const int64_t era = (y >= 0 ? y : y - 399) / 400;
  const int64_t year_of_era = y - era * 400;
  const int64_t day_of_year = (153 * (date.month + (date.month > 2 ? -3 : 9)) + 2) / 5 + date.day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

// hh:mm:ss, with a fraction and a zone where they are written.
std::optional<TimeStamp> Finish(const Date& date, Cursor cursor) {
  const int hour = cursor.Digits(2);
  cursor.One(":");
  const int minute = cursor.Digits(2);
  cursor.One(":");
  const int second = cursor.Digits(2);
  if (!cursor.ok() || date.month < 1 || date.month > 12 || date.day < 1 || date.day > 31 || hour > 23 || minute > 59 ||
      second > 60) {
    return std::nullopt;
  }
  TimeStamp stamp;
  stamp.time = static_cast<double>(Days(date) * 86400 + hour * 3600 + minute * 60 + second);
  if ((cursor.peek() == '.' || cursor.peek() == ',')) {
    Cursor fraction = cursor;
    fraction.Maybe(fraction.peek());
    if (IsDigit(fraction.peek())) {
      stamp.time += fraction.Fraction();
      cursor = fraction;
    }
  }
  Cursor zone = cursor;
  const bool space = zone.Maybe(' ');
  if (!space && zone.Maybe('Z')) {
    cursor = zone;
  } else if (zone.peek() == '+' || zone.peek() == '-') {
    const int sign = zone.peek() == '-' ? -1 : 1;
    zone.Maybe(zone.peek());
    const int hours = zone.Digits(2);
    zone.Maybe(':');
    const int minutes = zone.Digits(2);
    if (zone.ok() && hours <= 14 && minutes < 60 && !IsDigit(zone.peek())) {
      stamp.time -= sign * (hours * 3600 + minutes * 60);
      cursor = zone;
    }
  }
  stamp.length = cursor.at();
  return stamp;
}

// Year, month and day in that order. century: of a year of two digits; 0: it has four.
std::optional<TimeStamp> YearFirst(std::string_view text, int century, std::string_view between) {
  Cursor cursor(text);
  Date date;
  date.year = century + cursor.Digits(century == 0 ? 4 : 2);
  cursor.One("-/");
  date.month = cursor.Digits(2);
  cursor.One("-/");
  date.day = cursor.Digits(2);
  cursor.One(between);
  return cursor.ok() ? Finish(date, cursor) : std::nullopt;
}

// 2026-01-02 10:00:00, 2026/01/02T10:00:00Z, 2026-01-01_10:00:00
std::optional<TimeStamp> Iso(std::string_view text, int) { return YearFirst(text, 0, "T _:"); }

// 26/01/15 10:00:00 (Hadoop) and 26-01-15 10:00:00
std::optional<TimeStamp> ShortYear(std::string_view text, int) { return YearFirst(text, 2000, " T"); }

// 01/31/2026 10:00:00 and 31/01/2026 10:00:00
std::optional<TimeStamp> American(std::string_view text, int) {
  Cursor cursor(text);
  Date date;
  date.month = cursor.Digits(2);
  cursor.One("/");
  date.day = cursor.Digits(2);
  cursor.One("/");
  date.year = cursor.Digits(4);
  cursor.One(" T");
  if (!cursor.ok()) return std::nullopt;
  if (date.month > 12) std::swap(date.month, date.day);
  return Finish(date, cursor);
}

// 11-15 10:00:00, 11/15 10:00:00
std::optional<TimeStamp> MonthDay(std::string_view text, int year) {
  Cursor cursor(text);
  Date date{.year = year};
  date.month = cursor.Digits(2);
  cursor.One("-/");
  date.day = cursor.Digits(2);
  cursor.One(" ");
  return cursor.ok() ? Finish(date, cursor) : std::nullopt;
}

// W1115 10:00:00.123456, E626 05:06:30.92 (c10 does not pad the month)
std::optional<TimeStamp> Glog(std::string_view text, int year) {
  if (text.size() < 12 || std::string_view("IWEFDC").find(text[0]) == std::string_view::npos) return std::nullopt;
  size_t digits = 0;
  while (digits < 5 && 1 + digits < text.size() && IsDigit(text[1 + digits])) ++digits;
  if (digits != 3 && digits != 4) return std::nullopt;
  Cursor cursor(text);
  cursor.One("IWEFDC");
  Date date{.year = year};
  date.month = cursor.Digits(digits == 3 ? 1 : 2);
  date.day = cursor.Digits(2);
  cursor.One(" ");
  return cursor.ok() ? Finish(date, cursor) : std::nullopt;
}

// Jan 15 10:00:00, Fri Jan 15 10:00:00 2026
std::optional<TimeStamp> Syslog(std::string_view text, int year) {
  Cursor cursor(text);
  const bool named = cursor.DayName();
  if (named) cursor.One(" ");
  Date date{.year = year};
  date.month = cursor.Month();
  cursor.One(" ");
  cursor.Maybe(' ');
  const bool two = cursor.at() + 1 < text.size() && IsDigit(text[cursor.at() + 1]);
  date.day = cursor.Digits(two ? 2 : 1);
  cursor.One(" ");
  if (!cursor.ok()) return std::nullopt;
  std::optional<TimeStamp> stamp = Finish(date, cursor);
  if (!stamp || !named) return stamp;
  Cursor tail(text.substr(std::min(text.size(), stamp->length)));
  tail.One(" ");
  const int written = tail.Digits(4);
  if (!tail.ok()) return stamp;
  date.year = written;
  std::optional<TimeStamp> full = Finish(date, cursor);
  if (full) full->length = stamp->length + tail.at();
  return full;
}

}  // namespace

std::optional<TimeStamp> ParseTimeStamp(std::string_view text, int year) {
  if (text.size() < 12) return std::nullopt;
  if (IsDigit(text[0])) {
    for (auto* parse : {Iso, American, MonthDay, ShortYear}) {
      if (auto stamp = parse(text, year)) return stamp;
    }
    return std::nullopt;
  }
  if (text[0] < 'A' || text[0] > 'Z') return std::nullopt;
  if (auto stamp = Glog(text, year)) return stamp;
  return Syslog(text, year);
}

std::optional<double> ParseTime(std::string_view text) {
  auto stamp = ParseTimeStamp(text, 1970);
  return stamp ? std::optional<double>(stamp->time) : std::nullopt;
}

}  // namespace lockstep::record
