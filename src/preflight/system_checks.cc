// Rows about limits and memory of this node.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "preflight/rows.h"

namespace lockstep::preflight {
namespace {

constexpr uint64_t kShmWanted = kGiB, kShmNeeded = 128 * kMiB;      // per rank
constexpr uint64_t kMemoryWanted = 4 * kGiB, kMemoryNeeded = kGiB;  // per rank
constexpr uint64_t kMemlockNeeded = kGiB;
constexpr uint64_t kPidsWanted = 256, kPidsNeeded = 64;  // per rank: threads of BLAS, NCCL, loaders
constexpr uint64_t kFilesWanted = 4096;
constexpr uint64_t kUnlimited = UINT64_MAX;

uint64_t Ranks(const CheckInput& input) { return static_cast<uint64_t>(std::max(1, input.nproc)); }

std::string Limit(uint64_t value) { return value == kUnlimited ? "unlimited" : std::to_string(value); }

// CAP_IPC_LOCK lifts the limit.
bool MayLockAnyway(const std::string& root) {
  auto text = ReadFile(root + "/proc/self/status", 1 << 16);
  if (!text.ok()) return false;
  const size_t at = text->find("CapEff:");
  if (at == std::string::npos) return false;
  return (std::strtoull(text->c_str() + at + 7, nullptr, 16) >> 14 & 1) != 0;
}

const hardware::Filesystem* FindFilesystem(const CheckInput& input, const std::string& path) {
  for (const hardware::Filesystem& filesystem : input.here.filesystems) {
    if (filesystem.path == path) return &filesystem;
  }
  return nullptr;
}

}  // namespace

CheckOutcome CheckMemlock(const CheckInput& input) {
  const bool rdma = std::any_of(input.here.ib.begin(), input.here.ib.end(),
                                [](const hardware::IbPort& port) { return port.active(); });
  if (!rdma) return CheckOutcome::Skip("no active RDMA port");
  const auto& limit = input.here.limits.memlock;
  if (!limit) return CheckOutcome::Skip("the limit could not be read");
  if (*limit == kUnlimited) return CheckOutcome::Ok("unlimited");
  if (MayLockAnyway(input.root)) return CheckOutcome::Ok("unlimited by capability");
  CheckOutcome outcome;
  const std::string text = fmt::format("max locked memory is {}", FormatSize(*limit));
  const std::string remedy =
      "ulimit -l unlimited: in /etc/security/limits.conf (memlock), in slurmd's unit (LimitMEMLOCK=infinity), in a "
      "container --ulimit memlock=-1 or the capability IPC_LOCK";
  if (*limit < kMemlockNeeded && NeedsRdma(input)) {
    outcome.Fail(text + "; RDMA cannot register its buffers", remedy);
  } else {
    outcome.Warn(text, remedy);
  }
  return outcome;
}

CheckOutcome CheckNofile(const CheckInput& input) {
  const hardware::Limits& limits = input.here.limits;
  if (!limits.nofile) return CheckOutcome::Skip("the limit could not be read");
  CheckOutcome outcome;
  outcome.note = Limit(*limits.nofile);
  const uint64_t needed = 256 + 64 * Ranks(input);
  const std::string remedy =
      limits.nofile_hard.value_or(0) > *limits.nofile
          ? fmt::format("ulimit -n {} before the start (the hard limit allows it)",
                        Limit(std::min<uint64_t>(*limits.nofile_hard, 65536)))
          : "raise nofile in /etc/security/limits.conf, in the service's unit (LimitNOFILE) or with --ulimit nofile";
  if (*limits.nofile < needed) {
    outcome.Fail(fmt::format("{} open files per process, {} rank{} about {}", *limits.nofile, Ranks(input),
                             Ranks(input) == 1 ? " needs" : "s need", needed),
                 remedy);
  } else if (*limits.nofile < kFilesWanted) {
    outcome.Warn(fmt::format("{} open files per process: loaders with many workers run into it", *limits.nofile),
                 remedy);
  }
  return outcome;
}

CheckOutcome CheckPids(const CheckInput& input) {
  const hardware::Limits& limits = input.here.limits;
  CheckOutcome outcome;
  const std::string remedy =
      "raise the control group's pids.max (docker --pids-limit, kubelet podPidsLimit, slurm's cgroup.conf)";
  if (limits.pids_max && *limits.pids_max != kUnlimited) {
    const uint64_t now = limits.pids_now.value_or(0);
    const uint64_t left = *limits.pids_max > now ? *limits.pids_max - now : 0;
    outcome.note = fmt::format("{} of {} left", left, *limits.pids_max);
    const std::string text =
        fmt::format("{} of {} processes and threads left in the control group", left, *limits.pids_max);
    const auto ranks = static_cast<int64_t>(Ranks(input));
    if (left < kPidsNeeded * Ranks(input)) {
      outcome.Fail(
          fmt::format("{}, {} about {}", text, Count(ranks, "rank needs", "ranks need"), kPidsWanted * Ranks(input)),
          remedy);
    } else if (left < kPidsWanted * Ranks(input)) {
      outcome.Warn(fmt::format("{}, {} may need {}", text, Count(ranks, "rank"), kPidsWanted * Ranks(input)), remedy);
    }
  } else {
    outcome.note = "no limit";
  }
  if (limits.nproc && *limits.nproc < kPidsWanted * Ranks(input)) {
    outcome.Warn(fmt::format("this user may have {} (ulimit -u)",
                             Count(static_cast<int64_t>(*limits.nproc), "process", "processes")),
                 "raise nproc in /etc/security/limits.conf");
  }
  return outcome;
}

CheckOutcome CheckMemory(const CheckInput& input) {
  const hardware::Hardware& here = input.here;
  CheckOutcome outcome;
  std::optional<uint64_t> left = here.memory_available;
  std::string where = "on this machine";
  const auto& max = here.limits.memory_max;
  if (max && *max != kUnlimited) {
    const uint64_t now = here.limits.memory_now.value_or(0);
    const uint64_t group = *max > now ? *max - now : 0;
    if (!left || group < *left) {
      left = group;
      where = fmt::format("in the control group (limit {})", FormatSize(*max));
    }
  }
  if (!left) return CheckOutcome::Skip("could not be read");
  outcome.note = fmt::format("{} free", FormatSize(*left));
  const std::string text =
      fmt::format("{} free {} for {} rank{}", FormatSize(*left), where, Ranks(input), Ranks(input) == 1 ? "" : "s");
  const std::string remedy = max && *max != kUnlimited
                                 ? "ask for more (--mem of the scheduler, resources.limits.memory of the pod)"
                                 : "end what uses it (ps aux --sort -rss | head), or start fewer ranks";
  if (*left < kMemoryNeeded * Ranks(input)) {
    outcome.Fail(
        text + (input.visible.empty() ? ": PyTorch alone may take more" : ": PyTorch with CUDA alone takes more"),
        remedy);
  } else if (*left < kMemoryWanted * Ranks(input)) {
    outcome.Warn(text, remedy);
  }
  return outcome;
}

CheckOutcome CheckShm(const CheckInput& input) {
  const hardware::Filesystem* shm = FindFilesystem(input, "/dev/shm");
  CheckOutcome outcome;
  const std::string remedy = fmt::format(
      "docker: --ipc=host or --shm-size={}g; Kubernetes: an emptyDir of medium Memory on /dev/shm; else: mount -o "
      "remount,size={}g /dev/shm",
      std::max<uint64_t>(8, Ranks(input)), std::max<uint64_t>(8, Ranks(input)));
  if (shm == nullptr || !shm->free || !shm->total) {
    outcome.Fail("/dev/shm is not there", remedy);
    return outcome;
  }
  outcome.note = fmt::format("{} free", FormatSize(*shm->free));
  if (shm->read_only) outcome.Fail("/dev/shm is read-only", remedy);
  const std::string text = fmt::format("/dev/shm has {} free of {} for {} rank{}", FormatSize(*shm->free),
                                       FormatSize(*shm->total), Ranks(input), Ranks(input) == 1 ? "" : "s");
  // Files of dead programs fill it too; then the remedy is another.
  const bool filled = *shm->total >= kShmWanted * Ranks(input);
  const std::string advice = filled ? "remove what dead programs left: ls -lt /dev/shm" : remedy;
  if (*shm->free < kShmNeeded * Ranks(input)) {
    outcome.Fail(text + ": NCCL and data loaders share memory there (Bus error)", advice);
  } else if (*shm->free < kShmWanted * Ranks(input)) {
    outcome.Warn(text + ", 1 GiB each is wanted", advice);
  }
  return outcome;
}

CheckOutcome CheckClock(const CheckInput& input) {
  const hardware::Hardware& here = input.here;
  if (!here.clock_synchronised) return CheckOutcome::Skip("the kernel does not say");
  if (*here.clock_synchronised) {
    return CheckOutcome::Ok(here.clock_error ? fmt::format("within {:.0f} ms", *here.clock_error * 1000)
                                             : "synchronised");
  }
  CheckOutcome outcome;
  const std::string text = "the clock is not synchronised";
  if (input.nnodes > 1) {
    outcome.Warn(text, "start chrony, ntpd or systemd-timesyncd (timedatectl set-ntp true); clock-skew measures it");
  } else {
    outcome.note = text + "; with one node that is of no consequence";
  }
  return outcome;
}

}  // namespace lockstep::preflight
