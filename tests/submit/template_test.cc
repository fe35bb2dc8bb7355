// The engine of templates, and the promise behind it: no value becomes code, in a shell or in YAML.
#include "submit/template.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <tuple>

#include "base/config_tree.h"
#include "base/files.h"
#include "base/text.h"
#include "submit/job.h"
#include "submit/platforms.h"
#include "submit/render.h"

namespace lockstep::submit {
namespace {

using Json = nlohmann::json;

Schema Small() {
  Schema schema;
  schema.names = {{"name", {}}, {"words", {}}, {"empty", {}}, {"zero", {}}, {"env", {"variable", "value"}}};
  schema.parts = {{"part", "a: {{name}}\n\n{{#words}}\n- {{.}}\n{{/words}}\n"}, {"loop", "{{>loop}}"}};
  return schema;
}

const Json kValues = {{"name", "x y"},
                      {"words", {"1", "b"}},
                      {"empty", Json()},
                      {"zero", 0},
                      {"env", {{{"variable", "A"}, {"value", "it's"}}, {{"variable", "B"}, {"value", ""}}}}};

std::string Filled(const std::string& text, Language language = Language::kShell) {
  Result<std::string> filled = Fill(text, "t", language, Small(), kValues);
  return filled.ok() ? *filled : "error: " + filled.status().message();
}

TEST(Template, FillsValuesSectionsAndParts) {
  EXPECT_EQ(Filled("<{{name}}> {{ name:yaml }}"), "<'x y'> \"x y\"");
  EXPECT_EQ(Filled("{{#words}}[{{.}}]{{/words}}"), "[1][b]");
  EXPECT_EQ(Filled("a\n  {{#env}}\n  {{variable:plain}}={{value}}\n  {{/env}}\nb\n"), "a\n  A='it'\\''s'\n  B=''\nb\n");
  EXPECT_EQ(Filled("{{^empty}}none{{/empty}}{{#empty}}some{{/empty}}{{#zero}}z{{/zero}}{{! remark }}"), "none");
  EXPECT_EQ(Filled("{{#name}}{{name:shell}}{{/name}}"), "'x y'");
  EXPECT_EQ(Filled("x:\n  {{>part}}\ny\n", Language::kYaml), "x:\n  a: \"x y\"\n\n  - \"1\"\n  - b\ny\n");
}

TEST(Template, MistakesNameTheirLine) {
  const std::pair<const char*, const char*> table[] = {
      {"\n{{nam}}", "t:2: there is no value 'nam' (did you mean 'name'?)"},
      {"{{#empty}}\n{{value}}{{/empty}}", "t:2: there is no value 'value'"},
      {"{{#words}}{{value}}{{/words}}", "t:1: there is no value 'value'"},
      {"{{.}}", "t:1: there is no value '.'"},
      {"{{#words}}", "t:1: {{#words}} is not ended"},
      {"{{#words}}{{/env}}", "t:1: {{#words}} is not ended"},
      {"{{/words}}", "t:1: {{/words}} ends nothing"},
      {"{{name:json}}", "t:1: there is no filter 'json'"},
      {"{{name:plain}}", "t:1: 'name' cannot stand here: 'x y'"},
      {"{{words}}", "t:1: 'words' is a list: write {{#words}}...{{/words}}"},
      {"a {{", "t:1: '{{' without '}}'"},
      {"{{>none}}", "t:1: there is no part 'none'"},
      {"{{>loop}}", "loop: parts inside parts without end"},
      {"\xff", "t: no text"},
  };
  for (const auto& [text, message] : table) {
    EXPECT_TRUE(Filled(text).starts_with("error: " + std::string(message))) << text << "\n" << Filled(text);
  }
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "{{#words}}";
  EXPECT_NE(Filled(deep).find("without end"), std::string::npos);
}

// Text of all sorts, biased towards what means something to a shell, to YAML, to Kubernetes.
std::string RandomText(std::mt19937* random) {
  static const std::vector<std::string> pieces = {"a",
                                                  "Z",
                                                  "7",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\t",
                                                  "'",
                                                  "\"",
                                                  "\\",
                                                  "$",
                                                  "$(",
                                                  ")",
                                                  "${",
                                                  "}",
                                                  "`",
                                                  "!",
                                                  "#",
                                                  " #",
                                                  ": ",
                                                  "- ",
                                                  "*",
                                                  "&",
                                                  "|",
                                                  ">",
                                                  "<",
                                                  ";",
                                                  "?",
                                                  "%",
                                                  "@",
                                                  "{",
                                                  "{{",
                                                  "}}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  "~",
                                                  "=",
                                                  "-",
                                                  "--",
                                                  "null",
                                                  "true",
                                                  "é",
                                                  "训",
                                                  "🚀",
                                                  "\u2028",
                                                  "\u0085",
                                                  "\x7f",
                                                  "\x01",
                                                  "\x1b",
                                                  "\xEF\xBB\xBF",
                                                  "\xEF\xBF\xBE",
                                                  "\r",
                                                  "\r\n"};
  std::string text;
  for (size_t i = (*random)() % 12; i > 0; --i) text += pieces[(*random)() % pieces.size()];
  return text;
}

TEST(Template, AnyTextIsOneWordOfAShell) {
  std::mt19937 random(7);
  std::vector<std::string> words;
  for (int i = 0; i < 2000; ++i) words.push_back(RandomText(&random));
  Schema schema;
  schema.names = {{"words", {}}};
  Result<std::string> script =
      Fill("printf '%s\\0'{{#words}} {{.}}{{/words}}", "t", Language::kShell, schema, {{"words", words}});
  ASSERT_TRUE(script.ok()) << script.status().message();
  Result<TempDir> folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(WriteFileAtomic(*folder / "s", *script).ok());
  for (const char* shell : {"bash", "sh"}) {
    const std::string command = fmt::format("{} {} > {}", shell, *folder / "s", *folder / "out");
    ASSERT_EQ(system(command.c_str()), 0);
    std::string expected;
    for (const std::string& word : words) expected += word + '\0';
    EXPECT_EQ(*ReadFile(*folder / "out"), expected) << shell;
  }
}

TEST(Template, AnyTextIsOneScalarOfYaml) {
  std::mt19937 random(8);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(&random);
    const std::string yaml = QuoteYaml(text);
    EXPECT_EQ(yaml.find('\n'), std::string::npos);
    Result<ConfigTree> tree =
        ConfigTree::Parse("a: {b: " + yaml + ", c: 1}\nd:\n  - " + yaml + "\n", "t", ConfigTree::Format::kYaml);
    ASSERT_TRUE(tree.ok()) << yaml << "\n" << tree.status().message();
    ASSERT_TRUE(tree->errors().empty()) << yaml;
    const ConfigNode* value = tree->root().Find("a")->Find("b");
    EXPECT_EQ(value->text, text);
    EXPECT_EQ(value->kind, ConfigNode::Kind::kScalar) << yaml;
    EXPECT_EQ(tree->root().Find("d")->items[0].text, text);
    EXPECT_EQ(tree->root().Find("a")->Find("c")->text, "1");
  }
  for (const char* word : {"no", "Yes", "null", "~", "", "1e3", "0x1f", "1_000", "12:30", ".inf", "on", "=", "<<"}) {
    EXPECT_EQ(QuoteYaml(word), fmt::format("\"{}\"", word));
  }
}

// As Kubernetes reads it: $(NAME) is a variable, $$ is one $.
std::string ExpandLikeKubernetes(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view two = std::string_view(text).substr(i, 2);
    if (two == "$$") {
      out += '$';
      ++i;
    } else if (two == "$(" && text.find(')', i) != std::string::npos) {
      out += "EXPANDED";
      i = text.find(')', i);
    } else {
      out += text[i];
    }
  }
  return out;
}

