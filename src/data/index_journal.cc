#include "data/index_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "data/parts.h"

namespace lockstep::data {
namespace {

// Before each record: lengths of key and value, and a checksum over all of it.
struct RecordHead {
  uint64_t key = 0, value = 0, sum = 0;
};

uint64_t RecordSum(const RecordHead& head, std::string_view both) {
  return XXH64(both.data(), both.size(), head.key * 31 + head.value);
}

std::string RecordOf(std::string_view key, std::string_view value) {
  std::string both = std::string(key) + std::string(value);
  RecordHead head{key.size(), value.size()};
  head.sum = RecordSum(head, both);
  std::string record(sizeof head, '\0');
  std::memcpy(record.data(), &head, sizeof head);
  return record + both;
}

}  // namespace

Result<std::unique_ptr<IndexJournal>> IndexJournal::Open(const std::string& path, const std::string& identity) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0644));
  if (!fd) return FileError("open", path, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(Code::kUsage, fmt::format("'{}' is in use: another `lockstep data index` makes this index", path),
                  "wait for it, or write to another file with --out");
  }
  const Result<ListedFile> file = OpenListed(path);
  if (!file.ok()) return file.status();
  std::string text(file->bytes, '\0');
  LOCKSTEP_RETURN_IF_ERROR(file->read(0, text.size(), text.data()));
  std::unique_ptr<IndexJournal> journal(new IndexJournal(path, std::move(fd)));
  size_t good = 0;
  journal->Read(text, identity, &good);
  if (::ftruncate(journal->fd_.get(), static_cast<off_t>(good)) != 0) return FileError("shorten", path, errno);
  if (good == 0) journal->Add("", identity);
  LOCKSTEP_RETURN_IF_ERROR(journal->status());
  return journal;
}

// The first record says what the others are about. `good`: bytes up to the first record that is not whole.
void IndexJournal::Read(std::string_view text, const std::string& identity, size_t* good) {
  while (text.size() - *good >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, text.data() + *good, sizeof head);
    const std::string_view rest = text.substr(*good + sizeof head);
    if (head.key > rest.size() || head.value > rest.size() - head.key) break;
    const std::string_view both = rest.substr(0, head.key + head.value);
    if (RecordSum(head, both) != head.sum) break;
    if (*good == 0 && (head.key != 0 || both != identity)) break;
    if (*good > 0) records_[std::string(both.substr(0, head.key))] = both.substr(head.key);
    *good += sizeof head + both.size();
  }
  known_ = records_.size();
  empty_ = records_.empty();
}

const std::string* IndexJournal::Find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(key);
  return it == records_.end() ? nullptr : &it->second;
}

// By one write: what a killed process leaves is whole records, and perhaps the start of one.
void IndexJournal::Add(const std::string& key, const std::string& value) {
  const std::string record = RecordOf(key, value);
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return;
  if (!key.empty()) empty_ = false;
  size_t done = 0;
  while (done < record.size()) {
    const ssize_t n = ::write(fd_.get(), record.data() + done, record.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      status_ = FileError("write", path_, errno);
      return;
    }
    done += static_cast<size_t>(n);
  }
}

Status IndexJournal::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void IndexJournal::Remove() { ::unlink(path_.c_str()); }

}  // namespace lockstep::data
