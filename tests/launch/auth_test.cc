#include "launch/auth.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/files.h"

namespace lockstep::launch {
namespace {

// RFC 4231, test case 2, through our framing of parts would differ; so the golden value is Python's:
//   hmac.new(b"Jefe", b"4:what3:two", "sha256").hexdigest()
TEST(Auth, ProofIsHmacSha256OverLengthPrefixedParts) {
  EXPECT_EQ(Proof("Jefe", {"what", "two"}), "1fa2b5be88f2fc22796458d4114eafb454024d7fd83391aba67e94c046eeded2");
}

TEST(Auth, MovingABoundaryBetweenPartsChangesTheProof) {
  EXPECT_NE(Proof("t", {"ab", "c"}), Proof("t", {"a", "bc"}));
  EXPECT_NE(Proof("t", {"a"}), Proof("u", {"a"}));
}

TEST(Auth, NoncesDoNotRepeat) {
  const std::string a = MakeNonce();
  EXPECT_EQ(a.size(), 32u);
  EXPECT_NE(a, MakeNonce());
}

TEST(Auth, ATokenFileThatOthersMayReadIsRefused) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = *dir / "token";
  ASSERT_TRUE(WriteFileAtomic(path, "secret\n", 0600).ok());
  auto token = LoadToken(path, "ignored");
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(*token, "secret");
  chmod(path.c_str(), 0640);
  token = LoadToken(path, "");
  ASSERT_FALSE(token.ok());
  EXPECT_NE(token.status().message().find("0640"), std::string::npos);
  EXPECT_EQ(token.status().message().find("secret"), std::string::npos);
}

TEST(Auth, AnEmptyOrMissingTokenFileIsAnError) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  ASSERT_TRUE(WriteFileAtomic(*dir / "empty", "\n", 0600).ok());
  EXPECT_FALSE(LoadToken(*dir / "empty", "").ok());
  EXPECT_FALSE(LoadToken(*dir / "missing", "").ok());
  EXPECT_EQ(*LoadToken("", "from-env\n"), "from-env");
  EXPECT_EQ(*LoadToken("", ""), "");
}

}  // namespace
}  // namespace lockstep::launch
