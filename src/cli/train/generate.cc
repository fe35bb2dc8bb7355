// `lockstep generate`: what a trained language model writes on from a prompt, as it comes.
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/clock.h"
#include "cli/train/commands.h"
#include "engine/devices.h"
#include "engine/precision.h"
#include "models/sampling.h"
#include "recipes/load_lm.h"

namespace lockstep::cli {
namespace {

struct GenerateFlags {
  std::string model, prompt, device = "auto", precision = "auto";
  std::vector<int> prompt_tokens;
  int64_t tokens = 200;
  models::SamplingOptions sampling;
  uint64_t seed = 0;
  bool has_prompt = false, json = false;
};

// A model that is not trained yet writes any bytes: none of them may drive a terminal.
void PrintByte(unsigned char byte, bool terminal) {
  const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
  std::fputc(terminal && control ? '?' : byte, stdout);
  std::fflush(stdout);
}

Result<std::vector<int64_t>> Prompt(const GenerateFlags& asked, const recipes::LoadedLm& lm) {
  const int64_t vocabulary = lm.model->config().vocabulary;
  if (!lm.writes_text() && asked.has_prompt) {
    return Status(Code::kUsage,
                  fmt::format("'{}' has a vocabulary of {} and no tokenizer that is known here ('{}'): it cannot read "
                              "text",
                              lm.path, vocabulary, lm.tokenizer),
                  "give token numbers instead: --prompt-tokens 1,2,3");
  }
  std::vector<int64_t> tokens(asked.prompt_tokens.begin(), asked.prompt_tokens.end());
  for (const char c : asked.prompt) tokens.push_back(static_cast<unsigned char>(c));
  if (tokens.empty()) {
    return Status(Code::kUsage, "the prompt is empty, and a model writes on from at least one token",
                  lm.writes_text() ? "--prompt TEXT" : "--prompt-tokens 1,2,3");
  }
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocabulary) {
      return Status(Code::kUsage,
                    fmt::format("token {} of the prompt is not in the vocabulary, 0 to {}", token, vocabulary - 1));
    }
  }
  return tokens;
}

Result<at::Device> GenerateOn(const GenerateFlags& asked) {
  const int gpus = engine::VisibleGpus();
  if (asked.device == "cuda" && gpus == 0) return engine::NoGpuFor("--device cuda");
  return at::Device(asked.device == "cpu" || gpus == 0 ? at::kCPU : at::kCUDA);
}

struct Written {
  std::vector<int64_t> tokens;
  bool ended = false;  // by the end token
  double seconds = 0;  // after the prompt
};

Written Write(const GenerateFlags& asked, const recipes::LoadedLm& lm, const std::vector<int64_t>& prompt,
              at::Device device, const std::function<void(int64_t)>& on_token) {
  const at::NoGradGuard no_grad;
  const engine::Precision precision = asked.precision == "auto" ? engine::AutoPrecision(engine::DescribeGpu(device))
                                                                : *engine::PrecisionNamed(asked.precision);
  const engine::AutocastGuard autocast(device.type(), precision);
  lm.model->to(device);
  const auto cache = lm.model->NewCache(1, static_cast<int64_t>(prompt.size()) + asked.tokens);
  models::Sampler sampler(asked.sampling, asked.seed);
  Written written;
  at::Tensor next = at::tensor(prompt, at::kLong).unsqueeze(0).to(device);
  TimePoint start = Now();
  for (int64_t i = 0; i < asked.tokens; ++i) {
    at::Tensor logits = lm.model->Next(next, cache.get());
    // Rows that a vocabulary was rounded up by were never trained.
    if (lm.writes_text()) logits = logits.narrow(1, 0, std::min<int64_t>(lm.end + 1, logits.size(1)));
    next = sampler.Next(logits).reshape({1, 1});
    const int64_t token = next.item<int64_t>();
    if (i == 0) start = Now();
    if (token == lm.end) {
      written.ended = true;
      break;
    }
    written.tokens.push_back(token);
    on_token(token);
  }
  written.seconds = SecondsSince(start);
  return written;
}

