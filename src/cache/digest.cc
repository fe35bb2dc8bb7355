#include "cache/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/checksum.h"
#include "base/fd.h"
#include "base/files.h"

namespace lockstep::cache {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
}
Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::Update(const void* data, size_t bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, bytes);
}

void Sha256::Text(std::string_view text) {
  Update(uint64_t{text.size()});
  Update(text.data(), text.size());
}

Digest Sha256::Finish() {
  Digest digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), &size);
  return digest;
}

Digest DigestOf(std::string_view text) {
  Sha256 sum;
  sum.Update(text.data(), text.size());
  return sum.Finish();
}

std::string Hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

ItemDigest DigestItem(const void* data, size_t bytes) {
  Checksum sum;
  sum.Update(data, bytes);
  return sum.Bytes();
}

Result<std::string> FileDigest(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FileError("open", path, errno);
  Sha256 sum;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("read", path, errno);
    if (n == 0) break;
    sum.Update(buffer.data(), static_cast<size_t>(n));
  }
  return "sha256:" + Hex(sum.Finish());
}

Result<std::string> WeightsDigest(const Weights& weights) {
  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& tensor : weights.tensors()) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  Sha256 sum;
  std::vector<char> buffer;
  for (const TensorInfo* tensor : sorted) {
    sum.Text(tensor->name);
    sum.Text(DtypeName(tensor->dtype));
    sum.Update(uint64_t{tensor->shape.size()});
    sum.Update(tensor->shape.data(), tensor->shape.size() * sizeof(int64_t));
    buffer.resize(tensor->bytes);
    LOCKSTEP_RETURN_IF_ERROR(weights.Read(tensor->name, buffer.data(), buffer.size()));
    sum.Update(buffer.data(), buffer.size());
  }
  return "sha256:" + Hex(sum.Finish());
}

}  // namespace lockstep::cache
