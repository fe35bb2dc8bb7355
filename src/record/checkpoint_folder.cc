#include "record/checkpoint_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "record/checkpoint.h"
#include "record/reader.h"
#include "record/shared_folder.h"

namespace lockstep::record {
namespace {

enum class Kind { kOther, kPublished, kReplaced, kTemporary, kDeleting };

// "step-12", "step-12.tmp-...", "step-12.deleting", "step-12.replaced-...".
Kind KindOf(std::string_view name, uint64_t* step) {
  const size_t dot = name.find('.');
  const std::optional<uint64_t> found = CheckpointStep(name.substr(0, dot));
  if (!found) return Kind::kOther;
  *step = *found;
  if (dot == std::string_view::npos) return Kind::kPublished;
  const std::string_view suffix = name.substr(dot + 1);
  if (suffix.starts_with("tmp-")) return Kind::kTemporary;
  if (suffix.starts_with("replaced-")) return Kind::kReplaced;
  return suffix == "deleting" ? Kind::kDeleting : Kind::kOther;
}

bool IsFolder(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status VerifyAll(const std::string& path) {
  Result<CheckpointReader> reader = CheckpointReader::Open(path);
  return reader.ok() ? reader->Verify() : reader.status();
}

// Which of the good ones, newest first, stay.
std::vector<bool> Stay(const std::vector<Candidate>& good, const Keep& keep, std::optional<uint64_t> best_step) {
  std::vector<bool> stay(good.size(), false);
  const size_t last = static_cast<size_t>(std::max(keep.last, 1));
  for (size_t i = 0; i < good.size(); ++i) {
    stay[i] =
        i < last || (keep.every > 0 && good[i].step % keep.every == 0) || (keep.best && best_step == good[i].step);
  }
  return stay;
}

// The newest good checkpoint of a run directory or of a folder of checkpoints; empty: it has none.
Result<std::string> NewestOf(const std::string& path) {
  for (const std::string& folder : {path + "/checkpoints", path}) {
    std::vector<Candidate> rejected;
    Result<std::optional<std::string>> newest = NewestGood(folder, &rejected);
    if (newest.ok() && *newest) return **newest;
    for (const Candidate& candidate : rejected) {
      if (!candidate.temporary) return candidate.status;
    }
  }
  return std::string();
}

// Runs are seldom named like files of weights: then the missing file is the news.
bool IsFileName(std::string_view word) {
  static constexpr std::string_view kEnds[] = {".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".json"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return word.ends_with(end); });
}

Result<std::string> NewestRunWithCheckpoint(const std::string& root) {
  Result<std::vector<RunSummary>> runs = ListRuns(root);
  if (!runs.ok()) return runs.status();
  for (const RunSummary& run : *runs) {
    Result<std::string> found = NewestOf(run.path);
    if (!found.ok() || !found->empty()) return found;
  }
  return Status(Code::kUsage, fmt::format("no run under '{}' has a checkpoint", root),
                "give the path of a run directory or of a checkpoint");
}

}  // namespace

Result<std::string> FindCheckpoint(const std::string& word) {
  if (::access((word + "/manifest.json").c_str(), F_OK) == 0) return word;
  if (::access(word.c_str(), F_OK) == 0) return NewestOf(word);
  if (word == "latest") return NewestRunWithCheckpoint(RunsRoot());
  if (word.ends_with("/latest") && IsFolder(word.substr(0, word.rfind('/')))) {
    return NewestRunWithCheckpoint(word.substr(0, word.rfind('/')));
  }
  if (word.find('/') != std::string::npos || IsFileName(word)) return std::string();
  Result<std::string> run = FindRun(RunsRoot(), word);
  if (!run.ok()) {
    return Status(Code::kUsage, fmt::format("'{}' is neither a file nor a run: {}", word, run.status().message()),
                  "give a file, the path of a run directory, or a name of `lockstep runs`");
  }
  Result<std::string> found = NewestOf(*run);
  if (found.ok() && found->empty()) return Status(Code::kUsage, fmt::format("run '{}' has no checkpoint", *run));
  return found;
}

Result<std::vector<Candidate>> ScanCheckpoints(const std::string& folder) {
  std::vector<Candidate> candidates;
  if (::access(folder.c_str(), F_OK) != 0 && errno == ENOENT) return candidates;
  Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    Candidate candidate;
    candidate.path = folder + "/" + name;
    const Kind kind = KindOf(name, &candidate.step);
    if (kind == Kind::kOther || !IsFolder(candidate.path)) continue;
    if (kind == Kind::kPublished || kind == Kind::kReplaced) {
      Result<CheckpointReader> reader = CheckpointReader::Open(candidate.path);
      candidate.status = reader.status();
      if (kind == Kind::kReplaced && reader.ok() && reader->step() != candidate.step) {
        candidate.status = Status(Code::kEnvironment,
                                  fmt::format("checkpoint '{}' is that of step {}", candidate.path, reader->step()));
      }
    } else {
      candidate.temporary = true;
      candidate.status = Status(Code::kEnvironment,
                                fmt::format("checkpoint '{}' is incomplete: its {} did not finish", candidate.path,
                                            kind == Kind::kTemporary ? "writing" : "removal"),
                                "nothing to do: it is removed when the run continues");
    }
    candidates.push_back(std::move(candidate));
  }
  // "step-5" sorts before "step-5.replaced-x": what is published counts first.
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : a.path < b.path;
  });
  return candidates;
}

