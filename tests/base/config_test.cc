#include "base/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/files.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

enum class Optimizer { kAdamw, kSgd };

struct Source {
  std::string path;
  double weight = 1;
  bool operator==(const Source&) const = default;
};

struct Everything {
  std::string name = "unnamed";
  bool flag = false;
  int count = 3;
  int64_t big = 0;
  uint64_t huge = 0;
  uint8_t tiny = 0;
  double lr = 1e-3;
  float scale = 1.5f;
  uint64_t bucket = 25u << 20;
  milliseconds timeout{600000};
  milliseconds wait_seconds{1000};
  milliseconds poll_ms{10};
  std::optional<double> clip;
  std::optional<std::string> note;
  std::array<double, 2> betas = {0.9, 0.999};
  std::vector<int> steps;
  std::vector<std::string> tags;
  std::map<std::string, double> weights;
  Optimizer optimizer = Optimizer::kAdamw;
  std::string precision = "bf16";
  std::vector<Source> sources;
  bool operator==(const Everything&) const = default;
};

void Declare(ConfigReader& r, Everything* e) {
  r.Section("run", [&](ConfigReader& run) {
    run.Field("name", &e->name);
    run.Field("note", &e->note);
    run.Field("tags", &e->tags);
  });
  r.Section("train", [&](ConfigReader& t) {
    t.Field("flag", &e->flag);
    t.Field("count", &e->count, {.min = 1, .max = 100});
    t.Field("big", &e->big);
    t.Field("huge", &e->huge);
    t.Field("tiny", &e->tiny);
    t.Field("lr", &e->lr, {.above = 0});
    t.Field("scale", &e->scale);
    t.Field("clip", &e->clip, {.min = 0});
    t.Field("betas", &e->betas, {.min = 0, .max = 1});
    t.Field("steps", &e->steps, {.max_items = 4});
    t.Field("weights", &e->weights);
    t.Enum("optimizer", &e->optimizer, {{"adamw", Optimizer::kAdamw}, {"sgd", Optimizer::kSgd}});
    t.Choice("precision", &e->precision, {"fp32", "bf16", "no"});
  });
  r.Section("comm", [&](ConfigReader& c) {
    c.Size("bucket", &e->bucket, {.min = 4096, .max = 1 << 30});
    c.Field("timeout", &e->timeout, {.min = 1});
    c.Field("wait_seconds", &e->wait_seconds);
    c.Field("poll_ms", &e->poll_ms);
  });
  r.Section("data", [&](ConfigReader& d) {
    d.List<Source>("sources", &e->sources, [](ConfigReader& s, Source* source) {
      s.Field("path", &source->path, {.required = true});
      s.Field("weight", &source->weight, {.min = 0});
    });
  });
}

struct Outcome {
  Everything value;
  Status status;
  std::string dump;
  std::string digest;
};

Outcome Read(const std::string& text, ConfigTree::Format format = ConfigTree::Format::kYaml,
             const std::vector<std::string>& sets = {}) {
  Outcome outcome;
  Result<ConfigTree> tree = ConfigTree::Parse(text, "c.yaml", format);
  outcome.status = tree.status();
  if (!tree.ok()) return outcome;
  for (const std::string& set : sets) {
    Status status = tree->Override(set);
    if (!status.ok()) {
      outcome.status = status;
      return outcome;
    }
  }
  ConfigReader reader(*tree);
  Declare(reader, &outcome.value);
  outcome.status = reader.Finish();
  outcome.dump = reader.Dump();
  outcome.digest = reader.Digest();
  return outcome;
}

std::string Error(const std::string& text, ConfigTree::Format format = ConfigTree::Format::kYaml) {
  Outcome outcome = Read(text, format);
  EXPECT_FALSE(outcome.status.ok()) << "accepted: " << text;
  EXPECT_TRUE(outcome.status.ok() || outcome.status.code() == Code::kUsage);
  return outcome.status.message();
}

