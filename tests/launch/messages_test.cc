// The messages between launchers: what is sent can be read, what does not fit is named, and the page lists it all.
#include "launch/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "paths.h"

namespace lockstep::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A message of which every field has a value that is not its default.
message::Stopped Full() {
  message::RankDetail detail;
  detail.rank = 3;
  detail.findings = {1.5, "boom", "Traceback", "do it", 17, true, "oom", "last line", "/log"};
  detail.excerpt = {"text", 7, "earlier", 2};
  return {{detail}, "pid 9 does not die", {{3, 70, "sleep 99"}}};
}

TEST(Messages, WhatIsSentIsRead) {
  const Json sent = ToJson(Full());
  EXPECT_EQ(sent["type"], "stopped");
  EXPECT_EQ(sent["details"][0]["step"], 17);
  const auto stopped = Parse<message::Stopped>(sent, "node 1");
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  EXPECT_EQ(ToJson(*stopped), sent);

  RankPulse pulse;
  pulse.progress = Millis(40);
  const Json pulses = ToJson(message::Pulse{2, {pulse}});
  EXPECT_EQ(pulses["ranks"][0]["progress_ms"], 40);
  EXPECT_EQ(pulses["ranks"][0]["step"], nullptr);
  EXPECT_EQ(ToJson(*Parse<message::Pulse>(pulses, "node 1")), pulses);

  const Json stacks = ToJson(message::Stacks{5, {Json::object()}, {{12, "all_reduce"}}, "ras", ""});
  EXPECT_EQ(stacks["collectives"]["12"], "all_reduce");
  EXPECT_EQ(ToJson(*Parse<message::Stacks>(stacks, "node 1")), stacks);
}

// A whole message with one field changed, or taken away.
struct WrongField {
  Json message;
  const char* field;
  Json value;  // discarded: the field is missing
  const char* expected;
  const char* found;
};

TEST(Messages, AFieldThatDoesNotFitIsNamed) {
  const Json missing = Json(Json::value_t::discarded);
  const Json stop = ToJson(message::Stop{15, Millis(1000), "why"});
  const Json go = ToJson(message::Go{});
  const Json stopped = ToJson(Full());
  const Json claims = ToJson(Participant());
  const Json pulse = ToJson(message::Pulse{0, {RankPulse()}});
  const Json stacks = ToJson(message::Stacks{1, {Json::object()}, {{0, "x"}}, "", ""});
  const WrongField cases[] = {
      {stop, "/why", missing, "text", "no such field"},
      {stop, "/signal", "15", "integer", "text \"15\""},
      {stop, "/signal", 0, "integer from 1 to 64", "the number 0"},
      {stop, "/grace_ms", 1.5, "integer", "the number 1.5"},
      {stop, "/grace_ms", 1e300, "integer", "the number"},
      {go, "/world", nullptr, "integer", "null"},
      {go, "/world", 5000000000, "integer from", "the number 5000000000"},
      {go, "/master_port", 65536, "integer from 0 to 65535", "the number 65536"},
      {go, "/agent_store", 1, "boolean", "the number 1"},
      {stopped, "/details", Json::object(), "list of rank_detail", "an object"},
      {stopped, "/details/0/log", missing, "text", "no such field"},
      {stopped, "/details/0/step", "x", "integer", "text \"x\""},
      {stopped, "/details/0/first_line", -1, "integer", "the number -1"},
      {stopped, "/left/0", 7, "left_process", "the number 7"},
      {pulse, "/ranks/0/progress_ms", 18446744073709551615u, "integer", "the number"},
      {stacks, "/ranks/0", "x", "object", "text \"x\""},
      {stacks, "/collectives/0", 7, "text", "the number 7"},
      {claims, "/count", 0, "integer from 1", "the number 0"},
      {claims, "/level", "rack", "'node' or 'process'", "text \"rack\""},
      {claims, "/command", Json::array({1}), "text", "the number 1"},
  };
  for (const WrongField& test : cases) {
    SCOPED_TRACE(std::string(test.field) + " of " + test.message.dump());
    Json wrong = test.message;
    const Json::json_pointer at(test.field);
    if (test.value.is_discarded()) {
      wrong.at(at.parent_pointer()).erase(at.back());
    } else {
      wrong[at] = test.value;
    }
    const std::string type = TypeOf(wrong);
    const std::string peer = "node 1 (pid 7 on gpu-7)";
    const Status status = type == "stop"      ? Parse<message::Stop>(wrong, peer).status()
                          : type == "go"      ? Parse<message::Go>(wrong, peer).status()
                          : type == "stopped" ? Parse<message::Stopped>(wrong, peer).status()
                          : type == "pulse"   ? Parse<message::Pulse>(wrong, peer).status()
                          : type == "stacks"  ? Parse<message::Stacks>(wrong, peer).status()
                                              : Parse<Participant>(wrong, peer).status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), Code::kRendezvous);
    const std::string name = type.empty() ? "introduction" : "message '" + type + "'";
    EXPECT_THAT(status.message(), AllOf(HasSubstr(name + " from " + peer + ": field '"),
                                        HasSubstr(std::string("expected ") + test.expected),
                                        HasSubstr(std::string("found ") + test.found)));
    EXPECT_THAT(status.hint(), HasSubstr("lockstep --version"));
  }
  EXPECT_THAT(Parse<message::Stopped>(Json{{"type", "stopped"}}, "x").status().message(), HasSubstr("'details'"));
  Json deep = stopped;
  deep["details"][0].erase("log");
  EXPECT_THAT(Parse<message::Stopped>(deep, "x").status().message(), HasSubstr("field 'details[0].log'"));
}

