// JSON lines as documents: the text in one field of each line. Opening parses every line once, on one rank, and keeps
// its place and the length of its text; reading parses the one line again. A packed token file opens at once at any
// size.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "data/corpus.h"
#include "data/text_listing.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kScanBlock = 4u << 20;
constexpr uint64_t kLongestLine = 256u << 20;

struct Line {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t text = 0;  // bytes of the text
  uint32_t file = 0;
  uint32_t number = 0;  // from 1
};

Status NoText(const std::string& path, uint64_t number, const std::string& expected, const std::string& found,
              const std::string& hint) {
  return Status(Code::kUsage, fmt::format("'{}' line {}: expected {}, found {}", path, number, expected, found), hint);
}

Result<std::string> TextOf(const std::string& line, const std::string& field, const std::string& path,
                           uint64_t number) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return NoText(
        path, number, "a JSON object",
        json.is_discarded() ? "'" + Printable(line, 60) + "'" : "JSON of type " + std::string(json.type_name()),
        "every line is one JSON object; `data.kind: text` takes a file as it is");
  }
  const auto it = json.find(field);
  if (it == json.end()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.push_back(key);
    return NoText(path, number, fmt::format("the field '{}'", Printable(field)),
                  keys.empty() ? "no fields" : Printable(Join(keys, ", ")), "name the field of the text: data.field");
  }
  if (!it->is_string()) {
    return NoText(path, number, fmt::format("text in the field '{}'", Printable(field)), std::string(it->type_name()),
                  "name the field of the text: data.field");
  }
  return it->get<std::string>();
}

class JsonLinesCorpus final : public Corpus {
 public:
  JsonLinesCorpus(CorpusConfig config, std::vector<TextFile> files)
      : config_(std::move(config)), files_(std::move(files)) {}

  Status Scan();
  // Everything that Scan found, and back; another rank's files must be these.
  std::string Index() const;
  Status UseIndex(std::string_view index);

  uint64_t documents() const override { return lines_.size(); }
  uint64_t tokens(uint64_t document) const override { return lines_[document].text; }
  std::string Name(uint64_t document) const override {
    return fmt::format("{} line {}", files_[lines_[document].file].path, lines_[document].number);
  }
  Status Read(uint64_t document, uint64_t first, uint64_t count, int64_t* out) const override {
    const Line& line = lines_[document];
    const std::string& path = files_[line.file].path;
    std::string raw(line.bytes, '\0');
    LOCKSTEP_RETURN_IF_ERROR(ReadPart(path, line.offset, raw.size(), raw.data()));
    Result<std::string> text = TextOf(raw, config_.field, path, line.number);
    if (!text.ok()) return text.status();
    if (text->size() != line.text) {
      return Status(Code::kEnvironment, fmt::format("'{}' line {} changed since it was listed", path, line.number),
                    "let nothing write to the data while they are trained on");
    }
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<unsigned char>((*text)[first + i]);
    return Status::Ok();
  }
  std::string Describe() const override {
    uint64_t bytes = 0;
    for (const Line& line : lines_) bytes += line.text;
    std::string text =
        fmt::format("jsonl: {} with {} of text in {}", Count(static_cast<int64_t>(lines_.size()), "document"),
                    FormatSize(bytes), config_.path);
    if (empty_ > 0) text += fmt::format("; {} without text left out", Count(static_cast<int64_t>(empty_), "line"));
    return text;
  }
  std::string Digest() const override { return DigestOfFiles(files_, "jsonl " + config_.field); }

 private:
  Status ScanFile(uint32_t index, uint64_t before, uint64_t all);
  Status AddLine(uint32_t index, uint64_t number, uint64_t offset, const std::string& line);

  CorpusConfig config_;
  std::vector<TextFile> files_;
  std::vector<Line> lines_;
  uint64_t empty_ = 0;
};

