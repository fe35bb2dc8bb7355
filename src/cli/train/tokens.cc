// `lockstep tokens`: text as a packed token file, or what a file holds.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/train/commands.h"
#include "data/corpus.h"
#include "data/token_file.h"

namespace lockstep::cli {
namespace {

struct TokensFlags {
  std::string source, out, kind = "auto", field = "text";
  bool overwrite = false, json = false;
};

// A line on stderr for what takes longer than two seconds: on a terminal always the same one.
class StderrProgress {
 public:
  explicit StderrProgress(std::string what) : what_(std::move(what)) {}
  ~StderrProgress() {
    if (said_ && terminal_) fmt::print(stderr, "\n");
  }
  void operator()(uint64_t done, uint64_t all) {
    const TimePoint now = Now();
    if (now < next_ || all == 0) return;
    next_ = now + (terminal_ ? std::chrono::seconds(1) : std::chrono::seconds(10));
    said_ = true;
    fmt::print(stderr, "{}{}: {} of {}, {:.0f} %{}", terminal_ ? "\r" : "", what_, FormatSize(done), FormatSize(all),
               100.0 * static_cast<double>(done) / static_cast<double>(all), terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  std::string what_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  TimePoint next_ = Now() + std::chrono::seconds(2);
  bool said_ = false;
};

constexpr uint64_t kPackBlock = 1u << 20;

Status Pack(const data::Corpus& corpus, const TokensFlags& asked, uint64_t all) {
  Result<data::TokenFileWriter> out = data::TokenFileWriter::Create(asked.out, corpus.vocabulary(), asked.overwrite);
  if (!out.ok()) return out.status();
  StderrProgress progress("packing");
  std::vector<int64_t> block;
  uint64_t done = 0;
  for (uint64_t d = 0; d < corpus.documents(); ++d) {
    for (uint64_t at = 0; at < corpus.tokens(d); at += block.size()) {
      block.resize(std::min(kPackBlock, corpus.tokens(d) - at));
      LOCKSTEP_RETURN_IF_ERROR(corpus.Read(d, at, block.size(), block.data()));
      LOCKSTEP_RETURN_IF_ERROR(out->Add(block));
      progress(done += block.size(), all);
    }
    LOCKSTEP_RETURN_IF_ERROR(out->EndDocument());
  }
  return out->Finish();
}

Status Tokens(const TokensFlags& asked) {
  data::CorpusConfig config;
  config.kind = asked.kind;
  config.path = asked.source;
  config.field = asked.field;
  StderrProgress reading("reading");
  config.progress = [&](uint64_t done, uint64_t all) { reading(done, all); };
  const auto corpus = data::OpenCorpus(config);
  if (!corpus.ok()) return corpus.status();
  uint64_t tokens = 0;
  for (uint64_t d = 0; d < (*corpus)->documents(); ++d) tokens += (*corpus)->tokens(d);
  if (!asked.out.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(Pack(**corpus, asked, tokens));
  } else if (data::IsTokenFile(asked.source)) {
    StderrProgress checking("checking");
    LOCKSTEP_RETURN_IF_ERROR(
        data::VerifyTokenFile(asked.source, [&](uint64_t done, uint64_t all) { checking(done, all); }));
  }
  const data::Vocabulary vocabulary = (*corpus)->vocabulary();
  if (asked.json) {
    nlohmann::json summary = {{"source", asked.source},
                              {"documents", (*corpus)->documents()},
                              {"tokens", tokens},
                              {"tokenizer", vocabulary.tokenizer},
                              {"vocabulary", vocabulary.size},
                              {"end", vocabulary.end}};
    if (!asked.out.empty()) summary["output"] = asked.out;
    fmt::print("{}\n", summary.dump(2));
    return Status::Ok();
  }
  fmt::print("{}\n", (*corpus)->Describe());
  if (!asked.out.empty()) {
    fmt::print("{}: {} tokens in {} documents, vocabulary {}\n", asked.out, tokens, (*corpus)->documents(),
               vocabulary.size);
  }
  return Status::Ok();
}

}  // namespace

int TokensMain(int argc, char** argv) {
  Arguments args(
      "Writes text as a packed token file, byte by byte (tokens 0 to 255, and 256 for the end of a document), which "
      "trainings open at once. Without --out: what SOURCE holds; the checksum of a packed file is checked.",
      "lockstep tokens");
  TokensFlags asked;
  args.Option("SOURCE", &asked.source, "text file, .jsonl file, packed file, or a folder of them").Required();
  args.Option("--out", &asked.out, "the file to write, NAME.tokens").Named("FILE");
  args.Option("--kind", &asked.kind, "of SOURCE (default: by its content)").OneOf({"auto", "text", "jsonl", "tokens"});
  args.Option("--field", &asked.field, "of a JSON line that holds the text (default: text)").Named("NAME");
  args.Flag("--overwrite", &asked.overwrite, "replace FILE");
  args.Flag("--json", &asked.json, "the summary as JSON");
  args.Footer(
      "examples:\n  lockstep tokens books/ --out books.tokens\n"
      "  lockstep tokens pages.jsonl --field text --out pages.tokens\n  lockstep tokens pages.tokens\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Tokens(asked);
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep tokens: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
