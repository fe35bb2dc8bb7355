#include "base/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "base/pickle.h"
#include "base/zip.h"

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kMaxPickle = 64u << 20;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxLeaves = 1u << 20;
constexpr size_t kMaxNameBytes = 256u << 20;
constexpr char kUntyped[] = "torch.storage.UntypedStorage";
constexpr char kRebuildV2[] = "torch._utils._rebuild_tensor_v2";
constexpr char kRebuildV3[] = "torch._utils._rebuild_tensor_v3";
constexpr char kRebuildParameter[] = "torch._utils._rebuild_parameter";

struct NamedType {
  std::string_view name;
  Dtype dtype;
};

constexpr NamedType kStorages[] = {
    {"torch.DoubleStorage", Dtype::kF64},       {"torch.FloatStorage", Dtype::kF32},
    {"torch.HalfStorage", Dtype::kF16},         {"torch.LongStorage", Dtype::kI64},
    {"torch.IntStorage", Dtype::kI32},          {"torch.ShortStorage", Dtype::kI16},
    {"torch.CharStorage", Dtype::kI8},          {"torch.ByteStorage", Dtype::kU8},
    {"torch.BoolStorage", Dtype::kBool},        {"torch.BFloat16Storage", Dtype::kBF16},
    {"torch.ComplexFloatStorage", Dtype::kC64},
};

// As _rebuild_tensor_v3 names them; the types without a storage class of their own need it.
constexpr NamedType kTypes[] = {
    {"torch.float64", Dtype::kF64},
    {"torch.float32", Dtype::kF32},
    {"torch.float16", Dtype::kF16},
    {"torch.bfloat16", Dtype::kBF16},
    {"torch.int64", Dtype::kI64},
    {"torch.int32", Dtype::kI32},
    {"torch.int16", Dtype::kI16},
    {"torch.int8", Dtype::kI8},
    {"torch.uint8", Dtype::kU8},
    {"torch.bool", Dtype::kBool},
    {"torch.complex64", Dtype::kC64},
    {"torch.uint16", Dtype::kU16},
    {"torch.uint32", Dtype::kU32},
    {"torch.uint64", Dtype::kU64},
    {"torch.float8_e5m2", Dtype::kF8E5M2},
    {"torch.float8_e4m3fn", Dtype::kF8E4M3},
    {"torch.float8_e8m0fnu", Dtype::kF8E8M0},
    {"torch.float8_e4m3fnuz", Dtype::kF8E4M3Fnuz},
    {"torch.float8_e5m2fnuz", Dtype::kF8E5M2Fnuz},
};

std::optional<Dtype> Lookup(std::span<const NamedType> table, std::string_view name) {
  for (const NamedType& row : table) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool Allowed(std::string_view name) {
  return name == kRebuildV2 || name == kRebuildV3 || name == kRebuildParameter || name == kUntyped ||
         Lookup(kStorages, name) || Lookup(kTypes, name);
}

Status DamagedTorchFile(const std::string& path, const std::string& what) {
  return Status(Code::kEnvironment, fmt::format("'{}': {}", path, what), "the file is damaged: fetch or save it again");
}

// How a tensor lies in its storage.
struct View {
  const ZipEntry* storage = nullptr;
  uint64_t offset = 0;  // bytes
  std::vector<int64_t> strides;
  bool dense = false;
};

class TorchFile : public Weights {
 public:
  explicit TorchFile(ZipFile zip) : zip_(std::move(zip)) {}

  Status Load();
  std::string_view format() const override { return "torch.save"; }
  const std::string& path() const override { return zip_.path(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  Status Read(std::string_view name, void* dst, size_t bytes) const override;

 private:
  Status Flatten(const Pickle& pickle);
  Status AddTensor(const Pickle& pickle, const PickleValue& call, const std::string& name);
  Result<View> StorageOf(const Pickle& pickle, uint32_t persistent, std::optional<Dtype>* dtype, uint64_t* bytes) const;
  Status CheckRange(const TensorInfo& tensor, View& view, uint64_t storage_bytes) const;
  Status Gather(const TensorInfo& tensor, const View& view, char* dst) const;

  ZipFile zip_;
  std::string prefix_;
  std::vector<TensorInfo> tensors_;
  std::vector<View> views_;  // one per tensor
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

Status TorchFile::Load() {
  const ZipEntry* pickle_entry = nullptr;
  for (const ZipEntry& entry : zip_.entries()) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != "data.pkl") continue;
    if (pickle_entry != nullptr) return DamagedTorchFile(path(), "holds two data.pkl");
    pickle_entry = &entry;
    prefix_ = entry.name.substr(0, slash + 1);
  }
  if (pickle_entry == nullptr) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' is a zip archive without data.pkl: not written by torch.save", path()),
                  "give a state dict saved by torch.save, or a safetensors file");
  }
  if (zip_.Find(prefix_ + "constants.pkl") != nullptr) {
    return Status(Code::kEnvironment, fmt::format("'{}' is a TorchScript program, not a state dict", path()),
                  "save the weights alone in Python: torch.save(torch.jit.load(path).state_dict(), new_path)");
  }
  LOCKSTEP_RETURN_IF_ERROR(zip_.CheckStored());
  if (const ZipEntry* order = zip_.Find(prefix_ + "byteorder"); order != nullptr) {
    Result<std::string> text = zip_.ReadAll(*order, 16);
    if (!text.ok()) return text.status();
    if (*text != "little") {
      return Status(Code::kEnvironment, fmt::format("'{}' was written in byte order '{}'", path(), *text),
                    "load and save it again on a little-endian machine");
    }
  }
  Result<std::string> data = zip_.ReadAll(*pickle_entry, kMaxPickle);
  if (!data.ok()) return data.status();
  Result<Pickle> pickle = ParsePickle(*data, path(), Allowed);
  if (!pickle.ok()) return pickle.status();
  return Flatten(*pickle);
}