TEST(Template, KubernetesExpandsNoValue) {
  std::mt19937 random(9);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = RandomText(&random);
    EXPECT_EQ(ExpandLikeKubernetes(EscapeKubernetes(text)), text);
  }
}

TEST(Platforms, EveryTemplateFillsForEveryKindOfJob) {
  for (const Platform& platform : Platforms()) {
    for (const int nodes : {1, 5}) {
      Job job;
      job.program = {"train.py"};
      job.nodes = nodes;
      job.hosts.assign(static_cast<size_t>(nodes), "h");
      const Surroundings here{"/bin/lockstep", "/project", "token", "/project/job"};
      Result<std::string> text = Render(Complete(job, platform, here), platform, here);
      ASSERT_TRUE(text.ok()) << platform.name << ": " << text.status().message();
      EXPECT_EQ(text->find("{{"), std::string::npos) << platform.name;
      EXPECT_NE(text->find("train.py"), std::string::npos);
    }
  }
}

std::string Rendered(const Job& job, const Platform& platform) {
  const Surroundings here{"/bin/lockstep", "/project", "token", "/project/job"};
  Result<std::string> text = Render(Complete(job, platform, here), platform, here);
  EXPECT_TRUE(text.ok()) << platform.name << ": " << text.status().message();
  return text.ok() ? *text : "";
}

TEST(Platforms, ContainersHaveFoldersOfTheirOwn) {
  const Surroundings here{"/bin/lockstep", "/project", "token", "/project/job"};
  for (const auto& [name, container] : {std::pair{"slurm", "pyxis"}, std::pair{"slurm", "apptainer"},
                                        std::pair{"lsf", ""}, std::pair{"pbs", ""}, std::pair{"ssh", ""}}) {
    const Platform& platform = **FindPlatform(name);
    const bool pyxis = container == std::string("pyxis");
    Job job{.program = {"train.py"}, .container = container, .hosts = {"h"}};
    const auto warns = [&] {
      const std::vector<std::string> said = Check(Complete(job, platform, here), platform).warnings;
      return std::any_of(said.begin(), said.end(), [](const std::string& one) { return one.starts_with("workdir"); });
    };
    const std::string flag = pyxis ? "--container-workdir=" : "--pwd ";
    EXPECT_NE(Rendered(job, platform).find("cd /project || exit 3\n"), std::string::npos) << name;
    EXPECT_FALSE(warns());
    job.image = "i";
    EXPECT_EQ(Rendered(job, platform).find("cd /project"), std::string::npos) << name << ": a folder of the host";
    EXPECT_EQ(Rendered(job, platform).find(flag), std::string::npos) << name << ": not mounted";
    EXPECT_TRUE(warns()) << name;
    job.mounts = {{"/nfs/project", "/project", false}};
    EXPECT_NE(Rendered(job, platform).find(flag + "/project "), std::string::npos) << name;
    EXPECT_EQ(Rendered(job, platform).find("cd /project"), std::string::npos) << name;
    EXPECT_FALSE(warns()) << name;
  }
}

