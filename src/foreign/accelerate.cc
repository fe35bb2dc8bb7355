// accelerate's YAML: what it hands on to DeepSpeed becomes a DeepSpeed configuration, which is then translated.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/files.h"
#include "base/text.h"
#include "foreign/deepspeed.h"
#include "foreign/deepspeed_derive.h"
#include "foreign/deepspeed_keys.h"

namespace lockstep::foreign {
namespace {

// Columns as in deepspeed_keys.cc; read from accelerate 1.15: ClusterConfig, prepare_deepspeed_cmd_env,
// DeepSpeedPlugin.
constexpr std::string_view kAccelerate = R"(
compute_environment|s|LOCAL_MACHINE|H||LOCAL_MACHINE|where it runs|platforms are recognised by their environment ~SageMaker is not here
distributed_type|s||M|train.zero.stage|NO,DEEPSPEED,MULTI_GPU,MULTI_CPU|how ranks share a model|NO and MULTI_* are stage 0 ~FSDP is train.zero.stage: 3 here (FULL_SHARD) or 2 (SHARD_GRAD_OP); MEGATRON_LM, XLA and devices other than GPUs and CPUs are not here
mixed_precision|s|no|M|train.precision|no,bf16,fp16|precision|as bf16.enabled or fp16.enabled of DeepSpeed ~fp8 is not here
fp16|b|false|M|train.precision||older form of mixed_precision: fp16|
use_cpu|b|false|M|train.device||trains on CPUs|
num_processes|x||I|||ranks of all machines|the launcher decides: --nproc-per-node, or one rank for each GPU
num_machines|p|1|I|||machines|the launcher decides: --nnodes, or the platform
machine_rank|u|0|I|||number of this machine|the launcher decides: --node-rank, or the platform
main_process_ip|s||I|||address of machine 0|the launcher decides: --rdzv-endpoint, or the platform
main_process_port|u||I|||its port|the launcher decides: --rdzv-endpoint, or the platform
rdzv_backend|s|static|I|||rendezvous|the launcher has a rendezvous of its own
same_network|b|false|I|||all machines are in one network|the launcher tries the addresses
gpu_ids|x|all|I|||devices|the launcher decides: CUDA_VISIBLE_DEVICES
main_training_function|s|main|I|||function of a notebook|the recipe says what is trained
enable_cpu_affinity|b|false|I|||binds ranks to NUMA nodes|the launcher binds ranks: --bind
debug|b|false|I|||checks collectives|collectives have a deadline and name the rank that is missing (comm.timeout)
downcast_bf16|x|no|I|||of TPUs|there are no TPUs here
{tpu_name,tpu_zone,tpu_use_cluster=false,tpu_use_sudo=false,tpu_vm,tpu_env,command_file,commands}|x||I|||of TPUs|there are no TPUs here
{dynamo_config,dynamo_backend=NO}|x||I|||torch.compile|steps are captured as CUDA graphs (train.graph)
mpirun_config|x||I|||of mpirun|the launcher works below mpirun
fsdp_config|x||R||{}|of FSDP|FSDP is not here: distributed_type DEEPSPEED with zero_stage 3 shares parameters out
megatron_lm_config|x||R||{}|of Megatron-LM|Megatron-LM is not here: distributed_type DEEPSPEED with zero_stage 3 shares parameters out
fp8_config|x||R||{}|of fp8|fp8 is not here: use mixed_precision: bf16
parallelism_config|x||R||{}|tensor, context and sequence parallelism|not here: distributed_type DEEPSPEED with zero_stage 3 shares parameters out
{ec2_instance_type,iam_role_name,image_uri,profile,region,base_job_name,py_version,pytorch_version,transformers_version,sagemaker_inputs_file,sagemaker_metrics_file,additional_args}|x||I|||of SageMaker|there is no SageMaker here
deepspeed_config|o||I|||of DeepSpeed|
deepspeed_config.zero_stage|u|2|M|zero_optimization.stage|0,1,2,3|stage of ZeRO|
deepspeed_config.gradient_accumulation_steps|p|auto|M|gradient_accumulation_steps||passes of an optimizer step|
deepspeed_config.gradient_clipping|n|auto|M|gradient_clipping||largest gradient norm|
deepspeed_config.offload_optimizer_device|s|none|M|zero_optimization.offload_optimizer.device|none,cpu|memory of the optimizer's state|~nvme is not here: use cpu
deepspeed_config.offload_param_device|s|none|M|zero_optimization.offload_param.device|none,cpu|memory of the parameters|~nvme is not here: use cpu
deepspeed_config.{offload_optimizer_nvme_path,offload_param_nvme_path}|s||I|||of NVMe|of a device that is not used; accelerate launch does not hand it on either
deepspeed_config.zero3_init_flag|b|false|I|||creates parameters in shards|parameters are drawn part by part where the recipe can
deepspeed_config.zero3_save_16bit_model|b|false|I|||gathers the weights when a model is saved|lockstep export writes whole weights of any checkpoint
deepspeed_config.deepspeed_config_file|s||M|||DeepSpeed's own file|followed
deepspeed_config.{deepspeed_multinode_launcher=pdsh,deepspeed_hostfile,deepspeed_inclusion_filter,deepspeed_exclusion_filter}|x||I|||launcher|the launcher decides
deepspeed_config.deepspeed_moe_layer_cls_names|x||I|||mixture-of-experts layers|there are none here
)";

constexpr char kNotHandedOn[] =
    "accelerate itself ignores it: it hands on zero_stage, gradient_accumulation_steps, gradient_clipping, the two "
    "offload devices, the zero3_* flags and deepspeed_config_file; say it in a file that deepspeed_config_file names";

// What accelerate refuses beside a deepspeed_config_file.
constexpr std::string_view kOnlyInTheFile[] = {"mixed_precision",
                                               "deepspeed_config.zero_stage",
                                               "deepspeed_config.gradient_accumulation_steps",
                                               "deepspeed_config.gradient_clipping",
                                               "deepspeed_config.offload_optimizer_device",
                                               "deepspeed_config.offload_param_device",
                                               "deepspeed_config.offload_optimizer_nvme_path",
                                               "deepspeed_config.offload_param_nvme_path",
                                               "deepspeed_config.zero3_save_16bit_model"};

const KeyRow* AccelerateRow(const std::string& path) {
  static const std::map<std::string, const KeyRow*> rows = [] {
    std::map<std::string, const KeyRow*> all;
    for (const KeyRow& key : AccelerateKeys()) all[key.path] = &key;
    return all;
  }();
  if (const auto it = rows.find(path); it != rows.end()) return it->second;
  constexpr std::string_view kSection = "deepspeed_config.";
  if (!path.starts_with(kSection)) return nullptr;
  // Keys of DeepSpeed's own file, of its top or of zero_optimization.
  static const KeyRow kIgnoredThere{.path = "deepspeed_config.*", .why = kNotHandedOn};
  const std::string name = path.substr(kSection.size());
  const bool known = DeepSpeedRow(name) != nullptr || DeepSpeedRow("zero_optimization." + name) != nullptr ||
                     name == "deepspeed_communication_data_type" || name == "communication_dtype";
  return known ? &kIgnoredThere : nullptr;
}

// YAML has words without quotes; here, as in HJSON, what is no number, boolean or null is a string.
void MarkStrings(ConfigNode* node) {
  if (node->kind == ConfigNode::Kind::kScalar && !node->quoted) {
    if (node->text == "True" || node->text == "TRUE") node->text = "true";
    if (node->text == "False" || node->text == "FALSE") node->text = "false";
    if (IsNullText(node->text) || node->text.empty()) node->kind = ConfigNode::Kind::kNull;
    node->quoted = node->text != "true" && node->text != "false" && !node->LooksNumber();
  }
  for (ConfigNode& item : node->items) MarkStrings(&item);
  for (ConfigEntry& entry : node->entries) MarkStrings(&entry.value);
}

// Anchors and aliases hide which value is meant; accelerate never writes them.
Status RefuseAnchors(std::string_view text, const std::string& file) {
  int line = 0;
  for (const std::string& one : Split(text, '\n')) {
    ++line;
    const std::string_view trimmed = Trim(one);
    if (trimmed.starts_with('#')) continue;
    const size_t colon = one.find(": ");
    const size_t value = one.find_first_not_of(" -", colon == std::string::npos ? 0 : colon + 2);
    const bool anchor = value != std::string::npos && value + 1 < one.size() && one[value + 1] != ' ' &&
                        (one[value] == '&' || one[value] == '*');
    if (!anchor && !trimmed.starts_with("<<:")) continue;
    return Status(Code::kUsage,
                  fmt::format("{}:{}:{}: YAML anchors and aliases are not read here", file, line,
                              (anchor ? value : one.find("<<")) + 1),
                  "write the values out");
  }
  return Status::Ok();
}

void Put(const ConfigNode& yaml, std::string_view from, std::string_view to, ConfigNode* deepspeed) {
  const ConfigNode* node = FindKey(yaml, from);
  if (node != nullptr && node->kind != ConfigNode::Kind::kNull) SetKey(deepspeed, to, *node);
}

// What DeepSpeedPlugin makes of the fields that it is given.
ConfigNode ToDeepSpeed(const ConfigNode& yaml) {
  ConfigNode made{.kind = ConfigNode::Kind::kMap, .where = yaml.where};
  for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
    SetKey(&made, key, Scalar("auto", true));
  }
  const bool deepspeed = TextAt(yaml, "distributed_type") == "deepspeed";
  SetKey(&made, "zero_optimization.stage", Scalar(deepspeed ? "2" : "0"));
  if (deepspeed) {
    const std::string section = "deepspeed_config.";
    Put(yaml, section + "zero_stage", "zero_optimization.stage", &made);
    Put(yaml, section + "gradient_accumulation_steps", "gradient_accumulation_steps", &made);
    Put(yaml, section + "gradient_clipping", "gradient_clipping", &made);
    Put(yaml, section + "offload_optimizer_device", "zero_optimization.offload_optimizer.device", &made);
    Put(yaml, section + "offload_param_device", "zero_optimization.offload_param.device", &made);
  }
  std::string precision = TextAt(yaml, "mixed_precision").value_or("no");
  if (TextAt(yaml, "fp16") == "true" && FindKey(yaml, "mixed_precision") == nullptr) precision = "fp16";
  for (const char* name : {"bf16", "fp16"}) {
    ConfigNode on = Scalar(deepspeed && precision == name ? "true" : "false");
    on.where = PlaceOf(yaml, "mixed_precision");
    SetKey(&made, fmt::format("{}.enabled", name), on);
    if (deepspeed || precision != name) continue;
    SetKey(&made, "torch_autocast.enabled", Scalar("true"));
    SetKey(&made, "torch_autocast.dtype", Scalar(name, true));
  }
  return made;
}

