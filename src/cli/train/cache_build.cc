// `lockstep-train cache-build RECIPE`: one process of a build of the feature cache. Its launcher may have started any
// number of them; they share the work through the cache's folder and need no process group.
#include <fmt/format.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"
#include "cache/build.h"
#include "cli/train/commands.h"
#include "cli/train/place.h"
#include "cli/train/rank_error.h"
#include "cli/train/settings.h"
#include "engine/stop.h"
#include "engine/trainer.h"

namespace lockstep::cli {
namespace {

// A line now and then: on a terminal every second, in a log every ten.
class BuildLine {
 public:
  explicit BuildLine(int rank) : rank_(rank) {}
  void operator()(const cache::BuildProgress& p) {
    const bool over = p.published == p.units;
    if (!over && Now() < next_) return;
    next_ = Now() + std::chrono::seconds(10);
    const double share = p.units == 0 ? 1 : static_cast<double>(p.published) / static_cast<double>(p.units);
    const auto left = std::chrono::milliseconds(static_cast<int64_t>(p.left * 1000));
    std::string more;
    if (p.bad > 0) more += fmt::format(", {} without a record", Count(static_cast<int64_t>(p.bad), "sample"));
    if (p.taken_over > 0) more += fmt::format(", {} taken over", Count(static_cast<int64_t>(p.taken_over), "lease"));
    fmt::print("rank {}: {} of {} units ({:.0f} %); this rank {} records, {}/s, waited {:.1f} s for the disk{}{}\n",
               rank_, p.published, p.units, 100 * share, p.records,
               FormatSize(static_cast<uint64_t>(static_cast<double>(p.bytes) / std::max(p.seconds, 1e-3))),
               p.write_wait, over || p.left == 0 ? "" : ", ETA " + FormatDuration(left), more);
    std::fflush(stdout);
  }

 private:
  int rank_;
  TimePoint next_ = Now() + std::chrono::seconds(2);
};

Status BuildOnce(const Program& program, const std::string& recipe, const std::string& config,
                 const std::vector<std::string>& overrides) {
  const Result<comm::Bootstrap> who = FindIdentity();
  if (!who.ok()) return who.status();
  Result<Settings> settings = ReadSettings(program.recipes, recipe, config, overrides, /*smoke=*/false, 0);
  if (!settings.ok()) return settings.status();
  // Ranks of a build may share a GPU: they exchange nothing.
  const Result<at::Device> device =
      engine::ChooseDevice(settings->config.train.device, who->local_rank, who->local_size, comm::Backend::kHost);
  if (!device.ok()) return device.status();
  engine::PrepareTorch(settings->config, 0);
  engine::StopRequests stop(std::nullopt);
  cache::BuildOptions options;
  options.rank = who->rank;
  options.world = who->size;
  options.stop = [&] { return stop.signal() != 0; };
  options.progress = BuildLine(who->rank);
  return settings->recipe->BuildCache(settings->config, *device, options);
}

}  // namespace

int CacheBuildMain(const Program& program, int argc, char** argv) {
  engine::StopRequests::Listen();
  Arguments args("One process of a build of a feature cache.", program.name + " cache-build");
  std::string recipe, config;
  std::vector<std::string> overrides;
  args.Option("RECIPE", &recipe, "name of the recipe").Required();
  args.Option("--config", &config, "configuration file, YAML or JSON with comments").Named("FILE");
  args.Option("--set", &overrides, "path.of.key=value, wins over the file; may be repeated")
      .Named("KEY=VALUE")
      .Repeated();
  if (const std::optional<int> code = args.Parse(argc, argv)) return *code;
  const Status built = BuildOnce(program, recipe, config, overrides);
  std::fflush(nullptr);
  return built.ok() ? 0 : FailRank("cache build", built, /*say=*/true, /*refused=*/built.code() != Code::kInterrupted);
}

}  // namespace lockstep::cli
