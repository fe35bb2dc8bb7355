#include "comm/collectives.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace lockstep::comm {
namespace {

// Sums up to this size go to every node at once instead of piece by piece: one trip instead of two.
constexpr size_t kDirectBytes = size_t{8} << 10;

size_t ElementSize(const Descriptor& what) {
  const bool bytes = what.kind == Kind::kBroadcast || what.kind == Kind::kSend || what.kind == Kind::kGather ||
                     what.kind == Kind::kAllocate;
  return bytes ? 1 : SizeOf(what.dtype);
}

// The r-th of n nearly equal parts of `count` elements, cut at multiples of 64 so that ranks share no cache line.
std::pair<size_t, size_t> Cut(size_t count, int n, int r) {
  const size_t each = ((count + static_cast<size_t>(n) - 1) / static_cast<size_t>(n) + 63) / 64 * 64;
  const size_t first = std::min(count, each * static_cast<size_t>(r));
  return {first, std::min(count, first + each)};
}

void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) CopyBytes(to, from, bytes);
}

std::byte* Bytes(void* p) { return static_cast<std::byte*>(p); }
const std::byte* Bytes(const void* p) { return static_cast<const std::byte*>(p); }

void ReduceInto(const std::vector<const void*>& sources, DType in, void* out, DType out_type, size_t count, Op op) {
  ReduceTree(sources.data(), static_cast<int>(sources.size()), in, &out, 1, out_type, count, op);
}

}  // namespace

Collectives::Collectives(const RendezvousResult& rendezvous, std::unique_ptr<NodeGroup> node,
                         std::unique_ptr<Links> links)
    : identity_(rendezvous.identity),
      ranks_of_(rendezvous.ranks_of),
      packed_(static_cast<size_t>(rendezvous.identity.size)),
      node_(std::move(node)),
      links_(std::move(links)),
      incoming_(static_cast<size_t>(rendezvous.identity.nodes)) {
  size_t position = 0;
  for (const auto& ranks : ranks_of_) {
    for (int rank : ranks) packed_[static_cast<size_t>(rank)] = position++;
  }
}

std::vector<double> Collectives::Waits() const {
  std::vector<double> waits(static_cast<size_t>(identity_.size), 0);
  const std::vector<int>& local = ranks_of_[static_cast<size_t>(identity_.node)];
  for (int r = 0; r < node_->size(); ++r) {
    waits[static_cast<size_t>(local[static_cast<size_t>(r)])] += node_->Waited(r);
  }
  for (int node = 0; links_ != nullptr && node < links_->nodes(); ++node) {
    if (node != identity_.node) waits[static_cast<size_t>(links_->first_rank(node))] += links_->Waited(node);
  }
  return waits;
}

SharedBuffer Collectives::NewestBuffer() const {
  std::lock_guard lock(mutex_);
  const Buffer& newest = buffers_.back();
  return SharedBuffer(newest.memory[static_cast<size_t>(node_->rank())], newest.bytes);
}

void Collectives::Find(const void* data, size_t bytes, uint32_t* buffer, uint64_t* offset) const {
  std::lock_guard lock(mutex_);
  for (size_t k = 0; k < buffers_.size(); ++k) {
    const std::byte* base = buffers_[k].memory[static_cast<size_t>(node_->rank())].get();
    if (Bytes(data) < base || Bytes(data) + bytes > base + buffers_[k].bytes) continue;
    *buffer = static_cast<uint32_t>(k);
    *offset = static_cast<uint64_t>(Bytes(data) - base);
    return;
  }
}

std::byte* Collectives::PeerInput(int local, const Descriptor& mine) const {
  return buffers_[mine.in_buffer].memory[static_cast<size_t>(local)].get() + mine.in_offset;
}
std::byte* Collectives::PeerOutput(int local, const Descriptor& mine) const {
  return buffers_[mine.out_buffer].memory[static_cast<size_t>(local)].get() + mine.out_offset;
}

