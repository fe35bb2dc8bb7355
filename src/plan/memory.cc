#include "plan/memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "base/units.h"
#include "plan/gathering.h"
#include "plan/layout.h"

namespace lockstep::plan {
namespace {

constexpr int64_t kHostChunk = int64_t{1} << 22;  // elements of an offloaded update at once (engine/host_memory.h)
constexpr int64_t kStagings = 4;                  // of them (engine/offload.cc)
constexpr size_t kInFlight = 2;                   // buckets on their way (engine/zero.cc)
// Torch's cuBLAS workspace, once for the training thread and once for autograd's.
constexpr int64_t kWorkspace = int64_t{32} << 20, kSmallWorkspace = (int64_t{8} << 20) + 128 * 1024;
// As nvidia-smi shows a process with kernels loaded; NCCL's channels beside it.
constexpr int64_t kCudaContext = int64_t{530} << 20, kNccl = int64_t{300} << 20;

// The buffers that units are gathered into, and what is always whole.
struct Sharded {
  std::vector<int64_t> units;    // elements of all buffers of a unit
  std::vector<int64_t> buffers;  // elements of each, for pieces of the largest size
  int64_t always = 0;
  int64_t frozen_shard_bytes = 0, frozen_whole_bytes = 0;
  bool two_buffers = false;  // some unit has frozen parameters beside trained ones
};

int GroupOf(const Parameter& parameter, const Setting& setting) {
  return setting.effective_stage() < 3 || parameter.numel < setting.persistent ? -1 : parameter.unit;
}

// As FlatParameters::Create orders them: the reverse of registration, the last unit first, then what is always there.
Layout LayoutOf(const Workload& workload, const Setting& setting) {
  std::map<int, std::vector<Layout::Size>, std::greater<>> groups;
  for (size_t i = workload.parameters.size(); i-- > 0;) {
    const Parameter& p = workload.parameters[i];
    if (p.trained) groups[GroupOf(p, setting)].push_back({p.name, p.numel, GroupOf(p, setting)});
  }
  std::vector<Layout::Size> sizes;
  for (auto& [group, list] : groups) sizes.insert(sizes.end(), list.begin(), list.end());
  return Layout(sizes, {.bucket_bytes = setting.bucket,
                        .first_bucket_bytes = setting.first_bucket,
                        .shares = setting.effective_stage() == 0 ? 1 : setting.ranks});
}

Sharded ShardsOf(const Workload& workload, const Setting& setting, const Layout& layout) {
  Sharded out;
  out.units.assign(workload.units.size(), 0);
  std::vector<int64_t> trained(workload.units.size(), 0), frozen(workload.units.size(), 0), bytes(frozen);
  for (size_t b = 0; b < layout.buckets().size(); ++b) {
    const int group = layout.GroupOf(b);
    (group < 0 ? out.always : trained[static_cast<size_t>(group)]) += layout.buckets()[b].size();
  }
  for (const Parameter& p : workload.parameters) {
    if (p.trained) continue;
    const bool taken =
        setting.effective_stage() == 3 && p.unit >= 0 && p.numel >= std::max<int64_t>(setting.persistent, 1);
    if (!taken) {
      out.frozen_whole_bytes += p.numel * p.bytes;
      continue;
    }
    frozen[static_cast<size_t>(p.unit)] += p.numel;
    bytes[static_cast<size_t>(p.unit)] = p.bytes;
  }
  for (size_t u = 0; u < out.units.size(); ++u) {
    const int64_t whole = RoundUp(frozen[u], kFlatAlignment * setting.ranks);
    out.frozen_shard_bytes += whole / setting.ranks * bytes[u];
    out.units[u] = trained[u] + whole;
    for (const int64_t one : {trained[u], whole}) {
      if (one > 0) out.buffers.push_back(one);
    }
    out.two_buffers = out.two_buffers || (trained[u] > 0 && whole > 0);
  }
  if (out.always > 0) out.buffers.push_back(out.always);
  return out;
}

// Gradients of buckets around `bucket`, in float32: those on their way and the one that is filled.
int64_t BucketsAround(const Layout& layout, size_t bucket) {
  int64_t elements = 0;
  const size_t begin = bucket >= kInFlight ? bucket - kInFlight : 0;
  for (size_t b = begin; b <= bucket && b < layout.buckets().size(); ++b) elements += layout.buckets()[b].size();
  return elements * 4;
}

// The last bucket that is filled while `unit` runs backward; all of them for what belongs to no unit.
size_t BucketOfUnit(const Workload& workload, const Layout& layout, int unit) {
  size_t last = 0;
  for (const Layout::Parameter& placed : layout.parameters()) {
    const auto found = std::find_if(workload.parameters.begin(), workload.parameters.end(),
                                    [&](const Parameter& p) { return p.name == placed.name; });
    if (found != workload.parameters.end() && found->unit == unit) last = std::max(last, placed.bucket);
  }
  return unit < 0 ? layout.buckets().size() - 1 : last;
}

// Buckets that are filled at once. Those of a decoder's layer wait for the gradient of its first norm, which comes last
// and lies in the first of them; other models' gradients come about in the order of the buffer.
size_t OpenBuckets(const Workload& workload, const Setting& setting, const Layout& layout) {
  if (!std::holds_alternative<LmSample>(workload.sample)) return 1;
  std::map<std::string, int> unit_of;
  for (const Parameter& p : workload.parameters) {
    if (p.trained && p.unit >= 0 && GroupOf(p, setting) == (setting.effective_stage() < 3 ? -1 : p.unit)) {
      unit_of.emplace(p.name, p.unit);
    }
  }
  std::map<int, std::pair<size_t, size_t>> spans;  // first and last bucket
  for (const Layout::Parameter& placed : layout.parameters()) {
    const auto found = unit_of.find(placed.name);
    if (found == unit_of.end()) continue;
    const auto [span, fresh] = spans.try_emplace(found->second, placed.bucket, placed.bucket);
    span->second.second = std::max(span->second.second, placed.bucket);
  }
  size_t most = 1;
  for (const auto& [unit, span] : spans) most = std::max(most, span.second - span.first + 1);
  return most;
}

int64_t OwnElements(const Layout& layout, const Setting& setting) {
  return TotalSize(layout.Kept(static_cast<Stage>(setting.effective_stage()), Buffer::kOptimizer, 0));
}

MemoryBytes StateWith(const Setting& s, const Layout& layout, const Sharded& sharded) {
  MemoryBytes out;
  const int stage = s.effective_stage();
  const int64_t all = layout.numel(), own = OwnElements(layout, s), type = s.parameter_bytes;
  const bool offload = s.offloads(), whole_owned = stage == 0;
  const auto state = [&](Component c) -> int64_t& { return offload ? out.OnHost(c) : out[c]; };
  // Parameters, and the master where it is not the same memory.
  if (stage < 3) {
    out[Component::kParameters] = all * type;
    const bool in_place = !offload && type == 4;
    if (!in_place) state(Component::kMaster) = own * 4;
    if (offload && !whole_owned) out[Component::kParameters] += own * type;  // what goes up lies beside the whole
  } else if (s.offloads_parameters()) {
    out.OnHost(Component::kMaster) = type == 4 ? 0 : own * 4;
    out.OnHost(Component::kParameters) = own * type;
  } else {
    out[Component::kParameters] = own * type;
    if (type != 4 || offload) state(Component::kMaster) = own * 4;
  }
  const bool whole = s.whole_gradients();
  if (whole) out[Component::kGradients] = all * s.gradient_bytes();
  const bool gradients_in_place = offload ? whole_owned && whole : whole && s.gradient_bytes() == 4;
  if (!gradients_in_place) out[Component::kGradients] += own * 4;
  state(Component::kOptimizer) = own * 4 * s.optimizer_slots;
  if (s.ema) state(Component::kEma) = own * 4;
  const auto frozen = s.offloads_parameters() ? &out.OnHost(Component::kFrozen) : &out[Component::kFrozen];
  *frozen += sharded.frozen_shard_bytes;
  out[Component::kFrozen] += sharded.frozen_whole_bytes;
  if (offload) {
    const int64_t chunk = std::min(kHostChunk, own);
    const int64_t travels = s.gradient_bytes() == 4 || !gradients_in_place ? s.travel_bytes : s.gradient_bytes();
    out.OnHost(Component::kBuckets) = kStagings * chunk * (travels + (s.offloads_parameters() ? 0 : type));
    // What the device updates itself lies on both.
    if (s.offload_share < 1 && s.optimizer_slots == 2 && !s.ema && !s.offloads_parameters()) {
      const auto begin =
          std::min(own, static_cast<int64_t>(s.offload_share * static_cast<double>(own) / kHostChunk) * kHostChunk);
      out[Component::kMaster] += (own - begin) * 4;
      out[Component::kOptimizer] += (own - begin) * 8;
    }
  }
  return out;
}

// The module as it was built, the flat float32 copy and what is made of it exist together for a moment.
int64_t AtStart(const Workload& workload, const Setting& s, const Layout& layout) {
  const int stage = s.effective_stage();
  if (stage == 3 && workload.drawn_in_parts) return 0;
  int64_t module = 0;
  for (const Parameter& p : workload.parameters) module += p.numel * p.bytes;
  const int64_t drawn = layout.numel() * 4, own = OwnElements(layout, s), type = s.parameter_bytes;
  const bool in_place = !s.offloads() && (stage == 0 || (stage < 3 && type == 4));
  int64_t more = s.offloads() || in_place ? 0 : own * 4;
  if (stage == 3) {
    more += s.offloads_parameters() || (type == 4 && !s.offloads()) ? 0 : own * type;
  } else if (stage > 0 || type != 4) {
    more += layout.numel() * type;
  }
  return module + drawn + more;
}

}  // namespace

const char* NameOf(Component component) {
  constexpr std::array<const char*, kComponents> kNames = {"parameters",  "gradients", "master",   "optimizer",
                                                           "ema",         "frozen",    "gathered", "buckets",
                                                           "activations", "temporary", "context"};
  return kNames[static_cast<size_t>(component)];
}

std::string SizeText(int64_t bytes) { return FormatSize(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))); }