TEST(ConfigTest, EmptyDocumentsGiveTheDefaults) {
  for (const char* text : {"", "# only a comment\n", "---\n", "{}", "train:\ncomm:\n", "null"}) {
    Outcome outcome = Read(text);
    ASSERT_TRUE(outcome.status.ok()) << text << outcome.status.message();
    EXPECT_EQ(outcome.value, Everything{}) << text;
  }
  EXPECT_TRUE(Read("// nothing\n", ConfigTree::Format::kJson).status.ok());
}

TEST(ConfigTest, EveryTypeIsReadFromYaml) {
  Outcome outcome = Read(R"(
run: {name: "2024", note: null, tags: [a, "1", b c]}
train:
  flag: true
  count: 5e1
  big: -9223372036854775808
  huge: 18446744073709551615
  tiny: 255
  lr: 1e-4
  scale: .5
  clip: 1
  betas: [0.9, 0.95]
  steps:
    - 1
    - 2.0
    - 1.5e3
  weights: {a/b: 1, "x y": -2.5}
  optimizer: sgd
  precision: no
comm: {bucket: 1.5MiB, timeout: 1h30m, wait_seconds: 2.5, poll_ms: 20}
data:
  sources:
    - path: /a
    - {path: /b, weight: 0.5}
)");
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const Everything& e = outcome.value;
  EXPECT_EQ(e.name, "2024");
  EXPECT_EQ(e.note, std::nullopt);
  EXPECT_THAT(e.tags, ElementsAre("a", "1", "b c"));
  EXPECT_TRUE(e.flag);
  EXPECT_EQ(e.count, 50);
  EXPECT_EQ(e.big, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(e.huge, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(e.tiny, 255);
  EXPECT_EQ(e.lr, 1e-4);
  EXPECT_EQ(e.scale, 0.5f);
  EXPECT_EQ(e.clip, 1.0);
  EXPECT_THAT(e.betas, ElementsAre(0.9, 0.95));
  EXPECT_THAT(e.steps, ElementsAre(1, 2, 1500));
  EXPECT_EQ(e.weights, (std::map<std::string, double>{{"a/b", 1}, {"x y", -2.5}}));
  EXPECT_EQ(e.optimizer, Optimizer::kSgd);
  EXPECT_EQ(e.precision, "no");
  EXPECT_EQ(e.bucket, 1572864u);
  EXPECT_EQ(e.timeout, milliseconds(5400000));
  EXPECT_EQ(e.wait_seconds, milliseconds(2500));
  EXPECT_EQ(e.poll_ms, milliseconds(20));
  EXPECT_EQ(e.sources, (std::vector<Source>{{"/a", 1}, {"/b", 0.5}}));
}

TEST(ConfigTest, JsonWithCommentsTabsAndTrailingCommasIsTheSameTree) {
  Outcome outcome = Read(
      "{\n\t// a comment\n\t\"run\": {\"name\": \"\\ud83d\\ude00 \\u00e9 \\/ \\\\ud83d\"},\n"
      "\t\"train\":{\"lr\":1E-4,\"flag\":true,\"steps\":[1,2,],},\n\t/* more */ \"comm\": {\"bucket\": "
      "\"25MiB\"},\n}\n",
      ConfigTree::Format::kJson);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.value.name, "\U0001f600 \u00e9 / \\ud83d");
  EXPECT_EQ(outcome.value.lr, 1e-4);
  EXPECT_TRUE(outcome.value.flag);
  EXPECT_THAT(outcome.value.steps, ElementsAre(1, 2));
}

TEST(ConfigTest, AnErrorNamesFileLineColumnPathExpectedAndFound) {
  EXPECT_EQ(Error("train:\n  lr: fast\n"), "c.yaml:2:7: train.lr: expected a number, found the string 'fast'");
  EXPECT_EQ(Error("{\n \"train\": {\n  \"lr\": \"fast\"}}", ConfigTree::Format::kJson),
            "c.yaml:3:9: train.lr: expected a number, found the string 'fast'");
}

TEST(ConfigTest, AllErrorsOfAFileAreReportedInOrderOfLines) {
  std::string message =
      Error("run:\n  nam: x\ntrain:\n  lr: 0\n  count: 1.5\n  flag: yes\nextra: 1\ncomm:\n  bucket: 25M\n");
  EXPECT_THAT(message, HasSubstr("6 errors in the configuration:"));
  size_t at = 0;
  for (const char* part : {"c.yaml:2:3: run.nam: unknown key (did you mean 'name'?)",
                           "c.yaml:4:7: train.lr: expected a number of more than 0, found the number 0",
                           "c.yaml:5:10: train.count: expected an integer, found the number 1.5",
                           "c.yaml:6:9: train.flag: expected true or false, found the string 'yes'; write true",
                           "c.yaml:7:1: extra: unknown key; valid here: run, train, comm, data",
                           "c.yaml:9:11: comm.bucket: expected a size"}) {
    size_t found = message.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\nin\n" << message;
    at = found;
  }
}

TEST(ConfigTest, AKeyInTheWrongSectionIsSentToTheRightOne) {
  EXPECT_THAT(Error("lr: 1e-4\n"), HasSubstr("lr: unknown key (did you mean 'train.lr'?)"));
  EXPECT_THAT(Error("train:\n  bucket: 25MiB\n"), HasSubstr("did you mean 'comm.bucket'?"));
}

TEST(ConfigTest, DuplicateKeysNameBothPlaces) {
  EXPECT_THAT(Error("train:\n  lr: 1\n  count: 2\n  lr: 2\n"),
              HasSubstr("c.yaml:4:3: train.lr: given twice, first at c.yaml:2:3"));
  EXPECT_THAT(Error("{\"train\": {}, \"train\": {}}", ConfigTree::Format::kJson), HasSubstr("train: given twice"));
}

TEST(ConfigTest, BooleansAreTrueAndFalseOnly) {
  EXPECT_TRUE(Read("train: {flag: true}").value.flag);
  for (auto [text, advice] : {std::pair("yes", "write true"),
                              {"on", "write true"},
                              {"True", "write true"},
                              {"1", "write true"},
                              {"no", "write false"},
                              {"off", "write false"},
                              {"FALSE", "write false"},
                              {"0", "write false"},
                              {"\"true\"", "write true without quotes"},
                              {"null", "leave the key out"}}) {
    EXPECT_THAT(Error(fmt::format("train: {{flag: {}}}", text)), HasSubstr(advice)) << text;
  }
}

TEST(ConfigTest, IntegersAreExactAndBounded) {
  for (const char* text : {"1.5", "010", "0x10", "1_000", "\"4\"", "abc", "true", "null", "[1]", "{}", "1e-1", "--1",
                           "1e", ".", "9223372036854775808", "1e19", "1e400", "-9223372036854775809", ".inf"}) {
    Error(fmt::format("train: {{big: {}}}", text));
  }
  EXPECT_EQ(Read("train: {big: 9007199254740993}").value.big, 9007199254740993);  // no double holds this
  EXPECT_EQ(Read("train: {big: +12}").value.big, 12);
  EXPECT_EQ(Read("train: {big: 0e9}").value.big, 0);
  EXPECT_EQ(Read("train: {big: -0}").value.big, 0);
  EXPECT_EQ(Read("train: {big: 12.50e2}").value.big, 1250);
  EXPECT_THAT(Error("train: {tiny: 256}"), HasSubstr("an integer from 0 to 255"));
  EXPECT_THAT(Error("train: {tiny: -1}"), HasSubstr("an integer from 0 to 255"));
  EXPECT_THAT(Error("train: {huge: -1}"), HasSubstr("from 0 to 18446744073709551615"));
  EXPECT_THAT(Error("train: {count: 0}"), HasSubstr("an integer of at least 1 and at most 100, found the number 0"));
  EXPECT_THAT(Error("train: {count: 101}"), HasSubstr("at most 100"));
}

TEST(ConfigTest, NumbersWithExponentsAreNumbers) {
  for (auto [text, value] : {std::pair("1e-4", 1e-4),
                             {"5e8", 5e8},
                             {"1E+3", 1e3},
                             {".5", 0.5},
                             {"5.", 5.0},
                             {"1e3", 1e3},
                             {"+2", 2.0},
                             {".inf", std::numeric_limits<double>::infinity()},
                             {"4.9406564584124654e-324", 4.9406564584124654e-324}}) {
    Outcome outcome = Read(fmt::format("train: {{lr: {}}}", text));
    ASSERT_TRUE(outcome.status.ok()) << text << outcome.status.message();
    EXPECT_EQ(outcome.value.lr, value) << text;
  }
  for (const char* text :
       {"\"1e-4\"", "1e-4x", "e4", "1e", "nan", ".nan", "inf", "1e999", "1e-999", "-1", "0", "01", "1,5", "1 2"}) {
    Error(fmt::format("train:\n  lr: {}", text));
  }
  EXPECT_THAT(Error("train: {lr: \"1e-4\"}"), HasSubstr("remove the quotes"));
  EXPECT_THAT(Error("train: {lr: 1e-999}"), HasSubstr("too small"));
  EXPECT_THAT(Error("train: {lr: 1e999}"), HasSubstr("too large"));
  EXPECT_THAT(Error("train: {scale: 1e39}"), HasSubstr("32-bit float"));
}

TEST(ConfigTest, StringsThatLookLikeSomethingElseNeedQuotes) {
  for (const char* text : {"123", "1e5", "true", "false", "null", "~", "[a]", "{a: b}"}) {
    Error(fmt::format("run: {{name: {}}}", text));
  }
  EXPECT_THAT(Error("run: {name: 123}"), HasSubstr("found the number 123; put quotes around it"));
  for (auto [text, value] : {std::pair("\"123\"", "123"),
                             {"'true'", "true"},
                             {"NO", "NO"},
                             {"no", "no"},
                             {"1.2.3", "1.2.3"},
                             {"2024-01-01", "2024-01-01"},
                             {"0x1f", "0x1f"},
                             {"\"\"", ""},
                             {"a: b", nullptr}}) {
    if (value == nullptr) continue;
    Outcome outcome = Read(fmt::format("run:\n  name: {}\n", text));
    ASSERT_TRUE(outcome.status.ok()) << text << outcome.status.message();
    EXPECT_EQ(outcome.value.name, value);
  }
}

TEST(ConfigTest, SizesAndDurationsNeedUnits) {
  EXPECT_EQ(Read("comm: {bucket: 8192}").value.bucket, 8192u);
  EXPECT_EQ(Read("comm: {bucket: \"25MiB\"}").value.bucket, 26214400u);
  EXPECT_THAT(Error("comm: {bucket: 1KiB}"), HasSubstr("a size of at least 4KiB and at most 1GiB"));
  EXPECT_THAT(Error("comm: {bucket: [1]}"), HasSubstr("expected a size"));
  EXPECT_THAT(Error("comm: {timeout: 30}"), HasSubstr("write 30s for seconds"));
  EXPECT_THAT(Error("comm: {timeout: 10ms}"), HasSubstr("a duration of at least 1s"));
  EXPECT_THAT(Error("comm: {timeout: null}"), HasSubstr("leave the key out"));
}

TEST(ConfigTest, ChoicesSuggestTheNearest) {
  EXPECT_THAT(Error("train: {optimizer: adam}"),
              HasSubstr("expected one of adamw, sgd, found the string 'adam'; did you mean 'adamw'?"));
  EXPECT_THAT(Error("train: {precision: [bf16]}"), HasSubstr("one of fp32, bf16, no"));
}

TEST(ConfigTest, ListsAreCheckedItemByItem) {
  EXPECT_THAT(Error("train: {betas: 0.9}"), HasSubstr("expected a list, found the number 0.9; put it in brackets"));
  EXPECT_THAT(Error("train: {betas: [0.9]}"), HasSubstr("expected a list of 2, found a list of 1"));
  EXPECT_THAT(Error("train: {betas: [0.9, 2]}"),
              HasSubstr("train.betas[1]: expected a number of at least 0 and at most 1"));
  EXPECT_THAT(Error("train: {steps: [1, 2, 3, 4, 5]}"), HasSubstr("a list of at most 4"));
  EXPECT_THAT(Error("train: {weights: {a: x}}"), HasSubstr("train.weights.a: expected a number"));
}

TEST(ConfigTest, RequiredKeysOfListItemsAreMissedWithTheirPath) {
  std::string message =
      Error("data:\n  sources:\n    - path: /a\n    - weight: 2\n    - 7\n    - {path: /b, wieght: 3}\n");
  EXPECT_THAT(message, HasSubstr("c.yaml:4:7: data.sources[1].path: required, but not given"));
  EXPECT_THAT(message, HasSubstr("data.sources[2]: expected a section with keys, found the number 7"));
  EXPECT_THAT(message, HasSubstr("data.sources[3].wieght: unknown key (did you mean 'weight'?)"));
  EXPECT_THAT(message, HasSubstr("3 errors"));
}

TEST(ConfigTest, ASectionThatIsNoSectionIsOneError) {
  EXPECT_EQ(Error("train: fast\n"), "c.yaml:1:8: train: expected a section with keys, found the string 'fast'");
}

TEST(ConfigTest, UnusedKeysAndRulesBetweenKeysHaveAPlace) {
  ConfigTree tree =
      *ConfigTree::Parse("train:\n  momentum: 0.9\n  low: 5\n  high: 3\n", "c.yaml", ConfigTree::Format::kYaml);
  ASSERT_TRUE(tree.Override("train.high=3").ok());
  ConfigReader reader(tree);
  int low = 0, high = 0;
  double momentum = 0;
  reader.Section("train", [&](ConfigReader& t) {
    EXPECT_EQ(t.OriginOf("momentum"), ConfigReader::Origin::kDocument);
    EXPECT_EQ(t.OriginOf("high"), ConfigReader::Origin::kCommandLine);
    EXPECT_EQ(t.OriginOf("nothing"), ConfigReader::Origin::kDefault);
    t.When(false, "the optimizer is adamw", [&] { t.Field("momentum", &momentum, {.required = true}); });
    t.Field("low", &low);
    t.Field("high", &high);
    if (low > high) t.Fail("low", "must not be above train.high");
  });
  std::string message = reader.Finish().message();
  EXPECT_THAT(message, HasSubstr("c.yaml:2:13: train.momentum: has no effect here: the optimizer is adamw"));
  EXPECT_THAT(message, HasSubstr("c.yaml:3:8: train.low: must not be above train.high"));
}

// One of two kinds, each with a key of its own, as data.kind or train.optimizer.kind.
struct Kinds {
  std::string kind = "a";
  int of_a = 1;
  std::vector<int> of_b = {2, 3};

  void Declare(ConfigReader& r) {
    r.Choice("kind", &kind, {"a", "b"});
    r.When(kind == "a", "only for kind: a", [&] { r.Field("apples", &of_a); });
    r.When(kind == "b", "only for kind: b", [&] { r.Field("berries", &of_b); });
  }
};

// The error, or "" and the configuration in force.
std::string ReadKinds(const std::string& text, const std::vector<std::string>& overrides, std::string* dump = nullptr) {
  ConfigTree tree = *ConfigTree::Parse(text, "c.yaml", ConfigTree::Format::kYaml);
  const ConfigTree file = tree;
  ConfigReader alone(file);
  Kinds().Declare(alone);
  for (const std::string& one : overrides) EXPECT_TRUE(tree.Override(one).ok());
  ConfigReader reader(tree);
  Kinds().Declare(reader);
  const Status read = reader.Finish(&alone);
  if (dump != nullptr) *dump = reader.Dump();
  return read.message();
}

TEST(ConfigTest, AKeyOfAnotherKindIsAMistakeOnlyWhereItsAuthorMadeOne) {
  std::string dump;
  EXPECT_EQ(ReadKinds("kind: a\napples: 1\n", {"kind=b"}, &dump), "") << "a written-out default";
  EXPECT_EQ(dump, "kind: b\nberries: [2, 3]\n");
  EXPECT_EQ(ReadKinds("kind: a\napples: 7\n", {"kind=b"}, &dump), "") << "right in its file";
  EXPECT_EQ(dump, "kind: b\nberries: [2, 3]\n");
  EXPECT_EQ(ReadKinds("kind: b\napples: 1\n", {}), "") << "the kind was changed in a written-out file";
  EXPECT_EQ(ReadKinds("kind: a\nberries: [2, 3]\n", {}), "") << "lists too";
  EXPECT_THAT(ReadKinds("kind: b\napples: 7\n", {}), HasSubstr("apples: has no effect here: only for kind: a"));
  EXPECT_THAT(ReadKinds("kind: b\napples: 7\n", {"berries=[1]"}), HasSubstr("apples: has no effect here"));
  EXPECT_THAT(ReadKinds("kind: a\n", {"kind=b", "apples=1"}), HasSubstr("apples: has no effect here"))
      << "typed for this run";
}

TEST(ConfigTest, OnlyKeysThatCanBeSetAreSuggested) {
  EXPECT_THAT(ReadKinds("apple: 1\n", {}), HasSubstr("did you mean 'apples'?"));
  EXPECT_THAT(ReadKinds("kind: b\napple: 1\n", {}), Not(HasSubstr("apples")));
  EXPECT_THAT(ReadKinds("kind: b\napple: 1\n", {}), HasSubstr("valid here: kind, berries"));
  EXPECT_THAT(Error("batas: [1, 2]\n"), HasSubstr("did you mean 'train.betas'?")) << "misspelt and in another section";
}

TEST(ConfigTest, OverridesWinAndErrorsInThemNameTheCommandLine) {
  Outcome outcome =
      Read("train: {lr: 1}\ndata: {sources: [{path: /a}]}", ConfigTree::Format::kYaml,
           {"train.lr=1e-4", "run.name=2024", "train.betas=[0.5,0.6]", "data.sources[0].path=/b", "train.clip=null",
            "comm.bucket=1MiB", "train.lr=2e-4", "train.weights={a: 1}", "run.note=true", "train.flag=true"});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.value.lr, 2e-4);
  EXPECT_EQ(outcome.value.name, "2024");
  EXPECT_EQ(outcome.value.note, "true");
  EXPECT_EQ(outcome.value.sources[0].path, "/b");
  EXPECT_EQ(outcome.value.clip, std::nullopt);
  EXPECT_TRUE(outcome.value.flag);

  auto error = [](const std::string& set) {
    return Read("train: {lr: 1}", ConfigTree::Format::kYaml, {set}).status.message();
  };
  EXPECT_THAT(error("train.lr=x"),
              HasSubstr("command line (--set train.lr=x): train.lr: expected a number, found 'x'"));
  EXPECT_THAT(error("train.rl=1"), HasSubstr("did you mean 'lr'?"));
  EXPECT_THAT(error("train.lr.x=1"), HasSubstr("has to stand in a section"));
  EXPECT_THAT(error("train.lr[0]=1"), HasSubstr("there is no item [0]"));
  EXPECT_THAT(error("train.betas=[1"), HasSubstr("command line"));
  for (const char* set : {"", "=", "x", "a..b=1", ".a=1", "a[=1", "a[x]=1", "[0]=1", "a[1]x=2"}) {
    EXPECT_THAT(error(set), HasSubstr("expected path.of.key=value")) << set;
  }
}