Status Collectives::Compare(const Descriptor& mine) {
  same_in_ = same_out_ = true;
  const Descriptor first = node_->Slot(0, mine.sequence);
  for (int r = 1; r < node_->size(); ++r) {
    const Descriptor& other = node_->Slot(r, mine.sequence);
    if (!Same(first, other)) {
      const auto& ranks = ranks_of_[static_cast<size_t>(identity_.node)];
      return Mismatch(ranks[static_cast<size_t>(r)], other, ranks[0], first);
    }
    same_in_ = same_in_ && other.in_buffer == first.in_buffer && other.in_offset == first.in_offset;
    same_out_ = same_out_ && other.out_buffer == first.out_buffer && other.out_offset == first.out_offset;
  }
  return {};
}

Status Collectives::Run(const Operation& o, TimePoint deadline) {
  const Descriptor& what = o.what;
  deadline_ = deadline;
  step_ = 0;
  const size_t bytes = what.count * ElementSize(what);
  const size_t ranks = what.kind == Kind::kReduceScatter ? static_cast<size_t>(identity_.size) : 1;
  const bool small = identity_.nodes == 1 && what.kind != Kind::kAllocate && bytes * ranks <= kSmallBytes;
  if (node_->size() > 1) {
    const bool rooted = what.kind == Kind::kBroadcast || what.kind == Kind::kSend;
    if (small && (!rooted || what.root == identity_.rank)) {
      Copy(node_->Small(node_->rank(), what.sequence), o.in, bytes * ranks);
    }
    node_->Slot(node_->rank(), what.sequence) = what;
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    LOCKSTEP_RETURN_IF_ERROR(Compare(what));
    if (small) return Small(o);
  } else {
    same_in_ = same_out_ = true;
  }
  switch (what.kind) {
    case Kind::kAllReduce:
      return AllReduce(o);
    case Kind::kReduceScatter:
      return identity_.nodes == 1 ? ReduceScatter(o) : ReduceScatterAcrossNodes(o);
    case Kind::kGather:
    case Kind::kAllGather:
      return identity_.nodes == 1 ? AllGather(o) : AllGatherAcrossNodes(o);
    case Kind::kBroadcast:
      return Broadcast(o);
    case Kind::kSend:
      return Send(o);
    case Kind::kBarrier: {
      LOCKSTEP_RETURN_IF_ERROR(SyncOverNodes(o, -1, nullptr, 0));
      return identity_.nodes == 1 ? Status() : Sync();
    }
    case Kind::kAllocate:
      return Allocate(o);
    case Kind::kNone:
      break;
  }
  return Status(Code::kInternal, "an operation of no kind");
}

// Every rank of the node has put its payload into its slot and has arrived.
Status Collectives::Small(const Operation& o) {
  const Descriptor& what = o.what;
  const int n = node_->size();
  const size_t bytes = what.count * ElementSize(what);
  if (what.kind == Kind::kBroadcast) {
    if (what.root != identity_.rank) Copy(o.out, node_->Small(what.root, what.sequence), bytes);
    CountShm(bytes);
  } else if (what.kind == Kind::kSend) {
    if (what.to == identity_.rank && what.to != what.root) Copy(o.out, node_->Small(what.root, what.sequence), bytes);
    if (what.to == identity_.rank || what.root == identity_.rank) CountShm(bytes);
  } else if (what.kind == Kind::kAllGather || what.kind == Kind::kGather) {
    for (int r = 0; r < n; ++r) {
      Copy(Bytes(o.out) + static_cast<size_t>(r) * bytes, node_->Small(r, what.sequence), bytes);
    }
    CountShm(bytes * static_cast<size_t>(n));
  } else if (what.kind != Kind::kBarrier) {
    const size_t skip = what.kind == Kind::kReduceScatter ? static_cast<size_t>(identity_.rank) * bytes : 0;
    const void* few[16];
    std::vector<const void*> many(n > 16 ? static_cast<size_t>(n) : 0);
    const void** sources = n > 16 ? many.data() : few;
    for (int r = 0; r < n; ++r) sources[r] = node_->Small(r, what.sequence) + skip;
    ReduceTree(sources, n, what.dtype, &const_cast<Operation&>(o).out, 1, what.dtype, what.count, what.op);
    CountShm(bytes * static_cast<size_t>(n));
  }
  return {};
}

