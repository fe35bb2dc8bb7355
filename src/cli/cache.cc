// `lockstep cache <what>`: looks at a feature cache and keeps it in order (docs/feature-cache.md). What needs no
// encoder is answered here; `build` starts ranks of the train program.
#include <fmt/format.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/columns.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/units.h"
#include "cache/block_reader.h"
#include "cache/reader.h"
#include "cache/upkeep.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace lockstep::cli {
namespace {

using cache::Folder;
using cache::Summary;

// A root or one namespace of it.
Result<std::vector<Folder>> FoldersAt(const std::string& path) {
  std::vector<Folder> folders;
  if (::access((path + "/namespace.json").c_str(), F_OK) == 0) {
    Result<Folder> one = Folder::Open(path);
    if (!one.ok()) return one.status();
    folders.push_back(std::move(*one));
    return folders;
  }
  const Result<std::vector<std::string>> ids = cache::Namespaces(path);
  if (!ids.ok()) return ids.status();
  for (const std::string& id : *ids) {
    Result<Folder> folder = Folder::Open(path + "/" + id);
    if (!folder.ok()) return folder.status();
    folders.push_back(std::move(*folder));
  }
  return folders;
}

// For commands that say something about what is there: about nothing they would say that all is well.
Result<std::vector<Folder>> SomeFoldersAt(const std::string& path) {
  Result<std::vector<Folder>> folders = FoldersAt(path);
  if (!folders.ok() || !folders->empty()) return folders;
  return Status(Code::kUsage, fmt::format("no namespace of a feature cache in '{}'", path),
                "name the root of a cache, or one of its namespaces");
}

nlohmann::json ToJson(const Summary& s) {
  nlohmann::json plans = nlohmann::json::array();
  for (const cache::PlanCoverage& p : s.plans) {
    plans.push_back({{"plan", p.plan.Id()},
                     {"source", p.plan.source},
                     {"samples", p.plan.samples},
                     {"covered", p.samples()},
                     {"units", p.plan.units()},
                     {"published", p.published}});
  }
  return {{"namespace", s.id},        {"description", nlohmann::json::parse(s.description.Line())},
          {"units", s.units},         {"records", s.records},
          {"bytes", s.bytes},         {"leases", s.leases},
          {"leftovers", s.leftovers}, {"quarantined", s.quarantined},
          {"error", s.error},         {"plans", plans},
          {"damaged", s.damaged}};
}

double ShareInPercent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 100 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string FieldsText(const cache::Description& description) {
  std::vector<std::string> parts;
  for (const cache::FieldSpec& field : description.fields) {
    const std::string stored =
        field.stored == cache::Storage::kSame ? "" : fmt::format(" as {}", cache::Name(field.stored));
    parts.push_back(fmt::format("{} {}{}", field.name, DescribeTensor(field.dtype, field.shape), stored));
  }
  return Join(parts, ", ");
}

void PrintSummary(const Summary& s, bool plans) {
  fmt::print("{}  {} in {}, {}\n", s.id, Count(static_cast<int64_t>(s.records), "record"),
             Count(static_cast<int64_t>(s.units), "unit"), FormatSize(s.bytes));
  fmt::print("  encoder   {} {}\n", s.description.encoder.dump(), s.description.weights.substr(0, 19));
  fmt::print("  input     {}, context {}\n", s.description.preprocessing.dump(), cache::Name(s.description.context));
  fmt::print("  fields    {}\n", Printable(FieldsText(s.description), 400));
  for (const auto& [field, error] : s.error) fmt::print("  error     {} {:.2g} (relative, worst unit)\n", field, error);
  for (const cache::PlanCoverage& p : plans ? s.plans : std::vector<cache::PlanCoverage>()) {
    fmt::print("  plan      {}  {} of {} samples ({:.1f} %)  {}\n", p.plan.Id(), p.samples(), p.plan.samples,
               ShareInPercent(p.samples(), p.plan.samples), Printable(p.plan.source));
  }
  if (s.leases + s.leftovers + s.quarantined > 0) {
    fmt::print("  also      {}, {}, {}\n", Count(static_cast<int64_t>(s.leases), "lease"),
               Count(static_cast<int64_t>(s.leftovers), "temporary file"),
               Count(static_cast<int64_t>(s.quarantined), "damaged unit") + " in quarantine");
  }
  for (const std::string& damaged : s.damaged) fmt::print("  damaged   {}\n", Printable(damaged, 400));
}

struct CacheAsked {
  std::string path, out, plan, max_size, older = "1h";
  std::vector<std::string> remove;
  bool json = false, dry_run = false;
  int threads = 2;
};

int CacheList(const CacheAsked& asked) {
  const Result<std::vector<Folder>> folders = FoldersAt(asked.path);
  if (!folders.ok()) return Complain("cache ls", folders.status());
  nlohmann::json all = nlohmann::json::array();
  for (const Folder& folder : *folders) {
    const Result<Summary> summary = cache::Summarise(folder);
    if (!summary.ok()) return Complain("cache ls", summary.status());
    if (asked.json) {
      all.push_back(ToJson(*summary));
    } else {
      PrintSummary(*summary, /*plans=*/true);
    }
  }
  if (asked.json) fmt::print("{}\n", nlohmann::json({{"root", asked.path}, {"namespaces", all}}).dump(2));
  if (!asked.json && folders->empty()) fmt::print(stderr, "no namespaces under '{}'\n", asked.path);
  return kExitOk;
}

int CacheDiskUse(const CacheAsked& asked) {
  const Result<std::vector<Folder>> folders = FoldersAt(asked.path);
  if (!folders.ok()) return Complain("cache du", folders.status());
  uint64_t total = 0;
  nlohmann::json all = nlohmann::json::array();
  for (const Folder& folder : *folders) {
    const Result<Summary> summary = cache::Summarise(folder);
    if (!summary.ok()) return Complain("cache du", summary.status());
    total += summary->bytes;
    all.push_back({{"namespace", summary->id}, {"bytes", summary->bytes}, {"records", summary->records}});
    if (!asked.json) fmt::print("{:>12}  {}\n", FormatSize(summary->bytes), summary->id);
  }
  if (asked.json) {
    fmt::print("{}\n", nlohmann::json({{"root", asked.path}, {"bytes", total}, {"namespaces", all}}).dump(2));
  } else {
    fmt::print("{:>12}  total\n", FormatSize(total));
  }
  return kExitOk;
}

int CacheCoverage(const CacheAsked& asked) {
  const Result<std::vector<Folder>> folders = SomeFoldersAt(asked.path);
  if (!folders.ok()) return Complain("cache coverage", folders.status());
  nlohmann::json all = nlohmann::json::array();
  for (const Folder& folder : *folders) {
    const Result<Summary> summary = cache::Summarise(folder);
    if (!summary.ok()) return Complain("cache coverage", summary.status());
    for (const cache::PlanCoverage& p : summary->plans) {
      if (!asked.plan.empty() && !p.plan.Id().starts_with(asked.plan)) continue;
      all.push_back({{"namespace", folder.id()},
                     {"plan", p.plan.Id()},
                     {"source", p.plan.source},
                     {"samples", p.plan.samples},
                     {"covered", p.samples()},
                     {"units", p.plan.units()},
                     {"published", p.published}});
      if (asked.json) continue;
      fmt::print("{}  {}  {} of {} samples ({:.1f} %), {} of {} units  {}\n", folder.id(), p.plan.Id(), p.samples(),
                 p.plan.samples, ShareInPercent(p.samples(), p.plan.samples), p.published, p.plan.units(),
                 Printable(p.plan.source));
    }
  }
  if (asked.json) fmt::print("{}\n", nlohmann::json({{"root", asked.path}, {"plans", all}}).dump(2));
  return kExitOk;
}

// `verify` and `repair`. Exit code 1: damage was found (and, by repair, taken out).
int VerifyOrRepair(const CacheAsked& asked, bool repair) {
  const std::string command = repair ? "cache repair" : "cache verify";
  const Result<std::vector<Folder>> folders = SomeFoldersAt(asked.path);
  if (!folders.ok()) return Complain(command, folders.status());
  nlohmann::json all = nlohmann::json::array();
  uint64_t damaged = 0;
  for (const Folder& folder : *folders) {
    const Result<cache::Verified> verified = [&] {
      Progress progress(folder.id(), "unit");
      return cache::VerifyAll(folder, asked.threads,
                              [&](uint64_t done, uint64_t units) { progress.Show(done, units); });
    }();
    if (!verified.ok()) return Complain(command, verified.status());
    std::vector<std::string> units;
    for (const auto& [unit, why] : verified->damaged) {
      units.push_back(unit);
      if (!asked.json) fmt::print("damaged: {}\n", Printable(why, 400));
    }
    damaged += units.size();
    if (repair && !asked.dry_run) {
      const Status moved = cache::Quarantine(folder, units);
      if (!moved.ok()) return Complain(command, moved);
    }
    all.push_back({{"namespace", folder.id()},
                   {"units", verified->units},
                   {"records", verified->records},
                   {"bytes", verified->bytes},
                   {"damaged", verified->damaged}});
    if (!asked.json) {
      fmt::print(
          "{}: {}, {}, {}: {} damaged{}\n", folder.id(), Count(static_cast<int64_t>(verified->units), "unit"),
          Count(static_cast<int64_t>(verified->records), "record"), FormatSize(verified->bytes), units.size(),
          repair && !units.empty() && !asked.dry_run ? ", moved to quarantine; build again to replace them" : "");
    }
  }
  if (asked.json) fmt::print("{}\n", nlohmann::json({{"root", asked.path}, {"namespaces", all}}).dump(2));
  return damaged == 0 ? kExitOk : 1;
}

int CacheGarbage(const CacheAsked& asked) {
  cache::GarbageOptions options{.remove = asked.remove, .dry_run = asked.dry_run};
  const auto older = ParseDuration(asked.older);
  if (!older.ok()) return Complain("cache gc", older.status().Context("--older"));
  options.old_seconds = static_cast<double>(older->count()) / 1000;
  if (!asked.max_size.empty()) {
    const Result<uint64_t> bytes = ParseSize(asked.max_size);
    if (!bytes.ok()) return Complain("cache gc", bytes.status().Context("--max-size"));
    options.max_bytes = *bytes;
  }
  const Result<std::vector<cache::Removed>> removed = cache::CollectGarbage(asked.path, options);
  if (!removed.ok()) return Complain("cache gc", removed.status());
  uint64_t total = 0;
  nlohmann::json all = nlohmann::json::array();
  for (const cache::Removed& one : *removed) {
    total += one.bytes;
    all.push_back({{"path", one.path}, {"bytes", one.bytes}, {"why", one.why}});
    if (!asked.json) fmt::print("{:>12}  {}  ({})\n", FormatSize(one.bytes), one.path, one.why);
  }
  if (asked.json) {
    fmt::print("{}\n", nlohmann::json({{"bytes", total}, {"removed", all}, {"dry_run", asked.dry_run}}).dump(2));
  } else {
    fmt::print("{} {}\n", FormatSize(total), asked.dry_run ? "would be freed" : "freed");
  }
  return kExitOk;
}

int CacheExport(const CacheAsked& asked) {
  const Result<Folder> folder = Folder::Open(asked.path);
  if (!folder.ok()) return Complain("cache export", folder.status());
  std::optional<Progress> progress(std::in_place, "exporting", "unit");
  const Result<uint64_t> records = cache::Export(*folder, asked.plan, asked.out,
                                                 [&](uint64_t done, uint64_t units) { progress->Show(done, units); });
  progress.reset();
  if (!records.ok()) return Complain("cache export", records.status());
  fmt::print("{} to {}\n", Count(static_cast<int64_t>(*records), "record"), asked.out);
  return kExitOk;
}

struct KnownFileSystem {
  int64_t magic;
  const char* name;
  const char* advice;
};
constexpr KnownFileSystem kFileSystems[] = {
    {0x0bd00bd0, "Lustre", "1 to 4 stripes of at least 4 MiB for units: lfs setstripe -c 2 -S 4M ROOT"},
    {0x47504653, "GPFS", "units larger than its block size (64 MiB are) read at full speed"},
    {0x6969, "NFS", "other nodes see a new unit seconds later; nothing depends on it"},
    {0x65735546, "FUSE", "check that it keeps rename atomic"},
    {0xef53, "ext4", ""},
    {0x58465342, "XFS", ""},
    {0x01021994, "tmpfs", "it is memory: gone with the machine"},
};

// What this place can do, tried out.
int CacheDoctor(const CacheAsked& asked) {
  struct statfs info{};
  if (::statfs(asked.path.c_str(), &info) != 0) return Complain("cache doctor", FileError("read", asked.path, errno));
  const auto known = std::find_if(std::begin(kFileSystems), std::end(kFileSystems), [&](const KnownFileSystem& f) {
    return f.magic == static_cast<int64_t>(info.f_type);
  });
  nlohmann::json found = {{"root", asked.path}};
  found["file_system"] = known == std::end(kFileSystems) ? fmt::format("{:#x}", info.f_type) : known->name;
  found["free_bytes"] = static_cast<uint64_t>(info.f_bavail) * static_cast<uint64_t>(info.f_bsize);
  const auto ring = cache::MakeUringReader(8);
  found["io_uring"] = ring.ok() ? "yes" : ring.status().message();
  const std::string probe = fmt::format("{}/.doctor-{}", asked.path, ::getpid());
  const Status written = WriteFileAtomic(probe, std::string(8192, 'x'));
  found["writable"] = written.ok() ? "yes" : written.message();
  found["direct"] = "unknown";
  found["publish"] = "unknown";
  if (written.ok()) {
    const std::string taken = probe + "-2";
    static_cast<void>(WriteFileAtomic(taken, "x"));
    const Result<bool> published = cache::PublishNew(probe, taken);
    found["publish"] = published.ok() && !*published ? "replaces nothing" : "may replace an equal unit";
    found["direct"] = cache::CanReadDirect(taken) ? "yes" : "no: reads go through the page cache";
    ::unlink(taken.c_str());
    ::unlink(probe.c_str());
  }
  nlohmann::json advice = nlohmann::json::array();
  if (known != std::end(kFileSystems) && known->advice[0] != '\0') advice.push_back(known->advice);
  if (!ring.ok()) advice.push_back("reads use threads instead of io_uring: a container's seccomp profile may allow it");
  if (!written.ok()) advice.push_back("a read-only cache can be used by trainings, not built");
  const Result<std::vector<Folder>> folders = FoldersAt(asked.path);
  if (!folders.ok()) advice.push_back(folders.status().message());
  for (const Folder& folder : folders.ok() ? *folders : std::vector<Folder>()) {
    const Result<Summary> summary = cache::Summarise(folder, /*every_unit=*/true);
    if (summary.ok() && !summary->damaged.empty()) advice.push_back(folder.id() + " has damaged units: cache repair");
    if (summary.ok() && summary->leftovers > 0) advice.push_back(folder.id() + " has files of killed builds: cache gc");
  }
  found["advice"] = advice;
  if (asked.json) {
    fmt::print("{}\n", found.dump(2));
    return kExitOk;
  }
  for (const auto& [name, value] : found.items()) {
    if (name == "advice") continue;
    const std::string text = name == "free_bytes" ? FormatSize(value.get<uint64_t>()) : value.get<std::string>();
    fmt::print("{:<12} {}\n", name, text);
  }
  for (const auto& line : advice) fmt::print("do: {}\n", line.get<std::string>());
  return kExitOk;
}

struct CacheRow {
  const char* name;
  const char* help;
  int (*main)(const CacheAsked& asked);
  bool takes_namespace;  // one, not a root
};
constexpr CacheRow kCacheRows[] = {
    {"ls", "namespaces of a root: encoder, fields, records, plans", CacheList, false},
    {"du", "bytes of each namespace", CacheDiskUse, false},
    {"coverage", "how many samples of each plan are there", CacheCoverage, false},
    {"verify", "reads everything and compares every checksum; exit code 1: damage",
     [](const CacheAsked& a) { return VerifyOrRepair(a, false); }, false},
    {"repair", "verify, and damaged units go to quarantine; build makes them again",
     [](const CacheAsked& a) { return VerifyOrRepair(a, true); }, false},
    {"gc", "removes leftovers of killed builds, quarantine, and what is beyond a size", CacheGarbage, false},
    {"export", "records as plain safetensors files in the encoder's own types", CacheExport, true},
    {"doctor", "what the file system of a root can do: O_DIRECT, io_uring, publishing", CacheDoctor, false},
};

constexpr char kCacheExamples[] =
    "\nexamples:\n"
    "  lockstep cache build taehv --config cached.yaml --nproc-per-node 2\n"
    "  lockstep cache ls cache\n"
    "  lockstep cache verify cache --json\n"
    "  lockstep cache gc cache --max-size 500GB --dry-run\n"
    "\nEach command has a --help of its own.\n";

std::string CacheHelp() {
  std::string text =
      "usage: lockstep cache WHAT [options]\n\nFeatures of frozen encoders, computed once "
      "(docs/feature-cache.md).\n\ncommands:\n";
  text += fmt::format("  {:<10}{}\n", "build",
                      "encodes data with a frozen encoder, a recipe's or a file, on any number of ranks");
  for (const CacheRow& row : kCacheRows) text += fmt::format("  {:<10}{}\n", row.name, row.help);
  return text + kCacheExamples;
}

int RunCacheRow(const CacheRow& row, int argc, char** argv) {
  CacheAsked asked;
  const std::string name = row.name;
  Arguments args(fmt::format("Feature cache: {}.", row.help), "cache " + name);
  args.Option("ROOT", &asked.path,
              row.takes_namespace ? "a namespace, ROOT/<32 hex digits>" : "root of a cache, or one of its namespaces")
      .Required();
  std::string example = fmt::format("lockstep cache {} cache", name);
  if (name == "export") {
    args.Option("OUT", &asked.out, "folder for the files").Required();
    args.Option("--plan", &asked.plan, "only records of this plan").Named("PLAN");
    example = "lockstep cache export cache/<namespace> exported";
  }
  if (name == "coverage") args.Option("--plan", &asked.plan, "only this one").Named("PLAN");
  if (name == "verify" || name == "repair") {
    args.Option("--threads", &asked.threads, "units read at once").Between(1, 256).ShowDefault();
  }
  if (name == "gc") {
    args.Option("--max-size", &asked.max_size, "of the root: the least recently used namespaces go first")
        .Named("SIZE");
    args.Option("--older", &asked.older, "leftovers not touched for so long").Named("DURATION").ShowDefault();
    args.Option("--remove", &asked.remove, "a namespace to remove; may be repeated").Named("NAMESPACE").Repeated();
  }
  if (name == "gc" || name == "repair")
    args.Flag("--dry-run", &asked.dry_run, "say what would be done, change nothing");
  if (name != "export") args.Flag("--json", &asked.json, "one JSON document on stdout");
  args.Footer("examples:\n  " + example);
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  return row.main(asked);
}

}  // namespace

int CacheMain(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "--help" || name == "-h") {
    fmt::print(name.empty() ? stderr : stdout, "{}", CacheHelp());
    return name.empty() ? kExitUsage : kExitOk;
  }
  if (name == "build") return CacheBuildMain(argc - 1, argv + 1);
  std::vector<std::string> names = {"build"};
  for (const CacheRow& row : kCacheRows) {
    if (name == row.name) return RunCacheRow(row, argc - 1, argv + 1);
    names.emplace_back(row.name);
  }
  fmt::print(stderr, "lockstep: cache knows no '{}'{}\n  do: lockstep cache --help lists the commands\n",
             Printable(name), DidYouMean(name, names));
  return kExitUsage;
}

}  // namespace lockstep::cli
