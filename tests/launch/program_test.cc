#include "launch/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/env_file.h"
#include "base/files.h"
#include "base/own_program.h"
#include "launch/activation.h"
#include "launch/capture.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> made = TempDir::Create("program-test");
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    dir_.emplace(std::move(*made));
    // A PATH of our own: what the machine has must not decide a test.
    Executable("path/python3");
    env_ = {{"PATH", Path("path") + ":/usr/bin:/bin"}, {"HOME", Path("home")}};
    options_.program = File("train.py", "print(1)\n");
  }

  std::string Path(const std::string& name) const { return dir_->path() + "/" + name; }

  std::string File(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    const std::string path = Path(name);
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }

  std::string Executable(const std::string& name, const std::string& body = "exit 0") const {
    return File(name, "#!/bin/sh\n" + body + "\n", 0755);
  }

  Program Good() const {
    const Result<Program> program = ResolveProgram(options_, env_);
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    return program.ok() ? *program : Program{};
  }

  std::string Bad() const {
    const Result<Program> program = ResolveProgram(options_, env_);
    EXPECT_FALSE(program.ok());
    if (program.ok()) return "";
    EXPECT_EQ(program.status().code(), Code::kEnvironment);
    return program.status().message() + " | " + program.status().hint();
  }

  std::optional<TempDir> dir_;
  Environment env_;
  RunOptions options_;
};

TEST_F(ProgramTest, AScriptRunsUnbufferedUnderPythonWithItsArguments) {
  options_.args = {"--lr", "1e-4"};
  const Program program = Good();
  EXPECT_THAT(program.argv, ElementsAre(Path("path/python3"), "-u", options_.program, "--lr", "1e-4"));
  EXPECT_EQ(program.interpreter, Path("path/python3"));
  EXPECT_THAT(program.env, IsEmpty());
  EXPECT_THAT(program.description, HasSubstr("Python of PATH"));
}

TEST_F(ProgramTest, TheInterpreterOfTheActiveEnvironmentIsUsed) {
  Executable("venv/bin/python");
  env_["VIRTUAL_ENV"] = Path("venv");
  EXPECT_EQ(Good().interpreter, Path("venv/bin/python"));
}

TEST_F(ProgramTest, OfTwoActiveEnvironmentsTheOneFirstInPathIsUsed) {
  Executable("venv/bin/python");
  Executable("conda/bin/python");
  env_["VIRTUAL_ENV"] = Path("venv");
  env_["CONDA_PREFIX"] = Path("conda");
  EXPECT_EQ(Good().interpreter, Path("venv/bin/python"));
  env_["PATH"] = Path("conda/bin") + ":" + env_["PATH"];
  EXPECT_EQ(Good().interpreter, Path("conda/bin/python"));
  env_["PATH"] = Path("venv/bin") + ":" + env_["PATH"];
  EXPECT_EQ(Good().interpreter, Path("venv/bin/python"));
}

TEST_F(ProgramTest, AnActiveEnvironmentThatIsGoneIsPassedOverAndSaid) {
  env_["VIRTUAL_ENV"] = Path("gone");
  const Program program = Good();
  EXPECT_EQ(program.interpreter, Path("path/python3"));
  EXPECT_THAT(program.notes, ElementsAre(HasSubstr("has no bin/python: ignored")));
}

TEST_F(ProgramTest, PythonExecIsHonouredAsTorchrunDoes) {
  Executable("venv/bin/python");
  env_["VIRTUAL_ENV"] = Path("venv");
  env_["PYTHON_EXEC"] = Executable("special/python");
  EXPECT_EQ(Good().interpreter, Path("special/python"));
  env_["PYTHON_EXEC"] = "/nowhere/python";
  EXPECT_THAT(Bad(), HasSubstr("PYTHON_EXEC=/nowhere/python: no such executable"));
}

TEST_F(ProgramTest, WithoutPythonItSaysSo) {
  env_["PATH"] = Path("empty");
  EXPECT_THAT(Bad(), HasSubstr("neither python3 nor python is in PATH"));
}

TEST_F(ProgramTest, AModuleRunsWithDashM) {
  options_.module = true;
  options_.program = "pkg.train";
  EXPECT_THAT(Good().argv, ElementsAre(Path("path/python3"), "-u", "-m", "pkg.train"));
}

