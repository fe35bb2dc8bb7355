// Listings of tar files and LMDB, and the index that ranks hand to each other, against arbitrary bytes: they must never
// crash, never run without end, and never name a place outside the file.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "data/file_source.h"
#include "data/lmdb_listing.h"
#include "data/tar_listing.h"

using namespace lockstep;

// The first byte chooses the parser, the rest is the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  const data::ReadAt read = [file](uint64_t offset, size_t bytes, char* out) {
    if (offset > file.size() || bytes > file.size() - offset) abort();  // asked for what it knows is not there
    std::memcpy(out, file.data() + offset, bytes);
    return Status::Ok();
  };
  const auto inside = [&](uint64_t offset, uint64_t bytes) {
    if (offset > file.size() || bytes > file.size() - offset) abort();
  };
  switch (data[0] % 3) {
    case 0: {
      auto members = data::ListTar(read, file.size(), "fuzz");
      if (!members.ok()) return 0;
      for (const data::TarMember& member : *members) inside(member.offset, member.bytes);
      return 0;
    }
    case 1: {
      auto listing = data::ListLmdb(read, file.size(), "fuzz");
      if (!listing.ok()) return 0;
      for (const data::LmdbValue& value : listing->values) inside(value.offset, value.bytes);
      return 0;
    }
    default: {
      data::SourceConfig config{.kind = "tar", .path = "/nowhere"};
      auto inventory = data::ReadIndex(file, config);
      (void)inventory.ok();
      return 0;
    }
  }
}
