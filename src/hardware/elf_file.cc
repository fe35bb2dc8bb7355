#include "hardware/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::hardware {
namespace {

template <typename T>
std::optional<T> At(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string_view Slice(std::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.substr(offset, size);
}

std::string_view Word(std::string_view strings, uint64_t offset) {
  if (offset >= strings.size()) return {};
  const std::string_view rest = strings.substr(offset);
  const size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

std::vector<Elf64_Phdr> Segments(std::string_view bytes) {
  std::vector<Elf64_Phdr> segments;
  const auto header = At<Elf64_Ehdr>(bytes, 0);
  if (!header || header->e_phentsize != sizeof(Elf64_Phdr)) return segments;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(bytes, header->e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
    if (!segment) break;
    segments.push_back(*segment);
  }
  return segments;
}

// Where an address of the loaded image lies in the file.
std::optional<uint64_t> Offset(const std::vector<Elf64_Phdr>& segments, uint64_t address) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  }
  return std::nullopt;
}

}  // namespace

Result<ElfFile> ElfFile::Open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return FileError("read", path, errno);
  Elf64_Ehdr header{};
  if (!S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(sizeof header) ||
      ::pread(fd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return Status(Code::kEnvironment, fmt::format("'{}' is not a 64-bit ELF file", Printable(path)));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (map == MAP_FAILED) return FileError("map", path, errno);
  return ElfFile(std::string_view(static_cast<const char*>(map), size));
}

ElfFile::ElfFile(ElfFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

ElfFile& ElfFile::operator=(ElfFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

ElfFile::~ElfFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

std::vector<ElfFile::Section> ElfFile::Sections() const {
  std::vector<Section> sections;
  const auto header = At<Elf64_Ehdr>(bytes_, 0);
  if (!header || header->e_shoff == 0 || header->e_shentsize != sizeof(Elf64_Shdr)) return sections;
  auto at = [&](unsigned i) { return At<Elf64_Shdr>(bytes_, header->e_shoff + uint64_t{i} * sizeof(Elf64_Shdr)); };
  std::string_view names;
  if (const auto table = at(header->e_shstrndx)) names = Slice(bytes_, table->sh_offset, table->sh_size);
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto section = at(i);
    if (!section) break;
    if (section->sh_type == SHT_NULL || !(section->sh_flags & SHF_ALLOC)) continue;
    sections.push_back(
        {Word(names, section->sh_name),
         section->sh_type == SHT_NOBITS ? std::string_view() : Slice(bytes_, section->sh_offset, section->sh_size),
         (section->sh_flags & SHF_EXECINSTR) != 0});
  }
  return sections;
}

ElfFile::Dynamic ElfFile::ReadDynamic() const {
  Dynamic dynamic;
  const std::vector<Elf64_Phdr> segments = Segments(bytes_);
  std::vector<Elf64_Dyn> entries;
  uint64_t table = 0, table_size = 0;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = At<Elf64_Dyn>(bytes_, segment.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_STRTAB) table = entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRSZ) table_size = entry->d_un.d_val;
      entries.push_back(*entry);
    }
  }
  const std::optional<uint64_t> offset = Offset(segments, table);
  if (!offset) return dynamic;
  const std::string_view strings = Slice(bytes_, *offset, table_size);
  auto paths = [](std::string_view list) { return list.empty() ? std::vector<std::string>() : Split(list, ':'); };
  for (const Elf64_Dyn& entry : entries) {
    const std::string_view word = Word(strings, entry.d_un.d_val);
    if (entry.d_tag == DT_SONAME) dynamic.soname = word;
    if (entry.d_tag == DT_NEEDED && !word.empty()) dynamic.needed.emplace_back(word);
    if (entry.d_tag == DT_RPATH) dynamic.rpath = paths(word);
    if (entry.d_tag == DT_RUNPATH) dynamic.runpath = paths(word);
  }
  return dynamic;
}

}  // namespace lockstep::hardware
