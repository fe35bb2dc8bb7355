#include "data/lmdb_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/text.h"

namespace lockstep::data {
namespace {

constexpr size_t kLmdbPage = 4096, kLmdbPageHeader = 16, kLmdbNode = 8, kMostKey = 511;
constexpr uint16_t kLmdbBranch = 0x01, kLmdbLeaf = 0x02, kLmdbOverflow = 0x04, kLmdbMeta = 0x08, kLmdbBig = 0x01;
constexpr uint16_t kIntegerKeys = 0x08;  // of the database of free pages
constexpr uint64_t kNoRoot = ~0ull;

template <typename T>
void StoreAt(std::string* page, size_t at, T value) {
  std::memcpy(page->data() + at, &value, sizeof value);
}

std::string EmptyPage(uint64_t number, uint16_t flags) {
  std::string page(kLmdbPage, '\0');
  StoreAt(&page, 0, number);
  StoreAt(&page, 10, flags);
  StoreAt(&page, 12, static_cast<uint16_t>(kLmdbPageHeader));
  StoreAt(&page, 14, static_cast<uint16_t>(kLmdbPage));
  return page;
}

// Nodes from the end of the page downwards, their places from its header upwards.
class PageBuilder {
 public:
  PageBuilder(uint64_t number, uint16_t flags) : page_(EmptyPage(number, flags)) {}

  // False: it does not fit. Of a branch `value` is a page's number, of a leaf a size.
  bool Add(std::string_view key, uint64_t value, uint16_t flags, std::string_view data) {
    const size_t size = (kLmdbNode + key.size() + data.size() + 1) & ~size_t{1};
    if (lower_ + 2 + size > upper_) return false;
    upper_ -= size;
    StoreAt(&page_, lower_, static_cast<uint16_t>(upper_));
    StoreAt(&page_, upper_, static_cast<uint16_t>(value & 0xffff));
    StoreAt(&page_, upper_ + 2, static_cast<uint16_t>(value >> 16 & 0xffff));
    StoreAt(&page_, upper_ + 4, flags);
    StoreAt(&page_, upper_ + 6, static_cast<uint16_t>(key.size()));
    std::memcpy(page_.data() + upper_ + kLmdbNode, key.data(), key.size());
    if (!data.empty()) std::memcpy(page_.data() + upper_ + kLmdbNode + key.size(), data.data(), data.size());
    lower_ += 2;
    StoreAt(&page_, 12, static_cast<uint16_t>(lower_));
    StoreAt(&page_, 14, static_cast<uint16_t>(upper_));
    return true;
  }
  const std::string& page() const { return page_; }

 private:
  std::string page_;
  size_t lower_ = kLmdbPageHeader, upper_ = kLmdbPage;
};

struct TreeFacts {
  uint64_t branches = 0, leaves = 0, overflow = 0, entries = 0, root = kNoRoot, last_page = 1, transaction = 0;
  uint16_t depth = 0;
};

std::string MetaPage(uint64_t number, const TreeFacts& tree, uint64_t map_bytes) {
  std::string page = EmptyPage(number, kLmdbMeta);
  StoreAt(&page, 12, uint32_t{0});
  const size_t at = kLmdbPageHeader, free_db = at + 24, main_db = free_db + 48;
  StoreAt(&page, at, uint32_t{0xBEEFC0DE});
  StoreAt(&page, at + 4, uint32_t{1});
  StoreAt(&page, at + 16, map_bytes);
  StoreAt(&page, free_db, static_cast<uint32_t>(kLmdbPage));
  StoreAt(&page, free_db + 4, kIntegerKeys);
  StoreAt(&page, free_db + 40, kNoRoot);
  StoreAt(&page, main_db + 6, tree.depth);
  StoreAt(&page, main_db + 8, tree.branches);
  StoreAt(&page, main_db + 16, tree.leaves);
  StoreAt(&page, main_db + 24, tree.overflow);
  StoreAt(&page, main_db + 32, tree.entries);
  StoreAt(&page, main_db + 40, tree.root);
  StoreAt(&page, main_db + 48, tree.last_page);
  StoreAt(&page, main_db + 56, tree.transaction);
  return page;
}

bool IsOurLmdb(const std::string& path) {
  const Result<std::vector<std::string>> names = ListDir(path);
  return names.ok() && std::ranges::all_of(*names, [](const std::string& name) {
           return name == "data.mdb" || name == "lock.mdb" || name == "meta_info.txt";
         });
}

}  // namespace

Result<LmdbWriter> LmdbWriter::Create(const std::string& path, bool overwrite) {
  if (!path.ends_with(".lmdb")) {
    return Status(Code::kUsage, fmt::format("'{}': the name of an LMDB ends in .lmdb, KAIR asks for it", path));
  }
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!overwrite)
      return Status(Code::kUsage, fmt::format("'{}' is there already", path), "use --overwrite, or another name");
    if (!IsOurLmdb(path)) return Status(Code::kUsage, fmt::format("'{}' is not an LMDB: it is not replaced", path));
  }
  LmdbWriter writer;
  writer.path_ = path;
  writer.overwrite_ = overwrite;
  writer.temporary_ = path + ".part";  // one name, so that what a killed process left is used again
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(writer.temporary_));
  const std::string file = writer.temporary_ + "/data.mdb";
  writer.file_ = UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!writer.file_) return FileError("create", file, errno);
  // A file system without locks has none to respect.
  if (::flock(writer.file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    writer.file_.reset();  // not ours to remove
    return Status(Code::kUsage, fmt::format("another process writes '{}'", path), "wait until it is done, or stop it");
  }
  if (::ftruncate(writer.file_.get(), 0) != 0) return FileError("truncate", file, errno);
  LOCKSTEP_RETURN_IF_ERROR(writer.Append(std::string(2 * kLmdbPage, '\0')));
  return writer;
}

