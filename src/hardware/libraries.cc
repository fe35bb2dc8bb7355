// The libnccl and libtorch that the job's interpreter would load, found as the dynamic loader and PyTorch find them.
// Nothing is executed: the packages are looked up by Python's rules, the search paths read out of the ELF files.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/environment.h"
#include "base/text.h"
#include "hardware/elf_file.h"
#include "hardware/hardware_parts.h"
#include "hardware/library_strings.h"
#include "hardware/loader_cache.h"
#include "hardware/python_packages.h"
#include "hardware/python_shims.h"

namespace lockstep::hardware {
namespace {

constexpr char kNccl[] = "libnccl.so.2";

std::string Folder(const std::string& path) { return path.substr(0, std::max<size_t>(path.rfind('/'), 1)); }
std::string Base(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool IsElf(const SysTree& tree, const std::string& path) {
  const std::string real = tree.Real(path);
  return !real.empty() && ElfFile::Open(tree.Path(real)).ok();
}

ElfFile::Dynamic DynamicOf(const SysTree& tree, const std::string& path) {
  const std::string real = tree.Real(path);
  if (real.empty()) return {};
  const Result<ElfFile> file = ElfFile::Open(tree.Path(real));
  return file.ok() ? file->ReadDynamic() : ElfFile::Dynamic();
}

std::vector<std::string> Expand(const std::vector<std::string>& folders, const std::string& origin) {
  std::vector<std::string> out;
  for (std::string folder : folders) {
    for (const char* word : {"${ORIGIN}", "$ORIGIN"})
      for (size_t at; (at = folder.find(word)) != std::string::npos;) folder.replace(at, std::strlen(word), origin);
    if (folder.starts_with('/')) out.push_back(folder);
  }
  return out;
}

// LD_LIBRARY_PATH separates by ':' and ';'.
std::vector<std::string> LibraryPath(const Environment& env) {
  std::string list = ValueOf(env, "LD_LIBRARY_PATH");
  std::replace(list.begin(), list.end(), ';', ':');
  std::vector<std::string> folders = Split(list, ':');
  std::erase_if(folders, [](const std::string& folder) { return !folder.starts_with('/'); });
  return folders;
}

const std::vector<std::string>& SystemFolders() {
  static const std::vector<std::string> kFolders = {"/lib/x86_64-linux-gnu",
                                                    "/usr/lib/x86_64-linux-gnu",
                                                    "/lib/aarch64-linux-gnu",
                                                    "/usr/lib/aarch64-linux-gnu",
                                                    "/lib64",
                                                    "/usr/lib64",
                                                    "/lib",
                                                    "/usr/lib"};
  return kFolders;
}

struct Search {
  const SysTree& tree;
  const Environment& env;
  const std::vector<CachedLibrary>& cache;
};

std::optional<Library> In(const Search& search, const std::vector<std::string>& folders, const std::string& name,
                          const std::string& by) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    if (IsElf(search.tree, path)) return Library{search.tree.Real(path), "", by, ""};
  }
  return std::nullopt;
}

// What the loader would bind `name` to when `loader` (may be empty) asks for it: DT_RPATH, of it and of the program,
// comes before LD_LIBRARY_PATH, DT_RUNPATH after.
std::optional<Library> Resolve(const Search& search, const std::string& name, const std::string& loader,
                               const std::string& program) {
  std::string preload = ValueOf(search.env, "LD_PRELOAD");
  std::replace(preload.begin(), preload.end(), ' ', ':');
  for (const std::string& path : Split(preload, ':')) {
    if (path.starts_with('/') && IsElf(search.tree, path) &&
        (Base(path) == name || DynamicOf(search.tree, path).soname == name))
      return Library{search.tree.Real(path), "", "LD_PRELOAD", ""};
  }
  ElfFile::Dynamic asker;
  if (!loader.empty()) asker = DynamicOf(search.tree, loader);
  if (asker.runpath.empty()) {
    for (const std::string& object : {loader, program}) {
      if (object.empty()) continue;
      const ElfFile::Dynamic dynamic = DynamicOf(search.tree, object);
      if (!dynamic.runpath.empty()) continue;
      const std::string origin = Folder(search.tree.Real(object));
      if (auto found = In(search, Expand(dynamic.rpath, origin), name, "rpath of " + Base(object))) return found;
    }
  }
  if (auto found = In(search, LibraryPath(search.env), name, "LD_LIBRARY_PATH")) return found;
  if (!asker.runpath.empty()) {
    const std::string origin = Folder(search.tree.Real(loader));
    if (auto found = In(search, Expand(asker.runpath, origin), name, "runpath of " + Base(loader))) return found;
  }
  for (const CachedLibrary& entry : search.cache)
    if (entry.name == name && IsElf(search.tree, entry.path))
      return Library{search.tree.Real(entry.path), "", "system (ld.so.cache)", ""};
  return In(search, SystemFolders(), name, "system");
}

// "NCCL version 2.28.9+cuda13.0"
void ReadNcclVersion(const SysTree& tree, Library* nccl) {
  const auto text = TextAfter(tree.Path(nccl->path), "NCCL version ", "0123456789.+cuda");
  if (!text) return;
  const size_t plus = text->find("+cuda");
  nccl->version = text->substr(0, plus);
  if (plus != std::string::npos) nccl->cuda = text->substr(plus + 5);
}

std::optional<Library> FindTorch(const SysTree& tree, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string text = tree.Text(folder + "/torch/version.py");
    if (text.empty()) continue;
    Library torch;
    torch.path = folder + "/torch";
    for (const char* name : {"libtorch_cuda.so", "libtorch_hip.so", "libtorch_cpu.so", "libtorch.so"}) {
      if (!tree.Exists(folder + "/torch/lib/" + name)) continue;
      torch.path = folder + "/torch/lib/" + name;
      break;
    }
    torch.version = PythonText(text, "__version__");
    torch.cuda = PythonText(text, "cuda");
    torch.found_by = "import from " + folder;
    return torch;
  }
  return std::nullopt;
}