Status Collectives::AllReduceInPlace(const Operation& o) {
  const Descriptor& what = o.what;
  const int n = node_->size();
  const size_t size = SizeOf(what.dtype);
  const auto [first, last] = Cut(what.count, n, node_->rank());
  std::vector<const void*> sources;
  std::vector<void*> outs;
  for (int r = 0; r < n; ++r) {
    sources.push_back(PeerInput(r, what) + first * size);
    outs.push_back(PeerInput(r, what) + first * size);
  }
  ReduceTree(sources.data(), n, what.dtype, outs.data(), n, what.dtype, last - first, what.op);
  CountShm((last - first) * size * 2 * static_cast<size_t>(n - 1));
  return Sync();
}

Status Collectives::AllReduce(const Operation& o) {
  const Descriptor& what = o.what;
  const int n = node_->size();
  const int me = node_->rank();
  const bool across = identity_.nodes > 1;
  const bool in_place = SameInput(what);
  if (n == 1 && !across) return {};
  if (in_place && !across) return AllReduceInPlace(o);

  const size_t size = SizeOf(what.dtype);
  const DType partial = AccumulatorOf(what.dtype);
  const size_t most = node_->staging_bytes() / size;
  std::byte* data = Bytes(o.out);
  size_t at = 0;
  do {  // at least once: other nodes compare what is asked for even when there is nothing to add
    const size_t count = std::min(most, what.count - at);
    std::byte* own = data + at * size;
    const auto [first, last] = Cut(count, n, me);
    if (n > 1 && !in_place) {  // what the others add up
      Copy(node_->Staging(me), own, first * size);
      Copy(node_->Staging(me) + last * size, own + last * size, (count - last) * size);
      CountShm((count - (last - first)) * size);
    }
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    std::vector<const void*> sources;
    for (int r = 0; r < n; ++r) {
      const std::byte* base = r == me ? own : in_place ? PeerInput(r, what) + at * size : node_->Staging(r);
      sources.push_back(base + first * size);
    }
    CountShm((last - first) * size * static_cast<size_t>(n));
    if (across) {
      ReduceInto(sources, what.dtype, node_->PartialArea() + first * SizeOf(partial), partial, last - first, what.op);
      LOCKSTEP_RETURN_IF_ERROR(Sync());
      std::vector<Part> parts;
      for (int node = 0; node < identity_.nodes; ++node) {
        const auto [from, to] = Cut(count, identity_.nodes, node);
        parts.push_back({from, to});
      }
      LOCKSTEP_RETURN_IF_ERROR(ReduceOverNodes(o, parts, count, true));
      LOCKSTEP_RETURN_IF_ERROR(Sync());
      Copy(own, node_->ResultArea(), count * size);
      CountShm(count * size);
    } else {
      void* outs[2] = {own + first * size, node_->ResultArea() + first * size};
      ReduceTree(sources.data(), n, what.dtype, outs, 2, what.dtype, last - first, what.op);
      LOCKSTEP_RETURN_IF_ERROR(Sync());
      Copy(own, node_->ResultArea(), first * size);
      Copy(own + last * size, node_->ResultArea() + last * size, (count - last) * size);
      CountShm((count - (last - first)) * size);
    }
    at += count;
  } while (at < what.count);
  return {};
}

// One node: each rank adds up its own part, straight into its output.
Status Collectives::ReduceScatter(const Operation& o) {
  const Descriptor& what = o.what;
  const int n = node_->size();
  const int me = node_->rank();
  const size_t size = SizeOf(what.dtype);
  const size_t part = what.count * size;
  const bool in_place = SameInput(what);
  const auto own = static_cast<size_t>(me);
  if (n == 1) {
    Copy(o.out, o.in, part);
    return {};
  }
  const size_t most =
      in_place ? what.count : std::max<size_t>(1, node_->staging_bytes() / size / static_cast<size_t>(n));
  for (size_t at = 0; at < what.count; at += most) {
    const size_t count = std::min(most, what.count - at);
    if (!in_place) {
      for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
        if (r != own) Copy(node_->Staging(me) + r * count * size, Bytes(o.in) + r * part + at * size, count * size);
      }
      CountShm(count * size * static_cast<size_t>(n - 1));
      LOCKSTEP_RETURN_IF_ERROR(Sync());
    }
    std::vector<const void*> sources;
    for (int r = 0; r < n; ++r) {
      sources.push_back(r == me    ? Bytes(o.in) + own * part + at * size
                        : in_place ? PeerInput(r, what) + own * part + at * size
                                   : node_->Staging(r) + own * count * size);
    }
    ReduceInto(sources, what.dtype, Bytes(o.out) + at * size, what.dtype, count, what.op);
    CountShm(count * size * static_cast<size_t>(n - 1));
    LOCKSTEP_RETURN_IF_ERROR(Sync());  // the inputs may be overwritten again
  }
  return {};
}