// Keys of dicts and places in lists become dotted names. Shared containers are visited as often as they are mentioned,
// hence the limits: a few nested mentions could otherwise name more leaves than there are atoms.
Status TorchFile::Flatten(const Pickle& pickle) {
  struct Visit {
    uint32_t value;
    std::string name;
    size_t depth;
  };
  size_t visits = 0, name_bytes = 0;
  auto too_large = [&] {
    return DamagedTorchFile(path(), "containers are nested too deeply, too large, or refer to themselves");
  };
  std::vector<Visit> pending;
  pending.push_back({pickle.root, "", 0});
  while (!pending.empty()) {
    Visit visit = std::move(pending.back());
    pending.pop_back();
    if (visit.depth > kMaxDepth || ++visits > kMaxLeaves || name_bytes > kMaxNameBytes) return too_large();
    const PickleValue& value = pickle.at(visit.value);
    auto descend = [&](uint32_t item, std::string_view key) {
      // Names left to visit are memory too.
      name_bytes += visit.name.size() + key.size() + 1;
      if (name_bytes > kMaxNameBytes) return false;
      pending.push_back(
          {item, visit.name.empty() ? std::string(key) : fmt::format("{}.{}", visit.name, key), visit.depth + 1});
      return true;
    };
    auto note = [&](std::string text) {
      name_bytes += visit.name.size() + text.size();
      metadata_.emplace(visit.name, std::move(text));
    };
    switch (value.kind) {
      case Kind::kNone:
        note("None");
        break;
      case Kind::kBool:
        note(value.number != 0 ? "True" : "False");
        break;
      case Kind::kInt:
        note(fmt::format("{}", value.number));
        break;
      case Kind::kFloat:
        note(fmt::format("{}", value.real));
        break;
      case Kind::kText:
        note(value.text);
        break;
      case Kind::kBytes:
        note(fmt::format("{} bytes", value.text.size()));
        break;
      case Kind::kTuple:
      case Kind::kList:
        for (size_t i = value.items.size(); i-- > 0;) {
          if (!descend(value.items[i], fmt::format("{}", i))) return too_large();
        }
        break;
      case Kind::kDict:
        for (size_t i = value.items.size(); i > 0; i -= 2) {
          const PickleValue& key = pickle.at(value.items[i - 2]);
          if (key.kind != Kind::kText && key.kind != Kind::kInt) {
            return DamagedTorchFile(path(), fmt::format("'{}' has a key that is neither text nor integer", visit.name));
          }
          const std::string text = key.kind == Kind::kText ? key.text : fmt::format("{}", key.number);
          if (!descend(value.items[i - 1], text)) return too_large();
        }
        break;
      case Kind::kCall: {
        const PickleValue* call = &value;
        if (call->text == kRebuildParameter) {
          if (call->items.empty() || pickle.at(call->items[0]).kind != Kind::kCall) {
            return DamagedTorchFile(path(), fmt::format("'{}' is a parameter without tensor", visit.name));
          }
          call = &pickle.at(call->items[0]);
        }
        LOCKSTEP_RETURN_IF_ERROR(AddTensor(pickle, *call, visit.name.empty() ? "tensor" : visit.name));
        break;
      }
      case Kind::kGlobal:
        note(value.text);
        break;
      case Kind::kPersistent:
        return Status(Code::kEnvironment,
                      fmt::format("'{}': '{}' is a bare storage, not a tensor", path(), visit.name));
    }
  }
  return Status::Ok();
}