TEST(ConfigTest, AnchorsAndMergeKeysWork) {
  Outcome outcome = Read(
      "train: &t {lr: 2, count: 7}\ncomm:\n  bucket: 1MiB\ndata: {sources: [&s {path: /a, weight: 2}, {<<: *s, weight: "
      "3}, *s]}\n");
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.value.sources, (std::vector<Source>{{"/a", 2}, {"/a", 3}, {"/a", 2}}));
}

TEST(ConfigTest, WhatIsNoConfigAtAllIsRefusedClearly) {
  for (const char* text :
       {"- a\n- b\n", "just text", "a: 1\n---\nb: 2\n", "train: !!int 5\n", "? [a]\n: 1\n", "a: &x [*x]\n",
        "a: *nowhere\n", "train: {lr: 1", "train:\n\tlr: 1\n", "<<: 3\n", "\xff\xfe"}) {
    EXPECT_FALSE(Error(text).empty()) << text;
  }
  EXPECT_FALSE(Read(std::string("a\0b", 3)).status.ok());
  EXPECT_THAT(Error("{\"a\": 1,\n oops}", ConfigTree::Format::kJson), HasSubstr("c.yaml:2:2: not valid JSON"));
  EXPECT_FALSE(Read(std::string(5u << 20, ' ')).status.ok());
}

