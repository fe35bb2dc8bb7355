#include "cache/key_index.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <unordered_map>

#include "base/checksum.h"
#include "base/files.h"
#include "base/safetensors.h"

namespace lockstep::cache {
namespace {

constexpr char kIndexFormat[] = "lockstep-cache-index";

std::string IndexPath(const Folder& folder) { return folder.path() + "/index.safetensors"; }

uint64_t Prefix(const Digest& key) {
  uint64_t prefix = 0;
  std::memcpy(&prefix, key.data(), sizeof prefix);
  return prefix;
}

bool Before(const KeyIndex::Entry& a, const KeyIndex::Entry& b) { return a.prefix < b.prefix; }

// The file's tensors. Entries lie there as in memory: prefix (two words), unit, row.
struct StoredIndex {
  std::string names;  // a line each
  std::vector<uint64_t> inodes, rows;
  std::vector<KeyIndex::Entry> entries;

  std::array<uint8_t, 16> Sum(const std::string& namespace_id) const {
    Checksum sum;
    sum.Update(namespace_id.data(), namespace_id.size());
    sum.Update(names.data(), names.size());
    sum.Update(inodes.data(), inodes.size() * 8);
    sum.Update(rows.data(), rows.size() * 8);
    sum.Update(entries.data(), entries.size() * sizeof(KeyIndex::Entry));
    return sum.Bytes();
  }
};
static_assert(sizeof(KeyIndex::Entry) == 16);

Result<StoredIndex> ReadIndex(const Folder& folder) {
  const std::string path = IndexPath(folder);
  const auto damaged = [&] {
    return Status(Code::kEnvironment, fmt::format("'{}': it is damaged, or of another version or namespace", path));
  };
  const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const auto meta = [&](const char* key) {
    const auto found = file->metadata().find(key);
    return found == file->metadata().end() ? std::string() : found->second;
  };
  if (meta("format") != kIndexFormat || meta("version") != std::to_string(kFormatVersion) ||
      meta("namespace") != folder.id()) {
    return damaged();
  }
  StoredIndex index;
  std::array<uint8_t, 16> sum{};
  const auto read = [&](const char* name, auto* to, size_t element) -> Status {
    const TensorInfo* info = file->Find(name);
    if (info == nullptr || info->bytes % element != 0) return damaged();
    to->resize(info->bytes / element);
    return file->ReadAt(info->offset, to->data(), info->bytes);
  };
  LOCKSTEP_RETURN_IF_ERROR(read("units", &index.names, 1));
  LOCKSTEP_RETURN_IF_ERROR(read("inodes", &index.inodes, 8));
  LOCKSTEP_RETURN_IF_ERROR(read("rows", &index.rows, 8));
  LOCKSTEP_RETURN_IF_ERROR(read("entries", &index.entries, sizeof(KeyIndex::Entry)));
  const TensorInfo* stored = file->Find("checksum");
  if (stored == nullptr || stored->bytes != sum.size()) return damaged();
  LOCKSTEP_RETURN_IF_ERROR(file->ReadAt(stored->offset, sum.data(), sum.size()));
  const size_t units = index.inodes.size();
  if (sum != index.Sum(folder.id()) || index.rows.size() != units ||
      std::ranges::count(index.names, '\n') != static_cast<int64_t>(units) ||
      !std::is_sorted(index.entries.begin(), index.entries.end(), Before)) {
    return damaged();
  }
  for (const KeyIndex::Entry& entry : index.entries) {
    if (entry.unit >= units || entry.row >= index.rows[entry.unit]) return damaged();
  }
  return index;
}

}  // namespace

Status ForgetIndex(const Folder& folder) {
  const std::string path = IndexPath(folder);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("remove", path, errno);
  return Status::Ok();
}

Status KeyIndex::Load(const Folder& folder, const std::vector<UnitPlace>& there) {
  const Result<StoredIndex> index = ReadIndex(folder);
  if (!index.ok()) return index.status();
  std::unordered_map<std::string_view, uint64_t> inodes;
  inodes.reserve(there.size());
  for (const UnitPlace& place : there) inodes.emplace(place.name, place.inode);
  constexpr uint32_t kGone = UINT32_MAX;
  std::vector<uint32_t> numbers(index->inodes.size(), kGone);  // stored -> here
  size_t begin = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t end = index->names.find('\n', begin);
    const std::string name = index->names.substr(begin, end - begin);
    begin = end + 1;
    const auto found = inodes.find(name);
    if (found == inodes.end() || found->second != index->inodes[i] || !known_.insert(name).second) continue;
    numbers[i] = static_cast<uint32_t>(units_.size());
    units_.push_back({name, index->inodes[i], index->rows[i], true});
  }
  entries_.reserve(index->entries.size());
  for (const Entry& entry : index->entries) {
    if (numbers[entry.unit] != kGone) entries_.push_back({entry.prefix, numbers[entry.unit], entry.row});
  }
  return Status::Ok();
}