TEST(Messages, WhatIsNotKnownIsIgnored) {
  Json stop = ToJson(message::Stop{15, Millis(1000), "why"});
  stop["colour"] = "red";
  EXPECT_TRUE(Parse<message::Stop>(stop, "node 0").ok());
  Receiver on(Json{{"type", "of a later version"}}, "node 0");
  on.Case<message::Stop>([](const message::Stop&) { FAIL(); });
  EXPECT_FALSE(on.taken());
  EXPECT_TRUE(on.status().ok());
}

TEST(Messages, OptionalFieldsMayBeMissing) {
  Json finish = ToJson(message::Finish{5, "r", "h", false, std::nullopt});
  finish.erase("failure");
  const auto parsed = Parse<message::Finish>(finish, "node 0");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_FALSE(parsed->failure.has_value());
}

// The rows of the page whose first cell is a name in backticks: name, and every `field: type` of the second cell.
std::multimap<std::string, std::set<std::string>> TablesOfThePage() {
  std::ifstream page(SourceDir() + "/docs/formats/rendezvous.md");
  const std::regex row(R"(^\| `(\w+)` \|([^|]*)\|.*)");
  const std::regex field(R"(`(\w+: [^`]+)`)");
  std::multimap<std::string, std::set<std::string>> rows;
  std::smatch match;
  for (std::string line; std::getline(page, line);) {
    if (!std::regex_match(line, match, row)) continue;
    const std::string cell = match[2];
    std::set<std::string> fields;
    for (std::sregex_iterator at(cell.begin(), cell.end(), field), end; at != end; ++at) fields.insert((*at)[1]);
    rows.emplace(match[1], std::move(fields));
  }
  return rows;
}

TEST(Messages, ThePageListsEveryMessageAndEveryField) {
  std::set<std::pair<std::string, std::set<std::string>>> known, listed;
  for (const MessageFields& message : ListMessages()) {
    known.emplace(message.name, std::set<std::string>(message.fields.begin(), message.fields.end()));
  }
  for (const auto& [name, fields] : TablesOfThePage()) listed.emplace(name, fields);
  EXPECT_GT(known.size(), 20u);
  EXPECT_EQ(listed, known) << "docs/formats/rendezvous.md and src/launch/messages.h differ";
}

}  // namespace
}  // namespace lockstep::launch
