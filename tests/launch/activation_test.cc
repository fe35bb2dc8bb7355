#include "launch/activation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "launch/capture.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using namespace std::chrono_literals;

class ActivationTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> made = TempDir::Create("activation-test");
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    dir_.emplace(std::move(*made));
    env_ = {{"PATH", "/usr/bin:/bin"}, {"HOME", Path("home")}, {"KEEP", "1"}, {"DROP", "1"}};
  }

  std::string Path(const std::string& name) const { return dir_->path() + "/" + name; }

  void File(const std::string& name, const std::string& text, mode_t mode = 0644) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name)) << text;
    ::chmod(Path(name).c_str(), mode);
  }

  void CondaEnvironment(const std::string& prefix) const {
    File(prefix + "/conda-meta/history", "");
    File(prefix + "/bin/python", "#!/bin/sh\nexit 0\n", 0755);
  }

  Activation Conda(const std::string& name) const {
    const Result<Activation> made = ActivateConda(name, env_);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return made.ok() ? *made : Activation{};
  }

  // A `module` command as old versions behave: an unknown name is an error message and success.
  void ModuleCommand() {
    File("modules/init/bash",
         "module() {\n"
         "  shift\n"
         "  for m in \"$@\"; do\n"
         "    case $m in\n"
         "      cuda) export LOADEDMODULES=\"${LOADEDMODULES:+$LOADEDMODULES:}cuda/12.4\" CUDA_HOME=/opt/cuda\n"
         "            export PATH=/opt/cuda/bin:$PATH; unset DROP; echo 'loading cuda' ;;\n"
         "      broken) echo 'broken: boom' >&2; return 3 ;;\n"
         "      *) echo \"Unable to locate a modulefile for '$m'\" >&2 ;;\n"
         "    esac\n"
         "  done\n"
         "}\n");
    env_["MODULESHOME"] = Path("modules");
  }

  std::optional<TempDir> dir_;
  Environment env_;
};

TEST_F(ActivationTest, ACondaEnvironmentIsFoundByNameUnderTheRootOfCondaExe) {
  CondaEnvironment("conda");
  CondaEnvironment("conda/envs/torch");
  env_["CONDA_EXE"] = Path("conda/bin/conda");
  const Activation made = Conda("torch");
  EXPECT_EQ(made.prefix, Path("conda/envs/torch"));
  EXPECT_EQ(made.env.at("CONDA_PREFIX"), Path("conda/envs/torch"));
  EXPECT_EQ(made.env.at("CONDA_DEFAULT_ENV"), "torch");
  EXPECT_EQ(made.env.at("CONDA_SHLVL"), "1");
  EXPECT_EQ(made.env.at("PATH"), Path("conda/envs/torch/bin") + ":/usr/bin:/bin");
  EXPECT_EQ(Conda("base").prefix, Path("conda"));
}

TEST_F(ActivationTest, ACondaEnvironmentIsFoundFromTheActiveOneFromTheListAndByPath) {
  CondaEnvironment("conda/envs/a");
  CondaEnvironment("conda/envs/b");
  env_["CONDA_PREFIX"] = Path("conda/envs/a");
  env_["CONDA_SHLVL"] = "1";
  env_["PATH"] = Path("conda/envs/a/bin") + ":/usr/bin";
  const Activation made = Conda("b");
  EXPECT_EQ(made.env.at("CONDA_SHLVL"), "2");
  EXPECT_EQ(made.env.at("CONDA_PREFIX_1"), Path("conda/envs/a"));
  EXPECT_EQ(made.env.at("PATH"), Path("conda/envs/b/bin") + ":/usr/bin");

  CondaEnvironment("elsewhere/mine");
  File("home/.conda/environments.txt", Path("elsewhere/mine") + "\n");
  EXPECT_EQ(Conda("mine").prefix, Path("elsewhere/mine"));
  EXPECT_EQ(Conda(Path("elsewhere/mine/")).env.at("CONDA_DEFAULT_ENV"), Path("elsewhere/mine"));
}

TEST_F(ActivationTest, AnUnknownCondaEnvironmentIsNamedWithThoseThatExist) {
  CondaEnvironment("home/miniconda3/envs/torch");
  const Result<Activation> made = ActivateConda("toch", env_);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kEnvironment);
  EXPECT_THAT(made.status().message(),
              AllOf(HasSubstr("no environment of that name"), HasSubstr("did you mean 'torch'"), HasSubstr("found: ")));
  EXPECT_THAT(ActivateConda(Path("home"), env_).status().message(), HasSubstr("no conda-meta inside"));
  EXPECT_THAT(ActivateConda("./nowhere", env_).status().message(), HasSubstr("no such folder"));
}

