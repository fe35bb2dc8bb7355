// `lockstep-train cache-build [RECIPE]`: one process of a build of the feature cache. Its launcher may have started any
// number of them; they share the work through the cache's folder and need no process group.
#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <memory>

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
#include "recipes/encoder_cache.h"

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

struct BuildLineArguments {
  std::string recipe, config;
  std::vector<std::string> overrides;
};

// What is to be encoded, and where.
struct BuildTask {
  std::string device;
  engine::Config config;  // of the recipe
  std::function<Status(at::Device device, const cache::BuildOptions& options)> run;
};

Result<BuildTask> ReadTask(const Program& program, const BuildLineArguments& given) {
  if (given.recipe.empty()) {
    const auto read = recipes::ReadEncoderCacheConfig(given.config, given.overrides);
    if (!read.ok()) return read.status();
    return BuildTask{read->device, {}, [config = *read](at::Device device, const cache::BuildOptions& options) {
                       return recipes::BuildEncoderCache(config, device, options);
                     }};
  }
  Result<Settings> read =
      ReadSettings(program.recipes, given.recipe, {given.config}, given.overrides, /*smoke=*/false, 0);
  if (!read.ok()) return read.status();
  const auto settings = std::make_shared<Settings>(std::move(*read));
  return BuildTask{settings->config.train.device, settings->config,
                   [settings](at::Device device, const cache::BuildOptions& options) {
                     return settings->recipe->BuildCache(settings->config, device, options);
                   }};
}

Status BuildOnce(const Program& program, const BuildLineArguments& given) {
  const Result<comm::Bootstrap> who = FindIdentity();
  if (!who.ok()) return who.status();
  const Result<BuildTask> task = ReadTask(program, given);
  if (!task.ok()) return task.status();
  // Ranks of a build may share a GPU: they exchange nothing.
  const Result<at::Device> device =
      engine::ChooseDevice(task->device, who->local_rank, who->local_size, comm::Backend::kHost);
  if (!device.ok()) return device.status();
  engine::PrepareTorch(task->config, 0);
  engine::StopRequests stop(std::nullopt);
  cache::BuildOptions options;
  options.rank = who->rank;
  options.world = who->size;
  options.stop = [&] { return stop.signal() != 0; };
  options.progress = BuildLine(who->rank);
  return task->run(*device, options);
}

}  // namespace

int CacheBuildMain(const Program& program, int argc, char** argv) {
  engine::StopRequests::Listen();
  Arguments args("One process of a build of a feature cache.", program.name + " cache-build");
  BuildLineArguments given;
  args.Option("RECIPE", &given.recipe, "name of the recipe; none: the configuration names an encoder and data");
  args.Option("--config", &given.config, "configuration file, YAML or JSON with comments").Named("FILE");
  args.Option("--set", &given.overrides, "path.of.key=value, wins over the file; may be repeated")
      .Named("KEY=VALUE")
      .Repeated();
  if (const std::optional<int> code = args.Parse(argc, argv)) return *code;
  const Status built = BuildOnce(program, given);
  std::fflush(nullptr);
  return built.ok() ? 0 : FailRank("cache build", built, /*say=*/true, /*refused=*/built.code() != Code::kInterrupted);
}

}  // namespace lockstep::cli
