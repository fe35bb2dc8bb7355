// DeepSpeed's configurations as ours. The five files of the VLN recipes (ZeRO 0, 2, 2 with offload, 3 and 3 as it was
// first) are written here from their description; defaults and refusals were compared with DeepSpeed 0.19.8.
#include "foreign/deepspeed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/config_json.h"
#include "foreign/five_configs.h"
#include "paths.h"

namespace lockstep::foreign {
namespace {

using nlohmann::json;
using testing::HasSubstr;

DeepSpeedReport Made(const std::string& text, const DeepSpeedContext& context = {}) {
  Result<DeepSpeedReport> made = TranslateDeepSpeed(text, "ds.json", context);
  EXPECT_TRUE(made.ok()) << made.status().ToString() << "\n" << text;
  if (!made.ok()) return {};
  EXPECT_TRUE(made->Check().ok()) << made->Check().ToString();
  return *made;
}

// The mistake, or what is refused.
std::string ErrorOf(const std::string& text, const DeepSpeedContext& context = {}) {
  const Result<DeepSpeedReport> made = TranslateDeepSpeed(text, "ds.json", context);
  return made.ok() ? made->Check().ToString() : made.status().ToString();
}

json Settings(const DeepSpeedReport& made) { return json::parse(ToJson(made.settings).dump()); }

const Note* Find(const std::vector<Note>& notes, const std::string& key) {
  const auto it = std::ranges::find(notes, key, &Note::key);
  return it == notes.end() ? nullptr : &*it;
}

// What a 7B model with bf16 on two ranks has as its own configuration.
DeepSpeedContext Trainer() {
  DeepSpeedContext context;
  context.ranks = 2;
  context.batch = 16;
  context.micro_batch = 1;
  context.precision = "bf16";
  context.hidden_size = 3584;
  return context;
}

TEST(DeepSpeed, TheFiveConfigurations) {
  struct Expected {
    int stage;
    std::string offload, bucket, prefetch, persistent;
  };
  const std::map<std::string, Expected> expected = {
      {"zero0", {0, "none", "2000000000", "", ""}},
      {"zero2", {2, "none", "51380224", "", ""}},
      {"zero2_offload", {2, "cpu", "2000000000", "", ""}},
      {"zero3", {3, "none", "2000000000", "500000000", "1000000"}},
      {"zero3_first", {3, "none", "51380224", "11560550", "35840"}},
  };
  for (const auto& [name, text] : FiveConfigs()) {
    SCOPED_TRACE(name);
    const Expected& want = expected.at(name);
    const DeepSpeedReport made = Made(text, Trainer());
    EXPECT_EQ(made.stage, want.stage);
    EXPECT_EQ(made.precision, "bf16");
    EXPECT_EQ(made.offload_optimizer, want.offload);
    EXPECT_EQ(made.offload_param, "none");
    EXPECT_EQ(made.micro_batch, 1U);
    EXPECT_EQ(made.accumulation, 8U);
    EXPECT_EQ(made.global_batch, 16U);
    const json train = Settings(made).at("train");
    EXPECT_EQ(train.at("bucket").dump(), want.bucket);
    EXPECT_EQ(train.at("parameters"), "bf16");
    EXPECT_EQ(train.at("zero").at("stage"), want.stage);
    EXPECT_EQ(train.at("zero").value("prefetch", 0), want.prefetch.empty() ? 0 : std::stoi(want.prefetch));
    EXPECT_EQ(train.at("zero").value("persistent", 0), want.persistent.empty() ? 0 : std::stoi(want.persistent));
  }
}

// Elements, and how many bytes that is: 5e8 in bf16 is a gigabyte, not 500 MB.
TEST(DeepSpeed, BucketsAreElementsAndTheReportSaysHowManyBytes) {
  const DeepSpeedReport made =
      Made(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}})");
  ASSERT_EQ(made.buckets.size(), 1U);
  EXPECT_EQ(made.buckets[0].elements, 500000000U);
  EXPECT_EQ(made.buckets[0].bytes, 1000000000U);
  EXPECT_EQ(made.buckets[0].value, "2000000000");
  const json document = json::parse(made.Json());
  for (const char* key : {"stage", "precision", "micro_batch", "accumulation", "global_batch", "offload_optimizer",
                          "offload_param", "buckets", "honoured", "mapped", "ignored", "refused"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  EXPECT_EQ(document["buckets"][0]["bytes"], 1000000000);
  EXPECT_THAT(made.Table(""), HasSubstr("reduce_bucket_size = 500000000 elements: "));
}

// train_batch_size = micro x accumulation x ranks, completed as DeepSpeed completes it.
TEST(DeepSpeed, BatchSizes) {
  struct Case {
    std::string keys;
    uint64_t global, micro, accumulation;  // global 0: refused
  };
  const std::string g = "\"train_batch_size\": ", m = "\"train_micro_batch_size_per_gpu\": ",
                    a = "\"gradient_accumulation_steps\": ";
  DeepSpeedContext own;
  own.ranks = 4;
  own.batch = 64;
  own.micro_batch = 0;
  const std::vector<Case> cases = {
      {g + "32, " + m + "4, " + a + "2", 32, 4, 2},
      {g + "32, " + m + "4", 32, 4, 2},
      {g + "32, " + a + "4", 32, 2, 4},
      {m + "4, " + a + "2", 32, 4, 2},
      {g + "32", 32, 8, 1},
      {m + "4", 16, 4, 1},
      {g + "32, " + m + "4, " + a + "3", 0, 0, 0},
      {g + "30, " + m + "4", 0, 0, 0},
      {g + "3", 0, 0, 0},
      {g + "\"auto\", " + m + "\"auto\", " + a + "\"auto\"", 64, 16, 1},
      {g + "\"auto\", " + m + "4, " + a + "\"auto\"", 64, 4, 4},
      {g + "\"auto\", " + m + "\"auto\", " + a + "4", 64, 4, 4},
      {g + "\"auto\", " + m + "\"auto\", " + a + "3", 0, 0, 0},
      {a + "2", 64, 8, 2},
      {"", 64, 16, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.keys);
    const std::string text = "{" + one.keys + "}";
    if (one.global == 0) {
      EXPECT_THAT(ErrorOf(text, own), HasSubstr("and the global batch is"));
      EXPECT_THAT(ErrorOf(text, own), HasSubstr("ds.json:1:"));
      continue;
    }
    const DeepSpeedReport made = Made(text, own);
    EXPECT_EQ(made.global_batch, one.global);
    EXPECT_EQ(made.micro_batch, one.micro);
    EXPECT_EQ(made.accumulation, one.accumulation);
  }
}

TEST(DeepSpeed, AutoIsWhatTheTrainerHas) {
  const DeepSpeedReport made = Made(R"({
    "train_batch_size": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                  "warmup_num_steps": "auto", "total_num_steps": "auto", "warmup_type": "linear"}},
    "zero_optimization": {"stage": 3, "overlap_comm": "auto", "stage3_prefetch_bucket_size": "auto"}})",
                                    Trainer());
  const std::map<std::string, std::string> says = {
      {"train_batch_size", "auto is 16: "},
      {"gradient_clipping", "auto is 1: train.clip_norm"},
      {"bf16.enabled", "auto is true: train.precision is bf16"},
      {"fp16.enabled", "auto is false: train.precision is bf16"},
      {"optimizer.params.lr", "auto is 5e-05"},
      {"optimizer.params.betas", "auto is [0.9, 0.999]"},
      {"scheduler.params.total_num_steps", "the steps of the run"},
      {"zero_optimization.stage3_prefetch_bucket_size", "auto is 11560550: from the hidden size 3584"}};
  for (const auto& [key, reason] : says) {
    const Note* note = Find(made.mapped, key);
    ASSERT_NE(note, nullptr) << key;
    EXPECT_THAT(note->reason, HasSubstr(reason));
  }
  EXPECT_NE(Find(made.ignored, "zero_optimization.overlap_comm"), nullptr);
  // There is no warm-up that could have a form.
  EXPECT_FALSE(Settings(made)["train"]["schedule"].contains("warmup_shape"));
  // What is auto stays as the recipe has it.
  EXPECT_FALSE(Settings(made)["train"]["optimizer"].contains("lr"));
}

