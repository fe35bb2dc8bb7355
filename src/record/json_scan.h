// JSON as the lines of a run directory nearly always are, read in one pass without building a document: plain ASCII
// strings without escapes, integers below 10^18, no other surprise. What a function refuses may still be JSON: the
// caller leaves such a line to a parser of any JSON. What a function accepts, that parser reads as the same value. One
// thread; the text must outlive what is returned.
//
//   JsonScanner in(line);
//   if (in.Take('{') && in.Text(&key) && in.Take(':') && in.Value(&value) && in.Take('}') && in.AtEnd()) ...
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace lockstep::record {

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool Take(char c) {
    Blank();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool AtEnd() {
    Blank();
    return at_ == end_;
  }

  bool Text(std::string_view* out) {
    if (!Take('"')) return false;
    const char* begin = at_;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      const unsigned char c = static_cast<unsigned char>(*at_);
      if (c == '\\' || c < ' ' || c >= 0x7f) return false;
    }
    if (at_ == end_) return false;
    *out = {begin, static_cast<size_t>(at_++ - begin)};
    return true;
  }

  bool Number(double* out) {
    Blank();
    const char* begin = at_;
    int64_t whole = 0;
    bool integer = false;
    if (!WholePart(&whole, &integer)) return false;
    if (integer) {
      *out = static_cast<double>(whole);
      return true;
    }
    if (at_ != end_ && *at_ == '.') {
      ++at_;
      if (!Digits()) return false;
    }
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!Digits()) return false;
    }
    const auto [next, error] = std::from_chars(begin, at_, *out);
    return error == std::errc() && next == at_;  // refused: too large or too small for a double
  }

  // An integer from 0 on, written as one.
  template <typename T>
  bool Count(T* out) {
    Blank();
    int64_t whole = 0;
    bool integer = false;
    if (!WholePart(&whole, &integer) || !integer || whole < 0) return false;
    if (static_cast<uint64_t>(whole) > static_cast<uint64_t>(std::numeric_limits<T>::max())) return false;
    *out = static_cast<T>(whole);
    return true;
  }

  // A number, or one of the strings that stand for what JSON cannot say (json_number.h).
  bool Value(double* out) {
    Blank();
    if (at_ == end_ || *at_ != '"') return Number(out);
    std::string_view text;
    if (!Text(&text)) return false;
    if (text == "nan") {
      *out = std::numeric_limits<double>::quiet_NaN();
    } else if (text == "inf") {
      *out = std::numeric_limits<double>::infinity();
    } else if (text == "-inf") {
      *out = -std::numeric_limits<double>::infinity();
    } else {
      return false;
    }
    return true;
  }

 private:
  static constexpr int kMostDigits = 18;

  void Blank() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool IsDigit() const { return at_ != end_ && *at_ >= '0' && *at_ <= '9'; }
  bool Digits() {
    if (!IsDigit()) return false;
    while (IsDigit()) ++at_;
    return true;
  }
  // The digits before a point or an exponent. `integer`: neither follows.
  bool WholePart(int64_t* whole, bool* integer) {
    const bool negative = at_ != end_ && *at_ == '-';
    if (negative) ++at_;
    const char* first = at_;
    for (; IsDigit() && at_ - first < kMostDigits; ++at_) *whole = *whole * 10 + (*at_ - '0');
    if (at_ == first || IsDigit() || (*first == '0' && at_ - first > 1)) return false;
    if (negative) *whole = -*whole;
    *integer = at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E');
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace lockstep::record