TEST_F(ProgramTest, AFileAfterDashMIsRefusedWithTheCommandThatWasMeant) {
  options_.module = true;
  options_.workdir = dir_->path();
  options_.program = "train.py";
  options_.args = {"-m", "big model"};
  struct {
    std::vector<std::string> argv;
    std::string hint;
  } const cases[] = {
      {{"--nproc-per-node", "2", "-m", "train.py", "-m", "big model"},
       "lockstep run --nproc-per-node 2 train.py -m 'big model'"},
      {{"-mr3", "train.py", "-m", "big model"}, "lockstep run [flags without -m] train.py"},
  };
  for (const auto& test : cases) {
    options_.argv = test.argv;
    const Result<Program> program = ResolveProgram(options_, env_);
    ASSERT_FALSE(program.ok());
    EXPECT_EQ(program.status().code(), Code::kUsage);
    EXPECT_EQ(program.status().message(), "train.py is a file, -m takes a module: drop -m");
    EXPECT_EQ(program.status().hint(), test.hint);
  }
  // Where there is module `py` in package `train`, or no such file, Python decides.
  File("lib/train/py.py", "");
  env_["PYTHONPATH"] = Path("lib");
  Good();
  env_.erase("PYTHONPATH");
  options_.program = "other.py";
  Good();
}

TEST_F(ProgramTest, RunPathRunsTheScriptAsMainWithItsOwnArguments) {
  options_.run_path = true;
  options_.no_python = true;  // run path takes precedence
  options_.args = {"a", "b c"};
  options_.program = File("show.py", "import sys\nprint(__name__, sys.argv[0] == __file__, sys.argv[1:])\n");
  const std::string python = FindExecutable("python3", "/usr/bin:/usr/local/bin:/bin");
  ASSERT_FALSE(python.empty()) << "the test needs python3";
  env_["PYTHON_EXEC"] = python;
  const Result<Captured> ran = Capture(Good().argv, ToStrings(env_), std::chrono::seconds(60));
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  EXPECT_EQ(ran->out, "__main__ True ['a', 'b c']\n") << ran->err;
}

TEST_F(ProgramTest, NoPythonLooksIntoPathOrTakesAPath) {
  options_.no_python = true;
  options_.program = "tool";
  const std::string tool = Executable("path/tool");
  EXPECT_THAT(Good().argv, ElementsAre(tool));
  options_.program = tool;
  options_.args = {"-x"};
  EXPECT_THAT(Good().argv, ElementsAre(tool, "-x"));
  EXPECT_THAT(Good().interpreter, IsEmpty());
}

TEST_F(ProgramTest, NoPythonRefusesWhatCannotBeExecuted) {
  options_.no_python = true;
  EXPECT_THAT(Bad(), AllOf(HasSubstr("may not be executed"), HasSubstr("chmod +x")));
  options_.program = "no-such-tool";
  EXPECT_THAT(Bad(), HasSubstr("is no executable in PATH"));
  options_.program = Path("no/such");
  EXPECT_THAT(Bad(), HasSubstr("is not there"));
}

TEST_F(ProgramTest, AnExecutableThatIsNoPythonScriptIsStartedDirectly) {
  options_.program = Executable("job");
  EXPECT_THAT(Good().argv, ElementsAre(options_.program));
  EXPECT_THAT(Good().description, HasSubstr("its first line names its interpreter"));
  options_.program = "true";  // a bare name: no file here, a binary in PATH
  env_["PATH"] = "/usr/bin:/bin";
  EXPECT_THAT(Good().argv, ElementsAre(testing::EndsWith("/true")));
  EXPECT_THAT(Good().description, HasSubstr("it is a binary"));
}

TEST_F(ProgramTest, AScriptWhoseInterpreterIsMissingIsRefusedNamingIt) {
  options_.program = File("odd", "#!/no/such/interpreter -x\necho\n", 0755);
  EXPECT_THAT(Bad(),
              AllOf(HasSubstr(options_.program), HasSubstr("the interpreter /no/such/interpreter in its first line")));
  options_.no_python = true;
  EXPECT_THAT(Bad(), HasSubstr("/no/such/interpreter"));
}

TEST_F(ProgramTest, APythonShebangAPyFileAndATextFileRunUnderPython) {
  options_.program = File("tool", "#!/usr/bin/env python3\n", 0755);
  EXPECT_EQ(Good().argv[1], "-u");
  options_.program = File("exec.py", "#!/bin/sh\n", 0755);
  EXPECT_EQ(Good().argv[1], "-u");
  options_.program = File("plain", "print(1)\n");
  EXPECT_EQ(Good().argv[1], "-u");
}

