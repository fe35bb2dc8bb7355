#include "launch/torch_version.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"

namespace lockstep::launch {
namespace {

TEST(TorchVersion, IsReadBesideTheInterpreterWithoutStartingIt) {
  TempDir dir = *TempDir::Create();
  ASSERT_TRUE(MakeDirs(dir / "lib/python3.11/site-packages/torch").ok());
  ASSERT_TRUE(
      WriteFileAtomic(dir / "lib/python3.11/site-packages/torch/version.py",
                      "from typing import Optional\n__all__ = ['__version__', 'debug']\n__version__ = '2.9.1+cu128'\n")
          .ok());
  EXPECT_EQ(TorchVersion(dir / "bin/python"), (std::pair{2, 9}));
  ASSERT_TRUE(MakeDirs(dir / "bin").ok() && MakeDirs(dir / "usr/bin").ok());
  ASSERT_TRUE(WriteFileAtomic(dir / "bin/python", "").ok());
  ASSERT_EQ(symlink("../../bin/python", (dir / "usr/bin/python3").c_str()), 0);
  EXPECT_EQ(TorchVersion(dir / "usr/bin/python3"), (std::pair{2, 9})) << "through a link";
  EXPECT_EQ(TorchVersion("python"), std::nullopt);
  EXPECT_EQ(TorchVersion("/nonexistent/bin/python"), std::nullopt);
  ASSERT_TRUE(WriteFileAtomic(dir / "lib/python3.11/site-packages/torch/version.py", "__version__ = broken").ok());
  EXPECT_EQ(TorchVersion(dir / "bin/python"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::launch