// Blocks that accelerate reads for one distributed_type or precision only; its own editor leaves them behind.
bool IsIdle(const std::string& key, const std::string& distributed, const std::string& precision) {
  if (distributed.empty()) return false;
  if (key.starts_with("deepspeed_config.")) return distributed != "deepspeed";
  if (key == "fsdp_config") return distributed != "fsdp";
  if (key == "megatron_lm_config") return distributed != "megatron_lm";
  return key == "fp8_config" && precision != "fp8";
}

// By its path, as accelerate opens it, or beside the YAML file.
std::string FollowedFile(const std::string& yaml, const std::string& named) {
  std::error_code ignored;
  if (std::filesystem::exists(named, ignored)) return named;
  const std::filesystem::path beside = std::filesystem::path(yaml).parent_path() / named;
  return std::filesystem::exists(beside, ignored) ? beside.string() : named;
}

// The numbers and settings of the DeepSpeed configuration; accelerate's notes come first.
void Combine(DeepSpeedReport deepspeed, bool followed, DeepSpeedReport* made) {
  for (auto list : {&DeepSpeedReport::honoured, &DeepSpeedReport::mapped, &DeepSpeedReport::ignored}) {
    if (!followed) continue;
    auto& from = deepspeed.*list;
    for (Note& note : from) note.file = deepspeed.file;
    (made->*list).insert((made->*list).end(), from.begin(), from.end());
  }
  for (Note& note : deepspeed.refused) {
    if (followed) note.file = deepspeed.file;
    made->refused.push_back(std::move(note));
  }
  deepspeed.honoured = std::move(made->honoured);
  deepspeed.mapped = std::move(made->mapped);
  deepspeed.ignored = std::move(made->ignored);
  deepspeed.refused = std::move(made->refused);
  deepspeed.ignored_by_accelerate = std::move(made->ignored_by_accelerate);
  deepspeed.file = made->file;
  deepspeed.kind = made->kind;
  deepspeed.command = made->command;
  *made = std::move(deepspeed);
}

}  // namespace

