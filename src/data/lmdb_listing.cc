#include "data/lmdb_listing.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

#include "data/listing.h"

namespace lockstep::data {
namespace {

constexpr uint32_t kLmdbMagic = 0xBEEFC0DE;
constexpr uint32_t kLmdbVersion = 1;
constexpr uint64_t kNoPage = ~0ull;
constexpr size_t kPageHeader = 16, kNodeHeader = 8;
constexpr uint16_t kBranchPage = 0x01, kLeafPage = 0x02, kOverflowPage = 0x04, kMetaPage = 0x08;  // of a page
constexpr uint16_t kBigData = 0x01, kSubData = 0x02, kDupData = 0x04;                             // of a node
constexpr uint16_t kDupSort = 0x04;                                                               // of a database
constexpr int kMostLevels = 32;

template <typename T>
T LoadAt(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// What a meta page says; offsets of MDB_meta, of which two MDB_db of 48 bytes are the middle.
struct Meta {
  uint64_t page_bytes = 0, entries = 0, root = kNoPage, last_page = 0, transaction = 0;
  uint16_t flags = 0, depth = 0;
};

constexpr size_t kMetaBytes = kPageHeader + 24 + 2 * 48 + 16;

bool ParseMeta(const std::string& page, Meta* meta) {
  const size_t at = kPageHeader;
  if ((LoadAt<uint16_t>(page, 10) & kMetaPage) == 0 || LoadAt<uint32_t>(page, at) != kLmdbMagic) return false;
  if (LoadAt<uint32_t>(page, at + 4) != kLmdbVersion) return false;
  const size_t free_db = at + 24, main_db = free_db + 48;
  meta->page_bytes = LoadAt<uint32_t>(page, free_db);
  meta->flags = LoadAt<uint16_t>(page, main_db + 4);
  meta->depth = LoadAt<uint16_t>(page, main_db + 6);
  meta->entries = LoadAt<uint64_t>(page, main_db + 32);
  meta->root = LoadAt<uint64_t>(page, main_db + 40);
  meta->last_page = LoadAt<uint64_t>(page, main_db + 48);
  meta->transaction = LoadAt<uint64_t>(page, main_db + 56);
  const uint64_t size = meta->page_bytes;
  return size >= 512 && size <= 65536 && (size & (size - 1)) == 0;
}

class Tree {
 public:
  Tree(const ReadAt& read, uint64_t bytes, const std::string& name) : read_(read), bytes_(bytes), name_(name) {}

  Result<LmdbListing> List() {
    LOCKSTEP_RETURN_IF_ERROR(ReadMeta());
    if ((meta_.flags & kDupSort) != 0) return Wrong("its keys have several values each (dupsort)");
    // Every entry takes its node: a header that promises more is not believed.
    if (meta_.entries > bytes_ / kNodeHeader) return Wrong(fmt::format("it promises {} entries", meta_.entries));
    if (meta_.root != kNoPage) LOCKSTEP_RETURN_IF_ERROR(Walk(meta_.root, 0));
    if (listing_.values.size() + others_ != meta_.entries) {
      return Wrong(fmt::format("it promises {} entries and holds {}", meta_.entries, listing_.values.size() + others_));
    }
    listing_.transaction = meta_.transaction;
    return std::move(listing_);
  }

 private:
  Status Wrong(const std::string& what) const {
    return Status(Code::kEnvironment, fmt::format("'{}' is no usable LMDB: {}", name_, what),
                  "copy it again, or write it again");
  }

  // Two meta pages take turns; the one of the later transaction counts.
  Status ReadMeta() {
    std::string page(kMetaBytes, '\0');
    if (bytes_ < kMetaBytes) return Wrong(fmt::format("{} bytes are less than its first page", bytes_));
    LOCKSTEP_RETURN_IF_ERROR(read_(0, page.size(), page.data()));
    if (!ParseMeta(page, &meta_)) return Wrong("its first page has not the magic number and version of LMDB 0.9");
    if (bytes_ / meta_.page_bytes < 2) return Wrong("its second page is missing");
    LOCKSTEP_RETURN_IF_ERROR(read_(meta_.page_bytes, page.size(), page.data()));
    Meta second;
    if (!ParseMeta(page, &second) || second.page_bytes != meta_.page_bytes) return Wrong("its second page is damaged");
    if (second.transaction > meta_.transaction) meta_ = second;
    return Status::Ok();
  }

  Status Walk(uint64_t number, int level) {
    const size_t size = meta_.page_bytes;
    if (level >= kMostLevels) return Wrong("its tree has no end");
    if (number < 2 || number >= bytes_ / size) {
      return Wrong(fmt::format("page {} lies behind the end: the file is truncated", number));
    }
    if (++visited_ > bytes_ / size) return Wrong("its pages form a circle");
    std::string page(size, '\0');
    LOCKSTEP_RETURN_IF_ERROR(read_(number * size, size, page.data()));
    const auto flags = LoadAt<uint16_t>(page, 10);
    const auto lower = LoadAt<uint16_t>(page, 12);
    const bool leaf = flags == kLeafPage;
    if (LoadAt<uint64_t>(page, 0) != number || (!leaf && flags != kBranchPage) || lower < kPageHeader || lower > size) {
      return Wrong(fmt::format("page {} is damaged", number));
    }
    for (size_t i = 0; i < (lower - kPageHeader) / 2; ++i) {
      const auto at = LoadAt<uint16_t>(page, kPageHeader + 2 * i);
      if (at < lower || at + kNodeHeader > size) return Wrong(fmt::format("page {} is damaged", number));
      const uint64_t low = LoadAt<uint16_t>(page, at) | static_cast<uint64_t>(LoadAt<uint16_t>(page, at + 2)) << 16;
      const auto node_flags = LoadAt<uint16_t>(page, at + 4);
      if (leaf) {
        LOCKSTEP_RETURN_IF_ERROR(Take(page, number, at, low, node_flags));
      } else {
        LOCKSTEP_RETURN_IF_ERROR(Walk(low | static_cast<uint64_t>(node_flags) << 32, level + 1));
      }
    }
    return Status::Ok();
  }

  Status Take(const std::string& page, uint64_t number, size_t at, uint64_t bytes, uint16_t flags) {
    const size_t size = meta_.page_bytes;
    const auto key_bytes = LoadAt<uint16_t>(page, at + 6);
    const size_t data = at + kNodeHeader + key_bytes;
    const size_t inside = (flags & kBigData) != 0 ? sizeof(uint64_t) : bytes;
    if (data > size || inside > size - data) return Wrong(fmt::format("page {} is damaged", number));
    if ((flags & (kSubData | kDupData)) != 0) {  // a database within the database
      ++others_;
      return Status::Ok();
    }
    LmdbValue value{page.substr(at + kNodeHeader, key_bytes), number * size + data, bytes};
    if ((flags & kBigData) != 0) LOCKSTEP_RETURN_IF_ERROR(Overflow(LoadAt<uint64_t>(page, data), &value));
    listing_.values.push_back(std::move(value));
    return Status::Ok();
  }

  // A long value has pages of its own, one after another behind one header.
  Status Overflow(uint64_t first, LmdbValue* value) const {
    const uint64_t size = meta_.page_bytes;
    if (first < 2 || first >= bytes_ / size) return Wrong(fmt::format("page {} lies behind the end", first));
    value->offset = first * size + kPageHeader;
    if (value->bytes > bytes_ - value->offset) return Wrong("a value reaches behind the end: the file is truncated");
    std::string header(kPageHeader, '\0');
    LOCKSTEP_RETURN_IF_ERROR(read_(first * size, header.size(), header.data()));
    const uint64_t pages = LoadAt<uint32_t>(header, 12);
    if (LoadAt<uint64_t>(header, 0) != first || LoadAt<uint16_t>(header, 10) != kOverflowPage ||
        pages * size < kPageHeader + value->bytes) {
      return Wrong(fmt::format("page {} is damaged", first));
    }
    return Status::Ok();
  }

  const ReadAt& read_;
  uint64_t bytes_;
  const std::string& name_;
  Meta meta_;
  uint64_t visited_ = 0, others_ = 0;
  LmdbListing listing_;
};

}  // namespace

Result<LmdbListing> ListLmdb(const ReadAt& read, uint64_t file_bytes, const std::string& name) {
  return Tree(read, file_bytes, name).List();
}

std::string LmdbFile(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) ? JoinPath(path, "data.mdb") : path;
}

Result<LmdbListing> ListLmdb(const std::string& path) {
  const std::string file = LmdbFile(path);
  Result<ListedFile> opened = OpenListed(file);
  if (!opened.ok()) return opened.status();
  return ListLmdb(opened->read, opened->bytes, file);
}

}  // namespace lockstep::data
