#include "record/checkpoint_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::record {
namespace {

bool IsGroup(std::string_view group) {
  return !group.empty() && std::all_of(group.begin(), group.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

int64_t Numel(const CheckpointTensor& tensor) {
  int64_t numel = 1;
  for (const int64_t size : tensor.shape) numel *= size;
  return numel;
}

std::string_view GroupOf(const CheckpointTensor& tensor) {
  return std::string_view(tensor.name).substr(0, tensor.name.find('/'));
}
std::string_view KeyOf(const CheckpointTensor& tensor) {
  return std::string_view(tensor.name).substr(tensor.name.find('/') + 1);
}

Status CheckTensor(const CheckpointTensor& tensor, int world) {
  const size_t slash = tensor.name.find('/');
  if (slash == std::string::npos || !IsGroup(GroupOf(tensor)) || slash + 1 == tensor.name.size()) {
    return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' is not named <group>/<key>", tensor.name));
  }
  Result<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return bytes.status().Context(fmt::format("checkpoint tensor '{}'", tensor.name));
  if (*bytes != tensor.bytes) {
    return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' is {} with {} bytes, {} were given", tensor.name,
                                               DescribeTensor(tensor.dtype, tensor.shape), *bytes, tensor.bytes));
  }
  if (tensor.ranges.empty()) return Status::Ok();
  bool right = tensor.ranges.size() == static_cast<size_t>(world) && DtypeBits(tensor.dtype) % 8 == 0;
  for (const auto& ranges : tensor.ranges) {
    int64_t at = 0;
    for (const ElementRange& range : ranges) {
      right = right && range.begin >= at && range.end >= range.begin && range.end <= Numel(tensor);
      at = range.end;
    }
  }
  if (right) return Status::Ok();
  return Status(Code::kInternal, fmt::format("checkpoint tensor '{}' on {} ranks: ranges that are not ascending, or of "
                                             "another number of ranks",
                                             tensor.name, world));
}

// A range of a tensor that the same ranks have.
struct Interval {
  size_t tensor = 0;
  ElementRange elements;
  std::vector<int> ranks;
  uint64_t bytes = 0;
};

Status AddIntervals(const CheckpointTensor& tensor, size_t index, int world, std::vector<Interval>* intervals) {
  if (tensor.ranges.empty() || Numel(tensor) == 0) {
    std::vector<int> all(static_cast<size_t>(world));
    for (int rank = 0; rank < world; ++rank) all[static_cast<size_t>(rank)] = rank;
    intervals->push_back({index, {0, Numel(tensor)}, std::move(all), tensor.bytes});
    return Status::Ok();
  }
  std::map<int64_t, std::vector<std::pair<bool, int>>> borders;  // position -> (begins, rank)
  for (size_t rank = 0; rank < tensor.ranges.size(); ++rank) {
    for (const ElementRange& range : tensor.ranges[rank]) {
      if (range.size() == 0) continue;
      borders[range.begin].emplace_back(true, static_cast<int>(rank));
      borders[range.end].emplace_back(false, static_cast<int>(rank));
    }
  }
  const auto nobody = [&](int64_t element) {
    return Status(Code::kInternal,
                  fmt::format("checkpoint tensor '{}': no rank has its element {}", tensor.name, element));
  };
  const uint64_t element_bytes = static_cast<uint64_t>(DtypeBits(tensor.dtype)) / 8;
  std::multiset<int> having;  // where two ranges of a rank touch, it both ends and begins there
  int64_t at = 0;
  for (const auto& [position, changes] : borders) {
    if (position > at) {
      if (having.empty()) return nobody(at);
      intervals->push_back({index,
                            {at, position},
                            std::vector<int>(having.begin(), having.end()),
                            static_cast<uint64_t>(position - at) * element_bytes});
    }
    at = position;
    for (const auto& [begins, rank] : changes) {
      if (begins) {
        having.insert(rank);
      } else {
        having.erase(having.find(rank));
      }
    }
  }
  return at == Numel(tensor) ? Status::Ok() : nobody(at);
}

// Who writes what, with the bytes each rank has been given so far.
class Assignment {
 public:
  Assignment(const std::vector<CheckpointTensor>& tensors, const PlanOptions& options)
      : tensors_(tensors), options_(options), load_(static_cast<size_t>(options.world), 0) {}

  struct Share {  // an interval and its two ranks
    ElementRange elements;
    int provider = 0, writer = 0;
  };
  using Shares = std::vector<std::vector<Share>>;  // by tensor, ascending

