#include "record/checkpoint_manifest.h"

#include <fmt/format.h>

#include <set>

#include "base/checksum.h"
#include "base/json.h"

namespace lockstep::record {
namespace {

constexpr char kFormat[] = "lockstep-checkpoint";
constexpr int kVersion = 2;
constexpr std::string_view kSealBegin = "{\"checksum\": \"";
constexpr std::string_view kSealEnd = "\",\n";

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

class Parser {
 public:
  explicit Parser(std::string source) : source_(std::move(source)) {}

  Result<CheckpointManifest> Parse(const std::string& text) {
    const Result<nlohmann::json> json = Unseal(text);
    if (!json.ok()) return json.status();
    const int64_t version = GetInt(*json, "version");
    if (version != 1 && version != kVersion) {
      return Status(Code::kEnvironment,
                    fmt::format("'{}' has format version {}, this program reads 1 and {}", source_, version, kVersion),
                    "use the version of Lockstep that wrote it, or a newer one");
    }
    CheckpointManifest manifest;
    const auto step = json->find("step"), state = json->find("state");
    if (step == json->end() || !step->is_number_unsigned() || state == json->end() || !state->is_object()) {
      return Damaged("lacks step or state");
    }
    manifest.step = step->get<uint64_t>();
    manifest.recipe = GetString(*json, "recipe");
    manifest.state = *state;
    manifest.checksum = GetString(*json, "checksum");
    const auto files = json->find("files"), tensors = json->find("tensors");
    if (files == json->end() || !files->is_array() || tensors == json->end() || !tensors->is_array()) {
      return Damaged("lists no files or tensors");
    }
    for (const nlohmann::json& entry : *files) LOCKSTEP_RETURN_IF_ERROR(AddFile(entry, &manifest));
    for (const nlohmann::json& entry : *tensors) LOCKSTEP_RETURN_IF_ERROR(AddTensor(entry, version, &manifest));
    return manifest;
  }

 private:
  Status Damaged(const std::string& what) const {
    return Status(Code::kEnvironment, fmt::format("'{}': {}", source_, what),
                  "this checkpoint is damaged: use an older one");
  }

  Result<nlohmann::json> Unseal(const std::string& text) const {
    const size_t line = text.find('\n');
    if (line == std::string::npos) return Damaged("breaks off in its first line");
    const std::string_view body = std::string_view(text).substr(line + 1);
    if (text.substr(0, line + 1) != fmt::format("{}{}{}", kSealBegin, ChecksumText(body), kSealEnd)) {
      return Damaged("does not match its own checksum");
    }
    Result<nlohmann::json> manifest = ParseJson(text, source_);
    if (!manifest.ok()) return Damaged("is no JSON");
    if (GetString(*manifest, "format") != kFormat) return Damaged("is no checkpoint manifest");
    return manifest;
  }

  Status AddFile(const nlohmann::json& entry, CheckpointManifest* manifest) {
    const std::string name = GetString(entry, "name");
    const int64_t bytes = GetInt(entry, "bytes", -1);
    if (name.empty() || name.find('/') != std::string::npos || bytes < 0 || !files_.insert(name).second) {
      return Damaged(fmt::format("lists a file '{}' of {} bytes", name, bytes));
    }
    manifest->files.push_back({name, static_cast<uint64_t>(bytes), GetString(entry, "header_checksum")});
    return Status::Ok();
  }

  Status AddTensor(const nlohmann::json& entry, int64_t version, CheckpointManifest* manifest) {
    StoredTensor tensor;
    tensor.name = GetString(entry, "name");
    const auto dtype = ParseDtype(GetString(entry, "dtype"));
    const auto shape = entry.find("shape");
    bool known = dtype.has_value() && shape != entry.end() && shape->is_array();
    if (known) {
      for (const nlohmann::json& size : *shape) {
        known = known && size.is_number_integer();
        tensor.shape.push_back(known ? size.get<int64_t>() : -1);
      }
      tensor.dtype = *dtype;
    }
    const Result<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!known || !bytes.ok() || !tensors_.insert(tensor.name).second) {
      return Damaged(fmt::format("tensor '{}' is there twice, or has no type and shape", tensor.name));
    }
    tensor.bytes = *bytes;
    if (version == 1) {  // one part, described in the entry itself
      tensor.parts.push_back(ReadPart(entry));
      tensor.parts.back().elements = {0, Count(tensor.shape)};
    } else if (const auto parts = entry.find("parts"); parts != entry.end() && parts->is_array()) {
      for (const nlohmann::json& part : *parts) tensor.parts.push_back(ReadPart(part));
    }
    int64_t covered = 0;
    for (const StoredPart& part : tensor.parts) {
      if (!files_.contains(part.file)) {
        return Damaged(fmt::format("tensor '{}' lies in '{}', which is no file of it", tensor.name, part.file));
      }
      const bool empty = part.elements.size() == 0 && tensor.parts.size() > 1;
      if (part.elements.begin != covered || part.elements.end < covered || empty) covered = -1;
      if (covered < 0) break;
      covered = part.elements.end;
    }
    if (tensor.parts.empty() || covered != Count(tensor.shape)) {
      return Damaged(fmt::format("the parts of tensor '{}' do not make up {}", tensor.name,
                                 DescribeTensor(tensor.dtype, tensor.shape)));
    }
    manifest->tensors.push_back(std::move(tensor));
    return Status::Ok();
  }

  static StoredPart ReadPart(const nlohmann::json& json) {
    return {GetString(json, "file"),
            GetString(json, "key"),
            {GetInt(json, "begin", -1), GetInt(json, "end", -1)},
            GetString(json, "checksum")};
  }

  std::string source_;
  std::set<std::string> files_, tensors_;
};

}  // namespace

std::string WriteManifest(const CheckpointManifest& manifest) {
  nlohmann::json files = nlohmann::json::array(), tensors = nlohmann::json::array();
  for (const StoredFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"header_checksum", file.header_checksum}});
  }
  for (const StoredTensor& tensor : manifest.tensors) {
    nlohmann::json parts = nlohmann::json::array();
    for (const StoredPart& part : tensor.parts) {
      parts.push_back({{"file", part.file},
                       {"key", part.key},
                       {"begin", part.elements.begin},
                       {"end", part.elements.end},
                       {"checksum", part.checksum}});
    }
    tensors.push_back({{"name", tensor.name},
                       {"dtype", DtypeName(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"parts", std::move(parts)}});
  }
  return SealManifest({{"format", kFormat},
                       {"version", kVersion},
                       {"recipe", manifest.recipe},
                       {"step", manifest.step},
                       {"state", manifest.state},
                       {"files", std::move(files)},
                       {"tensors", std::move(tensors)}});
}

Result<CheckpointManifest> ParseManifest(const std::string& text, const std::string& source) {
  return Parser(source).Parse(text);
}

// One object over two lines' worth of trust: the first line is known to the byte from the rest.
std::string SealManifest(const nlohmann::json& manifest) {
  const std::string body = manifest.dump(1).substr(2) + "\n";  // without "{\n"
  return fmt::format("{}{}{}{}", kSealBegin, ChecksumText(body), kSealEnd, body);
}

}  // namespace lockstep::record
