// The table of signatures: read strictly, complete, and every row wins its own sample in both engines.
#include "diagnose/signatures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/files.h"
#include "diagnose/scanner.h"

namespace lockstep::diagnose {
namespace {

using ::testing::HasSubstr;

std::vector<Signature> Embedded() {
  Result<std::vector<Signature>> rows = ParseSignatures(EmbeddedSignatureText(), "signatures.tsv");
  EXPECT_TRUE(rows.ok()) << rows.status().ToString();
  return rows.ok() ? *rows : std::vector<Signature>();
}

TEST(SignatureTable, HoldsAllRowsWithTheirFields) {
  const std::vector<Signature> rows = Embedded();
  EXPECT_GE(rows.size(), 182u + 60u);
  for (const Signature& row : rows) {
    EXPECT_FALSE(row.sample.empty()) << row.id;
    EXPECT_FALSE(row.domain.empty()) << row.id;
    EXPECT_GE(row.cause.size(), 4u) << row.id;
    EXPECT_GE(row.remedy.size(), 4u) << row.id;
    if (row.role == Role::kAdvice) EXPECT_EQ(row.weight, 0) << row.id;
    for (const std::string& other : row.over) {
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const Signature& one) { return one.id == other; }))
          << row.id << " names " << other;
    }
  }
}

class EverySample : public ::testing::TestWithParam<Matcher::Engine> {};

TEST_P(EverySample, IsWonByItsOwnRow) {
  const std::vector<Signature> rows = Embedded();
  Result<std::unique_ptr<Matcher>> matcher = CompilePatterns(rows, GetParam());
  ASSERT_TRUE(matcher.ok()) << matcher.status().ToString();
  EXPECT_EQ((*matcher)->fast(), GetParam() == Matcher::Engine::kBest);
  Findings findings;
  Scanner scanner(**matcher, rows, &findings);
  for (const Signature& row : rows) {
    Match match;
    const int best = scanner.BestRow(row.sample, &match);
    ASSERT_GE(best, 0) << row.id << " does not match its sample: " << row.sample;
    EXPECT_EQ(rows[static_cast<size_t>(best)].id, row.id) << row.sample;
  }
}

INSTANTIATE_TEST_SUITE_P(BothEngines, EverySample,
                         ::testing::Values(Matcher::Engine::kBest, Matcher::Engine::kLineByLine));

TEST(SignatureTable, ANonsenseLineMatchesNothing) {
  const std::vector<Signature> rows = Embedded();
  Result<std::unique_ptr<Matcher>> matcher = CompilePatterns(rows);
  ASSERT_TRUE(matcher.ok());
  Findings findings;
  Scanner scanner(**matcher, rows, &findings);
  Match match;
  for (const char* line :
       {"all is well", "step 10/100 | loss 0.5 | lr 1e-4", "epoch 3 done", "saved checkpoints/step_8.pt",
        "INFO: 8 workers, prefetch 2", "loading dataset... done (51200 samples)"}) {
    EXPECT_EQ(scanner.BestRow(line, &match), -1) << line;
  }
}

TEST(SignatureReader, TakesColumnsInAnyOrderAndDefaultsTheRest) {
  const auto rows = ParseSignatures("# mine\nrole\tid\tunknown\tcause\tregex\r\nK\tmy-row\tx\tbecause\tabc+\r\n", "t");
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ((*rows)[0].id, "my-row");
  EXPECT_EQ((*rows)[0].weight, 6);
  EXPECT_EQ((*rows)[0].policy, Policy::kNone);
}

TEST(SignatureReader, RefusesMistakesWithTheirPlace) {
  const std::string head = "id\trole\tregex\tcause\n";
  struct Case {
    std::string text, words;
  };
  for (const Case& one : std::vector<Case>{{"", "empty"},
                                           {"id\trole\tregex\n", "no column 'cause'"},
                                           {head + "a\tR\tx\n", "t:2: 3 fields"},
                                           {head + "A b\tR\tx\ty\n", "no id"},
                                           {head + "a\tQ\tx\ty\n", "role 'Q'"},
                                           {head + "a\tR\t\ty\n", "no regex"},
                                           {head + "a\tR\tx\ty\na\tR\tx\ty\n", "t:3: id 'a' appears twice"},
                                           {head + "a\tR\tx\t\xff\n", "no UTF-8"}}) {
    const auto rows = ParseSignatures(one.text, "t");
    ASSERT_FALSE(rows.ok()) << one.text;
    EXPECT_THAT(rows.status().message(), HasSubstr(one.words));
  }
}

TEST(SignatureReader, NamesTheRowWhoseExpressionIsWrong) {
  const auto rows = ParseSignatures("id\trole\tregex\tcause\nbroken\tR\t(x\ty\n", "t");
  ASSERT_TRUE(rows.ok());
  const auto matcher = CompilePatterns(*rows);
  ASSERT_FALSE(matcher.ok());
  EXPECT_THAT(matcher.status().message(), HasSubstr("broken"));
}

TEST(SignatureFiles, AFurtherTableAddsAndReplacesRows) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "more.tsv";
  ASSERT_TRUE(
      WriteFileAtomic(path, "id\trole\tregex\tcause\nmine\tR\tflux capacitor\tno flux\ncuda-oom\tR\tCUDA\tmy words\n")
          .ok());
  const size_t before = Embedded().size();
  const auto rows = LoadSignatures(path);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  EXPECT_GE(rows->size(), before + 1);
  for (const Signature& row : *rows) {
    if (row.id == "cuda-oom") EXPECT_EQ(row.cause, "my words");
  }
  EXPECT_FALSE(LoadSignatures(*dir / "absent.tsv").ok());
}

}  // namespace
}  // namespace lockstep::diagnose
