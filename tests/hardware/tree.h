// Machines as folders: a file of tests/hardware/trees/ unpacked below a temporary root, for tests of any folder that
// read hardware. A line is "path<TAB>content" (\n and \\ escaped), "path -> target" for a link, or "path/" for a
// folder. Header only, so that tests of other folders can use it; one thread.
//
//   const Tree machine = Tree::Unpack("h800-8ib");
//   const Hardware here = ScanHardware({.root = machine.root()});
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "base/files.h"
#include "base/text.h"
#include "paths.h"

namespace lockstep::hardware {

class Tree {
 public:
  static Tree Unpack(const std::string& name) {
    Tree tree;
    const std::string path = SourceDir() + "/tests/hardware/trees/" + name + ".tree";
    const Result<std::string> text = ReadFile(path);
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    for (const std::string& line : text.ok() ? Split(*text, '\n') : std::vector<std::string>()) {
      if (line.empty() || line.front() == '#') continue;
      const size_t tab = line.find('\t'), arrow = line.find(" -> ");
      if (tab != std::string::npos) {
        tree.Write(line.substr(0, tab), Unescape(line.substr(tab + 1)));
      } else if (arrow != std::string::npos) {
        tree.Link(line.substr(0, arrow), line.substr(arrow + 4));
      } else {
        tree.Folder(line);
      }
    }
    return tree;
  }
  static Tree Empty() { return Tree(); }

  const std::string& root() const { return root_; }
  Tree(Tree&& other) noexcept : root_(std::exchange(other.root_, "")) {}
  ~Tree() {
    if (!root_.empty()) (void)RemoveAll(root_);
  }
  void Write(const std::string& path, const std::string& content) {
    std::ofstream file(root() + path, std::ios::binary);
    if (!file) {
      Folder(path.substr(0, path.rfind('/')));
      file.open(root() + path, std::ios::binary);
    }
    file << content;
    EXPECT_TRUE(file.good()) << path;
  }
  void Link(const std::string& path, const std::string& target) {
    if (::symlink(target.c_str(), (root() + path).c_str()) == 0) return;
    Folder(path.substr(0, path.rfind('/')));
    EXPECT_EQ(::symlink(target.c_str(), (root() + path).c_str()), 0) << path;
  }
  void Folder(const std::string& path) { EXPECT_TRUE(MakeDirs(root() + path).ok()) << path; }
  void Remove(const std::string& path) { EXPECT_TRUE(RemoveAll(root() + path).ok()) << path; }

 private:
  // In memory where possible: hundreds of small files are slow on a disk.
  Tree() {
    for (const char* folder : {"/dev/shm", "/tmp"}) {
      std::string path = std::string(folder) + "/machine-tree-XXXXXX";
      if (::mkdtemp(path.data()) == nullptr) continue;
      root_ = path;
      return;
    }
    ADD_FAILURE() << "no folder for a tree";
  }
  static std::string Unescape(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) {
        ++i;
        out += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
      } else {
        out += text[i];
      }
    }
    return out;
  }
  std::string root_;
};

}  // namespace lockstep::hardware
