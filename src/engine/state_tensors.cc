#include "engine/state_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"

namespace lockstep::engine {
namespace {

struct TypeRow {
  at::ScalarType torch;
  Dtype stored;
};
constexpr TypeRow kTypes[] = {
    {at::kFloat, Dtype::kF32}, {at::kHalf, Dtype::kF16},  {at::kBFloat16, Dtype::kBF16}, {at::kDouble, Dtype::kF64},
    {at::kLong, Dtype::kI64},  {at::kInt, Dtype::kI32},   {at::kShort, Dtype::kI16},     {at::kChar, Dtype::kI8},
    {at::kByte, Dtype::kU8},   {at::kBool, Dtype::kBool},
};

std::optional<Dtype> Stored(at::ScalarType type) {
  for (const TypeRow& row : kTypes) {
    if (row.torch == type) return row.stored;
  }
  return std::nullopt;
}

int64_t Numel(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

Status CheckStored(const std::string& path, const StateTensor& tensor, const record::StoredTensor* stored) {
  if (stored == nullptr) {
    return Status(
        Code::kUsage, fmt::format("{}: it has no tensor {}", path, tensor.name),
        "resume with the settings it was written with (optimizer, train.ema, frozen groups), or --resume none");
  }
  const auto type = Stored(tensor.data.scalar_type());
  if (type && stored->dtype == *type && stored->shape == tensor.shape) return Status::Ok();
  return Status(Code::kUsage,
                fmt::format("{}: tensor {}: expected {}, found {}", path, tensor.name,
                            type ? DescribeTensor(*type, tensor.shape) : "another type",
                            DescribeTensor(stored->dtype, stored->shape)),
                "resume with the model it was written with");
}

// What one rank reads in one go.
struct Piece {
  record::PartPiece piece;
  size_t target = 0;  // of the state's tensors
  int64_t begin = 0;  // byte of the flattened tensor
  int64_t bytes = 0;
};

// By reader: its pieces. Whole parts are dealt out, so that each checksum is compared by one rank; equal bytes for all.
std::vector<std::vector<Piece>> DealOut(const record::CheckpointManifest& manifest,
                                        const std::vector<size_t>& stored_of, size_t readers, size_t piece_bytes) {
  std::vector<std::vector<Piece>> lists(readers);
  std::vector<uint64_t> load(readers, 0);
  for (size_t target = 0; target < stored_of.size(); ++target) {
    const record::StoredTensor& stored = manifest.tensors[stored_of[target]];
    const int64_t bits = DtypeBits(stored.dtype);
    for (size_t part = 0; part < stored.parts.size(); ++part) {
      const int64_t first = stored.parts[part].elements.begin * bits / 8;
      const auto total = static_cast<uint64_t>(stored.parts[part].elements.size() * bits / 8);
      const auto least = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
      load[least] += total;
      for (uint64_t at = 0; at < total; at += piece_bytes) {
        const uint64_t end = std::min<uint64_t>(at + piece_bytes, total);
        lists[least].push_back({{stored_of[target], part, at, end},
                                target,
                                first + static_cast<int64_t>(at),
                                static_cast<int64_t>(end - at)});
      }
    }
  }
  return lists;
}

// The elements of the piece that this rank has, into its flat memory.
void Take(const Piece& piece, const at::Tensor& bytes, const StateTensor& tensor, const at::Tensor& flat, int rank) {
  const auto element = static_cast<int64_t>(flat.element_size());
  const int64_t begin = piece.begin / element, end = begin + piece.bytes / element;
  const std::vector<record::ElementRange> all = {{0, Numel(tensor.shape)}};
  int64_t local = 0;
  for (const record::ElementRange& range : tensor.ranges.empty() ? all : tensor.ranges[static_cast<size_t>(rank)]) {
    const int64_t from = std::max(begin, range.begin), to = std::min(end, range.end);
    if (from < to) {
      const at::Tensor values =
          bytes.narrow(0, (from - begin) * element, (to - from) * element).view(flat.scalar_type());
      flat.narrow(0, local + from - range.begin, to - from).copy_(values);
    }
    local += range.size();
  }
}

}  // namespace

std::optional<at::ScalarType> TorchType(Dtype type) {
  for (const TypeRow& row : kTypes) {
    if (row.stored == type) return row.torch;
  }
  return std::nullopt;
}

void AddFlat(const std::string& prefix, const FlatParameters& flat, const at::Tensor& own, int world,
             std::vector<StateTensor>* tensors) {
  const std::vector<FlatParameter>& parameters = flat.parameters();
  const int shares = flat.layout().shares();
  const size_t first = tensors->size();
  const bool whole = own.numel() == flat.numel();
  for (const FlatParameter& parameter : parameters) {
    StateTensor tensor{prefix + parameter.name, parameter.shape, own.narrow(0, 0, 0), {}};
    if (whole) {
      tensor.data = FlatParameters::View(own, parameter);
    } else {
      tensor.ranges.resize(static_cast<size_t>(world));
    }
    tensors->push_back(std::move(tensor));
  }
  if (whole) return;
  for (int rank = 0; rank < world; ++rank) {
    for (const Segment& segment : flat.SegmentsOfShare(rank % shares)) {
      const int64_t begin = segment.flat - parameters[segment.parameter].offset;
      (*tensors)[first + segment.parameter].ranges[static_cast<size_t>(rank)].push_back(
          {begin, begin + segment.end - segment.begin});
    }
  }
  // Segments of a parameter lie side by side in the own part.
  std::map<size_t, std::pair<int64_t, int64_t>> spans;
  for (const Segment& segment : flat.owned().segments) {
    auto [span, fresh] = spans.emplace(segment.parameter, std::pair(segment.begin, segment.end));
    if (!fresh) span->second.second = segment.end;
  }
  for (const auto& [parameter, span] : spans) {
    (*tensors)[first + parameter].data = own.narrow(0, span.first, span.second - span.first);
  }
}

void AddFrozen(const std::string& prefix, const FlatParameters& flat, int world, std::vector<StateTensor>* tensors) {
  for (const FrozenParameter& parameter : flat.frozen().parameters()) {
    StateTensor tensor{prefix + parameter.name, parameter.shape, flat.frozen().OwnPart(parameter), {}};
    tensor.ranges.resize(static_cast<size_t>(world));
    for (int rank = 0; rank < world; ++rank) {
      const FlatRange range = flat.frozen().RangeOf(parameter, rank % flat.layout().shares());
      if (range.size() > 0) tensor.ranges[static_cast<size_t>(rank)].push_back({range.begin, range.end});
    }
    tensors->push_back(std::move(tensor));
  }
}

std::vector<record::CheckpointTensor> ForCheckpoint(const std::vector<StateTensor>& tensors, int rank, int world,
                                                    std::vector<at::Tensor>* hold) {
  std::vector<record::CheckpointTensor> out;
  for (const StateTensor& tensor : tensors) {
    const auto numel = static_cast<size_t>(Numel(tensor.shape));
    record::CheckpointTensor& one = out.emplace_back();
    one.name = tensor.name;
    one.dtype = Stored(tensor.data.scalar_type()).value_or(Dtype::kF32);
    one.shape = tensor.shape;
    one.bytes = numel * tensor.data.element_size();
    one.ranges = tensor.ranges;
    if (tensor.of_main && world > 1) {
      one.ranges.resize(static_cast<size_t>(world));
      one.ranges[0] = {{0, Numel(tensor.shape)}};
      if (rank != 0) continue;
    }
    at::Tensor dense = tensor.data.contiguous();
    if (tensor.moving && dense.is_same(tensor.data)) dense = dense.clone();
    one.data = dense.const_data_ptr();
    hold->push_back(std::move(dense));
  }
  return out;
}

Result<SharedCheckpoint> SharedCheckpoint::Open(const std::string& path, Ranks* ranks) {
  SharedCheckpoint shared;
  shared.path_ = path;
  Result<record::CheckpointReader> reader = record::CheckpointReader::Open(path);
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(ranks->is_main() ? reader.status() : Status::Ok()));
  // The others take what rank 0 has read; a folder of the same name on another disk may hold something else.
  std::string text;
  if (ranks->is_main()) {
    text = ToJsonLine({{"checksum", reader->manifest().checksum}, {"text", record::WriteManifest(reader->manifest())}});
  }
  Result<std::vector<std::string>> told = ranks->host().Gather(text);
  if (!told.ok()) return told.status();
  const Result<nlohmann::json> json = ParseJson(told->front(), "manifest of the checkpoint");
  if (!json.ok()) return json.status();
  Result<record::CheckpointManifest> manifest = record::ParseManifest(GetString(*json, "text"), path);
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(manifest.status()));
  shared.manifest_ = std::move(*manifest);
  const bool sees = reader.ok() && reader->manifest().checksum == GetString(*json, "checksum");
  if (sees) shared.reader_ = std::move(*reader);
  told = ranks->host().Gather(sees ? "sees" : "");
  if (!told.ok()) return told.status();
  for (size_t r = 0; r < told->size(); ++r) {
    if (!(*told)[r].empty()) shared.readers_.push_back(static_cast<int>(r));
  }
  return shared;
}

