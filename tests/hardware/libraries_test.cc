// Which torch and NCCL a job would load, in trees of the ways they are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "hardware/elf_writer.h"
#include "hardware/hardware.h"
#include "hardware/library_strings.h"
#include "hardware/loader_cache.h"
#include "hardware/tree.h"

namespace lockstep::hardware {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kVersion = std::string("\0NCCL version ", 14);

std::string Nccl(const std::string& version) {
  return MakeElf({.soname = "libnccl.so.2",
                  .rpath = "",
                  .runpath = "",
                  .needed = {},
                  .constants = kVersion + version + std::string(1, '\0'),
                  .code = ""});
}

class Install {
 public:
  Install() : tree(Tree::Empty()) {}

  void Program(const std::string& path, const ElfParts& parts = {}) {
    tree.Write(path, MakeElf(parts));
    ::chmod((tree.root() + path).c_str(), 0755);
  }
  // A virtual environment as `python -m venv` makes it.
  void Venv(const std::string& prefix, bool system_site = false) {
    if (!made_python_) Program("/usr/bin/python3.11");
    made_python_ = true;
    tree.Link(prefix + "/bin/python3", "/usr/bin/python3.11");
    tree.Link(prefix + "/bin/python", "python3");
    tree.Write(prefix + "/pyvenv.cfg", std::string("home = /usr/bin\ninclude-system-site-packages = ") +
                                           (system_site ? "true" : "false") + "\nversion = 3.11.4\n");
    tree.Folder(prefix + "/lib/python3.11/site-packages");
    env["VIRTUAL_ENV"] = prefix;
    env["PATH"] = prefix + "/bin:/usr/bin";
  }
  void Torch(const std::string& folder, const ElfParts& cuda, const std::string& version = "2.11.0+cu130") {
    tree.Write(folder + "/torch/version.py",
               "__all__ = ['__version__', 'cuda']\n__version__ = '" + version + "'\ncuda: Optional[str] = '13.0'\n");
    tree.Write(folder + "/torch/lib/libtorch_cuda.so", MakeElf(cuda));
    tree.Write(folder + "/torch/lib/libtorch_cpu.so", MakeElf({}));
  }
  Hardware Scan(const std::string& interpreter = "") {
    HardwareOptions options;
    options.env = env;
    options.root = tree.root();
    options.interpreter = interpreter;
    return ScanHardware(options);
  }

  Tree tree;
  Environment env;