TEST(ConfigTest, AliasesThatMultiplyAreStopped) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    text += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) text += fmt::format("{}*a{}", j > 0 ? ", " : "", i - 1);
    text += "]\n";
  }
  EXPECT_THAT(Error(text), HasSubstr("more than 100000 values"));
}

TEST(ConfigTest, DeepNestingIsAnErrorNotACrash) {
  Error(std::string(100000, '['));
  Error(std::string(100000, '[') + std::string(100000, ']'), ConfigTree::Format::kJson);
}

TEST(ConfigTest, FilesAreReadByTheirEnding) {
  TempDir dir = *TempDir::Create();
  ASSERT_TRUE(WriteFileAtomic(dir / "c.json", "{ // comment\n \"a\": 1, }").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "c.yaml", "a: 1 # comment\n").ok());
  for (const char* name : {"c.json", "c.yaml"}) {
    Result<ConfigTree> tree = ConfigTree::Load(dir / name);
    ASSERT_TRUE(tree.ok()) << tree.status().message();
    EXPECT_EQ(tree->root().Find("a")->text, "1");
  }
  EXPECT_EQ(ConfigTree::Load(dir / "none.yaml").status().code(), Code::kEnvironment);
}

TEST(ConfigTest, TheEffectiveConfigurationHoldsDefaultsInOrderOfDeclaration) {
  Outcome outcome = Read("train: {lr: 1e-4}");
  EXPECT_THAT(outcome.dump,
              HasSubstr("run:\n  name: unnamed\n  note: null\n  tags: []\ntrain:\n  flag: false\n  count: 3\n"));
  EXPECT_THAT(outcome.dump, HasSubstr("  lr: 0.0001\n"));
  EXPECT_THAT(outcome.dump, HasSubstr("  precision: bf16\ncomm:\n  bucket: 25MiB\n  timeout: 10m\n"));
  EXPECT_EQ(outcome.digest, Read("{\"train\": {\"lr\": 0.0001}}", ConfigTree::Format::kJson).digest);
  EXPECT_NE(outcome.digest, Read("train: {lr: 2e-4}").digest);
  EXPECT_THAT(outcome.digest, testing::MatchesRegex("xxh64:[0-9a-f]{16}"));
}