  // One writer per group: the one with least to write and to be sent.
  Shares ByGroup(const std::vector<Interval>& intervals) {
    std::map<std::string_view, std::vector<const Interval*>> groups;
    for (const Interval& interval : intervals) groups[GroupOf(tensors_[interval.tensor])].push_back(&interval);
    std::vector<std::pair<uint64_t, std::string_view>> by_size;
    for (const auto& [group, members] : groups) {
      uint64_t bytes = 0;
      for (const Interval* interval : members) bytes += interval->bytes;
      by_size.emplace_back(bytes, group);
    }
    std::sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    Shares shares(tensors_.size());
    for (const auto& item : by_size) {
      const uint64_t bytes = item.first;
      const std::string_view group = item.second;
      std::vector<uint64_t> has(load_.size(), 0);
      for (const Interval* interval : groups[group]) {
        for (const int rank : interval->ranks) has[At(rank)] += interval->bytes;
      }
      const auto cost = [&](int rank) { return load_[At(rank)] + bytes + (bytes - has[At(rank)]); };
      const int writer = *std::min_element(options_.writers.begin(), options_.writers.end(),
                                           [&](int a, int b) { return cost(a) < cost(b); });
      load_[At(writer)] += bytes;
      for (const Interval* interval : groups[group]) {
        const bool own = Has(*interval, writer);
        shares[interval->tensor].push_back({interval->elements, own ? writer : interval->ranks.front(), writer});
      }
    }
    return shares;
  }

  // Every writer its part: what it has itself where it can be, equal bytes where there is a choice.
  Shares ByBytes(const std::vector<Interval>& intervals) {
    std::vector<std::vector<int>> candidates(intervals.size());
    std::vector<size_t> order(intervals.size());
    for (size_t i = 0; i < intervals.size(); ++i) {
      std::set_intersection(intervals[i].ranks.begin(), intervals[i].ranks.end(), options_.writers.begin(),
                            options_.writers.end(), std::back_inserter(candidates[i]));
      order[i] = i;
    }
    // Without a choice first, then large before small.
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const bool only_a = candidates[a].size() == 1, only_b = candidates[b].size() == 1;
      if (only_a != only_b) return only_a;
      return intervals[a].bytes != intervals[b].bytes ? intervals[a].bytes > intervals[b].bytes : a < b;
    });
    std::vector<Share> chosen(intervals.size());
    for (const size_t i : order) {
      const bool travels = candidates[i].empty();
      const std::vector<int>& from = travels ? options_.writers : candidates[i];
      const int writer =
          *std::min_element(from.begin(), from.end(), [&](int a, int b) { return load_[At(a)] < load_[At(b)]; });
      load_[At(writer)] += intervals[i].bytes;
      chosen[i] = {intervals[i].elements, travels ? intervals[i].ranks.front() : writer, writer};
    }
    Shares shares(tensors_.size());
    for (size_t i = 0; i < intervals.size(); ++i) shares[intervals[i].tensor].push_back(chosen[i]);
    return shares;
  }

 private:
  static size_t At(int rank) { return static_cast<size_t>(rank); }
  static bool Has(const Interval& interval, int rank) {
    return std::binary_search(interval.ranks.begin(), interval.ranks.end(), rank);
  }

  const std::vector<CheckpointTensor>& tensors_;
  const PlanOptions& options_;
  std::vector<uint64_t> load_;
};

