// The few things a checkpoint does to a disk, behind an interface, so that tests can fill the disk, tear a write or
// stop the machine at any operation. An implementation is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/files.h"
#include "base/status.h"

namespace lockstep::record {

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; errors are Close's to report
  virtual Status Write(uint64_t offset, const void* data, size_t bytes) = 0;
  virtual Status Sync() = 0;
  virtual Status Close() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;
  // A new file; an existing one is an error.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual Status MakeDir(const std::string& path) = 0;
  virtual Status SyncDir(const std::string& path) = 0;
  // Replaces a file or symbolic link at `to`, not a folder.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Symlink(const std::string& target, const std::string& path) = 0;
  // A file, a link or an empty folder. One that is not there is no error.
  virtual Status Remove(const std::string& path) = 0;
};

// The real disk. kProcess leaves out every sync: for tests and scratch runs.
std::unique_ptr<Storage> PosixStorage(Durability durability = Durability::kPower);

// Removes a folder and what is in it, file by file. One that is not there is no error.
Status RemoveTree(Storage& storage, const std::string& path);

}  // namespace lockstep::record
