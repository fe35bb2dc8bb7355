// Lines of samples as Lockstep writes them, in one pass: a job of a thousand ranks writes half a megabyte of them a
// second. Anything unusual (fields in another form, unknown ones, escapes) is left to a parser of any JSON.
#include <algorithm>
#include <cmath>
#include <string>

#include "record/json_scan.h"
#include "record/samples.h"

namespace lockstep::record {
namespace {

// A field of an object and how its value is read. A field that stands there twice counts as it stands there last.
template <typename T>
struct ScannedField {
  std::string_view key;
  bool (*take)(JsonScanner* in, T* out);
};

template <auto Member, typename T>
bool TakeValue(JsonScanner* in, T* out) {
  return in->Value(&(out->*Member).emplace());
}
template <auto Member, typename T>
bool TakeCount(JsonScanner* in, T* out) {
  return in->Count(&(out->*Member));
}
template <auto Member, typename T>
bool TakeOptionalCount(JsonScanner* in, T* out) {
  return in->Count(&(out->*Member).emplace());
}
template <auto Member, typename T>
bool TakeText(JsonScanner* in, T* out) {
  std::string_view text;
  if (!in->Text(&text)) return false;
  (out->*Member).assign(text);
  return true;
}

// Fields stand in the table as the writer writes them, so the next one is nearly always the next of the table.
template <typename T, size_t Fields>
bool ScanObject(JsonScanner* in, const ScannedField<T> (&fields)[Fields], T* out) {
  if (!in->Take('{')) return false;
  if (in->Take('}')) return true;
  size_t at = 0;
  do {
    std::string_view key;
    if (!in->Text(&key) || !in->Take(':')) return false;
    for (size_t tried = 0; fields[at].key != key; at = (at + 1) % Fields) {
      if (++tried == Fields) return false;
    }
    if (!fields[at].take(in, out)) return false;
    at = (at + 1) % Fields;
  } while (in->Take(','));
  return in->Take('}');
}

template <typename T, typename F>
bool ScanArray(JsonScanner* in, const F& scan, std::vector<T>* out) {
  out->clear();
  if (!in->Take('[')) return false;
  if (in->Take(']')) return true;
  out->reserve(8);
  do {
    if (out->size() >= kMostSampleParts || !scan(in, &out->emplace_back())) return false;
  } while (in->Take(','));
  return in->Take(']');
}

bool TakeThrottle(JsonScanner* in, GpuSample* gpu) {
  const auto text = [](JsonScanner* from, std::string* reason) {
    std::string_view found;
    if (!from->Text(&found)) return false;
    reason->assign(found);
    return true;
  };
  return ScanArray(in, text, &gpu->throttle);
}

// In the order of their names, as a parsed object has them.
bool TakeSeconds(JsonScanner* in, RankSample* rank) {
  auto& seconds = rank->seconds;
  seconds.clear();
  if (!in->Take('{')) return false;
  if (in->Take('}')) return true;
  seconds.reserve(std::size(kStageNames) + 1);
  do {
    std::string_view name;
    double value = 0;
    if (!in->Text(&name) || !in->Take(':') || !in->Value(&value)) return false;
    const auto at = std::lower_bound(seconds.begin(), seconds.end(), name,
                                     [](const auto& one, std::string_view wanted) { return one.first < wanted; });
    if (at != seconds.end() && at->first == name) {
      at->second = value;
    } else {
      seconds.emplace(at, name, value);
    }
  } while (in->Take(','));
  return in->Take('}');
}

constexpr ScannedField<GpuSample> kGpuFields[] = {
    {"gpu", TakeCount<&GpuSample::gpu>},
    {"uuid", TakeText<&GpuSample::uuid>},
    {"name", TakeText<&GpuSample::name>},
    {"util", TakeValue<&GpuSample::util>},
    {"memory_util", TakeValue<&GpuSample::memory_util>},
    {"memory_used", TakeValue<&GpuSample::memory_used>},
    {"memory_total", TakeValue<&GpuSample::memory_total>},
    {"temperature", TakeValue<&GpuSample::temperature>},
    {"power", TakeValue<&GpuSample::power>},
    {"power_limit", TakeValue<&GpuSample::power_limit>},
    {"sm_clock", TakeValue<&GpuSample::sm_clock>},
    {"sm_clock_max", TakeValue<&GpuSample::sm_clock_max>},
    {"memory_clock", TakeValue<&GpuSample::memory_clock>},
    {"throttle", TakeThrottle},
    {"ecc_corrected", TakeValue<&GpuSample::ecc_corrected>},
    {"ecc_uncorrected", TakeValue<&GpuSample::ecc_uncorrected>},
    {"xid", TakeOptionalCount<&GpuSample::xid>},
    {"error", TakeText<&GpuSample::error>},
};

constexpr ScannedField<RankSample> kRankFields[] = {
    {"rank", TakeCount<&RankSample::rank>},
    {"pid", TakeCount<&RankSample::pid>},
    {"cpu", TakeValue<&RankSample::cpu>},
    {"rss", TakeValue<&RankSample::rss>},
    {"gpu", TakeOptionalCount<&RankSample::gpu>},
    {"step", TakeOptionalCount<&RankSample::step>},
    {"step_t", TakeValue<&RankSample::step_t>},
    {"loss", TakeValue<&RankSample::loss>},
    {"steps", TakeCount<&RankSample::steps>},
    {"seconds", TakeSeconds},
    {"wait_peer", TakeOptionalCount<&RankSample::wait_peer>},
    {"wait_seconds", TakeValue<&RankSample::wait_seconds>},
};

constexpr ScannedField<LinkSample> kLinkFields[] = {
    {"name", TakeText<&LinkSample::name>},
    {"kind", TakeText<&LinkSample::kind>},
    {"speed", TakeValue<&LinkSample::speed>},
    {"in", TakeValue<&LinkSample::in>},
    {"out", TakeValue<&LinkSample::out>},
    {"bytes_in", TakeValue<&LinkSample::bytes_in>},
    {"bytes_out", TakeValue<&LinkSample::bytes_out>},
    {"errors", TakeValue<&LinkSample::errors>},
    {"off", TakeText<&LinkSample::off>},
};

constexpr ScannedField<NodeSample> kCpuFields[] = {
    {"percent", TakeValue<&NodeSample::cpu_percent>},
    {"cores", TakeValue<&NodeSample::cpu_cores>},
    {"load", TakeValue<&NodeSample::cpu_load>},
};
constexpr ScannedField<NodeSample> kMemoryFields[] = {
    {"used", TakeValue<&NodeSample::memory_used>},
    {"total", TakeValue<&NodeSample::memory_total>},
};

bool TakeCpu(JsonScanner* in, NodeSample* node) {
  node->cpu_percent = node->cpu_cores = node->cpu_load = std::nullopt;
  return ScanObject(in, kCpuFields, node);
}
bool TakeMemory(JsonScanner* in, NodeSample* node) {
  node->memory_used = node->memory_total = std::nullopt;
  return ScanObject(in, kMemoryFields, node);
}

// What carries no number or no name is no part: the other parser leaves it out.
bool TakeGpus(JsonScanner* in, NodeSample* node) {
  const auto one = [](JsonScanner* from, GpuSample* gpu) {
    gpu->gpu = -1;
    return ScanObject(from, kGpuFields, gpu) && gpu->gpu >= 0;
  };
  return ScanArray(in, one, &node->gpus);
}
bool TakeRanks(JsonScanner* in, NodeSample* node) {
  const auto one = [](JsonScanner* from, RankSample* rank) {
    rank->rank = -1;
    return ScanObject(from, kRankFields, rank) && rank->rank >= 0;
  };
  return ScanArray(in, one, &node->ranks);
}
bool TakeLinks(JsonScanner* in, NodeSample* node) {
  const auto one = [](JsonScanner* from, LinkSample* link) {
    return ScanObject(from, kLinkFields, link) && !link->name.empty();
  };
  return ScanArray(in, one, &node->links);
}

bool TakeTime(JsonScanner* in, NodeSample* node) { return in->Number(&node->t); }

constexpr ScannedField<NodeSample> kNodeFields[] = {
    {"t", TakeTime},
    {"attempt", TakeCount<&NodeSample::attempt>},
    {"node", TakeCount<&NodeSample::node>},
    {"host", TakeText<&NodeSample::host>},
    {"launcher", TakeCount<&NodeSample::launcher>},
    {"n", TakeCount<&NodeSample::n>},
    {"dropped", TakeCount<&NodeSample::dropped>},
    {"cpu", TakeCpu},
    {"memory", TakeMemory},
    {"ranks", TakeRanks},
    {"gpus", TakeGpus},
    {"links", TakeLinks},
};

}  // namespace

bool ScanSampleLine(std::string_view text, NodeSample* sample) {
  *sample = NodeSample();
  sample->t = std::numeric_limits<double>::quiet_NaN();
  sample->node = -1;
  JsonScanner in(text);
  return ScanObject(&in, kNodeFields, sample) && in.AtEnd() && std::isfinite(sample->t) && sample->node >= 0;
}

}  // namespace lockstep::record
