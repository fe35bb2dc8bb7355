// An ELF file looked at without loading it: mapped read-only, every offset checked, so that a truncated or hostile file
// yields less, never a crash. 64-bit little-endian only (what CUDA runs on). One owner, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::hardware {

class ElfFile {
 public:
  static Result<ElfFile> Open(const std::string& path);
  ElfFile(ElfFile&& other) noexcept;
  ElfFile& operator=(ElfFile&& other) noexcept;
  ~ElfFile();

  struct Section {
    std::string_view name, bytes;  // bytes may be empty: not in the file
    bool executable = false;
  };
  // Those that are in memory at run time; empty for a file without a section table.
  std::vector<Section> Sections() const;

  struct Dynamic {
    std::string soname;
    std::vector<std::string> needed;
    std::vector<std::string> rpath, runpath;  // as written, with $ORIGIN
  };
  Dynamic ReadDynamic() const;

  std::string_view bytes() const { return bytes_; }

 private:
  explicit ElfFile(std::string_view bytes) : bytes_(bytes) {}
  std::string_view bytes_;  // the mapping
};

}  // namespace lockstep::hardware