 private:
  bool made_python_ = false;
};

ElfParts WithRpath(const std::string& rpath) {
  return {.soname = "", .rpath = rpath, .runpath = "", .needed = {"libnccl.so.2"}, .constants = "", .code = ""};
}
ElfParts WithRunpath(const std::string& runpath) {
  return {.soname = "", .rpath = "", .runpath = runpath, .needed = {"libnccl.so.2"}, .constants = "", .code = ""};
}

const std::string kSite = "/v/lib/python3.11/site-packages";
const std::string kPipRpath = "$ORIGIN/../../nvidia/cudnn/lib:$ORIGIN/../../nvidia/nccl/lib:$ORIGIN";
const std::string kPipNccl = kSite + "/nvidia/nccl/lib/libnccl.so.2";

TEST(Libraries, TorchFromPipBringsItsNccl) {
  Install install;
  install.Venv("/v");
  install.Torch(kSite, WithRpath(kPipRpath));
  install.tree.Write(kPipNccl, Nccl("2.28.9+cuda13.0"));
  install.tree.Write("/usr/local/nccl/libnccl.so.2", Nccl("2.18.3+cuda12.2"));
  install.env["LD_LIBRARY_PATH"] = "/usr/local/nccl";
  const Hardware here = install.Scan();
  EXPECT_EQ(here.interpreter, "/v/bin/python");
  ASSERT_TRUE(here.torch);
  EXPECT_EQ(here.torch->version, "2.11.0+cu130");
  EXPECT_EQ(here.torch->cuda, "13.0");
  EXPECT_EQ(here.torch->path, kSite + "/torch/lib/libtorch_cuda.so");
  ASSERT_TRUE(here.nccl);
  EXPECT_EQ(here.nccl->path, kPipNccl);  // RPATH comes before LD_LIBRARY_PATH
  EXPECT_EQ(here.nccl->version, "2.28.9");
  EXPECT_EQ(here.nccl->cuda, "13.0");
  EXPECT_EQ(here.nccl->found_by, "rpath of libtorch_cuda.so");
}

TEST(Libraries, LibraryPathWinsOverRunpath) {
  Install install;
  install.Venv("/v");
  install.Torch(kSite, WithRunpath("${ORIGIN}/../../nvidia/nccl/lib"));
  install.tree.Write(kPipNccl, Nccl("2.28.9+cuda13.0"));
  EXPECT_EQ(install.Scan().nccl->found_by, "runpath of libtorch_cuda.so");
  install.tree.Write("/opt/nccl/libnccl.so.2.18.3", Nccl("2.18.3+cuda12.2"));
  install.tree.Link("/opt/nccl/libnccl.so.2", "libnccl.so.2.18.3");
  install.env["LD_LIBRARY_PATH"] = "relative::/none;/opt/nccl";
  const Hardware here = install.Scan();
  EXPECT_EQ(here.nccl->found_by, "LD_LIBRARY_PATH");
  EXPECT_EQ(here.nccl->version, "2.18.3");
  EXPECT_EQ(here.nccl->path, "/opt/nccl/libnccl.so.2.18.3");
}

TEST(Libraries, PreloadWinsOverAll) {
  Install install;
  install.Venv("/v");
  install.Torch(kSite, WithRpath(kPipRpath));
  install.tree.Write(kPipNccl, Nccl("2.28.9+cuda13.0"));
  install.tree.Write("/opt/mine/nccl-debug.so", Nccl("2.29.1+cuda13.0"));
  install.env["LD_PRELOAD"] = "/usr/lib/libjemalloc.so /opt/mine/nccl-debug.so";
  EXPECT_EQ(install.Scan().nccl->found_by, "LD_PRELOAD");
  EXPECT_EQ(install.Scan().nccl->version, "2.29.1");
}

TEST(Libraries, CondaKeepsNcclInItsLibFolder) {
  Install install;
  install.Program("/opt/conda/envs/x/bin/python3.10");
  install.tree.Link("/opt/conda/envs/x/bin/python", "python3.10");
  install.Torch("/opt/conda/envs/x/lib/python3.10/site-packages", WithRpath("$ORIGIN/../../../.."));
  install.tree.Write("/opt/conda/envs/x/lib/libnccl.so.2", Nccl("2.21.5+cuda12.4"));
  install.env = {{"CONDA_PREFIX", "/opt/conda/envs/x"}, {"PATH", "/opt/conda/envs/x/bin:/usr/bin"}};
  const Hardware here = install.Scan();
  EXPECT_EQ(here.nccl->path, "/opt/conda/envs/x/lib/libnccl.so.2");
  EXPECT_EQ(here.nccl->version, "2.21.5");
}

TEST(Libraries, NcclBuiltIntoTorch) {
  Install install;
  install.Venv("/v");
  install.Torch(kSite, {.soname = "",
                        .rpath = "",
                        .runpath = "",
                        .needed = {"libcudart.so.12"},
                        .constants = kVersion + "%s" + kVersion + "2.20.5+cuda12.1" + std::string(1, '\0'),
                        .code = ""});
  install.tree.Write("/usr/lib/x86_64-linux-gnu/libnccl.so.2", Nccl("2.11.4+cuda11.5"));
  const Hardware here = install.Scan();
  EXPECT_EQ(here.nccl->found_by, "built into libtorch_cuda.so");
  EXPECT_EQ(here.nccl->version, "2.20.5");
}

TEST(Libraries, WhereTheLoaderFindsNoneTorchLoadsItsPackage) {
  Install install;
  install.Venv("/v");
  install.Torch(kSite, WithRpath("$ORIGIN"));
  EXPECT_THAT(install.Scan().notes, Contains(HasSubstr("needs libnccl.so.2, and the loader would not find it")));
  install.tree.Write(kPipNccl, Nccl("2.27.3+cuda12.9"));
  install.tree.Folder(kSite + "/nvidia_nccl_cu12-2.27.3.dist-info");
  EXPECT_EQ(install.Scan().nccl->found_by, "pip package nvidia-nccl-cu12");
}

TEST(Libraries, TheSystemsCopyIsTheLast) {
  Install install;
  install.Venv("/v");
  install.Torch(kSite, WithRpath("$ORIGIN"));
  install.tree.Write("/usr/lib/x86_64-linux-gnu/libnccl.so.2", Nccl("2.22.3+cuda12.6"));
  EXPECT_EQ(install.Scan().nccl->found_by, "system");
}

TEST(Libraries, ACpuBuildHasNoNccl) {
  Install install;
  install.Venv("/v");
  install.tree.Write(kSite + "/torch/version.py", "__version__ = '2.13.0+cpu'\ncuda = None\n");
  install.tree.Write(kSite + "/torch/lib/libtorch_cpu.so", MakeElf({}));
  install.tree.Write("/usr/lib/x86_64-linux-gnu/libnccl.so.2", Nccl("2.22.3+cuda12.6"));
  const Hardware here = install.Scan();
  EXPECT_EQ(here.torch->version, "2.13.0+cpu");
  EXPECT_EQ(here.torch->cuda, "");
  EXPECT_FALSE(here.nccl);
  EXPECT_THAT(here.notes, Contains(HasSubstr("CPU build")));
}

TEST(Libraries, PythonpathComesFirstAndTheUsersFolderBeforeTheSystems) {
  Install install;
  install.Program("/usr/bin/python3.11");
  install.tree.Link("/usr/bin/python3", "python3.11");
  install.tree.Folder("/usr/lib/python3.11");
  install.Torch("/usr/local/lib/python3.11/dist-packages", {}, "1.0");
  install.env = {{"PATH", "/usr/bin"}, {"HOME", "/home/me"}};
  EXPECT_EQ(install.Scan().torch->version, "1.0");
  install.Torch("/home/me/.local/lib/python3.11/site-packages", {}, "2.0");
  EXPECT_EQ(install.Scan().torch->version, "2.0");
  install.env["PYTHONNOUSERSITE"] = "1";
  EXPECT_EQ(install.Scan().torch->version, "1.0");
  install.Torch("/src/pytorch", {}, "3.0");
  install.env["PYTHONPATH"] = "/nothing:/src/pytorch";
  EXPECT_EQ(install.Scan().torch->version, "3.0");
}

TEST(Libraries, AVirtualEnvironmentSeesTheSystemsPackagesOnlyWhenItSaysSo) {
  Install closed;
  closed.Venv("/v");
  closed.Torch("/usr/local/lib/python3.11/dist-packages", {}, "1.0");
  EXPECT_FALSE(closed.Scan().torch);
  Install open;
  open.Venv("/v", true);
  open.Torch("/usr/local/lib/python3.11/dist-packages", {}, "1.0");
  EXPECT_EQ(open.Scan().torch->version, "1.0");
}

TEST(Libraries, PathFilesAddFolders) {
  Install install;
  install.Venv("/v");
  install.tree.Write(kSite + "/dev.pth", "# comment\nimport os; os.system('x')\n/src/pytorch\n");
  install.Torch("/src/pytorch", {}, "2.99.0a0");
  EXPECT_EQ(install.Scan().torch->version, "2.99.0a0");
}

TEST(Libraries, TheInterpreterMayBeNamed) {
  Install install;
  install.Venv("/v");
  install.Venv("/w");
  install.Torch("/w/lib/python3.11/site-packages", {}, "9.0");
  install.env = {{"PATH", "/v/bin"}};
  EXPECT_FALSE(install.Scan().torch);
  EXPECT_EQ(install.Scan("/w/bin/python3").torch->version, "9.0");
  EXPECT_THAT(install.Scan("/none/python").notes, Contains(HasSubstr("'/none/python' is not there")));
}

TEST(Libraries, PyenvsScriptLeadsToTheChosenVersion) {
  Install install;
  install.tree.Write("/home/me/.pyenv/shims/python3", "#!/usr/bin/env bash\n");
  ::chmod((install.tree.root() + "/home/me/.pyenv/shims/python3").c_str(), 0755);
  install.tree.Write("/home/me/.pyenv/version", "3.12.1\n");
  for (const char* version : {"3.12.1", "3.10.4"}) {
    const std::string prefix = std::string("/home/me/.pyenv/versions/") + version;
    const std::string name = std::string(version).substr(0, 4);
    install.Program(prefix + "/bin/python" + name);
    install.tree.Link(prefix + "/bin/python3", "python" + name);
    install.Torch(prefix + "/lib/python" + name + "/site-packages", {}, version);
  }
  install.env = {{"PATH", "/home/me/.pyenv/shims"}};
  EXPECT_EQ(install.Scan().torch->version, "3.12.1");
  EXPECT_EQ(install.Scan().interpreter, "/home/me/.pyenv/versions/3.12.1/bin/python3");
  install.tree.Write("/home/me/code/.python-version", "3.10\n");
  install.tree.Folder("/home/me/code/project/src");
  install.env["PWD"] = "/home/me/code/project/src";
  EXPECT_EQ(install.Scan().torch->version, "3.10.4");
  install.env["PYENV_VERSION"] = "3.12.1";
  EXPECT_EQ(install.Scan().torch->version, "3.12.1");
}

TEST(Libraries, AsdfsScriptLeadsToTheChosenVersion) {
  Install install;
  install.Program("/home/me/.asdf/shims/python");
  install.Program("/home/me/.asdf/installs/python/3.11.9/bin/python3.11");
  install.tree.Link("/home/me/.asdf/installs/python/3.11.9/bin/python", "python3.11");
  install.Torch("/home/me/.asdf/installs/python/3.11.9/lib/python3.11/site-packages", {}, "2.6.0");
  install.env = {{"PATH", "/home/me/.asdf/shims"}, {"HOME", "/home/me"}, {"PWD", "/home/me/project"}};
  EXPECT_FALSE(install.Scan().torch);
  install.tree.Write("/home/me/.tool-versions", "nodejs 20.1.0\npython 3.11.9 # mine\n");
  EXPECT_EQ(install.Scan().torch->version, "2.6.0");
}

TEST(Libraries, PluginsTheLoaderWouldFind) {
  Install install;
  install.tree.Write("/opt/amazon/ofi-nccl/lib/libnccl-net.so", MakeElf({}));
  install.tree.Write("/opt/amazon/ofi-nccl/lib/libnccl-tuner.so", MakeElf({}));
  EXPECT_TRUE(install.Scan().net_plugins.empty());
  install.env["LD_LIBRARY_PATH"] = "/opt/amazon/ofi-nccl/lib";
  EXPECT_THAT(install.Scan().net_plugins, ElementsAre("/opt/amazon/ofi-nccl/lib/libnccl-net.so"));
}

TEST(LibraryStrings, NamesAreWholeStringsOrMentioned) {
  Install install;
  static constexpr char kText[] =
      "\0NCCL_IB_TIMEOUT\0NCCL_DEBUG set to %s\0TORCH_NCCL_BLOCKING_WAIT\0xNCCL_LOWER\0NCCL_Mixed\0NCCL_\0use NCCL_OLD "
      "now";
  const std::string constants(kText, sizeof kText);
  install.tree.Write("/lib.so", MakeElf({.soname = "",
                                         .rpath = "",
                                         .runpath = "",
                                         .needed = {},
                                         .constants = constants,
                                         .code = std::string("\0NCCL_IN_CODE\0", 14)}));
  const Result<LibraryNames> names = NamesWithPrefix(install.tree.root() + "/lib.so", {"NCCL_"});
  ASSERT_TRUE(names.ok());
  EXPECT_THAT(names->whole, ElementsAre("NCCL_IB_TIMEOUT"));
  EXPECT_THAT(names->mentioned, ElementsAre("NCCL_DEBUG", "NCCL_OLD"));
  EXPECT_TRUE(names->Knows("NCCL_IB_TIMEOUT"));
  EXPECT_TRUE(names->Knows("NCCL_BLOCKING_WAIT"));  // the tail of another
  EXPECT_FALSE(names->Knows("NCCL_DEBUG"));
  EXPECT_FALSE(names->Knows("NCCL_IB_TIMEOUTS"));
}

TEST(LibraryStrings, WhatIsNoLibraryIsRefused) {
  Tree tree = Tree::Empty();
  tree.Write("/a", "hello");
  EXPECT_FALSE(NamesWithPrefix(tree.root() + "/a", {"NCCL_"}).ok());
  EXPECT_FALSE(NamesWithPrefix(tree.root() + "/none", {"NCCL_"}).ok());
  EXPECT_FALSE(NamesWithPrefix(tree.root(), {"NCCL_"}).ok());
}

TEST(LibraryStrings, EveryTruncationOfAFileIsSurvived) {
  Tree tree = Tree::Empty();
  const std::string whole = Nccl("2.28.9+cuda13.0");
  for (size_t size = 0; size < whole.size(); size += 7) {
    tree.Write("/cut.so", whole.substr(0, size));
    (void)NamesWithPrefix(tree.root() + "/cut.so", {"NCCL_"});
    (void)TextAfter(tree.root() + "/cut.so", "NCCL version ", "0123456789.");
  }
}

TEST(LoaderCache, NamesAndPathsOfTheNewFormat) {
  // Header of 48 bytes, one entry of 24, then strings; offsets count from the magic.
  std::string bytes = "glibc-ld.so.cache1.1";
  auto number = [&](uint32_t value) { bytes.append(reinterpret_cast<const char*>(&value), 4); };
  number(2), number(40), number(0), number(0), number(0), number(0), number(0);
  const uint32_t strings = 48 + 2 * 24;
  number(0x303), number(strings), number(strings + 13), number(0), number(0), number(0);
  number(0x803), number(strings), number(strings + 13), number(0), number(0), number(0);  // 32-bit
  bytes += std::string("libnccl.so.2\0/opt/libnccl.so.2\0", 31);
  for (const std::string& before : {std::string(), std::string("ld.so-1.7.0 old part")}) {
    const std::vector<CachedLibrary> found = ParseLoaderCache(before + bytes);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].name, "libnccl.so.2");
    EXPECT_EQ(found[0].path, "/opt/libnccl.so.2");
  }
  for (size_t size = 0; size < bytes.size(); ++size) (void)ParseLoaderCache(bytes.substr(0, size));
  EXPECT_TRUE(ParseLoaderCache("").empty());
}

}  // namespace
}  // namespace lockstep::hardware
