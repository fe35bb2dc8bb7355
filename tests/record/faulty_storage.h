// A disk that fails on command: it fills up after some bytes, or the machine loses power at the k-th operation, which
// tears that operation, loses what was written to files and never synced, and refuses everything afterwards.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/fd.h"
#include "record/storage.h"

namespace lockstep::record {

class FaultyStorage : public Storage {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint64_t crash_at = kNever;  // number of the operation, from 0
  uint64_t space = kNever;     // bytes left
  bool forget_syncs = false;   // a disk that lies about syncs
  uint64_t operations = 0;
  bool crashed = false;

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    if (Dies()) return Dead();
    auto file = posix_->Create(path);
    if (!file.ok()) return file.status();
    unsynced_[path].reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    return std::unique_ptr<WritableFile>(std::make_unique<File>(*this, path, std::move(*file)));
  }
  Status MakeDir(const std::string& path) override { return Dies() ? Dead() : posix_->MakeDir(path); }
  Status SyncDir(const std::string& path) override { return Dies() ? Dead() : posix_->SyncDir(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return Dies() ? Dead() : posix_->Rename(from, to);
  }
  Status Symlink(const std::string& target, const std::string& path) override {
    return Dies() ? Dead() : posix_->Symlink(target, path);
  }
  Status Remove(const std::string& path) override { return Dies() ? Dead() : posix_->Remove(path); }

 private:
  class File : public WritableFile {
   public:
    File(FaultyStorage& disk, std::string path, std::unique_ptr<WritableFile> file)
        : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}
    Status Write(uint64_t offset, const void* data, size_t bytes) override {
      if (disk_.crashed) return Dead();
      if (disk_.operations == disk_.crash_at) (void)file_->Write(offset, data, bytes / 2);
      if (disk_.Dies()) return Dead();
      if (bytes > disk_.space) {
        (void)file_->Write(offset, data, static_cast<size_t>(disk_.space));
        disk_.space = 0;
        return FileError("write", path_, ENOSPC);
      }
      if (disk_.space != kNever) disk_.space -= bytes;
      return file_->Write(offset, data, bytes);
    }
    Status Sync() override {
      if (disk_.Dies()) return Dead();
      if (!disk_.forget_syncs) disk_.unsynced_.erase(path_);
      return file_->Sync();
    }
    Status Close() override { return disk_.Dies() ? Dead() : file_->Close(); }

   private:
    FaultyStorage& disk_;
    std::string path_;
    std::unique_ptr<WritableFile> file_;
  };

  static Status Dead() { return Status(Code::kEnvironment, "the machine is off"); }

  bool Dies() {
    if (!crashed && operations++ == crash_at) {
      crashed = true;
      for (auto& [path, fd] : unsynced_) {
        const off_t size = ::lseek(fd.get(), 0, SEEK_END);
        if (size > 0) (void)!::ftruncate(fd.get(), size / 3);
      }
    }
    return crashed;
  }

  std::unique_ptr<Storage> posix_ = PosixStorage(Durability::kProcess);
  std::map<std::string, UniqueFd> unsynced_;
};

}  // namespace lockstep::record
