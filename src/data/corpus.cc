#include "data/corpus.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"
#include "data/text_listing.h"
#include "data/token_file.h"

namespace lockstep::data {
namespace {

// By the names of the files, the first one's first bytes too; an error where they say different things.
Result<std::string> Recognize(const std::string& path) {
  Result<std::vector<TextFile>> files = ListTextFiles(path, kAnyFile);
  if (!files.ok()) return files.status();
  if (files->size() == 1 && IsTokenFile(files->front().path)) return std::string("tokens");
  std::map<std::string, int64_t> kinds;
  for (const TextFile& file : *files) {
    ++kinds[kJsonLines.accept(file.name) ? "jsonl" : kTokenFiles.accept(file.name) ? "tokens" : "text"];
  }
  if (kinds.size() == 1) return kinds.begin()->first;
  std::vector<std::string> found;
  for (const auto& [kind, count] : kinds) found.push_back(fmt::format("{} of kind {}", Count(count, "file"), kind));
  return Status(Code::kUsage, fmt::format("'{}' has {}", path, Join(found, ", ")),
                "say which kind is meant; only kind: text takes files of every name");
}

// The kind that `auto` means.
Result<CorpusConfig> Resolved(CorpusConfig config) {
  if (config.kind != "auto") return config;
  if (config.path.empty()) {
    config.kind = "generated";
    return config;
  }
  Result<std::string> kind = Recognize(config.path);
  if (!kind.ok()) return kind.status();
  config.kind = *kind;
  return config;
}

}  // namespace

Result<std::string> IndexCorpus(const CorpusConfig& given) {
  Result<CorpusConfig> config = Resolved(given);
  if (!config.ok()) return config.status();
  return config->kind == "jsonl" && !config->path.empty() ? IndexJsonLines(*config) : std::string();
}

Result<std::shared_ptr<const Corpus>> OpenCorpus(const CorpusConfig& given) {
  Result<CorpusConfig> resolved = Resolved(given);
  if (!resolved.ok()) return resolved.status();
  const CorpusConfig& config = *resolved;
  if (config.kind == "generated") {
    if (config.documents == 0) return Status(Code::kUsage, "documents of the data is 0; expected at least 1");
    return GenerateText(config.documents, config.seed);
  }
  if (config.path.empty()) {
    return Status(Code::kUsage, fmt::format("kind {} needs the path of the data, and none is given", config.kind));
  }
  if (config.kind == "text") return OpenTextFiles(config);
  if (config.kind == "jsonl") return OpenJsonLines(config);
  if (config.kind == "tokens") return OpenTokenFiles(config);
  const std::vector<std::string> kinds = {"auto", "generated", "text", "jsonl", "tokens"};
  return Status(Code::kUsage, fmt::format("unknown kind of text '{}'{}", config.kind, DidYouMean(config.kind, kinds)),
                "kinds: " + Join(kinds, " "));
}

}  // namespace lockstep::data
