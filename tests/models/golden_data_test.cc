// The golden files are what their script computes: nobody edited them, and no release of PyTorch moved under them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "base/json.h"
#include "base/run_python.h"
#include "paths.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// One run of the script for both: it finds the value that was changed here, and nothing else.
TEST(GoldenData, IsWhatItsScriptComputesAndAChangedValueIsNoticed) {
  auto dir = TempDir::Create("lockstep-golden");
  ASSERT_TRUE(dir.ok());
  fs::copy(SourceDir() + "/tests/golden/data", dir->path(), fs::copy_options::recursive);
  auto doc = ReadJsonFile(*dir / "schedules.json");
  ASSERT_TRUE(doc.ok()) << doc.status().ToString();
  (*doc)["cases"][3]["factors"][7] = 0.123;
  ASSERT_TRUE(WriteFileAtomic(*dir / "schedules.json", doc->dump()).ok());
  const PythonRun run = RunPython("golden/make.py", fmt::format("--check --data '{}'", dir->path()));
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.output, testing::MatchesRegex("schedules\\.json[^\n]*\n")) << "one line, of one value";
}

TEST(GoldenVariants, AreWhatTheirScriptComputes) {
  const PythonRun run = RunPython("golden/variants.py", "--check");
  EXPECT_EQ(run.code, 0) << run.output;
}

// The other cases of vrt_golden.py take a minute.
TEST(GoldenVrt, IsWhatItsScriptsCompute) {
  for (const auto& [script, flags] :
       {std::pair("golden/vrt_golden.py", "--check interpolate"), std::pair("golden/vrt_fusion.py", "--check")}) {
    const PythonRun run = RunPython(script, flags);
    EXPECT_EQ(run.code, 0) << script << ": " << run.output;
  }
}

}  // namespace
}  // namespace lockstep