Result<std::optional<std::string>> NewestGood(const std::string& folder, std::vector<Candidate>* rejected,
                                              const std::function<Status(const std::string& path)>& verify) {
  Result<std::vector<Candidate>> candidates = ScanCheckpoints(folder);
  if (!candidates.ok()) return candidates.status();
  for (Candidate& candidate : *candidates) {
    if (candidate.status.ok()) candidate.status = verify ? verify(candidate.path) : VerifyAll(candidate.path);
    if (candidate.status.ok()) return std::optional<std::string>(candidate.path);
    if (rejected != nullptr) rejected->push_back(std::move(candidate));
  }
  return std::optional<std::string>();
}

Result<std::vector<uint64_t>> Prune(const std::string& folder, const Keep& keep, std::optional<uint64_t> best_step,
                                    Storage& storage, std::optional<uint64_t> vouched) {
  Result<std::vector<Candidate>> candidates = ScanCheckpoints(folder);
  if (!candidates.ok()) return candidates.status();
  std::vector<Candidate> good;
  for (Candidate& candidate : *candidates) {
    if (candidate.status.ok()) good.push_back(std::move(candidate));
  }
  // What has the best score may not have been saved, on a full disk: then the best one that is here stays.
  const auto is_best = [&](const Candidate& one) { return one.step == best_step; };
  if (best_step && std::none_of(good.begin(), good.end(), is_best)) {
    const std::optional<std::string> best = ReadPointer(folder, "best");
    if (best) best_step = CheckpointStep(best->substr(best->rfind('/') + 1));
  }
  const std::vector<bool> stay = Stay(good, keep, best_step);
  std::vector<uint64_t> removed;
  if (std::find(stay.begin(), stay.end(), false) == stay.end()) return removed;
  const Status newest = vouched == good[0].step ? Status::Ok() : VerifyAll(good[0].path);
  if (!newest.ok()) {
    return newest.Context("no old checkpoint is removed because the newest is damaged");
  }
  for (size_t i = good.size(); i-- > 0;) {  // oldest first
    if (stay[i]) continue;
    // Renamed first: a removal that is cut short leaves nothing that looks like a checkpoint.
    const std::string doomed = folder + "/" + CheckpointName(good[i].step) + ".deleting";
    LOCKSTEP_RETURN_IF_ERROR(RemoveTree(storage, doomed));
    LOCKSTEP_RETURN_IF_ERROR(storage.Rename(good[i].path, doomed));
    LOCKSTEP_RETURN_IF_ERROR(RemoveTree(storage, doomed));
    removed.push_back(good[i].step);
  }
  return removed;
}

Status Point(const std::string& folder, const std::string& link, uint64_t step, Storage& storage) {
  const std::string temporary = fmt::format("{}/{}.tmp-{}", folder, link, ::getpid());
  LOCKSTEP_RETURN_IF_ERROR(storage.Remove(temporary));
  LOCKSTEP_RETURN_IF_ERROR(storage.Symlink(CheckpointName(step), temporary));
  const Status status = storage.Rename(temporary, folder + "/" + link);
  if (!status.ok()) (void)storage.Remove(temporary);
  return status;
}

std::optional<std::string> ReadPointer(const std::string& folder, const std::string& link) {
  std::error_code error;
  std::string name = std::filesystem::read_symlink(folder + "/" + link, error).string();
  if (error) {  // a copy of the folder may have turned the link into a file
    Result<std::string> text = ReadFile(folder + "/" + link, 4096);
    if (!text.ok()) return std::nullopt;
    name = *text;
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ' || name.back() == '\r')) name.pop_back();
  }
  if (!CheckpointStep(name)) return std::nullopt;
  const std::string path = folder + "/" + name;
  return IsFolder(path) ? std::optional<std::string>(path) : std::nullopt;
}

Status RemoveLeftovers(const std::string& folder, Storage& storage) {
  if (!IsFolder(folder)) return Status::Ok();
  Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    uint64_t step = 0;
    const Kind kind = KindOf(name, &step);
    const std::string path = folder + "/" + name;
    if (kind == Kind::kReplaced) {
      // The writer died between moving the old one away and publishing the new: the old one is still the truth.
      const std::string target = folder + "/" + CheckpointName(step);
      LOCKSTEP_RETURN_IF_ERROR(IsFolder(target) ? RemoveTree(storage, path) : storage.Rename(path, target));
    } else if (kind == Kind::kTemporary || kind == Kind::kDeleting || name.starts_with("latest.tmp-") ||
               name.starts_with("best.tmp-") || name.starts_with(kProbePrefix)) {
      LOCKSTEP_RETURN_IF_ERROR(RemoveTree(storage, path));
    }
  }
  return Status::Ok();
}

}  // namespace lockstep::record
