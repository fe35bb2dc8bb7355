#include "data/corpus.h"

#include <fmt/format.h>

#include "base/text.h"
#include "data/text_listing.h"
#include "data/token_file.h"

namespace lockstep::data {
namespace {

// By the first file there is.
Result<std::string> Recognize(const std::string& path) {
  Result<std::vector<TextFile>> files = ListTextFiles(path, "");
  if (!files.ok()) return files.status();
  const std::string& first = files->front().path;
  if (IsTokenFile(first)) return std::string("tokens");
  return std::string(IsJsonLinesName(first) ? "jsonl" : "text");
}

}  // namespace

Result<std::shared_ptr<const Corpus>> OpenCorpus(const CorpusConfig& given) {
  CorpusConfig config = given;
  if (config.kind == "auto" && config.path.empty()) config.kind = "generated";
  if (config.kind == "generated") {
    if (config.documents == 0) return Status(Code::kUsage, "documents of the data is 0; expected at least 1");
    return GenerateText(config.documents, config.seed);
  }
  if (config.path.empty()) {
    return Status(Code::kUsage, fmt::format("kind {} needs the path of the data, and none is given", config.kind));
  }
  if (config.kind == "auto") {
    Result<std::string> kind = Recognize(config.path);
    if (!kind.ok()) return kind.status();
    config.kind = *kind;
  }
  if (config.kind == "text") return OpenTextFiles(config);
  if (config.kind == "jsonl") return OpenJsonLines(config);
  if (config.kind == "tokens") return OpenTokenFiles(config);
  const std::vector<std::string> kinds = {"auto", "generated", "text", "jsonl", "tokens"};
  return Status(Code::kUsage, fmt::format("unknown kind of text '{}'{}", config.kind, DidYouMean(config.kind, kinds)),
                "kinds: " + Join(kinds, " "));
}

}  // namespace lockstep::data
