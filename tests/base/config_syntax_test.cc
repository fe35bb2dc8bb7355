// Text that is no YAML, and what its author is told to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config_tree.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(ConfigSyntax, MistakesOfYamlComeWithWhatToDo) {
  const std::pair<const char*, const char*> table[] = {
      {"env:\n\tA: b\n", "line 2 begins with a tab"},
      {"name: x\n  program: y\n", "indent the keys of a section alike"},
      {"name: a: b\n", "put quotes around a value that holds ': '"},
      {"env:\n  A: b\n B: c\n", "indent the keys of a section alike"},
      {"env: {A: 'x}\n", "close the quote"},
      {"env: {A: x\nname: y\n", "close what a '{' or a quote before it opens"},
      {"program: \"a.py\nnodes: 8\n", "close the quote"},
      {"out: 'runs/x\n\n# 8 nodes\nnodes: 8\n", "close the quote"},
      {"list: [a, b\nname: x\n", "close what a '[' or a quote before it opens"},
      {"text: |\n  \tfine\nname: a: b\n", "put quotes around a value"},
      {"a: *nowhere\n", ""}};
  for (const auto& [text, hint] : table) {
    const Result<ConfigTree> tree = ConfigTree::Parse(text, "c.yaml", ConfigTree::Format::kYaml);
    ASSERT_FALSE(tree.ok()) << text;
    EXPECT_THAT(tree.status().hint(), HasSubstr(hint)) << text << tree.status().message();
  }
}

}  // namespace
}  // namespace lockstep
