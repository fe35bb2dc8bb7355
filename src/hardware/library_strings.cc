#include "hardware/library_strings.h"

#include <algorithm>
#include <cstring>

#include "hardware/elf_file.h"

namespace lockstep::hardware {
namespace {

constexpr bool IsName(unsigned char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }
constexpr bool IsLower(unsigned char c) { return c >= 'a' && c <= 'z'; }

// Where literals live. GPU code and unwind tables are most of such a library and hold no names.
std::vector<std::string_view> Constants(const ElfFile& file) {
  std::vector<std::string_view> parts;
  const std::vector<ElfFile::Section> sections = file.Sections();
  for (const ElfFile::Section& section : sections) {
    if (section.executable) continue;
    if (section.name.starts_with(".rodata") || section.name.starts_with(".data") ||
        section.name.starts_with(".lrodata"))
      parts.push_back(section.bytes);
  }
  if (sections.empty()) parts.push_back(file.bytes());
  return parts;
}

// Calls visit(token, whole) for every maximal run of name characters that is not part of a mixed-case word.
template <typename Visit>
void EachName(std::string_view bytes, Visit visit) {
  size_t at = 0;
  while (at < bytes.size()) {
    if (!IsName(static_cast<unsigned char>(bytes[at]))) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < bytes.size() && IsName(static_cast<unsigned char>(bytes[end]))) ++end;
    const unsigned char before = at > 0 ? static_cast<unsigned char>(bytes[at - 1]) : 0;
    const unsigned char after = end < bytes.size() ? static_cast<unsigned char>(bytes[end]) : 0;
    if (end - at >= 4 && end - at <= 200 && !IsLower(before) && !IsLower(after))
      visit(bytes.substr(at, end - at), before == 0 && after == 0);
    at = end;
  }
}

void SortUnique(std::vector<std::string>* names) {
  std::sort(names->begin(), names->end());
  names->erase(std::unique(names->begin(), names->end()), names->end());
}

}  // namespace

bool LibraryNames::Knows(std::string_view name) const {
  if (std::binary_search(whole.begin(), whole.end(), name)) return true;
  auto ends = [&](const std::string& word) { return word.ends_with(name); };
  return std::any_of(tails.begin(), tails.end(), ends) || std::any_of(whole.begin(), whole.end(), ends);
}

Result<LibraryNames> NamesWithPrefix(const std::string& path, const std::vector<std::string>& prefixes) {
  Result<ElfFile> file = ElfFile::Open(path);
  if (!file.ok()) return file.status();
  LibraryNames names;
  for (const std::string_view part : Constants(*file)) {
    EachName(part, [&](std::string_view token, bool whole) {
      for (const std::string& prefix : prefixes) {
        if (token.size() > prefix.size() && token.starts_with(prefix)) {
          (whole ? names.whole : names.mentioned).emplace_back(token);
          return;
        }
      }
      if (!whole) return;
      for (const std::string& prefix : prefixes) {
        if (token.find(prefix) != std::string_view::npos) {
          names.tails.emplace_back(token);
          return;
        }
      }
    });
  }
  SortUnique(&names.whole);
  SortUnique(&names.mentioned);
  SortUnique(&names.tails);
  std::erase_if(names.mentioned, [&](const std::string& name) {
    return std::binary_search(names.whole.begin(), names.whole.end(), name);
  });
  return names;
}

std::optional<std::string> TextAfter(const std::string& path, std::string_view before, std::string_view characters) {
  const Result<ElfFile> file = ElfFile::Open(path);
  if (!file.ok()) return std::nullopt;
  for (const std::string_view part : Constants(*file)) {
    for (size_t at = 0; (at = part.find(before, at)) != std::string_view::npos; ++at) {
      const std::string_view rest = part.substr(at + before.size(), 64);
      const std::string_view text = rest.substr(0, std::min(rest.find_first_not_of(characters), rest.size()));
      const size_t dot = text.find('.');
      if (dot == std::string_view::npos || dot == 0 || dot > 4 || text[0] < '0' || text[0] > '9') continue;
      return std::string(text);
    }
  }
  return std::nullopt;
}

std::optional<std::string> VersionAfter(const std::string& path, std::string_view before) {
  return TextAfter(path, before, "0123456789.");
}

}  // namespace lockstep::hardware