int64_t MemoryBytes::AllocatorPeak() const {
  const int64_t run =
      std::accumulate(device.begin(), device.end(), int64_t{0}) - device[static_cast<size_t>(Component::kContext)];
  return std::max(run, start);
}
int64_t MemoryBytes::DeviceTotal() const { return AllocatorPeak() + device[static_cast<size_t>(Component::kContext)]; }
int64_t MemoryBytes::HostTotal() const { return std::accumulate(host.begin(), host.end(), int64_t{0}); }

// Between steps, and on a CPU what stages 2 and 3 use again and again: pieces of memory that stay.
MemoryBytes StateOf(const Workload& workload, const Setting& s) {
  const Layout layout = LayoutOf(workload, s);
  const Sharded sharded = ShardsOf(workload, s, layout);
  MemoryBytes out = StateWith(s, layout, sharded);
  const int64_t type = s.parameter_bytes;
  if (!s.gpu) {
    if (!s.whole_gradients()) {
      int64_t largest = 0;
      for (const FlatRange& bucket : layout.buckets()) largest = std::max(largest, bucket.size());
      const size_t wanted = std::max(kInFlight + 1, OpenBuckets(workload, s, layout));
      const auto pieces = static_cast<int64_t>(std::min(wanted, layout.buckets().size()));
      out[Component::kBuckets] = pieces * largest * 4;
    }
    if (s.effective_stage() == 3 && !sharded.buffers.empty()) {
      int pieces = 0;
      for (const Gathered& use : GatheredInPass(sharded.units, {s.prefetch, s.reuse_distance, s.live})) {
        pieces = std::max(pieces, use.buffers);
      }
      if (sharded.two_buffers) pieces *= 2;
      pieces += sharded.always > 0 ? 1 : 0;
      out[Component::kGathered] = pieces * *std::max_element(sharded.buffers.begin(), sharded.buffers.end()) * type;
    }
  } else if (s.effective_stage() == 3) {
    out[Component::kGathered] = sharded.always * type;
  }
  return out;
}