TEST(DeepSpeed, OptimizersAndSchedules) {
  const json adam = Settings(Made(R"({"optimizer": {"type": "Adam", "params": {"lr": 2e-4, "betas": [0.8, 0.99]}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4, "warmup_num_steps": 50}}})"))["train"];
  EXPECT_EQ(adam["optimizer"], json::parse(R"({"kind": "adamw", "lr": 3e-4, "weight_decay": 0, "epsilon": 1e-8,
                                               "betas": [0.8, 0.99]})"));
  EXPECT_EQ(adam["schedule"], json::parse(R"({"kind": "constant", "warmup_shape": "log", "warmup": 50})"));
  const json coupled =
      Settings(Made(R"({"optimizer": {"type": "adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})"));
  EXPECT_EQ(coupled["train"]["optimizer"]["kind"], "adam");
  EXPECT_EQ(coupled["train"]["optimizer"]["weight_decay"], 0.1);
  EXPECT_EQ(coupled["train"]["optimizer"]["lr"], 0.001);
  const json sgd = Settings(Made(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}})"));
  EXPECT_EQ(sgd["train"]["optimizer"],
            json::parse(R"({"kind": "sgd", "lr": 0.1, "weight_decay": 0, "momentum": 0.9})"));
  const json cosine = Settings(Made(R"({"scheduler": {"type": "WarmupCosineLR", "params": {
    "total_num_steps": 1000, "warmup_num_steps": 10, "warmup_type": "linear", "cos_min_ratio": 0.1}}})"));
  EXPECT_EQ(cosine["train"]["schedule"],
            json::parse(R"({"kind": "cosine", "warmup_shape": "linear", "warmup": 10, "length": 1000, "floor": 0.1})"));
  EXPECT_THAT(ErrorOf(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4}}})"),
              HasSubstr("scheduler.type = OneCycle: "));
  EXPECT_THAT(ErrorOf(R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 5}}})"),
              HasSubstr("optimizer.type = OneBitAdam"));
  EXPECT_THAT(ErrorOf(R"({"scheduler": {"type": "WarmupDecayLR"}})"), HasSubstr("it needs params.total_num_steps"));
}