Status JsonLinesCorpus::AddLine(uint32_t index, uint64_t number, uint64_t offset, const std::string& line) {
  if (Trim(line).empty()) return Status::Ok();
  Result<std::string> text = TextOf(line, config_.field, files_[index].path, number);
  if (!text.ok()) return text.status();
  if (text->empty()) {
    ++empty_;
    return Status::Ok();
  }
  lines_.push_back({offset, static_cast<uint32_t>(line.size()), static_cast<uint32_t>(text->size()), index,
                    static_cast<uint32_t>(number)});
  return Status::Ok();
}

Status JsonLinesCorpus::ScanFile(uint32_t index, uint64_t before, uint64_t all) {
  const TextFile& file = files_[index];
  std::string block(kScanBlock, '\0'), line;
  uint64_t number = 1, start = 0;
  for (uint64_t at = 0; at < file.bytes; at += kScanBlock) {
    const uint64_t bytes = std::min(kScanBlock, file.bytes - at);
    LOCKSTEP_RETURN_IF_ERROR(ReadPart(file.path, at, bytes, block.data()));
    for (uint64_t i = 0; i < bytes;) {
      const void* found = std::memchr(block.data() + i, '\n', bytes - i);
      const uint64_t end =
          found == nullptr ? bytes : static_cast<uint64_t>(static_cast<const char*>(found) - block.data());
      line.append(block, i, end - i);
      if (line.size() > kLongestLine) {
        return NoText(file.path, number, "a JSON object",
                      fmt::format("a line of more than {}", FormatSize(kLongestLine)), "write one document per line");
      }
      i = end + 1;
      if (found == nullptr) break;
      LOCKSTEP_RETURN_IF_ERROR(AddLine(index, number++, start, line));
      line.clear();
      start = at + i;
    }
    if (config_.progress) config_.progress(before + at + bytes, all);
  }
  return AddLine(index, number, start, line);
}

Status JsonLinesCorpus::Scan() {
  uint64_t all = 0, before = 0;
  for (const TextFile& file : files_) all += file.bytes;
  for (uint32_t i = 0; i < files_.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(ScanFile(i, before, all));
    before += files_[i].bytes;
  }
  config_.progress = nullptr;
  if (lines_.empty()) {
    return Status(Code::kUsage, fmt::format("'{}' has no line with text", config_.path), "check the path of the data");
  }
  return Status::Ok();
}

std::string JsonLinesCorpus::Index() const {
  std::string index = Digest();
  index.append(reinterpret_cast<const char*>(&empty_), sizeof empty_);
  index.append(reinterpret_cast<const char*>(lines_.data()), lines_.size() * sizeof(Line));
  return index;
}

Status JsonLinesCorpus::UseIndex(std::string_view index) {
  const std::string digest = Digest();
  if (!index.starts_with(digest)) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' has other files on this node than on the node of rank 0", config_.path),
                  "give every node the same files under data.path");
  }
  index.remove_prefix(digest.size());
  std::memcpy(&empty_, index.data(), sizeof empty_);
  index.remove_prefix(sizeof empty_);
  lines_.resize(index.size() / sizeof(Line));
  std::memcpy(lines_.data(), index.data(), lines_.size() * sizeof(Line));
  return Status::Ok();
}

Result<std::shared_ptr<JsonLinesCorpus>> ListJsonLines(const CorpusConfig& config) {
  Result<std::vector<TextFile>> files = ListTextFiles(config.path, kJsonLines);
  if (!files.ok()) return files.status();
  auto corpus = std::make_shared<JsonLinesCorpus>(config, std::move(*files));
  LOCKSTEP_RETURN_IF_ERROR(config.index ? corpus->UseIndex(*config.index) : corpus->Scan());
  return corpus;
}

}  // namespace

Result<std::string> IndexJsonLines(const CorpusConfig& config) {
  const auto corpus = ListJsonLines(config);
  return corpus.ok() ? Result<std::string>((*corpus)->Index()) : corpus.status();
}

Result<std::shared_ptr<const Corpus>> OpenJsonLines(const CorpusConfig& config) {
  const auto corpus = ListJsonLines(config);
  if (!corpus.ok()) return corpus.status();
  return std::shared_ptr<const Corpus>(*corpus);
}

}  // namespace lockstep::data