Status Collectives::ReduceScatterAcrossNodes(const Operation& o) {
  const Descriptor& what = o.what;
  const int n = node_->size();
  const int me = node_->rank();
  const auto all = static_cast<size_t>(identity_.size);
  const size_t size = SizeOf(what.dtype);
  const DType partial = AccumulatorOf(what.dtype);
  const size_t most = std::max<size_t>(1, node_->staging_bytes() / size / all);
  size_t at = 0;
  do {
    const size_t count = std::min(most, what.count - at);
    for (size_t rank = 0; rank < all; ++rank) {  // ordered by node, so that a node's part is one piece
      Copy(node_->Staging(me) + packed_[rank] * count * size, Bytes(o.in) + (rank * what.count + at) * size,
           count * size);
    }
    CountShm(all * count * size);
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    const auto [first, last] = Cut(all * count, n, me);
    std::vector<const void*> sources;
    for (int r = 0; r < n; ++r) sources.push_back(node_->Staging(r) + first * size);
    ReduceInto(sources, what.dtype, node_->PartialArea() + first * SizeOf(partial), partial, last - first, what.op);
    CountShm((last - first) * size * static_cast<size_t>(n));
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    std::vector<Part> parts;
    size_t position = 0;
    for (const auto& ranks : ranks_of_) {
      parts.push_back({position * count, (position + ranks.size()) * count});
      position += ranks.size();
    }
    LOCKSTEP_RETURN_IF_ERROR(ReduceOverNodes(o, parts, all * count, false));
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    const size_t mine = packed_[static_cast<size_t>(identity_.rank)] * count;
    Copy(Bytes(o.out) + at * size, node_->ResultArea() + mine * size, count * size);
    CountShm(count * size);
    at += count;
  } while (at < what.count);
  return {};
}

Status Collectives::AllGather(const Operation& o) {
  const Descriptor& what = o.what;
  const int n = node_->size();
  const int me = node_->rank();
  const size_t part = what.count * ElementSize(what);
  std::byte* out = Bytes(o.out);
  const auto own = static_cast<size_t>(me);
  if (n == 1) {
    Copy(out, o.in, part);
    return {};
  }
  if (SameOutput(what)) {  // every rank writes its part into everybody's output
    for (int r = 0; r < n; ++r) Copy(PeerOutput(r, what) + own * part, o.in, part);
    CountShm(part * static_cast<size_t>(n - 1));
    return Sync();
  }
  const bool in_place = SameInput(what);
  const size_t most = in_place ? std::max<size_t>(part, 1) : node_->staging_bytes();
  for (size_t at = 0; at < part; at += most) {
    const size_t bytes = std::min(most, part - at);
    if (!in_place) {
      Copy(node_->Staging(me), Bytes(o.in) + at, bytes);
      CountShm(bytes);
      LOCKSTEP_RETURN_IF_ERROR(Sync());
    }
    for (int r = 0; r < n; ++r) {
      const std::byte* from = r == me ? Bytes(o.in) + at : in_place ? PeerInput(r, what) + at : node_->Staging(r);
      Copy(out + static_cast<size_t>(r) * part + at, from, bytes);
    }
    CountShm(bytes * static_cast<size_t>(n - 1));
    LOCKSTEP_RETURN_IF_ERROR(Sync());
  }
  return {};
}