TEST(DeepSpeed, OlderSpellings) {
  const DeepSpeedReport offload = Made(R"({"bfloat16": {"enabled": true}, "zero_allow_untested_optimizer": true,
               "zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_params": true,
                                     "prefetch_bucket_size": 1e6, "stage3_gather_fp16_weights_on_model_save": true}})");
  EXPECT_EQ(offload.offload_optimizer, "cpu");
  EXPECT_EQ(offload.offload_param, "cpu");
  EXPECT_EQ(offload.precision, "bf16");
  EXPECT_EQ(Settings(offload)["train"]["zero"]["prefetch"], 1000000);
  EXPECT_EQ(Made(R"({"zero_optimization": true})").stage, 1);
  EXPECT_EQ(Made(R"({"fp16": {"enabled": true, "type": "bfloat16"}})").precision, "bf16");
  const json scaler = Settings(Made(R"({"fp16": {"enabled": true, "initial_scale_power": 12}})"))["train"];
  EXPECT_EQ(scaler["scaler"], json::parse(R"({"initial": 4096, "interval": 1000})"));
  // A block copied from fp16, a comment as a key, and a number that silences progress reports.
  const DeepSpeedReport copied = Made(R"({"_comment": "ours", "steps_per_print": 20000000000000000,
      "bf16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000,
               "hysteresis": 2, "min_loss_scale": 1}, "compile": {"disable": false}})");
  EXPECT_EQ(copied.precision, "bf16");
  EXPECT_EQ(copied.ignored.size(), 8U);
  EXPECT_THAT(ErrorOf(R"({"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {}}})"),
              HasSubstr("which is given as well"));
}

