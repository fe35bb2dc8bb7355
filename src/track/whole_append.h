// Appending to a tracker's file, all or nothing: what a full disk cut short is cut off again, so that no reader meets
// half of a record. One thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace lockstep::track {

// An error where nobody will find what is written, because the file was removed meanwhile.
Status StillThere(int fd, const std::string& path);

// Writes `buffer` behind the `*size` bytes that the file has, then empties it and advances *size. On an error both stay
// as they were, for the next try.
Status AppendWhole(int fd, const std::string& path, std::string* buffer, off_t* size);

}  // namespace lockstep::track
