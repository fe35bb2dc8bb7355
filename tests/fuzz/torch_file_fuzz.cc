// The torch.save reader against arbitrary bytes. The first byte chooses: a whole file (zip, index, anything), or a
// pickle that the harness wraps into a valid archive with one storage of 64 bytes, so that the search reaches the
// unpickler.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/weights.h"
#include "base/zip.h"

using namespace lockstep;

namespace {

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AddEntry(std::string& file, std::string& directory, const std::string& name, const std::string& data) {
  const uint32_t at = static_cast<uint32_t>(file.size()), crc = Crc32(0, data.data(), data.size());
  const uint32_t bytes = static_cast<uint32_t>(data.size());
  auto shared = [&](std::string& out) {
    Put<uint16_t>(out, 20), Put<uint16_t>(out, 0), Put<uint16_t>(out, 0), Put<uint32_t>(out, 0);
    Put(out, crc), Put(out, bytes), Put(out, bytes);
    Put(out, static_cast<uint16_t>(name.size())), Put<uint16_t>(out, 0);
  };
  file += "PK\3\4";
  shared(file);
  file += name + data;
  directory += "PK\1\2";
  Put<uint16_t>(directory, 20);
  shared(directory);
  Put<uint16_t>(directory, 0), Put<uint16_t>(directory, 0), Put<uint16_t>(directory, 0), Put<uint32_t>(directory, 0);
  Put(directory, at);
  directory += name;
}

std::string Archive(const std::string& pickle) {
  std::string file, directory;
  AddEntry(file, directory, "a/data.pkl", pickle);
  AddEntry(file, directory, "a/data/0", std::string(64, 's'));
  const uint32_t offset = static_cast<uint32_t>(file.size()), bytes = static_cast<uint32_t>(directory.size());
  file += directory + "PK\5\6";
  Put<uint32_t>(file, 0), Put<uint16_t>(file, 2), Put<uint16_t>(file, 2), Put(file, bytes), Put(file, offset);
  Put<uint16_t>(file, 0);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) file = Archive(file);
  static const int fd = ::memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, file.data(), file.size(), 0) != static_cast<ssize_t>(file.size()))
    abort();
  auto weights = OpenWeights(path);
  if (!weights.ok()) return 0;
  for (const TensorInfo& tensor : (*weights)->tensors()) {
    if (tensor.bytes > (1u << 20)) continue;
    std::string buffer(tensor.bytes, '\0');
    (void)(*weights)->Read(tensor.name, buffer.data(), buffer.size());
  }
  return 0;
}