LmdbWriter::~LmdbWriter() {
  if (file_) (void)RemoveAll(temporary_);  // not finished
}

Status LmdbWriter::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("write", temporary_ + "/data.mdb", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return Status::Ok();
}

Status LmdbWriter::Put(std::string_view key, std::string_view value, const std::string& line) {
  if (key.empty() || key.size() > kMostKey || value.size() > 0xffffffffull) {
    return Status(Code::kUsage, fmt::format("'{}': a key of an LMDB has 1 to {} bytes, a value at most 4 GiB",
                                            Printable(key), kMostKey));
  }
  const uint64_t count = (kLmdbPageHeader - 1 + value.size()) / kLmdbPage + 1;
  std::string bytes(count * kLmdbPage, '\0');
  StoreAt(&bytes, 0, pages_);
  StoreAt(&bytes, 10, kLmdbOverflow);
  StoreAt(&bytes, 12, static_cast<uint32_t>(count));
  std::memcpy(bytes.data() + kLmdbPageHeader, value.data(), value.size());
  LOCKSTEP_RETURN_IF_ERROR(Append(bytes));
  entries_.push_back({std::string(key), value.size(), pages_});
  pages_ += count;
  overflow_pages_ += count;
  meta_info_ += line + "\n";
  return Status::Ok();
}

// Leaves in the order of the keys, then one level of branches above another until one page is left.
Status LmdbWriter::WriteTree() {
  std::ranges::sort(entries_, {}, &Entry::key);
  const auto twice = std::ranges::adjacent_find(entries_, {}, &Entry::key);
  if (twice != entries_.end())
    return Status(Code::kUsage, fmt::format("key '{}' was given twice", Printable(twice->key)));
  struct Child {
    std::string key;
    uint64_t page = 0;
  };
  TreeFacts tree{.overflow = overflow_pages_, .entries = entries_.size(), .transaction = 1};
  std::vector<Child> level;
  std::string out;
  for (size_t i = 0; i < entries_.size();) {
    PageBuilder leaf(pages_, kLmdbLeaf);
    level.push_back({entries_[i].key, pages_++});
    ++tree.leaves;
    for (; i < entries_.size(); ++i) {
      std::string page(sizeof(uint64_t), '\0');
      StoreAt(&page, 0, entries_[i].page);
      if (!leaf.Add(entries_[i].key, entries_[i].bytes, kLmdbBig, page)) break;
    }
    out += leaf.page();
  }
  tree.depth = entries_.empty() ? 0 : 1;
  while (level.size() > 1) {
    std::vector<Child> above;
    for (size_t i = 0; i < level.size();) {
      PageBuilder branch(pages_, kLmdbBranch);
      above.push_back({level[i].key, pages_++});
      ++tree.branches;
      for (size_t first = i; i < level.size(); ++i) {
        // The first key of a branch is not compared with, and is empty.
        const uint64_t page = level[i].page;
        if (!branch.Add(i == first ? "" : level[i].key, page & 0xffffffff, static_cast<uint16_t>(page >> 32), {}))
          break;
      }
      out += branch.page();
    }
    level = std::move(above);
    ++tree.depth;
  }
  LOCKSTEP_RETURN_IF_ERROR(Append(out));
  if (!level.empty()) tree.root = level[0].page;
  tree.last_page = pages_ - 1;
  const uint64_t map_bytes = std::max<uint64_t>(pages_ * kLmdbPage, 1 << 20);
  const std::string metas = MetaPage(0, TreeFacts{}, map_bytes) + MetaPage(1, tree, map_bytes);
  if (::pwrite(file_.get(), metas.data(), metas.size(), 0) != static_cast<ssize_t>(metas.size())) {
    return FileError("write", temporary_ + "/data.mdb", errno);
  }
  return Status::Ok();
}

Status LmdbWriter::Finish() {
  LOCKSTEP_RETURN_IF_ERROR(WriteTree());
  if (::fsync(file_.get()) != 0) return FileError("write", temporary_ + "/data.mdb", errno);
  LOCKSTEP_RETURN_IF_ERROR(WriteFileAtomic(temporary_ + "/meta_info.txt", meta_info_));
  if (overwrite_) LOCKSTEP_RETURN_IF_ERROR(RemoveAll(path_));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return FileError("rename to", path_, errno);
  file_.reset();
  return Status::Ok();
}

}  // namespace lockstep::data
