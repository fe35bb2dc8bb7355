// HJSON, against what the Python package hjson 3.1.0 says about the same texts.
#include "foreign/hjson.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/config_json.h"

namespace lockstep::foreign {
namespace {

using testing::HasSubstr;

std::string Read(std::string_view text) {
  const Result<ConfigNode> root = ReadHjson(text, "ds.json");
  return root.ok() ? ToJson(*root).dump() : root.status().ToString();
}

TEST(Hjson, EqualsThePythonPackage) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"a": 1, "b": [true, null, -2.5e-3], "c": {"d": "x"}})", R"({"a":1,"b":[true,null,-0.0025],"c":{"d":"x"}})"},
      {"{}", "{}"},
      {"// a comment\n{ # another\n a: 1 /* and\n one */ , 'b': \"two\", }", R"({"a":1,"b":"two"})"},
      {"stage: 3\nauto: false\n", R"({"stage":3,"auto":false})"},
      {"{\n  device: cpu\n  pin: true\n}", R"({"device":"cpu","pin":true})"},
      {"{\n  list: [1, 2,]\n  words: [\n    one two\n    three\n  ]\n}",
       R"({"list":[1,2],"words":["one two","three"]})"},
      {"{\n  text: a, b # and this\n  n: 5e8 # not this\n}", R"({"text":"a, b # and this","n":500000000.0})"},
      {"{a: 1, b: 2}", R"({"a":1,"b":2})"},
      {"{a: 007\n b: +5\n c: .5\n d: 1.\n e: 1e\n f: - 1\n}",
       R"({"a":"007","b":"+5","c":".5","d":"1.","e":"1e","f":"- 1"})"},
      {"{a: truely\n b: true // yes\n c: nullable\n}", R"({"a":"truely","b":true,"c":"nullable"})"},
      {"{t:\n  '''\n  first\n    second\n  '''\n}", R"({"t":"first\n  second"})"},
      {R"({"u": "\u00e9\ud83d\ude00\/\n", 's': 'a "b"'})",
       "{\"u\":\"\xc3\xa9\xf0\x9f\x98\x80/\\n\",\"s\":\"a \\\"b\\\"\"}"},
      {"\xef\xbb\xbf{a: 1}", R"({"a":1})"},
      {"{a: http://host/x\n}", R"({"a":"http://host/x"})"},
      {"{\r\n  a: 1\r\n  b: x y\r\n}\r\n", R"({"a":1,"b":"x y"})"},
  };
  for (const auto& [text, json] : cases) EXPECT_EQ(Read(text), json) << text;
}

TEST(Hjson, MistakesHaveAPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ds.json:1:1: the file is empty"},
      {" \n // only this\n", "ds.json:3:1: the file is empty"},
      {"{\"a\": 1,\n \"b\": {\"c\": ", "ds.json:2:13: the file ends where a value is expected"},
      {"{\"a\": 1,\n \"b\": {\"c\": 2", "ds.json:2:14: the file ends here, and the '{' of line 2 is still open"},
      {"{\"a\": [1,\n 2", "ds.json:2:3: the file ends here, and the '[' of line 1 is still open"},
      {"{\"a\": \"cut", "ds.json:1:11: the file ends inside the string of line 1"},
      {"{\"a\": \"cut\n\"}", "ds.json:1:11: the string of line 1 has no end in its line"},
      {"{\"a\" 1}", "ds.json:1:6: expected ':' after the key 'a'"},
      {"{a b: 1}", "ds.json:1:2: expected ':' after the key 'a'"},
      {"{\"ke", "ds.json:1:5: the file ends inside the string of line 1"},
      {"{ke", "ds.json:1:4: the file ends after the key 'ke'"},
      {"{a: 1\n a: 2}", "ds.json:2:2: the key 'a' is given twice, first in line 1"},
      {"{a: ]}", "ds.json:1:5: expected a value, found ']'"},
      {"[1]", "ds.json:1:1: expected '{' or a key, found '['"},
      {"{a: 1} b", "ds.json:1:8: expected the end of the file"},
      {"{a: 1 /* no end", "ds.json:1:7: this comment has no end"},
      {"{a: \"\\x\"}", "ds.json:1:6: expected an escape"},
      {"{a: \"\\ud800\"}", "half of one"},
      {"{device: cpu}", "a string without quotes goes up to the end of its line, as 'cpu}' in line 1 does"},
      {"{a: \xff}", "expected text in UTF-8"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(Read(text), HasSubstr(message)) << text;
  EXPECT_THAT(Read(std::string(300, '[').insert(0, "a: ")), HasSubstr("more than 100 levels"));
}

}  // namespace
}  // namespace lockstep::foreign