MemoryBytes MemoryOf(const Workload& workload, const Setting& s) {
  MemoryBytes out = StateOf(workload, s);
  const Layout layout = LayoutOf(workload, s);
  const Sharded sharded = ShardsOf(workload, s, layout);
  const int64_t idle_gathered = out[Component::kGathered], idle_buckets = out[Component::kBuckets];
  std::vector<Gathered> gathered;
  if (s.gpu && s.effective_stage() == 3) {
    gathered = GatheredInPass(sharded.units, {s.prefetch, s.reuse_distance, s.live});
  }
  const int64_t workspace = !s.gpu ? 0 : 2 * (s.compute_capability >= 90 ? kWorkspace : kSmallWorkspace);
  int64_t most = -1;
  std::vector<Moment> moments = MomentsOf(workload, s, s.pass_samples());
  if (moments.empty()) moments.push_back({"", -1, true, 0, 0});
  const size_t units = sharded.units.size();
  for (const Moment& moment : moments) {
    int64_t whole = idle_gathered, buckets = idle_buckets;
    if (!gathered.empty()) {
      const auto unit = static_cast<size_t>(std::max(moment.unit, 0));
      const size_t use = moment.unit < 0 ? units : moment.backward ? 2 * units - 1 - unit : unit;
      whole += gathered[std::min(use, gathered.size() - 1)].elements * s.parameter_bytes;
      // A shard is copied up before it is gathered.
      if (s.offloads_parameters()) {
        whole += *std::max_element(sharded.units.begin(), sharded.units.end()) * s.parameter_bytes / s.ranks;
      }
    }
    if (s.gpu && !s.whole_gradients() && moment.backward) {
      buckets = BucketsAround(layout, BucketOfUnit(workload, layout, moment.unit));
    }
    const int64_t sum = whole + buckets + moment.activations + moment.temporary;
    if (sum <= most) continue;
    most = sum;
    out[Component::kGathered] = whole;
    out[Component::kBuckets] = buckets;
    out[Component::kActivations] = moment.activations;
    out[Component::kTemporary] = moment.temporary + workspace;
    out.moment = moment.name;
  }
  if (s.gpu) {
    out[Component::kContext] = kCudaContext + (s.ranks > 1 ? kNccl : 0);
    out.start = AtStart(workload, s, layout);
  }
  return out;
}

}  // namespace lockstep::plan