Status Collectives::AllGatherAcrossNodes(const Operation& o) {
  const Descriptor& what = o.what;
  const auto all = static_cast<size_t>(identity_.size);
  const size_t part = what.count * ElementSize(what);
  const size_t most = std::max<size_t>(1, node_->staging_bytes() / all);
  size_t at = 0;
  do {
    const size_t bytes = std::min(most, part - at);
    Copy(node_->ResultArea() + packed_[static_cast<size_t>(identity_.rank)] * bytes, Bytes(o.in) + at, bytes);
    CountShm(bytes);
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    std::vector<Part> parts;
    size_t position = 0;
    for (const auto& ranks : ranks_of_) {
      parts.push_back({position * bytes, (position + ranks.size()) * bytes});
      position += ranks.size();
    }
    LOCKSTEP_RETURN_IF_ERROR(GatherOverNodes(o, parts, node_->ResultArea()));
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    for (size_t rank = 0; rank < all; ++rank) {
      Copy(Bytes(o.out) + rank * part + at, node_->ResultArea() + packed_[rank] * bytes, bytes);
    }
    CountShm(all * bytes);
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    at += bytes;
  } while (at < part);
  return {};
}

Status Collectives::Broadcast(const Operation& o) {
  const Descriptor& what = o.what;
  const bool across = identity_.nodes > 1;
  const bool root = what.root == identity_.rank;
  if (identity_.size == 1) return {};
  int root_node = 0;
  int root_local = 0;
  for (size_t node = 0; node < ranks_of_.size(); ++node) {
    const auto found = std::find(ranks_of_[node].begin(), ranks_of_[node].end(), what.root);
    if (found == ranks_of_[node].end()) continue;
    root_node = static_cast<int>(node);
    root_local = static_cast<int>(found - ranks_of_[node].begin());
  }
  if (!across && SameOutput(what)) {
    if (!root) Copy(o.out, PeerOutput(root_local, what), what.count);
    CountShm(root ? 0 : what.count);
    return Sync();
  }
  size_t at = 0;
  do {
    const size_t bytes = std::min(node_->staging_bytes(), what.count - at);
    if (root) {
      Copy(node_->ResultArea(), Bytes(o.out) + at, bytes);
      CountShm(bytes);
    }
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    if (across) {
      LOCKSTEP_RETURN_IF_ERROR(SyncOverNodes(o, root_node, node_->ResultArea(), bytes));
      LOCKSTEP_RETURN_IF_ERROR(Sync());
    }
    if (!root) {
      Copy(Bytes(o.out) + at, node_->ResultArea(), bytes);
      CountShm(bytes);
    }
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    at += bytes;
  } while (at < what.count);
  return {};
}

int Collectives::NodeOf(int rank) const {
  for (size_t node = 0; node < ranks_of_.size(); ++node) {
    if (std::find(ranks_of_[node].begin(), ranks_of_[node].end(), rank) != ranks_of_[node].end()) {
      return static_cast<int>(node);
    }
  }
  return 0;
}

// Through the area of the first rank of each of the two nodes; the ranks in between only keep step.
Status Collectives::Send(const Operation& o) {
  const Descriptor& what = o.what;
  if (identity_.size == 1) return {};
  const int from_node = NodeOf(what.root), to_node = NodeOf(what.to);
  const bool across = from_node != to_node;
  size_t at = 0;
  do {
    const size_t bytes = std::min(node_->staging_bytes(), what.count - at);
    if (what.root == identity_.rank && what.root != what.to) {
      Copy(node_->ResultArea(), Bytes(o.in) + at, bytes);
      CountShm(bytes);
    }
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    if (identity_.nodes > 1) {  // the others compare what is asked for, once
      LOCKSTEP_RETURN_IF_ERROR(
          SyncOverNodes(o, across ? from_node : -1, node_->ResultArea(), across ? bytes : 0, to_node));
      LOCKSTEP_RETURN_IF_ERROR(Sync());
    }
    if (what.to == identity_.rank && what.root != what.to) {
      Copy(Bytes(o.out) + at, node_->ResultArea(), bytes);
      CountShm(bytes);
    }
    LOCKSTEP_RETURN_IF_ERROR(Sync());
    at += bytes;
  } while (at < what.count);
  return {};
}

