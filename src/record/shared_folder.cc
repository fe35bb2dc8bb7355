#include "record/shared_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <random>

#include "base/files.h"

namespace lockstep::record {
namespace {

std::string RandomToken() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

constexpr std::string_view kSees = "sees";

}  // namespace

Result<std::vector<int>> RanksThatSee(const std::string& folder, int rank,
                                      const std::function<Result<std::vector<std::string>>(std::string_view)>& gather) {
  std::string token, said;
  if (rank == 0) {
    token = RandomToken();
    Status written = MakeDirs(folder);
    if (written.ok()) {
      written = WriteFileAtomic(fmt::format("{}/{}{}", folder, kProbePrefix, token), token, 0644, Durability::kProcess);
    }
    said = written.ok() ? token : "error: " + written.message();
  }
  Result<std::vector<std::string>> told = gather(said);
  if (!told.ok()) return told.status();
  token = told->front();
  const std::string path = fmt::format("{}/{}{}", folder, kProbePrefix, token);
  if (token.starts_with("error: ")) {
    return Status(Code::kEnvironment, token.substr(7), "give the run directory room and write permission");
  }
  const Result<std::string> read = ReadFile(path, 4096);
  const bool sees = read.ok() && *read == token && ::access(folder.c_str(), W_OK) == 0;
  told = gather(sees ? kSees : "");
  if (rank == 0) (void)::unlink(path.c_str());
  if (!told.ok()) return told.status();
  std::vector<int> ranks = {0};
  for (size_t r = 1; r < told->size(); ++r) {
    if ((*told)[r] == kSees) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

}  // namespace lockstep::record