// The packages of NVIDIA that torch loads itself when the loader does not find a library.
std::optional<Library> FromPackage(const Search& search, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/nvidia/nccl/lib/" + kNccl;
    if (!IsElf(search.tree, path)) continue;
    std::string package = "nvidia-nccl";
    for (const std::string& name : search.tree.Names(folder))
      if (name.starts_with("nvidia_nccl_") && name.ends_with(".dist-info"))
        package = "nvidia-nccl-" + name.substr(12, name.find('-') - 12);
    return Library{search.tree.Real(path), "", "pip package " + package, ""};
  }
  return std::nullopt;
}

std::optional<Library> FindNccl(const Search& search, const std::vector<std::string>& folders, Hardware* here) {
  std::optional<Library> nccl;
  const std::string torch = here->torch ? here->torch->path : "";
  if (Base(torch) == "libtorch_cuda.so") {
    const std::vector<std::string> needed = DynamicOf(search.tree, torch).needed;
    if (std::find(needed.begin(), needed.end(), kNccl) == needed.end()) {
      Library inside{torch, "", "built into libtorch_cuda.so", ""};
      ReadNcclVersion(search.tree, &inside);
      if (!inside.version.empty()) return inside;
    }
    nccl = Resolve(search, kNccl, torch, here->interpreter);
    if (!nccl) nccl = FromPackage(search, folders);
    if (!nccl) here->notes.push_back(fmt::format("{} needs {}, and the loader would not find it", torch, kNccl));
  } else if (!torch.empty()) {
    here->notes.push_back(Base(torch) == "libtorch_hip.so" ? "torch is a ROCm build: it has RCCL in place of NCCL"
                                                           : "torch is a CPU build: it has no NCCL");
    return std::nullopt;
  } else {
    nccl = Resolve(search, kNccl, "", here->interpreter);
    if (!nccl) nccl = FromPackage(search, folders);
  }
  if (!nccl) return nccl;
  ReadNcclVersion(search.tree, &*nccl);
  if (nccl->version.empty()) here->notes.push_back(nccl->path + " does not say its version");
  return nccl;
}

std::vector<std::string> FindPlugins(const Search& search, const std::optional<Library>& nccl) {
  std::vector<std::string> folders = LibraryPath(search.env), found;
  if (nccl) {
    const ElfFile::Dynamic dynamic = DynamicOf(search.tree, nccl->path);
    for (const auto* list : {&dynamic.rpath, &dynamic.runpath})
      for (const std::string& folder : Expand(*list, Folder(nccl->path))) folders.push_back(folder);
  }
  auto add = [&](const std::string& path) {
    const std::string real = search.tree.Real(path);
    if (!real.empty() && std::find(found.begin(), found.end(), real) == found.end()) found.push_back(real);
  };
  for (const std::string& folder : folders)
    for (const std::string& name : search.tree.Names(folder))
      if (name.starts_with("libnccl-net") && name.find(".so") != std::string::npos) add(folder + "/" + name);
  for (const CachedLibrary& entry : search.cache)
    if (entry.name.starts_with("libnccl-net")) add(entry.path);
  return found;
}

}  // namespace

void ScanLibraries(const SysTree& tree, const Environment& env, const std::string& interpreter, Hardware* here) {
  here->interpreter = interpreter.empty() ? FindPython(tree, env) : FindProgram(tree, env, interpreter);
  if (!interpreter.empty() && here->interpreter.empty())
    here->notes.push_back(fmt::format("the interpreter '{}' is not there", Printable(interpreter)));
  here->interpreter = BehindShim(tree, env, here->interpreter);
  const std::vector<std::string> folders = ImportFolders(tree, env, here->interpreter);
  if (folders.empty() && !here->interpreter.empty())
    here->notes.push_back("no folder of packages was found for " + here->interpreter +
                          ": its torch and NCCL are unknown");
  const std::vector<CachedLibrary> cache = ReadLoaderCache(tree.Path("/etc/ld.so.cache"));
  const Search search{tree, env, cache};
  here->torch = FindTorch(tree, folders);
  here->nccl = FindNccl(search, folders, here);
  here->net_plugins = FindPlugins(search, here->nccl);
}

}  // namespace lockstep::hardware
