// HDF5 through its library, found with dlopen: the program starts and trains without it. Only functions whose form is
// the same from 1.10 on are used, so no header is needed.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <mutex>

#include "base/text.h"
#include "data/rows.h"

namespace lockstep::data {
namespace {

using Id = int64_t;                      // hid_t; 32 bits before 1.10, which LoadHdf5 refuses
using Size = unsigned long long;         // NOLINT: hsize_t
constexpr Id kDefault = 0;               // H5P_DEFAULT, H5S_ALL
constexpr int kInteger = 0, kFloat = 1;  // H5T_class_t

// As the library declares them, by its names.
// NOLINTBEGIN(readability-identifier-naming)
struct Hdf5 {
  int (*H5open)() = nullptr;
  int (*H5get_libversion)(unsigned*, unsigned*, unsigned*) = nullptr;
  int (*H5Eset_auto2)(Id, void*, void*) = nullptr;
  Id (*H5Fopen)(const char*, unsigned, Id) = nullptr;
  int (*H5Fclose)(Id) = nullptr;
  Id (*H5Dopen2)(Id, const char*, Id) = nullptr;
  int (*H5Dclose)(Id) = nullptr;
  Id (*H5Dget_space)(Id) = nullptr;
  Id (*H5Dget_type)(Id) = nullptr;
  int (*H5Dread)(Id, Id, Id, Id, Id, void*) = nullptr;
  Id (*H5Screate_simple)(int, const Size*, const Size*) = nullptr;
  int (*H5Sselect_hyperslab)(Id, int, const Size*, const Size*, const Size*, const Size*) = nullptr;
  int (*H5Sget_simple_extent_ndims)(Id) = nullptr;
  int (*H5Sget_simple_extent_dims)(Id, Size*, Size*) = nullptr;
  int (*H5Sclose)(Id) = nullptr;
  int (*H5Tget_class)(Id) = nullptr;
  size_t (*H5Tget_size)(Id) = nullptr;
  int (*H5Tget_sign)(Id) = nullptr;
  int (*H5Tclose)(Id) = nullptr;
  Id u8 = 0, f32 = 0, i64 = 0;  // types of memory
};
// NOLINTEND(readability-identifier-naming)

// One caller at a time: most builds of the library have no locks of their own.
std::mutex& Hdf5Mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

Status NoHdf5(const std::string& what) {
  return Status(Code::kEnvironment, "HDF5 files cannot be read: " + what,
                "apt-get install libhdf5-103-1, or name the library's file in LOCKSTEP_HDF5");
}

Result<const Hdf5*> FindHdf5() {
  const char* named = std::getenv("LOCKSTEP_HDF5");
  std::vector<std::string> names = {"libhdf5_serial.so.103", "libhdf5.so.103", "libhdf5_serial.so.310",
                                    "libhdf5.so.310",        "libhdf5.so.200", "libhdf5.so"};
  if (named != nullptr && *named != '\0') names = {named};
  void* library = nullptr;
  for (const std::string& name : names) {
    if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return NoHdf5(fmt::format("no library of these is found: {}", Join(names, " ")));
  auto h5 = std::make_unique<Hdf5>();
#define LOCKSTEP_FIND(name)                                               \
  h5->name = reinterpret_cast<decltype(h5->name)>(dlsym(library, #name)); \
  if (h5->name == nullptr) return NoHdf5("its library lacks the function " #name);
  LOCKSTEP_FIND(H5open)
  LOCKSTEP_FIND(H5get_libversion)
  LOCKSTEP_FIND(H5Eset_auto2)
  LOCKSTEP_FIND(H5Fopen)
  LOCKSTEP_FIND(H5Fclose)
  LOCKSTEP_FIND(H5Dopen2)
  LOCKSTEP_FIND(H5Dclose)
  LOCKSTEP_FIND(H5Dget_space)
  LOCKSTEP_FIND(H5Dget_type)
  LOCKSTEP_FIND(H5Dread)
  LOCKSTEP_FIND(H5Screate_simple)
  LOCKSTEP_FIND(H5Sselect_hyperslab)
  LOCKSTEP_FIND(H5Sget_simple_extent_ndims)
  LOCKSTEP_FIND(H5Sget_simple_extent_dims)
  LOCKSTEP_FIND(H5Sclose)
  LOCKSTEP_FIND(H5Tget_class)
  LOCKSTEP_FIND(H5Tget_size)
  LOCKSTEP_FIND(H5Tget_sign)
  LOCKSTEP_FIND(H5Tclose)
#undef LOCKSTEP_FIND
  unsigned major = 0, minor = 0, release = 0;
  h5->H5open();
  h5->H5get_libversion(&major, &minor, &release);
  if (major == 1 && minor < 10)
    return NoHdf5(fmt::format("its library is {}.{}; expected 1.10 or later", major, minor));
  h5->H5Eset_auto2(0, nullptr, nullptr);  // errors are ours to report
  const auto type = [&](const char* name, Id* id) {
    const auto* place = static_cast<const Id*>(dlsym(library, name));
    if (place != nullptr) *id = *place;
    return place != nullptr;
  };
  if (!type("H5T_NATIVE_UINT8_g", &h5->u8) || !type("H5T_NATIVE_FLOAT_g", &h5->f32) ||
      !type("H5T_NATIVE_INT64_g", &h5->i64)) {
    return NoHdf5("its library lacks a type");
  }
  return h5.release();
}

Result<const Hdf5*> LoadHdf5() {
  static const auto& loaded = *new Result<const Hdf5*>(FindHdf5());
  return loaded;
}

// Closes what the library opened.
class Handle {
 public:
  Handle(Id id, int (*close)(Id)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  bool ok() const { return id_ >= 0; }
  Id id() const { return id_; }

 private:
  Id id_;
  int (*close_)(Id);
};

class Hdf5Rows final : public Rows {
 public:
  Hdf5Rows(const Hdf5* h5, std::string path, Field field, uint64_t rows, Handle file, Handle set)
      : h5_(h5),
        path_(std::move(path)),
        field_(std::move(field)),
        rows_(rows),
        file_(std::move(file)),
        set_(std::move(set)) {}
  ~Hdf5Rows() override {
    const std::lock_guard lock(Hdf5Mutex());
    {
      const Handle set = std::move(set_);
    }
    {
      const Handle file = std::move(file_);
    }
  }

  const Field& field() const override { return field_; }
  uint64_t size() const override { return rows_; }
  const std::string& path() const override { return path_; }
  Status Read(uint64_t row, std::optional<uint64_t> slice, void* out) const override {
    std::vector<Size> start(field_.shape.size() + 1, 0), count = {1};
    count.insert(count.end(), field_.shape.begin(), field_.shape.end());
    start[0] = row;
    if (slice) start[1] = *slice, count[1] = 1;
    const std::lock_guard lock(Hdf5Mutex());
    const Handle space(h5_->H5Dget_space(set_.id()), h5_->H5Sclose);
    const Handle memory(h5_->H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), h5_->H5Sclose);
    constexpr int kSet = 0;
    const Id type = field_.type == ElementType::kU8 ? h5_->u8 : field_.type == ElementType::kF32 ? h5_->f32 : h5_->i64;
    if (space.ok() && memory.ok() &&
        h5_->H5Sselect_hyperslab(space.id(), kSet, start.data(), nullptr, count.data(), nullptr) >= 0 &&
        h5_->H5Dread(set_.id(), type, memory.id(), space.id(), kDefault, out) >= 0) {
      return Status::Ok();
    }
    return Status(Code::kEnvironment, fmt::format("'{}': row {} of '{}' cannot be read: damaged, truncated, or "
                                                  "compressed by a filter this library lacks",
                                                  path_, row, field_.name));
  }

 private:
  const Hdf5* h5_;
  std::string path_;
  Field field_;
  uint64_t rows_;
  Handle file_, set_;
};

// U8, and integers and floats the library converts without loss into what we have.
std::optional<ElementType> TypeOfSet(const Hdf5& h5, Id type, std::string* found) {
  const int kind = h5.H5Tget_class(type);
  const size_t size = h5.H5Tget_size(type);
  const bool is_signed = kind == kInteger && h5.H5Tget_sign(type) != 0;
  *found = fmt::format("{}-bit {}", size * 8,
                       kind == kInteger ? (is_signed ? "signed integers" : "unsigned integers")
                       : kind == kFloat ? "floats"
                                        : "values of another class");
  if (kind == kInteger && size == 1 && !is_signed) return ElementType::kU8;
  if (kind == kInteger && (size < 8 || is_signed)) return ElementType::kI64;
  if (kind == kFloat && size <= 4) return ElementType::kF32;
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Rows>> OpenHdf5Rows(const std::string& path, const std::string& name) {
  const std::lock_guard lock(Hdf5Mutex());
  const Result<const Hdf5*> loaded = LoadHdf5();
  if (!loaded.ok()) return loaded.status();
  const Hdf5& h5 = **loaded;
  constexpr unsigned kReadOnly = 0;
  Handle file(h5.H5Fopen(path.c_str(), kReadOnly, kDefault), h5.H5Fclose);
  if (!file.ok()) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' cannot be opened as HDF5: it is something else, or damaged", path));
  }
  Handle set(h5.H5Dopen2(file.id(), name.c_str(), kDefault), h5.H5Dclose);
  if (!set.ok()) {
    return Status(Code::kUsage, fmt::format("'{}' has no data set '{}'", path, name), "h5ls -r names those it has");
  }
  const Handle space(h5.H5Dget_space(set.id()), h5.H5Sclose);
  const int dims = h5.H5Sget_simple_extent_ndims(space.id());
  std::array<Size, 32> shape{};  // H5S_MAX_RANK
  if (dims < 1 || dims > 32 || h5.H5Sget_simple_extent_dims(space.id(), shape.data(), nullptr) < 0) {
    return Status(Code::kUsage, fmt::format("'{}': '{}' has no dimension that could count samples", path, name));
  }
  const Handle type(h5.H5Dget_type(set.id()), h5.H5Tclose);
  std::string found;
  const std::optional<ElementType> element = TypeOfSet(h5, type.id(), &found);
  if (!element) {
    return Status(Code::kUsage, fmt::format("'{}': '{}' holds {}; expected bytes, integers up to 64 bits with sign, or "
                                            "floats up to 32 bits",
                                            path, name, found));
  }
  Field field{name, *element, {shape.begin() + 1, shape.begin() + dims}};
  return std::unique_ptr<Rows>(
      std::make_unique<Hdf5Rows>(&h5, path, std::move(field), shape[0], std::move(file), std::move(set)));
}

}  // namespace lockstep::data