TEST_F(ProgramTest, ABinaryWithoutPermissionIsNotHandedToPython) {
  options_.program = File("a.out", std::string("\x7f") + "ELF\x02");
  EXPECT_THAT(Bad(), AllOf(HasSubstr("binary without permission"), HasSubstr("chmod +x")));
}

TEST_F(ProgramTest, AMissingScriptIsNamedWithTheNearestFile) {
  options_.program = Path("trian.py");
  EXPECT_THAT(Bad(), AllOf(HasSubstr("trian.py' is not there"), HasSubstr("did you mean " + Path("train.py") + "?")));
  options_.program = Path("nofolder/train.py");
  EXPECT_THAT(Bad(), HasSubstr("nofolder' is not there either"));
  options_.program = "pkg.train";
  EXPECT_THAT(Bad(), AllOf(HasSubstr("no executable of that name"), HasSubstr("-m pkg.train")));
}

TEST_F(ProgramTest, AnUnreadableScriptIsRefused) {
  ::chmod(dir_->path().c_str(), 0755);
  ::chmod(options_.program.c_str(), 0);
  // Root reads everything: look with the eyes of nobody.
  const bool root = ::geteuid() == 0;
  if (root) ASSERT_EQ(::seteuid(65534), 0);
  EXPECT_THAT(Bad(), HasSubstr("cannot read the program"));
  if (root) ASSERT_EQ(::seteuid(0), 0);
}

TEST_F(ProgramTest, AFolderNeedsAMainFile) {
  fs::create_directories(Path("app"));
  options_.program = Path("app");
  EXPECT_THAT(Bad(), HasSubstr("__main__.py"));
  File("app/__main__.py", "");
  EXPECT_EQ(Good().argv.back(), Path("app"));
}

TEST_F(ProgramTest, ARelativeScriptIsLookedForInTheWorkdir) {
  options_.workdir = dir_->path();
  options_.program = "train.py";
  EXPECT_EQ(Good().argv.back(), "train.py");
  EXPECT_EQ(Good().workdir, dir_->path());
  options_.workdir = Path("nowhere");
  EXPECT_THAT(Bad(), HasSubstr("nowhere"));
  options_.workdir = Path("train.py");
  EXPECT_THAT(Bad(), HasSubstr("--workdir"));
}

TEST_F(ProgramTest, AVirtualEnvironmentIsActivatedAndItsInterpreterRun) {
  Executable("venv/bin/python");
  options_.venv = Path("venv/");
  env_["PYTHONHOME"] = "/x";
  env_["VIRTUAL_ENV"] = Path("old");
  env_["PATH"] = Path("old/bin") + ":" + env_["PATH"];
  const Program program = Good();
  EXPECT_EQ(program.interpreter, Path("venv/bin/python"));
  EXPECT_EQ(program.env.at("VIRTUAL_ENV"), Path("venv"));
  EXPECT_EQ(program.env.at("PATH"), Path("venv/bin") + ":" + Path("path") + ":/usr/bin:/bin");
  EXPECT_EQ(program.env.at("PYTHONHOME"), std::nullopt);
}

TEST_F(ProgramTest, ABrokenVirtualEnvironmentIsRefusedBeforeTheStart) {
  options_.venv = Path("nowhere");
  EXPECT_THAT(Bad(), AllOf(HasSubstr("--venv"), HasSubstr("no such folder")));
  fs::create_directories(Path("half/bin"));
  options_.venv = Path("half");
  EXPECT_THAT(Bad(), HasSubstr("it has no bin/python"));
  fs::create_symlink("/gone/python3.9", Path("half/bin/python"));
  EXPECT_THAT(Bad(), HasSubstr("points to /gone/python3.9, which is not there"));
  Executable("dead/bin/python", "echo 'No module named encodings' >&2; exit 1");
  options_.venv = Path("dead");
  EXPECT_THAT(Bad(), AllOf(HasSubstr("does not run: exit code 1"), HasSubstr("No module named encodings")));
  Executable("project/.venv/bin/python");
  options_.venv = Path("project");
  EXPECT_THAT(Bad(), HasSubstr("project/.venv?"));
}

}  // namespace
}  // namespace lockstep::launch