Status Generate(const GenerateFlags& asked) {
  LOCKSTEP_RETURN_IF_ERROR(asked.sampling.Check());
  Result<at::Device> device = GenerateOn(asked);
  if (!device.ok()) return device.status();
  Result<recipes::LoadedLm> lm = recipes::LoadLm(asked.model);
  if (!lm.ok()) return lm.status();
  Result<std::vector<int64_t>> prompt = Prompt(asked, *lm);
  if (!prompt.ok()) return prompt.status();
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const bool text = lm->writes_text();
  if (!asked.json && text) {
    for (const int64_t token : *prompt) PrintByte(static_cast<unsigned char>(token), terminal);
  }
  bool first = true;
  const Written written = Write(asked, *lm, *prompt, *device, [&](int64_t token) {
    if (asked.json) return;
    if (text) return PrintByte(static_cast<unsigned char>(token), terminal);
    fmt::print("{}{}", first ? "" : ",", token);
    std::fflush(stdout);
    first = false;
  });
  if (!asked.json) {
    fmt::print("\n");
    return std::fflush(stdout) == 0 ? Status::Ok() : Status(Code::kEnvironment, "cannot write to standard output");
  }
  const auto later = static_cast<double>(written.tokens.size()) - (written.ended ? 0 : 1);  // the first came before
  nlohmann::json summary = {{"model", lm->path},
                            {"averaged", lm->averaged},
                            {"prompt_tokens", *prompt},
                            {"tokens", written.tokens},
                            {"ended", written.ended},
                            {"tokens_per_second", written.seconds > 0 && later > 0 ? later / written.seconds : 0.0}};
  if (lm->step) summary["step"] = *lm->step;
  if (text) {
    summary["prompt"] = asked.prompt;
    summary["text"] = std::string(written.tokens.begin(), written.tokens.end());
  }
  fmt::print("{}\n", summary.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return Status::Ok();
}

}  // namespace

int GenerateMain(int argc, char** argv) {
  Arguments args("Text that a trained language model writes on from a prompt, printed as it comes.",
                 "lockstep generate");
  GenerateFlags asked;
  args.Option("MODEL", &asked.model,
              "run (name, 'latest' or directory), checkpoint folder (averaged weights where it has them), or a folder "
              "with config.json and safetensors")
      .Required();
  Argument prompt = args.Option("--prompt", &asked.prompt, "what the text begins with").Named("TEXT");
  Argument numbers = args.Option("--prompt-tokens", &asked.prompt_tokens,
                                 "the same as token numbers, 1,2,3: for models of another tokenizer than bytes")
                         .SplitAt(',');
  prompt.Excludes(numbers);
  args.Option("--tokens", &asked.tokens, "tokens to write, at most").Between(1, 1 << 24).ShowDefault();
  args.Option("--temperature", &asked.sampling.temperature, "0: always the most probable token").ShowDefault();
  args.Option("--top-k", &asked.sampling.top_k, "draw from the k most probable tokens; 0: all").ShowDefault();
  args.Option("--top-p", &asked.sampling.top_p, "draw from the most probable tokens that together reach p")
      .ShowDefault();
  args.Option("--seed", &asked.seed, "of the draws").ShowDefault();
  args.Option("--device", &asked.device, "auto (a GPU where there is one), cpu or cuda").OneOf({"auto", "cpu", "cuda"});
  args.Option("--precision", &asked.precision, "auto (bf16 on a GPU that has it), fp32, bf16 or fp16")
      .OneOf({"auto", "fp32", "bf16", "fp16"});
  args.Flag("--json", &asked.json, "one JSON object at the end: prompt, text, tokens, tokens per second");
  args.Footer(
      "examples:\n  lockstep generate runs/words --prompt 'the day after monday is'\n"
      "  lockstep generate runs/words/checkpoints/best --prompt 'count from 3' --temperature 0 --tokens 40\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  asked.has_prompt = prompt.given();
  Status status;
  try {
    status = Generate(asked);
  } catch (const c10::Error& error) {
    status = Status(Code::kEnvironment, error.what_without_backtrace());
  } catch (const std::exception& error) {
    status = Status(Code::kEnvironment, error.what());
  }
  if (status.ok()) return 0;
  fmt::print(stderr, "lockstep generate: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace lockstep::cli