Status Collectives::Allocate(const Operation& o) {
  LOCKSTEP_RETURN_IF_ERROR(SyncOverNodes(o, -1, nullptr, 0));
  auto memory = node_->Exchange(std::max<size_t>(1, o.what.count), deadline_);
  if (!memory.ok()) return memory.status();
  std::lock_guard lock(mutex_);
  buffers_.push_back({o.what.count, std::move(*memory)});
  return {};
}

// PartialArea -> ResultArea. Node k adds up parts[k]; with `gather`, everybody then gets all parts.
Status Collectives::ReduceOverNodes(const Operation& o, const std::vector<Part>& parts, size_t count, bool gather) {
  if (links_ == nullptr) return {};
  const Descriptor& what = o.what;
  const DType partial = AccumulatorOf(what.dtype);
  const size_t wide = SizeOf(partial);
  const size_t size = SizeOf(what.dtype);
  const bool direct = gather && count * wide <= kDirectBytes;
  const auto me = static_cast<size_t>(identity_.node);
  const Part mine = direct ? Part{0, count} : parts[me];
  const size_t bytes = (mine.last - mine.first) * wide;
  std::byte* area = node_->PartialArea();
  std::vector<Transfer> transfers;
  std::vector<const void*> sources;
  for (size_t node = 0; node < parts.size(); ++node) {
    if (node == me) {
      sources.push_back(area + mine.first * wide);
      continue;
    }
    if (incoming_[node].size() < bytes) incoming_[node].resize(bytes);
    const Part theirs = direct ? mine : parts[node];
    transfers.push_back({static_cast<int>(node), area + theirs.first * wide, (theirs.last - theirs.first) * wide,
                         incoming_[node].data(), bytes, true, true});
    sources.push_back(incoming_[node].data());
  }
  LOCKSTEP_RETURN_IF_ERROR(links_->Exchange(what, step_++, transfers, deadline_));
  ReduceInto(sources, partial, node_->ResultArea() + mine.first * size, what.dtype, mine.last - mine.first, what.op);
  tcp_bytes_.store(links_->bytes_sent(), std::memory_order_relaxed);
  if (direct || !gather) return {};
  std::vector<Part> in_bytes;
  for (const Part& part : parts) in_bytes.push_back({part.first * size, part.last * size});
  return GatherOverNodes(o, in_bytes, node_->ResultArea());
}

// Node k has parts[k] (bytes) of the area; afterwards everybody has everything.
Status Collectives::GatherOverNodes(const Operation& o, const std::vector<Part>& parts, std::byte* area) {
  if (links_ == nullptr) return {};
  const auto me = static_cast<size_t>(identity_.node);
  std::vector<Transfer> transfers;
  for (size_t node = 0; node < parts.size(); ++node) {
    if (node == me) continue;
    transfers.push_back({static_cast<int>(node), area + parts[me].first, parts[me].last - parts[me].first,
                         area + parts[node].first, parts[node].last - parts[node].first, true, true});
  }
  LOCKSTEP_RETURN_IF_ERROR(links_->Exchange(o.what, step_++, transfers, deadline_));
  tcp_bytes_.store(links_->bytes_sent(), std::memory_order_relaxed);
  return {};
}

// Every node tells every other what it is in; root_node's message carries data, to to_node (-1: to all). After the
// first step only that travels.
Status Collectives::SyncOverNodes(const Operation& o, int root_node, std::byte* data, size_t bytes, int to_node) {
  if (links_ == nullptr) return {};
  std::vector<Transfer> transfers;
  for (int node = 0; node < identity_.nodes; ++node) {
    if (node == identity_.node) continue;
    const bool from_me = root_node == identity_.node && (to_node < 0 || to_node == node);
    const bool from_it = root_node == node && (to_node < 0 || to_node == identity_.node);
    transfers.push_back(
        {node, data, from_me ? bytes : 0, data, from_it ? bytes : 0, step_ == 0 || from_me, step_ == 0 || from_it});
  }
  LOCKSTEP_RETURN_IF_ERROR(links_->Exchange(o.what, step_++, transfers, deadline_));
  tcp_bytes_.store(links_->bytes_sent(), std::memory_order_relaxed);
  return {};
}

}  // namespace lockstep::comm