const std::vector<KeyRow>& AccelerateKeys() {
  static const std::vector<KeyRow> keys = [] {
    std::vector<KeyRow> all;
    AddKeyRows(kAccelerate, &all);
    return all;
  }();
  return keys;
}

Result<DeepSpeedReport> ReadAccelerate(const std::string& path, const DeepSpeedContext& given) {
  Result<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status().Context("--accelerate");
  if (Trim(*text).empty()) {
    return Status(Code::kUsage, fmt::format("{}:1:1: the file is empty, expected accelerate's keys", path));
  }
  const bool json = path.ends_with(".json");
  if (!json) LOCKSTEP_RETURN_IF_ERROR(RefuseAnchors(*text, path));
  Result<ConfigTree> tree =
      ConfigTree::Parse(*text, path, json ? ConfigTree::Format::kJson : ConfigTree::Format::kYaml);
  if (!tree.ok()) return tree.status();
  ConfigNode yaml = tree->root();
  MarkStrings(&yaml);

  DeepSpeedReport made;
  made.file = path;
  made.kind = "accelerate configuration";
  made.command = "lockstep config --accelerate FILE";
  const ConfigNode* followed = FindKey(yaml, "deepspeed_config.deepspeed_config_file");
  const std::string distributed = TextAt(yaml, "distributed_type").value_or("");
  if (distributed != "deepspeed") followed = nullptr;
  if (followed != nullptr && (followed->kind != ConfigNode::Kind::kScalar || followed->text == "none")) {
    followed = nullptr;
  }
  DeepSpeedContext context = given;
  const double processes = NumberAt(yaml, "num_processes").value_or(-1);
  if (context.ranks == 0 && processes >= 1 && processes < 1e6) context.ranks = static_cast<int>(processes);
  KeyWalk walk(AccelerateKeys(), AccelerateRow,
               [&](const std::string& key, const ConfigEntry& entry, const KeyRow& row) {
                 Note note{key, ValueText(entry.value), row.to, row.why, entry.where.line};
                 if (IsIdle(key, distributed, TextAt(yaml, "mixed_precision").value_or("no"))) {
                   note.to.clear();
                   note.reason = fmt::format("accelerate does not use it where distributed_type is {}{}",
                                             ValueText(*FindKey(yaml, "distributed_type")),
                                             key == "fp8_config" ? " and mixed_precision is not fp8" : "");
                   made.ignored.push_back(std::move(note));
                   return;
                 }
                 if (followed != nullptr && std::ranges::find(kOnlyInTheFile, key) != std::end(kOnlyInTheFile)) {
                   note.reason = "accelerate refuses it beside deepspeed_config_file: say it in that file";
                   made.refused.push_back(std::move(note));
                   return;
                 }
                 if (key == "num_processes" && context.ranks != processes) {
                   note.reason += fmt::format("; there are {}", Count(context.ranks, "rank"));
                 }
                 if (row.why == kNotHandedOn) made.ignored_by_accelerate.push_back(key);
                 (void)made.Take(std::move(note), row, entry.value);
               });
  walk.AlsoFits(IsAuto);
  walk.Run(yaml);
  std::vector<std::string> mistakes;
  for (const ConfigError& error : tree->errors()) mistakes.push_back(error.ToString());
  mistakes.insert(mistakes.end(), walk.errors().begin(), walk.errors().end());
  if (FindKey(yaml, "distributed_type") == nullptr) {
    mistakes.push_back(fmt::format("{}: expected the key distributed_type, which accelerate demands", path));
  }
  if (!mistakes.empty()) return Status(Code::kUsage, Join(mistakes, "\n"), "docs/deepspeed.md lists the keys");

  Result<DeepSpeedReport> deepspeed = followed != nullptr ? ReadDeepSpeed(FollowedFile(path, followed->text), context)
                                                          : TranslateDeepSpeedTree(ToDeepSpeed(yaml), path, context);
  if (!deepspeed.ok()) {
    return followed != nullptr ? deepspeed.status().Context(followed->where.ToString()) : deepspeed.status();
  }
  Combine(std::move(*deepspeed), followed != nullptr, &made);
  if (TextAt(yaml, "use_cpu") == "true") made.Set("train.device", Scalar("cpu"), PlaceOf(yaml, "use_cpu"));
  if (!made.ignored_by_accelerate.empty()) {
    made.derived.push_back(
        {"ignored by accelerate", std::to_string(made.ignored_by_accelerate.size()),
         "fields that have no effect with accelerate launch either: " + Join(made.ignored_by_accelerate, ", ")});
  }
  return made;
}

}  // namespace lockstep::foreign
