// Small ELF libraries for tests: a dynamic section and constants, enough for what reads them without loading them.
#pragma once

#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

namespace lockstep::hardware {

struct ElfParts {
  std::string soname, rpath, runpath;
  std::vector<std::string> needed;
  std::string constants;  // .rodata; NULs by hand
  std::string code;       // .text
};

inline std::string MakeElf(const ElfParts& parts) {
  std::string file(sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr), '\0');
  std::string strings(1, '\0');
  std::vector<Elf64_Dyn> dynamic;
  auto text = [&](const std::string& word) {
    const size_t at = strings.size();
    strings += word + '\0';
    return at;
  };
  auto entry = [&](Elf64_Sxword tag, uint64_t value) {
    Elf64_Dyn one{};
    one.d_tag = tag;
    one.d_un.d_val = value;
    dynamic.push_back(one);
  };
  for (const std::string& name : parts.needed) entry(DT_NEEDED, text(name));
  if (!parts.soname.empty()) entry(DT_SONAME, text(parts.soname));
  if (!parts.rpath.empty()) entry(DT_RPATH, text(parts.rpath));
  if (!parts.runpath.empty()) entry(DT_RUNPATH, text(parts.runpath));
  auto append = [&](const std::string& bytes) {
    file.resize((file.size() + 15) / 16 * 16);
    const size_t at = file.size();
    file += bytes;
    return at;
  };
  const size_t strings_at = append(strings), constants_at = append(parts.constants), code_at = append(parts.code);
  entry(DT_STRTAB, strings_at);
  entry(DT_STRSZ, strings.size());
  entry(DT_NULL, 0);
  const size_t dynamic_at =
      append(std::string(reinterpret_cast<const char*>(dynamic.data()), dynamic.size() * sizeof(Elf64_Dyn)));
  const std::string names("\0.rodata\0.text\0.shstrtab\0", 24);
  const size_t names_at = append(names);
  Elf64_Shdr sections[4] = {};
  sections[1].sh_name = 1, sections[1].sh_type = SHT_PROGBITS, sections[1].sh_flags = SHF_ALLOC;
  sections[1].sh_offset = constants_at, sections[1].sh_size = parts.constants.size();
  sections[2].sh_name = 9, sections[2].sh_type = SHT_PROGBITS, sections[2].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  sections[2].sh_offset = code_at, sections[2].sh_size = parts.code.size();
  sections[3].sh_name = 15, sections[3].sh_type = SHT_STRTAB;
  sections[3].sh_offset = names_at, sections[3].sh_size = names.size();
  const size_t sections_at = append(std::string(reinterpret_cast<const char*>(sections), sizeof sections));
  Elf64_Phdr segments[2] = {};
  segments[0].p_type = PT_LOAD, segments[0].p_filesz = segments[0].p_memsz = file.size();
  segments[1].p_type = PT_DYNAMIC, segments[1].p_offset = segments[1].p_vaddr = dynamic_at;
  segments[1].p_filesz = dynamic.size() * sizeof(Elf64_Dyn);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
  header.e_phoff = sizeof header, header.e_phentsize = sizeof(Elf64_Phdr), header.e_phnum = 2;
  header.e_shoff = sections_at, header.e_shentsize = sizeof(Elf64_Shdr), header.e_shnum = 4, header.e_shstrndx = 3;
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, segments, sizeof segments);
  return file;
}

}  // namespace lockstep::hardware