// ('storage', class, key, location, count)
Result<View> TorchFile::StorageOf(const Pickle& pickle, uint32_t persistent, std::optional<Dtype>* dtype,
                                  uint64_t* bytes) const {
  auto wrong = [&](std::string_view what) { return DamagedTorchFile(path(), fmt::format("a storage {}", what)); };
  if (pickle.at(persistent).kind != Kind::kPersistent) return wrong("is missing");
  const PickleValue& id = pickle.at(pickle.at(persistent).items[0]);
  if (id.kind != Kind::kTuple || id.items.size() < 5) return wrong("is not described as torch.save does");
  const PickleValue& tag = pickle.at(id.items[0]);
  const PickleValue& cls = pickle.at(id.items[1]);
  const PickleValue& key = pickle.at(id.items[2]);
  const PickleValue& count = pickle.at(id.items[4]);
  if (tag.text != "storage" || cls.kind != Kind::kGlobal || key.kind != Kind::kText || count.kind != Kind::kInt ||
      count.number < 0) {
    return wrong("is not described as torch.save does");
  }
  *dtype = Lookup(kStorages, cls.text);
  if (!*dtype && cls.text != kUntyped) return wrong(fmt::format("has the class '{}'", cls.text));
  View view;
  view.storage = zip_.Find(prefix_ + "data/" + key.text);
  if (view.storage == nullptr) return wrong(fmt::format("'data/{}' is not in the archive", key.text.substr(0, 60)));
  const uint64_t width = *dtype ? static_cast<uint64_t>(DtypeBits(**dtype)) / 8 : 1;
  if (static_cast<uint64_t>(count.number) > view.storage->bytes / width) {
    return wrong(fmt::format("'data/{}' has {} bytes, {} x {} are expected", key.text, view.storage->bytes,
                             count.number, width));
  }
  *bytes = static_cast<uint64_t>(count.number) * width;
  return view;
}

// (storage, offset, size, stride, requires_grad, hooks); v3 adds the type.
Status TorchFile::AddTensor(const Pickle& pickle, const PickleValue& call, const std::string& name) {
  auto wrong = [&](std::string_view what) {
    return DamagedTorchFile(path(), fmt::format("tensor '{}': {}", name.substr(0, 200), what));
  };
  const bool typed = call.text == kRebuildV2;
  if (!typed && call.text != kRebuildV3) return wrong(fmt::format("made by '{}'", call.text));
  if (call.items.size() < (typed ? 4u : 7u)) return wrong("arguments are missing");
  std::optional<Dtype> dtype;
  uint64_t storage_bytes = 0;
  Result<View> storage = StorageOf(pickle, call.items[0], &dtype, &storage_bytes);
  if (!storage.ok()) return storage.status().Context(fmt::format("tensor '{}'", name.substr(0, 200)));
  if (!typed) dtype = Lookup(kTypes, pickle.at(call.items[6]).text);
  if (!dtype) return wrong("its type is not known");
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = *dtype;
  View view = std::move(*storage);
  const PickleValue& offset = pickle.at(call.items[1]);
  const PickleValue& sizes = pickle.at(call.items[2]);
  const PickleValue& strides = pickle.at(call.items[3]);
  if (offset.kind != Kind::kInt || offset.number < 0) return wrong("its offset is no number");
  if (sizes.kind != Kind::kTuple || strides.kind != Kind::kTuple || sizes.items.size() != strides.items.size()) {
    return wrong("its shape and strides do not match");
  }
  for (size_t i = 0; i < sizes.items.size(); ++i) {
    const PickleValue& size = pickle.at(sizes.items[i]);
    const PickleValue& stride = pickle.at(strides.items[i]);
    if (size.kind != Kind::kInt || stride.kind != Kind::kInt || size.number < 0 || stride.number < 0) {
      return wrong("its shape or strides are no sizes");
    }
    tensor.shape.push_back(size.number);
    view.strides.push_back(stride.number);
  }
  Result<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return wrong(bytes.status().message());
  tensor.bytes = *bytes;
  const uint64_t width = static_cast<uint64_t>(DtypeBits(tensor.dtype)) / 8;
  if (static_cast<uint64_t>(offset.number) > storage_bytes / width) return wrong("starts behind its storage");
  view.offset = static_cast<uint64_t>(offset.number) * width;
  LOCKSTEP_RETURN_IF_ERROR(CheckRange(tensor, view, storage_bytes));
  tensor.offset = view.storage->offset + view.offset;
  if (!index_.emplace(name, tensors_.size()).second) return wrong("is there twice (keys with dots that meet)");
  tensors_.push_back(std::move(tensor));
  views_.push_back(std::move(view));
  return Status::Ok();
}