// One message, with file and line.
TEST(DeepSpeed, BadInput) {
  const std::string zero = "{\n \"zero_optimization\": {\"stage\": 1,\n  ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"fp16\": {\"enabled\": true},\n \"bf16\": {\"enabled\": true}}", "ds.json:2: bf16.enabled = true: fp16"},
      {zero + "\"stage3_max_live_parameters\": 1e9}}", "ds.json:3: zero_optimization.stage3_max_live_parameters"},
      {"{\"zero_optimization\": {\"stage\": 2,\n \"offload_param\": {\"device\": \"cpu\"}}}",
       "ds.json:2: zero_optimization.offload_param.device = cpu: parameters are offloaded at stage 3"},
      {"{\"zero_optimization\": {\"stage\": 3,\n \"offload_param\": {\"device\": \"cpu\"}}}",
       "ds.json:2: zero_optimization.offload_param.device = cpu: parameters are offloaded together with"},
      {zero + "\"reduce_bucket_size\": -5}}",
       "ds.json:3:3: zero_optimization.reduce_bucket_size: expected a whole number above 0, found the number -5"},
      {zero + "\"reduce_bucket_size\": 0.5}}", "expected a whole number above 0, found the number 0.5"},
      {zero + "\"reduce_bucket_size\": \"5e8\"}}", "expected a whole number above 0, found the string '5e8'"},
      {zero + "\"offload_optimizer\": {\"device\": \"nvme\"}}}",
       "ds.json:3: zero_optimization.offload_optimizer.device = nvme: nvme is not here: use cpu"},
      {zero + "\"overlap_com\": true}}",
       "unknown key 'zero_optimization.overlap_com' (did you mean "
       "'zero_optimization.overlap_comm'?)"},
      {"{\"gradient_clippin\": 1}", "unknown key 'gradient_clippin' (did you mean 'gradient_clipping'?)"},
      {"{\"reduce_bucket_size\": 1}", "(did you mean 'zero_optimization.reduce_bucket_size'?)"},
      {"{\"zero_optimization\": {\"stage\": 4}}", "zero_optimization.stage = 4: "},
      {"{\"train_batch_size\": 0}", "expected a whole number above 0"},
      {"{\"zero_optimization\": {\"stage\": 2,", "ds.json:1:35: the file ends"},
      {"", "ds.json:1:1: the file is empty"},
      {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}}", "at stages 1, 2 and 3"},
      {"{\"compression_training\": {\"row_pruning\": {\"shared_parameters\":\n {\"enabled\": true}}}}",
       "ds.json:2: compression_training.row_pruning.shared_parameters.enabled = true: nothing is"},
      {"{\"sparse_attention\": {\"mode\": \"fixed\"}}", "attention is dense here"},
      {"{\"train_micro_batch_size_per_gpu\": 4294967296, \"gradient_accumulation_steps\": 4294967296}",
       "4294967296 samples of a rank x 4294967296 passes x 1 rank are more than can be counted"},
      {"{\"fp16\": {\"enabled\": true, \"loss_scale\": -1}}", "fp16.loss_scale = -1: expected 0 (dynamic)"},
      {"{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 128}}", "fp16.initial_scale_power = 128: 2 to this"},
      {"{\"scheduler\": {\"type\": \"WarmupLR\",\n \"params\": {\"total_num_steps\": 10}}}",
       "ds.json:2: scheduler.params.total_num_steps = 10: WarmupLR has no such parameter"},
      {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 9, \"cos_min_ratio\": 0.5}}}",
       "scheduler.params.cos_min_ratio = 0.5: WarmupDecayLR has no such parameter"},
      {"{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 9, \"warmup_max_lr\": 1}}}",
       "scheduler.params.warmup_max_lr = 1: WarmupCosineLR has no such parameter"},
      {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"momentum\": 0.9}}}",
       "optimizer.params.momentum = 0.9: Adam has no such parameter"},
      {"{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.9]}}}",
       "optimizer.params.betas = [0.9, 0.9]: SGD has no such parameter"},
      {"{\"zero_optimization\": {\"_comment\": \"x\"}}", "unknown key 'zero_optimization._comment'"},
      {"{\"comet\": {\"api_key\": \"sesame\"}}", "a secret in a file"},
  };
  for (const auto& [text, message] : cases) {
    const std::string error = ErrorOf(text);
    EXPECT_THAT(error, HasSubstr(message)) << text;
    EXPECT_THAT(error, HasSubstr("ds.json:")) << text;
    EXPECT_THAT(error, testing::Not(HasSubstr("sesame")));
  }
  EXPECT_THAT(ReadDeepSpeed("/tmp", {}).status().ToString(), HasSubstr("/tmp"));
  EXPECT_THAT(ReadDeepSpeed("/nonexistent.json", {}).status().ToString(), HasSubstr("/nonexistent.json"));
}

// The tables themselves: unique keys; what is copied has a place to go; what is refused or ignored says why.
TEST(DeepSpeed, TheTables) {
  for (const auto* rows : {&DeepSpeedKeys(), &AccelerateKeys()}) {
    std::set<std::string> seen;
    for (const KeyRow& row : *rows) {
      EXPECT_TRUE(seen.insert(row.path).second) << row.path;
      EXPECT_THAT(std::string("biupnslgox"), HasSubstr(std::string(1, row.type))) << row.path;
      EXPECT_LE(static_cast<int>(row.fate), 4) << row.path;
      if (row.copied) EXPECT_NE(row.to, "") << row.path;
      EXPECT_NE(row.meaning, "") << row.path;
      const bool says = row.fate == KeyRow::Fate::kRefused || (row.fate == KeyRow::Fate::kIgnored && row.type != 'o');
      if (says && row.path != "log_level") EXPECT_NE(row.why, "") << row.path;
      const size_t dot = row.path.rfind('.');
      if (dot != std::string::npos) EXPECT_TRUE(seen.contains(row.path.substr(0, dot))) << row.path;
    }
  }
  EXPECT_GE(DeepSpeedKeys().size(), 480U);
}

// docs/deepspeed.md ends with what the tables say. LOCKSTEP_WRITE_DOCS=1 writes it.
TEST(DeepSpeed, ThePageEqualsTheTables) {
  const std::string path = SourceDir() + "/docs/deepspeed.md";
  std::ifstream in(path);
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  const size_t begin = page.find("## Keys of DeepSpeed\n");
  ASSERT_NE(begin, std::string::npos);
  if (std::getenv("LOCKSTEP_WRITE_DOCS") != nullptr) {
    in.close();
    std::ofstream(path) << page.substr(0, begin) << DeepSpeedPage();
    return;
  }
  EXPECT_TRUE(page.substr(begin) == DeepSpeedPage())
      << "LOCKSTEP_WRITE_DOCS=1 build/release/tests/foreign_test --gtest_filter=DeepSpeed.ThePageEqualsTheTables";
}

}  // namespace
}  // namespace lockstep::foreign
