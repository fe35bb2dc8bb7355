#include "preflight/digest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"

namespace lockstep::preflight {
namespace {

struct Folder {
  TempDir dir = *TempDir::Create();
  void Write(const std::string& name, const std::string& text) {
    const std::string path = dir / name;
    EXPECT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
  }
  TreeDigest Digest(const TreeOptions& options) const {
    auto digest = DigestTree(dir.path(), options);
    EXPECT_TRUE(digest.ok());
    return digest.ok() ? *digest : TreeDigest{};
  }
};

TEST(DigestTree, EqualTreesAgreeAndOneChangedByteDoesNot) {
  Folder a, b;
  for (Folder* folder : {&a, &b}) {
    folder->Write("train.py", "x = 1\n");
    folder->Write("models/net.py", "y = 2\n");
  }
  const TreeOptions code{.code = true};
  EXPECT_EQ(a.Digest(code).digest, b.Digest(code).digest);
  b.Write("models/net.py", "y = 3\n");
  EXPECT_NE(a.Digest(code).digest, b.Digest(code).digest);
  EXPECT_NE(a.Digest(code).entries.at("models/net.py"), b.Digest(code).entries.at("models/net.py"));
  EXPECT_EQ(a.Digest(code).entries.at("train.py"), b.Digest(code).entries.at("train.py"));
}

TEST(DigestTree, OfCodeLeavesOutCachesEnvironmentsRunsAndData) {
  Folder folder;
  folder.Write("train.py", "x\n");
  const std::string before = folder.Digest({.code = true}).digest;
  folder.Write("__pycache__/train.pyc", "z");
  folder.Write(".git/config", "z");
  folder.Write("venv/pyvenv.cfg", "z");
  folder.Write("venv/lib/a.py", "z");
  folder.Write("runs/one/run.json", "{}");
  folder.Write("weights.safetensors", "z");
  EXPECT_EQ(folder.Digest({.code = true}).digest, before);
  folder.Write("util.py", "z");
  EXPECT_NE(folder.Digest({.code = true}).digest, before);
}

TEST(DigestTree, OfDataSeesNamesAndSizesNotContent) {
  Folder a, b;
  a.Write("one.mp4", "abc");
  b.Write("one.mp4", "xyz");
  const TreeOptions data{.content = false};
  EXPECT_EQ(a.Digest(data).digest, b.Digest(data).digest);
  b.Write("one.mp4", "xyzw");
  EXPECT_NE(a.Digest(data).digest, b.Digest(data).digest);
  b.Write("one.mp4", "xyz");
  b.Write("deep/two.mp4", "");
  EXPECT_NE(a.Digest(data).digest, b.Digest(data).digest);
}

TEST(DigestTree, IsCutInAFixedOrderAndSaysSo) {
  Folder a, b;
  for (int i = 0; i < 20; ++i) a.Write("f" + std::to_string(i), "x");
  for (int i = 19; i >= 0; --i) b.Write("f" + std::to_string(i), "x");
  const TreeOptions few{.content = false, .max_files = 5};
  EXPECT_TRUE(a.Digest(few).cut);
  EXPECT_EQ(a.Digest(few).files, 5u);
  EXPECT_EQ(a.Digest(few).digest, b.Digest(few).digest);
}

TEST(DigestTree, ALoopOfLinksEnds) {
  Folder folder;
  folder.Write("a/file.py", "x");
  ASSERT_EQ(symlink("..", (folder.dir / "a/up").c_str()), 0);
  ASSERT_EQ(symlink("nowhere", (folder.dir / "gone").c_str()), 0);
  EXPECT_EQ(folder.Digest({}).files, 1u);
}

TEST(GitCommit, IsReadFromHeadRefsAndPackedRefs) {
  Folder folder;
  EXPECT_EQ(GitCommit(folder.dir.path()), "");
  folder.Write(".git/HEAD", "ref: refs/heads/main\n");
  folder.Write(".git/packed-refs", "# pack-refs\nabc123 refs/heads/main\n");
  folder.Write("src/deep/x.py", "");
  EXPECT_EQ(GitCommit(folder.dir / "src/deep"), "abc123");
  folder.Write(".git/refs/heads/main", "def456\n");
  EXPECT_EQ(GitCommit(folder.dir.path()), "def456");
  folder.Write(".git/HEAD", "789abc\n");
  EXPECT_EQ(GitCommit(folder.dir.path()), "789abc");
}

}  // namespace
}  // namespace lockstep::preflight