TEST(Platforms, NumbersOfRestarts) {
  const auto values = [](int failures, int resumes, int nodes) {
    return Values({.program = {"a"}, .nodes = nodes, .failures = failures, .resumes = resumes},
                  **FindPlatform("volcano"), {});
  };
  EXPECT_EQ(values(0, 100, 1)["retries"], 101) << "Volcano fails a job at RetryCount >= maxRetry";
  EXPECT_EQ(values(2, 3, 1)["retries"], 6);
  EXPECT_EQ(values(0, 0, 1)["retries"], 2);
  EXPECT_EQ(values(3, 0, 4)["pod_failures"], 12);
  EXPECT_EQ(values(1000000, 0, 65536)["pod_failures"], 2147483647) << "backoffLimit is an int32";
}

TEST(Platforms, DirectivesAreNotSaidTwice) {
  const std::tuple<const char*, const char*, const char*> table[] = {{"slurm", "--nodes=4", "write nodes"},
                                                                     {"slurm", "-N4", "write nodes"},
                                                                     {"slurm", "-N 4", "write nodes"},
                                                                     {"slurm", "--qos=x --time=5", "write time"},
                                                                     {"slurm", "--output=x", "write output"},
                                                                     {"slurm", "-J x", "write name"},
                                                                     {"slurm", "--array=0-3", "write array"},
                                                                     {"slurm", "--signal=USR1@60", "write grace"},
                                                                     {"slurm", "--mem=0", ""},
                                                                     {"slurm", "--gpus-per-node=a100:8", ""},
                                                                     {"slurm", "--comment='see -N 4'", ""},
                                                                     {"slurm", "--nodelist=a,b", ""},
                                                                     {"lsf", "-W 10", "write time"},
                                                                     {"lsf", "-oo x", "write output"},
                                                                     {"lsf", "-wa TERM", "write grace"},
                                                                     {"lsf", "-R \"select[mem>1]\"", ""},
                                                                     {"lsf", "-app x", ""},
                                                                     {"pbs", "-l walltime=1:0:0", "write time"},
                                                                     {"pbs", "-l place=excl,select=4", "write nodes"},
                                                                     {"pbs", "-lselect=4", "write nodes"},
                                                                     {"pbs", "-N x", "write name"},
                                                                     {"pbs", "-l place=excl", ""},
                                                                     {"pbs", "-W umask=022", ""}};
  for (const auto& [name, line, message] : table) {
    const Platform& platform = **FindPlatform(name);
    const std::vector<std::string> errors =
        Check(Complete({.program = {"a.py"}, .native = {line}}, platform, {"", "/", "", ""}), platform).errors;
    ASSERT_EQ(errors.size(), *message == '\0' ? 0u : 1u) << name << " " << line << "\n" << Join(errors, "\n");
    if (!errors.empty()) EXPECT_NE(errors[0].find(message), std::string::npos) << errors[0];
  }
}

TEST(Platforms, ImagesOfPyxisNameTheirRegistry) {
  for (const auto& [container, good] : {std::pair{"pyxis", true}, std::pair{"apptainer", false}}) {
    const Job job{.program = {"a.py"}, .image = "nvcr.io#nvidia/pytorch:24.01-py3", .container = container};
    EXPECT_EQ(Check(Complete(job, **FindPlatform("slurm"), {"", "/", "", ""}), **FindPlatform("slurm")).errors.empty(),
              good);
  }
}

TEST(Platforms, DetectedFromWhatIsInstalled) {
  const auto only = [](const std::string& wanted) {
    return [wanted](const std::string& name) { return name == wanted ? "/bin/" + name : std::string(); };
  };
  EXPECT_EQ(Detect({}, false, only("sbatch")).platform->name, "slurm");
  EXPECT_EQ(Detect({}, false, only("kubectl")).platform->name, "kubernetes");
  EXPECT_EQ(Detect({}, true, only("sbatch")).platform->name, "ssh");
  EXPECT_EQ(Detect({{"KUBEBRAIN_REPLICA", "0"}}, false, only("kubectl")).platform->name, "kubebrain");
  EXPECT_EQ(Detect({}, false, only("none")).platform, nullptr);
  const Detected both = Detect({}, false, [](const std::string& name) { return "/bin/" + name; });
  EXPECT_EQ(both.platform, nullptr);
  EXPECT_EQ(both.evidence.size(), 4u);
}

}  // namespace
}  // namespace lockstep::submit