// The shares of one file: neighbouring ones of a tensor are one part of it.
Result<PlannedFile> MakeFile(const std::string& name, std::string_view group, int writer,
                             const std::vector<CheckpointTensor>& tensors, const Assignment::Shares& shares,
                             const PlanOptions& options) {
  struct Draft {
    PlannedPart part;
    std::vector<Assignment::Share> shares;
  };
  std::map<std::string, Draft> drafts;  // by key
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (GroupOf(tensors[i]) != group) continue;
    std::vector<Draft> parts;
    for (const Assignment::Share& share : shares[i]) {
      if (share.writer != writer) continue;
      if (parts.empty() || parts.back().part.elements.end != share.elements.begin) {
        parts.push_back({{i, {share.elements.begin, share.elements.begin}}, {}});
      }
      parts.back().part.elements.end = share.elements.end;
      parts.back().shares.push_back(share);
    }
    for (Draft& draft : parts) {
      const ElementRange& elements = draft.part.elements;
      const bool whole = elements == ElementRange{0, Numel(tensors[i])};
      const std::string key = whole ? std::string(KeyOf(tensors[i]))
                                    : fmt::format("{}[{}:{}]", KeyOf(tensors[i]), elements.begin, elements.end);
      specs.push_back({key, tensors[i].dtype, whole ? tensors[i].shape : std::vector<int64_t>{elements.size()}});
      drafts.emplace(key, std::move(draft));
    }
  }
  std::map<std::string, std::string> header = {{"format", "pt"}};  // what Python's loaders look for
  if (group == "model" || group == "ema") header.insert(options.metadata.begin(), options.metadata.end());
  Result<SafetensorsLayout> layout = LayoutSafetensors(specs, header);
  if (!layout.ok()) return layout.status().Context(fmt::format("checkpoint file {}", name));
  PlannedFile file{name, std::string(group), writer, std::move(*layout), {}, {}};
  for (const TensorInfo& stored : file.layout.tensors) {
    const Draft& draft = drafts.at(stored.name);
    file.parts.push_back(draft.part);
    const CheckpointTensor& tensor = tensors[draft.part.tensor];
    const auto bytes_of = [&](int64_t elements) {
      return static_cast<uint64_t>(elements) * static_cast<uint64_t>(DtypeBits(tensor.dtype)) / 8;
    };
    for (const Assignment::Share& share : draft.shares) {
      const uint64_t begin = bytes_of(share.elements.begin), bytes = bytes_of(share.elements.end) - begin;
      if (bytes == 0) continue;
      const uint64_t offset = stored.offset + begin - bytes_of(draft.part.elements.begin);
      FileSource* last = file.sources.empty() ? nullptr : &file.sources.back();
      if (last != nullptr && last->tensor == draft.part.tensor && last->rank == share.provider &&
          last->offset + last->bytes == offset) {
        last->bytes += bytes;
      } else {
        file.sources.push_back({share.provider, draft.part.tensor, begin, offset, bytes});
      }
    }
  }
  return file;
}

}  // namespace

Result<CheckpointPlan> PlanCheckpoint(const std::vector<CheckpointTensor>& tensors, const PlanOptions& options) {
  if (options.writers.empty()) return Status(Code::kInternal, "no rank sees the checkpoints folder");
  std::vector<Interval> intervals;
  uint64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(CheckTensor(tensors[i], options.world));
    LOCKSTEP_RETURN_IF_ERROR(AddIntervals(tensors[i], i, options.world, &intervals));
    total += tensors[i].bytes;
  }
  Assignment assignment(tensors, options);
  const bool split = total >= options.split_bytes && options.writers.size() > 1;
  const Assignment::Shares shares = split ? assignment.ByBytes(intervals) : assignment.ByGroup(intervals);
  std::map<std::string_view, std::set<int>> writers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const Assignment::Share& share : shares[i]) writers[GroupOf(tensors[i])].insert(share.writer);
  }
  CheckpointPlan plan;
  for (const auto& [group, ranks] : writers) {
    size_t number = 0;
    for (const int writer : ranks) {
      ++number;
      const std::string name = ranks.size() == 1
                                   ? fmt::format("{}.safetensors", group)
                                   : fmt::format("{}-{:05}-of-{:05}.safetensors", group, number, ranks.size());
      Result<PlannedFile> file = MakeFile(name, group, writer, tensors, shares, options);
      if (!file.ok()) return file.status();
      plan.bytes += file->layout.file_bytes;
      plan.files.push_back(std::move(*file));
    }
  }
  return plan;
}

std::map<std::string, std::string> WeightsMetadata(const CheckpointContent& content) {
  const auto identity = content.state.find("identity");
  if (identity == content.state.end() || !identity->is_object() || identity->empty()) return {};
  return {{"lockstep." + content.recipe, identity->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}};
}

const char* LocalBytes(const CheckpointTensor& tensor, int rank, uint64_t from) {
  const char* data = static_cast<const char*>(tensor.data);
  if (data == nullptr || tensor.ranges.empty()) return data == nullptr ? nullptr : data + from;
  const uint64_t element_bytes = static_cast<uint64_t>(DtypeBits(tensor.dtype)) / 8;
  for (const ElementRange& range : tensor.ranges[static_cast<size_t>(rank)]) {
    const uint64_t begin = static_cast<uint64_t>(range.begin) * element_bytes;
    const uint64_t end = static_cast<uint64_t>(range.end) * element_bytes;
    if (from < end) return data + (from - begin);
    data += end - begin;
  }
  return nullptr;
}

}  // namespace lockstep::record
