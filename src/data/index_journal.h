// What an index that is being made has found out so far: records by key in a file beside it, each appended by one write
// with its checksum. After kill -9 the next one reads them and goes on there; a record that was cut is left out. One
// process at a time; any of its threads.
//
//   Result<std::unique_ptr<IndexJournal>> journal = IndexJournal::Open("photos.index.partial", "images /photos");
//   const std::string* known = (*journal)->Find("a.tar");
//   if (known == nullptr) (*journal)->Add("a.tar", List("a.tar"));
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep::data {

class IndexJournal {
 public:
  // `identity` says what the records are about: a journal of something else is begun anew. Errors: another process has
  // it, or the file cannot be written.
  static Result<std::unique_ptr<IndexJournal>> Open(const std::string& path, const std::string& identity);

  // Null: not known. Valid as long as the journal.
  const std::string* Find(const std::string& key) const;
  void Add(const std::string& key, const std::string& value);
  // Records that were there when it was opened.
  size_t known() const { return known_; }
  bool empty() const { return empty_; }
  // The first error of Add, such as a full disk; the index itself is not touched by it.
  Status status() const;
  // The index is there: the journal is not needed any more.
  void Remove();

 private:
  IndexJournal(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void Read(std::string_view text, const std::string& identity, size_t* good);

  std::string path_;
  UniqueFd fd_;
  size_t known_ = 0;
  bool empty_ = true;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> records_;
  Status status_;
};

}  // namespace lockstep::data
