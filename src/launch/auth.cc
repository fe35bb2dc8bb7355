#include "launch/auth.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace lockstep::launch {
namespace {

std::string Hex(const unsigned char* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", data[i]);
  return text;
}

std::string Trim(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

std::string MakeNonce() {
  unsigned char bytes[16] = {};
  size_t have = 0;
  while (have < sizeof bytes) {
    const ssize_t got = getrandom(bytes + have, sizeof bytes - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
  }
  return Hex(bytes, sizeof bytes);
}

std::string Proof(const std::string& token, std::initializer_list<std::string_view> parts) {
  std::string message;
  for (std::string_view part : parts) message += fmt::format("{}:", part.size()).append(part);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest, &size);
  return Hex(digest, size);
}

bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<std::string> LoadToken(const std::string& file, const std::string& from_environment) {
  if (file.empty()) return Trim(from_environment);
  UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Status(Code::kEnvironment, fmt::format("--token-file {}: {}", file, ErrnoText(errno)));
  struct stat info{};
  fstat(fd.get(), &info);
  if ((info.st_mode & 077) != 0) {
    return Status(Code::kUsage,
                  fmt::format("--token-file {}: mode {:04o} lets others read the token, expected 0600", file,
                              info.st_mode & 07777),
                  "chmod 600 " + file);
  }
  char buffer[4097];
  const ssize_t got = read(fd.get(), buffer, sizeof buffer);
  if (got < 0) return Status(Code::kEnvironment, fmt::format("--token-file {}: {}", file, ErrnoText(errno)));
  std::string token = Trim(std::string(buffer, static_cast<size_t>(got)));
  if (token.empty() || got > 4096 || token.find('\n') != std::string::npos) {
    return Status(Code::kUsage, fmt::format("--token-file {}: expected one line of 1 to 4096 bytes", file),
                  "write one with: openssl rand -hex 32 > " + file);
  }
  return token;
}

}  // namespace lockstep::launch