std::string RandomText(std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {
      "a",  "B",  "0", "-", ".",    ":",    " ",    "#",  "'",  "\"", "\\",     "\n",         "\t",     "{",    "]",
      ",",  "&x", "*", "!", "|",    ">",    "%",    "@",  "`",  "~",  "ü",      "\U0001f600", "\r",     "\x01", "no",
      "on", "1e", "=", "?", "\x7f", "true", "null", "- ", ": ", "<<", "\u2028", "\u0085",     "\ufeff", "---",  "..."};
  std::string text;
  for (uint64_t n = random() % 6; n > 0; --n) text += kPieces[random() % kPieces.size()];
  return text;
}

TEST(ConfigTest, TheEffectiveConfigurationReadsBackBitForBitForRandomValues) {
  std::mt19937_64 random(8);
  auto real = [&] {
    double value = 0;
    do {
      uint64_t bits = random();
      std::memcpy(&value, &bits, sizeof value);
    } while (std::isnan(value));
    return value;
  };
  for (int i = 0; i < 1500; ++i) {
    Everything e;
    e.name = RandomText(random);
    if (random() % 2) e.note = RandomText(random);
    for (uint64_t n = random() % 4; n > 0; --n) e.tags.push_back(RandomText(random));
    e.flag = random() % 2;
    e.count = 1 + static_cast<int>(random() % 100);
    e.big = static_cast<int64_t>(random());
    e.huge = random();
    e.tiny = static_cast<uint8_t>(random());
    e.lr = std::abs(real());
    if (e.lr == 0) e.lr = 1;
    e.scale = static_cast<float>(random()) * 1e-10f;
    if (random() % 2) e.clip = std::abs(real());
    e.betas = {static_cast<double>(random()) * 0x1p-64, static_cast<double>(random()) * 0x1p-64};
    for (uint64_t n = random() % 4; n > 0; --n) e.steps.push_back(static_cast<int>(random()));
    for (uint64_t n = random() % 3; n > 0; --n) e.weights[RandomText(random)] = real();
    e.optimizer = random() % 2 ? Optimizer::kSgd : Optimizer::kAdamw;
    e.precision = random() % 2 ? "no" : "fp32";
    e.bucket = 4096 + random() % (1 << 29);
    e.timeout = milliseconds(1000 + random() % 100000000);
    e.wait_seconds = milliseconds(random() % 100000);
    e.poll_ms = milliseconds(random() % 100000);
    for (uint64_t n = random() % 3; n > 0; --n) e.sources.push_back({RandomText(random), std::abs(real())});

    ConfigTree nothing = ConfigTree::Empty("defaults");
    ConfigReader writer(nothing);
    Everything written = e;
    Declare(writer, &written);
    ASSERT_TRUE(writer.Finish().ok());
    Outcome back = Read(writer.Dump());
    ASSERT_TRUE(back.status.ok()) << back.status.message() << "\n" << writer.Dump();
    ASSERT_EQ(back.value, e) << writer.Dump();
    ASSERT_EQ(back.dump, writer.Dump());
  }
}

TEST(ConfigTest, DamagedDocumentsAreErrorsOrValuesNeverMore) {
  const std::string good =
      "run: {name: \"x\", tags: [a, b]}\ntrain:\n  lr: 1e-4\n  betas: [0.9, 0.95]\n  weights: &w {a: 1}\ncomm:\n  "
      "bucket: 25MiB\n"
      "data:\n  sources:\n    - path: /a\n    - {path: /b, weight: 2}\n";
  const std::string bytes = "{}[]:,&*!|>'\"%@`#-? \n\tx1.e<~\\";
  std::mt19937 random(9);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = bytes[random() % bytes.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, 1, bytes[random() % bytes.size()]);
      }
    }
    Outcome outcome = Read(text, i % 2 == 0 ? ConfigTree::Format::kYaml : ConfigTree::Format::kJson);
    if (outcome.status.ok()) {
      ++accepted;
      ASSERT_EQ(Read(outcome.dump).value, outcome.value) << text;
    } else {
      EXPECT_FALSE(outcome.status.message().empty());
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace lockstep
