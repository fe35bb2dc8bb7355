// Output that appears whole or not at all: it is made under a temporary name beside its place and moved there at the
// end. Destroyed before that (an error, a signal that was answered), it leaves nothing. One thread.
//
//   Result<Publication> out = Publication::File("a.mp4", /*overwrite=*/false);
//   WriteTo(out->temporary());
//   LOCKSTEP_RETURN_IF_ERROR(out->Publish());
#pragma once

#include <string>

#include "base/status.h"

namespace lockstep::data {

class Publication {
 public:
  // An existing `path` is an error unless overwrite. A folder is replaced only if it holds nothing but numbered
  // pictures such as we write: a mistaken path must not cost anybody a folder.
  static Result<Publication> File(const std::string& path, bool overwrite);
  static Result<Publication> Folder(const std::string& path, bool overwrite);
  Publication(Publication&& other) noexcept;
  Publication& operator=(Publication&&) = delete;
  ~Publication();

  const std::string& path() const { return path_; }
  const std::string& temporary() const { return temporary_; }
  // Syncs and renames. What appeared under the name meanwhile is not replaced without overwrite.
  Status Publish();

 private:
  Publication(std::string path, bool folder, bool overwrite);
  static Result<Publication> Make(const std::string& given, bool folder, bool overwrite);
  Status CheckPlace() const;

  std::string path_, temporary_;
  bool folder_ = false;
  bool overwrite_ = false;
};

}  // namespace lockstep::data