Status KeyIndex::OpenNew(const Folder& folder, const std::vector<UnitPlace>& there) {
  const std::vector<Column> columns = folder.description().Columns();
  const size_t before = entries_.size();
  for (const UnitPlace& place : there) {
    if (!known_.insert(place.name).second) continue;
    auto unit = UnitFile::Open(folder.UnitPath(place.name), folder.id(), columns, /*direct=*/false);
    if (!unit.ok()) unit = UnitFile::Open(folder.UnitPath(place.name), folder.id(), columns, /*direct=*/false);
    if (!unit.ok()) {
      // It may be well and the file system not: the next Refresh tries it again.
      known_.erase(place.name);
      const std::string why = unit.status().message();
      if (std::ranges::find(warnings_, why) == warnings_.end()) warnings_.push_back(why);
      continue;
    }
    const auto number = static_cast<uint32_t>(units_.size());
    units_.push_back({place.name, place.inode, (*unit)->rows(), false});
    for (uint64_t row = 0; row < (*unit)->rows(); ++row) {
      entries_.push_back({Prefix((*unit)->key(row)), number, static_cast<uint32_t>(row)});
    }
    ++unsaved_;
  }
  if (entries_.size() > before) {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.prefix, a.unit, a.row) < std::tie(b.prefix, b.unit, b.row);
    });
  }
  return Status::Ok();
}

Status KeyIndex::Refresh(const Folder& folder) {
  const Result<std::vector<UnitPlace>> there = folder.UnitPlaces();
  if (!there.ok()) return there.status();
  if (!looked_) {
    looked_ = true;
    // What is wrong with it costs time only: the units are opened instead.
    static_cast<void>(Load(folder, *there));
  }
  return OpenNew(folder, *there);
}

Status KeyIndex::Rebuild(const Folder& folder) {
  static_cast<void>(ForgetIndex(folder));  // of a root that may not be written: the next start finds out as well
  KeyIndex anew;
  anew.looked_ = true;
  LOCKSTEP_RETURN_IF_ERROR(anew.Refresh(folder));
  *this = std::move(anew);
  return Status::Ok();
}

bool KeyIndex::Agrees(uint32_t number, const UnitFile& unit) const {
  if (!units_[number].stored) return true;
  if (unit.rows() != units_[number].rows) return false;
  for (uint64_t row = 0; row < unit.rows(); ++row) {
    const std::span<const Entry> found = Find(unit.key(row));
    const auto same = [&](const Entry& entry) { return entry.unit == number && entry.row == row; };
    if (std::none_of(found.begin(), found.end(), same)) return false;
  }
  return true;
}

std::span<const KeyIndex::Entry> KeyIndex::Find(const Digest& key) const {
  const auto [begin, end] = std::equal_range(entries_.begin(), entries_.end(), Entry{Prefix(key), 0, 0}, Before);
  return {begin, end};
}

Status KeyIndex::Save(const Folder& folder) {
  StoredIndex index;
  for (const Unit& unit : units_) {
    index.names += unit.name + "\n";
    index.inodes.push_back(unit.inode);
    index.rows.push_back(unit.rows);
  }
  index.entries = entries_;
  const auto sum = index.Sum(folder.id());
  const auto units = static_cast<int64_t>(units_.size()), entries = static_cast<int64_t>(entries_.size());
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(
      IndexPath(folder),
      {{"units", Dtype::kU8, {static_cast<int64_t>(index.names.size())}},
       {"inodes", Dtype::kU64, {units}},
       {"rows", Dtype::kU64, {units}},
       {"entries", Dtype::kU32, {entries, 4}},
       {"checksum", Dtype::kU8, {16}}},
      {{"format", kIndexFormat}, {"version", std::to_string(kFormatVersion)}, {"namespace", folder.id()}});
  if (!writer.ok()) return writer.status();
  LOCKSTEP_RETURN_IF_ERROR(writer->Write("units", index.names.data(), index.names.size()));
  LOCKSTEP_RETURN_IF_ERROR(writer->Write("inodes", index.inodes.data(), index.inodes.size() * 8));
  LOCKSTEP_RETURN_IF_ERROR(writer->Write("rows", index.rows.data(), index.rows.size() * 8));
  LOCKSTEP_RETURN_IF_ERROR(writer->Write("entries", index.entries.data(), index.entries.size() * sizeof(Entry)));
  LOCKSTEP_RETURN_IF_ERROR(writer->Write("checksum", sum.data(), sum.size()));
  LOCKSTEP_RETURN_IF_ERROR(writer->Finish());
  unsaved_ = 0;
  return Status::Ok();
}

}  // namespace lockstep::cache