Status SharedCheckpoint::Verify(Ranks* ranks) const {
  std::vector<size_t> all(manifest_.tensors.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto lists = DealOut(manifest_, all, readers_.size(), size_t{4} << 20);
  Status mine;
  Checksum sum;
  std::string scratch;
  for (size_t r = 0; r < lists.size(); ++r) {
    if (readers_[r] != ranks->rank()) continue;
    for (const Piece& piece : lists[r]) {
      scratch.resize(static_cast<size_t>(piece.bytes));
      if (mine.ok()) mine = reader_->Read(piece.piece, scratch.data(), &sum);
    }
  }
  return ranks->Agree(mine);
}

Status WithVerification(Ranks* ranks, const std::function<void(const VerifyCheckpoint& verify)>& work) {
  if (ranks->size() == 1) {
    work({});
    return Status::Ok();
  }
  const auto together = [ranks](const std::string& path) {
    const Result<SharedCheckpoint> checkpoint = SharedCheckpoint::Open(path, ranks);
    return checkpoint.ok() ? checkpoint->Verify(ranks) : checkpoint.status();
  };
  if (ranks->is_main()) {
    work([&](const std::string& path) {
      const Result<std::vector<std::string>> told = ranks->host().Gather(path);
      return told.ok() ? together(path) : told.status();
    });
    return ranks->host().Gather("").status();
  }
  for (;;) {
    const Result<std::vector<std::string>> told = ranks->host().Gather("");
    if (!told.ok()) return told.status();
    if (told->front().empty()) return Status::Ok();
    (void)together(told->front());  // rank 0 has the same outcome, and acts on it
  }
}

Status SharedCheckpoint::Read(const std::vector<StateTensor>& tensors, Ranks* ranks, size_t piece_bytes) const {
  std::map<std::string_view, size_t> index;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) index.emplace(manifest_.tensors[i].name, i);
  std::vector<size_t> stored_of;
  std::vector<at::Tensor> flats;
  at::Device device = at::kCPU;
  Status known;
  for (const StateTensor& tensor : tensors) {
    const auto found = index.find(tensor.name);
    const Status status =
        CheckStored(path_, tensor, found == index.end() ? nullptr : &manifest_.tensors[found->second]);
    if (known.ok()) known = status;
    stored_of.push_back(found == index.end() ? 0 : found->second);
    flats.push_back(tensor.data.detach().contiguous().view({-1}));
    if (!tensor.data.device().is_cpu()) device = tensor.data.device();
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks->Agree(known));

  const at::NoGradGuard no_grad;
  piece_bytes = std::max<size_t>(piece_bytes / 64, 1) * 64;  // whole elements
  const auto lists = DealOut(manifest_, stored_of, readers_.size(), piece_bytes);
  size_t rounds = 0, largest = 0;
  for (const auto& list : lists) {
    rounds = std::max(rounds, list.size());
    for (const Piece& piece : list) largest = std::max(largest, static_cast<size_t>(piece.bytes));
  }
  const at::Tensor host = at::empty({static_cast<int64_t>(largest)}, at::kByte);
  const at::Tensor wire = at::empty({static_cast<int64_t>(largest)}, at::TensorOptions(at::kByte).device(device));
  Status mine;
  Checksum sum;
  for (size_t round = 0; round < rounds; ++round) {  // all readers read at once, then each is heard in turn
    for (size_t r = 0; r < lists.size(); ++r) {
      if (readers_[r] != ranks->rank() || round >= lists[r].size() || !mine.ok()) continue;
      mine = reader_->Read(lists[r][round].piece, host.data_ptr(), &sum);
    }
    for (size_t r = 0; r < lists.size(); ++r) {
      if (round >= lists[r].size()) continue;
      const Piece& piece = lists[r][round];
      const bool own = readers_[r] == ranks->rank();
      const at::Tensor bytes = (own && device.is_cpu() ? host : wire).narrow(0, 0, piece.bytes);
      if (own && !device.is_cpu()) bytes.copy_(host.narrow(0, 0, piece.bytes));
      if (ranks->size() > 1) LOCKSTEP_RETURN_IF_ERROR(ranks->tensors().Broadcast(bytes, readers_[r]).Wait());
      Take(piece, bytes, tensors[piece.target], flats[piece.target], ranks->rank());
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (flats[i].numel() > 0 && flats[i].const_data_ptr() != tensors[i].data.const_data_ptr()) {
      at::Tensor(tensors[i].data).copy_(flats[i].view(tensors[i].data.sizes()));
    }
  }
  return ranks->Agree(mine);
}

}  // namespace lockstep::engine
