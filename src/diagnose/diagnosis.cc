#include "diagnose/diagnosis.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <mutex>

#include "base/fd.h"
#include "base/files.h"
#include "diagnose/findings.h"
#include "diagnose/judge.h"
#include "diagnose/log_reader.h"
#include "diagnose/scanner.h"
#include "diagnose/signatures.h"
#include "diagnose/sources.h"

namespace lockstep::diagnose {
namespace {

int YearOf(time_t when) {
  tm utc{};
  return gmtime_r(&when, &utc) == nullptr ? 1970 : utc.tm_year + 1900;
}

// What a launcher knows better than the logs.
void AddKnownExits(const DiagnoseOptions& options, Findings* findings, std::vector<LogSource>* logs) {
  for (const KnownExit& known : options.exits) {
    RankEnd end;
    end.rank = known.rank;
    end.node = known.node;
    end.signal = known.signal;
    if (known.signal == 0) end.code = known.code;
    end.after_stop = known.after_stop;
    end.time = known.time;
    findings->AddEnd(std::move(end));
    if (known.evidence.empty()) continue;
    LogSource source;
    source.path = fmt::format("rank {} (kernel)", known.rank);
    source.rank = known.rank;
    source.node = known.node;
    source.text = known.evidence + "\n";
    logs->push_back(std::move(source));
  }
}

Status ReadSource(const LogSource& log, uint32_t index, Scanner* scanner,
                  const std::function<void(std::string_view)>& feed) {
  if (log.text) {
    scanner->Begin(index, YearOf(time(nullptr)), log.first_line);
    feed(*log.text);
    scanner->End();
    return Status::Ok();
  }
  UniqueFd file;
  time_t modified = time(nullptr);
  int fd = STDIN_FILENO;
  if (!log.standard_input) {
    // A named pipe that nobody writes must not stop us.
    file = UniqueFd(::open(log.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) return FileError("read", log.path, errno);
    struct stat info{};
    if (fstat(file.get(), &info) == 0) modified = info.st_mtime;
    fd = file.get();
  }
  scanner->Begin(index, YearOf(modified), log.first_line);
  const Status status = ReadLog(fd, log.path, feed);
  scanner->End();
  return status;
}

// Below this, reading line by line is over before the one-pass search is compiled (half a second).
constexpr uint64_t kLittle = 16u << 20;

struct Amount {
  uint64_t bytes = 0;
  bool known = true;  // a stream has no end yet
};

Amount AmountOf(const std::vector<LogSource>& logs) {
  Amount amount;
  for (const LogSource& log : logs) {
    struct stat info{};
    if (log.text) {
      amount.bytes += log.text->size();
    } else if (!log.standard_input && stat(log.path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      amount.bytes += static_cast<uint64_t>(info.st_size);
    } else {
      amount.known = false;
    }
  }
  return amount;
}

// Signatures and their compiled form, which serves one search at a time.
struct Table {
  std::mutex use;
  std::vector<Signature> rows;
  std::unique_ptr<Matcher> matcher;

  Status Load(const std::string& further, Matcher::Engine engine) {
    if (matcher != nullptr) return {};
    Result<std::vector<Signature>> loaded = LoadSignatures(further);
    if (!loaded.ok()) return loaded.status();
    rows = *std::move(loaded);
    Result<std::unique_ptr<Matcher>> compiled = CompilePatterns(rows, engine);
    if (!compiled.ok()) return compiled.status();
    matcher = *std::move(compiled);
    return {};
  }
};

// Reads everything there is to read, then judges.
Result<Diagnosis> Examine(SourceSet sources, const DiagnoseOptions& options) {
  const Amount amount = AmountOf(sources.logs);
  const bool little = amount.known && amount.bytes < kLittle;
  // The built-in table is compiled once in a process, for each engine; a table of the user's own each time.
  static Table for_little, for_much;
  Table own;
  Table& table = !options.signatures.empty() ? own : little ? for_little : for_much;
  const std::lock_guard lock(table.use);
  LOCKSTEP_RETURN_IF_ERROR(
      table.Load(options.signatures, little ? Matcher::Engine::kLineByLine : Matcher::Engine::kBest));

  Findings findings;
  findings.outcome = sources.outcome;
  findings.world = sources.world;
  findings.notes = std::move(sources.notes);
  // The launcher's own knowledge replaces what its events say.
  if (options.exits.empty()) {
    for (RankEnd& end : sources.ends) findings.AddEnd(std::move(end));
  }
  AddKnownExits(options, &findings, &sources.logs);

  const uint64_t total = amount.known ? amount.bytes : 0;
  uint64_t done = 0;
  Scanner scanner(*table.matcher, table.rows, &findings);
  size_t read = 0;
  Status first_error;
  for (const LogSource& log : sources.logs) {
    const uint32_t index = static_cast<uint32_t>(findings.sources.size());
    findings.sources.push_back(
        {.path = log.path, .rank = log.rank, .node = log.node, .clock_offset = log.clock_offset});
    auto feed = [&](std::string_view chunk) {
      scanner.Feed(chunk);
      findings.sources[index].bytes += chunk.size();
      done += chunk.size();
      if (options.progress) options.progress(done, total);
    };
    const Status status = ReadSource(log, index, &scanner, feed);
    if (status.ok()) {
      ++read;
      continue;
    }
    if (first_error.ok()) first_error = status;
    findings.notes.push_back(status.hint().empty() ? status.message()
                                                   : fmt::format("{} ({})", status.message(), status.hint()));
  }
  if (read == 0 && !first_error.ok()) return first_error;
  std::vector<std::string> notes = std::move(findings.notes);
  Diagnosis diagnosis = Judge(std::move(findings));
  diagnosis.notes = std::move(notes);
  return diagnosis;
}

}  // namespace

Result<Diagnosis> Diagnose(const std::vector<std::string>& paths, const DiagnoseOptions& options) {
  Result<SourceSet> sources = FindSources(paths, options);
  if (!sources.ok()) return sources.status();
  return Examine(*std::move(sources), options);
}

Result<Diagnosis> DiagnoseText(const std::vector<LogText>& logs, const DiagnoseOptions& options) {
  SourceSet sources;
  for (const LogText& log : logs) {
    LogSource source;
    source.path = log.name;
    source.rank = log.rank;
    source.node = log.node;
    source.text = log.text;
    source.first_line = log.first_line;
    if (auto offset = options.clock_offsets.find(log.node); offset != options.clock_offsets.end()) {
      source.clock_offset = offset->second;
    }
    sources.logs.push_back(std::move(source));
  }
  return Examine(std::move(sources), options);
}

}  // namespace lockstep::diagnose