TEST_F(ActivationTest, VariablesKeptByCondaAndItsScriptsTakePart) {
  CondaEnvironment("e");
  File("e/conda-meta/state", R"({"version": 1, "env_vars": {"SET_BY_USER": "u", "DROP": "***unset***"}})");
  File("e/etc/conda/env_vars.d/pkg.json", R"({"SET_BY_PACKAGE": "p"})");
  File("e/etc/conda/activate.d/a.sh",
       "echo noise; export LD_LIBRARY_PATH=$CONDA_PREFIX/lib MULTI='a\nb'; unset KEEP\n");
  File("e/etc/conda/activate.d/b.sh", "export SECOND=${LD_LIBRARY_PATH}2\n");
  File("e/etc/conda/activate.d/c.fish", "exit 1\n");
  const Activation made = Conda(Path("e"));
  EXPECT_EQ(made.env.at("SET_BY_USER"), "u");
  EXPECT_EQ(made.env.at("SET_BY_PACKAGE"), "p");
  EXPECT_EQ(made.env.at("DROP"), std::nullopt);
  EXPECT_EQ(made.env.at("LD_LIBRARY_PATH"), Path("e/lib"));
  EXPECT_EQ(made.env.at("SECOND"), Path("e/lib2"));
  EXPECT_EQ(made.env.at("MULTI"), "a\nb");
  EXPECT_EQ(made.env.at("KEEP"), std::nullopt);
  for (const char* name : {"SHLVL", "_", "PWD"}) EXPECT_FALSE(made.env.contains(name)) << name;
}

TEST_F(ActivationTest, AScriptThatNeverEndsMeetsTheDeadline) {
  CondaEnvironment("e");
  File("e/etc/conda/activate.d/a.sh", "while :; do :; done\n");
  const Result<Activation> made = ActivateConda(Path("e"), env_, 50ms);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kEnvironment);
  EXPECT_THAT(made.status().message(), AllOf(HasSubstr("activate.d"), HasSubstr("did not end")));
}

TEST_F(ActivationTest, ABrokenStateFileIsNamed) {
  CondaEnvironment("e");
  File("e/conda-meta/state", "{");
  EXPECT_THAT(ActivateConda(Path("e"), env_).status().message(), HasSubstr("conda-meta/state: expected a JSON object"));
}

TEST_F(ActivationTest, ModulesChangeTheEnvironmentAndKeepTheRest) {
  ModuleCommand();
  const Result<Activation> made = LoadModules({"cuda"}, env_);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(made->env.at("CUDA_HOME"), "/opt/cuda");
  EXPECT_EQ(made->env.at("PATH"), "/opt/cuda/bin:/usr/bin:/bin");
  EXPECT_EQ(made->env.at("DROP"), std::nullopt);
  EXPECT_FALSE(made->env.contains("KEEP"));
}

TEST_F(ActivationTest, AModuleThatIsNotThereIsAnErrorEvenWhenTheCommandSucceeds) {
  ModuleCommand();
  const Result<Activation> made = LoadModules({"cuda", "gcc/99"}, env_);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(),
              AllOf(HasSubstr("gcc/99 is not among the loaded modules (cuda/12.4)"), HasSubstr("Unable to locate")));
  EXPECT_THAT(LoadModules({"broken"}, env_).status().message(), HasSubstr("the load failed: broken: boom"));
}

TEST_F(ActivationTest, ANameOfAModuleIsNeverRunByTheShell) {
  ModuleCommand();
  const Result<Activation> made = LoadModules({"cuda; touch " + Path("owned")}, env_);
  EXPECT_FALSE(made.ok());
  EXPECT_FALSE(fs::exists(Path("owned")));
}

TEST(Capture, KeepsBothStreamsAndTheExitCode) {
  const Result<Captured> ran =
      Capture({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, {"PATH=/usr/bin:/bin"}, 20s);
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  EXPECT_EQ(ran->out, "out\n");
  EXPECT_EQ(ran->err, "err\n");
  EXPECT_EQ(ran->exit.code, 3);
}

TEST(Capture, DoesNotWaitForABackgroundProcessThatHoldsThePipe) {
  const Result<Captured> ran = Capture({"/bin/sh", "-c", "sleep 600 & echo done"}, {"PATH=/usr/bin:/bin"}, 60s);
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  EXPECT_EQ(ran->out, "done\n");
}

TEST(Capture, TakesMoreThanAPipeHolds) {
  const Result<Captured> ran =
      Capture({"/bin/sh", "-c", "head -c 1000000 /dev/zero; exit 0"}, {"PATH=/usr/bin:/bin"}, 20s);
  ASSERT_TRUE(ran.ok()) << ran.status().ToString();
  EXPECT_EQ(ran->out.size(), 1000000u);
}

}  // namespace
}  // namespace lockstep::launch