// The last element must lie in the storage; also notes whether the elements lie one after another.
Status TorchFile::CheckRange(const TensorInfo& tensor, View& view, uint64_t storage_bytes) const {
  auto wrong = [&](std::string_view what) {
    return DamagedTorchFile(path(), fmt::format("tensor '{}' {} {}", tensor.name.substr(0, 200),
                                                DescribeTensor(tensor.dtype, tensor.shape), what));
  };
  view.dense = true;
  if (tensor.bytes == 0) return Status::Ok();
  const uint64_t width = static_cast<uint64_t>(DtypeBits(tensor.dtype)) / 8;
  const uint64_t room = (storage_bytes - view.offset) / width;  // elements from the first one on
  uint64_t last = 0;
  uint64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    const uint64_t steps = static_cast<uint64_t>(tensor.shape[i]) - 1;
    const uint64_t stride = static_cast<uint64_t>(view.strides[i]);
    if (steps > 0 && stride != expected) view.dense = false;
    expected *= static_cast<uint64_t>(tensor.shape[i]);
    if (steps > 0 && stride > room / steps) return wrong("reaches past its storage");
    last += steps * stride;
    if (last >= room) return wrong("reaches past its storage");
  }
  if (room == 0) return wrong("reaches past its storage");
  // An expanded view (stride 0) can claim any size; weights do not.
  if (tensor.bytes > zip_.file_bytes() + (64u << 20)) return wrong("is an expanded view larger than its file");
  return Status::Ok();
}

Status TorchFile::Read(std::string_view name, void* dst, size_t bytes) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return Status(Code::kUsage, fmt::format("'{}' has no tensor '{}'", path(), name));
  const TensorInfo& tensor = tensors_[found->second];
  const View& view = views_[found->second];
  if (bytes != tensor.bytes) {
    return Status(Code::kInternal, fmt::format("'{}': tensor '{}' is {} with {} bytes, the buffer has {}", path(), name,
                                               DescribeTensor(tensor.dtype, tensor.shape), tensor.bytes, bytes));
  }
  if (bytes == 0) return Status::Ok();
  Status status = Status::Ok();
  if (!view.dense) {
    status = Gather(tensor, view, static_cast<char*>(dst));
  } else if (view.offset == 0 && bytes == view.storage->bytes) {
    status = zip_.ReadChecked(*view.storage, dst);
  } else {
    status = zip_.ReadAt(*view.storage, view.offset, dst, bytes);
  }
  return status.ok() ? status : status.Context(fmt::format("tensor '{}'", name));
}

// Reads the part of the storage that the view spans, then picks element by element: views of weights are small.
Status TorchFile::Gather(const TensorInfo& tensor, const View& view, char* dst) const {
  const size_t width = static_cast<size_t>(DtypeBits(tensor.dtype)) / 8;
  const size_t rank = tensor.shape.size();
  uint64_t last = 0;
  for (size_t i = 0; i < rank; ++i) last += static_cast<uint64_t>((tensor.shape[i] - 1) * view.strides[i]);
  std::vector<char> span((last + 1) * width);
  LOCKSTEP_RETURN_IF_ERROR(zip_.ReadAt(*view.storage, view.offset, span.data(), span.size()));
  std::vector<int64_t> at(rank, 0);
  int64_t element = 0;
  for (uint64_t done = 0; done < tensor.bytes; done += width) {
    std::memcpy(dst + done, span.data() + static_cast<size_t>(element) * width, width);
    for (size_t i = rank; i-- > 0;) {
      element += view.strides[i];
      if (++at[i] < tensor.shape[i]) break;
      element -= view.strides[i] * tensor.shape[i];
      at[i] = 0;
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Weights>> OpenTorchFile(const std::string& path) {
  Result<ZipFile> zip = ZipFile::Open(path);
  if (!zip.ok()) return zip.status();
  auto file = std::make_unique<TorchFile>(std::move(*zip));
  LOCKSTEP_RETURN_IF_ERROR(file->Load());
  return std::unique_ptr<Weights>(std::move(file));
}

}  // namespace lockstep
