// The keys of DeepSpeed's configuration that train a model, as data; the blocks around it are deepspeed_blocks.cc.
//
//   key | type | DeepSpeed's default | fate | our key | values | what it means there | what it means here
//
// Fates: H honoured, M mapped, I ignored, R refused, S secret; a + behind it: the value goes to our key as it is.
// Values that are not in the list are refused, with what stands behind ~ in the last column; an empty list allows all.
// Null is allowed everywhere. One row can have several keys with the same fate: section.{a=default,b}; a part * stands
// for any name. Read from DeepSpeed 0.19.8: docs/_pages/config-json.md and the classes behind it; what older versions
// had is marked.
#include "foreign/deepspeed_keys.h"

#include "base/text.h"
#include "foreign/deepspeed.h"

namespace lockstep::foreign {
namespace {

constexpr std::string_view kTraining = R"(
train_batch_size|p||M|train.batch||samples of an optimizer step, over all ranks|micro-batch x accumulation x ranks; checked, and completed where one of the three is missing
train_micro_batch_size_per_gpu|p||M|train.micro_batch||samples of one rank in one pass|
gradient_accumulation_steps|p|1|M|train.batch||passes of a rank before an optimizer step|follows from train.batch, train.micro_batch and the ranks
managed_gradient_accumulation|b|true|H||true|DeepSpeed counts the passes|the engine counts them
gradient_clipping|n|1.0|H+|train.clip_norm||largest gradient norm; 0: none|
optimizer|o||I|||optimizer of the run|
optimizer.type|s||M|train.optimizer.kind|Adam,AdamW,CPUAdam,DeepSpeedCPUAdam,FusedAdam,SGD|which optimizer|Adam is AdamW unless adam_w_mode is false, as in DeepSpeed; where it runs follows from train.offload ~train.optimizer.kind has AdamW, Adam and SGD
optimizer.params|o||I|||its parameters|
optimizer.params.lr|n|0.001|M|train.optimizer.lr||learning rate|
optimizer.params.betas|l|[0.9, 0.999]|M|train.optimizer.betas||decay of both moments|
optimizer.params.eps|n|1e-08|M|train.optimizer.epsilon||added to the denominator|
optimizer.params.weight_decay|n|0|M|train.optimizer.weight_decay||weight decay|parameters of train.groups keep what their group says
optimizer.params.adam_w_mode|b|true|M|train.optimizer.kind||decoupled weight decay|false: adam
optimizer.params.bias_correction|b|true|H||true|corrects the moments of the first steps|always done
optimizer.params.momentum|n|0|M|train.optimizer.momentum||of SGD|
optimizer.params.nesterov|b|false|M|train.optimizer.nesterov||of SGD|
optimizer.params.dampening|n|0|R||0,0.0|of SGD|SGD has no dampening here
optimizer.params.amsgrad|b|false|R||false|largest second moment instead of the current one|AMSGrad is not here
optimizer.params.maximize|b|false|R||false|ascends|the loss is minimised
optimizer.params.max_grad_norm|n||I|||of Apex|DeepSpeed does not clip by it either: gradient_clipping
optimizer.params.{torch_adam=false,foreach,fused,capturable,differentiable,set_grad_none=true,fp32_optimizer_states=true,amsgrad_fused}|x||I|||choice of an implementation|there is one implementation for each device
optimizer.params.{freeze_step=100000,cuda_aware=false,comm_backend_name=nccl,var_freeze_step=100000,var_update_scaler=16,local_step_scaler=32678,local_step_clipper=16,max_coeff=10.0,min_coeff=0.01,coeff_beta=0.9,factor_max=4.0,factor_min=0.5,factor_threshold=0.1,muon_lr,adam_lr,ns_method=gram}|x||I|||of OneBitAdam, ZeroOneAdam, Lamb, OneBitLamb or Muon|of an optimizer that is not here: its type is refused
optimizer.legacy_fusion|b|false|I|||implementation of fp16|there is one implementation
scheduler|o||I|||schedule of the learning rate|
scheduler.type|s||M|train.schedule.kind|WarmupLR,WarmupDecayLR,WarmupCosineLR|which schedule|DeepSpeed's first two steps have the lowest rate, here only the first ~schedules are constant, linear or cosine after a warm-up: OneCycle and LRRangeTest are not here
scheduler.params|o||I|||its parameters|
scheduler.params.warmup_min_lr|n|0|H||0,0.0|rate of the first step|the warm-up begins at 0
scheduler.params.warmup_max_lr|n|0.001|M|train.optimizer.lr||rate after the warm-up|wins over optimizer.params.lr, as in DeepSpeed
scheduler.params.warmup_num_steps|p|1000|M|train.schedule.warmup||steps of the warm-up|
scheduler.params.warmup_type|s|log|M|train.schedule.warmup_shape|log,linear|form of the warm-up|
scheduler.params.total_num_steps|p||M|train.schedule.length||steps of the schedule|
scheduler.params.warmup_min_ratio|n|0|H||0,0.0|factor of the first step|the warm-up begins at 0
scheduler.params.cos_min_ratio|n|0.0001|M|train.schedule.floor||factor at the end|
scheduler.params.last_batch_iteration|i|-1|H||-1|step to continue from|a resumed run knows its step
scheduler.params.{lr_range_test_min_lr=0.001,lr_range_test_step_size=2000,lr_range_test_step_rate=1.0,lr_range_test_staircase=false}|x||I|||of LRRangeTest|of a schedule that is not here: its type is refused
scheduler.params.{cycle_min_lr,cycle_max_lr,decay_lr_rate=0.0,cycle_first_step_size=2000,cycle_second_step_size,cycle_first_stair_count=0,cycle_second_stair_count,decay_step_size=0,cycle_momentum=true,cycle_min_mom=0.8,cycle_max_mom=0.9,decay_mom_rate=0.0}|x||I|||of OneCycle|of a schedule that is not here: its type is refused
communication_data_type|s||M||fp32,fp16,bf16|type of gradients on the wire|gradients are exchanged in float32, which is at least as exact
seq_parallel_communication_data_type|s|fp32|I|||type of sequence parallelism|there is no sequence parallelism here
gradient_allreduce_op|s|mean|H||mean|mean or sum of the ranks' gradients|the mean over samples
{prescale_gradients=false,gradient_predivide_factor=1.0}|x||I|||divides before the all-reduce, against overflow in fp16|sums are float32 and need no division before
{fp32_allreduce=false,allreduce_always_fp32=false}|b||H|||older name of communication_data_type: fp32|gradients are exchanged in float32 always
sparse_gradients|b|false|R||false|sparse gradients of embeddings (older versions)|gradients are dense here
{disable_allgather=false,allgather_size=5e8}|x||I|||older names of keys of zero_optimization|parameters are gathered bucket by bucket
fp16|o||I|||training in fp16|
fp16.enabled|b|false|M|train.precision||turns it on|autocast to fp16 over float32 parameters, with a dynamic loss scale; DeepSpeed casts the parameters
fp16.type|s|fp16|M|train.precision|fp16,float16,bf16,bfloat16|type of this block (older versions and forks)|
fp16.auto_cast|b|false|I|||casts inputs to fp16|operations cast their inputs themselves
fp16.loss_scale|n|0|M|train.scaler.initial||0: dynamic; else a fixed scale|0 here as well; a fixed one has a growth and backoff of 1
fp16.initial_scale_power|u|16|M|train.scaler.initial||first scale is 2 to this power|
fp16.loss_scale_window|p|1000|M|train.scaler.interval||steps without overflow before the scale grows|
fp16.hysteresis|u|2|M|||overflows before the scale shrinks|1 here: the scale is halved at every overflow
fp16.consecutive_hysteresis|b|false|I|||refills the hysteresis|there is no hysteresis
fp16.min_loss_scale|n|1|M|||lowest scale|2^-16 here; an overflow at the lowest one ends the run
fp16.{fp16_master_weights_and_grads=false,fp16_master_weights_and_grad=false}|b||R||false|master weights in fp16|the master is float32
bf16|o||I|||training in bf16|
bf16.enabled|b|false|M|train.precision, train.parameters||turns it on|bf16 parameters that follow a float32 master, as in DeepSpeed
bf16.immediate_grad_update|b|false|I|||adds gradients to the float32 ones at once|gradients are added up in float32
bf16.check_grad_overflow|b|true|M|train.bad_steps||leaves out steps with a gradient that is not finite|always done; train.bad_steps of them in a row end the run
bf16.{loss_scale=0,initial_scale_power=16,loss_scale_window=1000,hysteresis=2,min_loss_scale=1}|x||I|||of fp16 (older versions took them here and did nothing with them)|bf16 needs no loss scale
bf16.bf16_master_weights_and_grads|b|false|R||false|master weights in bf16|the master is float32
bf16.bf16_optimizer_states|b|false|R||false|moments in bf16|moments are float32
bfloat16|o||I|||older name of bf16|
bfloat16.enabled|b|false|M|train.precision, train.parameters||older name of bf16.enabled|bf16 parameters that follow a float32 master, as in DeepSpeed
torch_autocast|o||I|||PyTorch's autocast|
torch_autocast.enabled|b|false|M|train.precision||turns it on|autocast over float32 parameters, which is what train.precision does
torch_autocast.dtype|s|bfloat16|M|train.precision|bfloat16,torch.bfloat16,bf16,float16,torch.float16,fp16,half|type of the operations|
torch_autocast.lower_precision_safe_modules|l||I|||modules that are cast|which operations are cast follows from PyTorch's own lists
data_types|o||I|||types of buffers|
data_types.grad_accum_dtype|s||H||fp32,auto|type in which gradients are added up|always float32
data_types.param_dtype|s||R||auto|type of parameters|bf16.enabled decides it here (train.parameters)
data_types.buffer_dtype|s||I|||type of a model's buffers|buffers keep their type
data_types.keep_in_fp32_modules|x|auto|I|||buffers that stay float32|buffers keep their type
)";

constexpr std::string_view kZero = R"(
zero_optimization|x||M|train.zero.stage||ZeRO|true is an older form of stage 1
zero_optimization.stage|u|0|H+|train.zero.stage|0,1,2,3|what ranks share out: 1 optimizer state, 2 gradients too, 3 parameters too|
zero_optimization.reduce_bucket_size|p|5e8|M|train.bucket||ELEMENTS of gradients that are exchanged at once|bytes here, of float32 gradients
zero_optimization.allgather_bucket_size|u|5e8|I|||ELEMENTS of parameters that are gathered at once|parameters are gathered in the buckets of their gradients (train.bucket)
zero_optimization.{overlap_comm=false,contiguous_gradients=true,reduce_scatter=true,allgather_partitions=true,use_multi_rank_bucket_allreduce=true,round_robin_gradients=false}|b||I|||how gradients and parameters are sent|always so: gradients lie in one buffer and are reduced and scattered while backward computes
zero_optimization.compute_grad_norm|b|true|I|||keeps the gradient norm|the norm is in every metric line
zero_optimization.{load_from_fp32_weights=true,elastic_checkpoint=false,pipeline_loading_checkpoint=false}|b||I|||loading of checkpoints|any run continues any other, on any number of ranks and at any stage, with its float32 master
zero_optimization.{legacy_stage1=false,grad_hooks=true}|b||I|||older implementations|there is one implementation
zero_optimization.ignore_unused_parameters|b|true|I|||parameters without a gradient are no error|train.find_unused says it
zero_optimization.parameter_alignment|b|false|I|||aligns parameters in flat buffers|parameters begin on cache lines
zero_optimization.sub_group_size|u|1e9|I|||ELEMENTS that are updated at once|updates go in chunks of 4,194,304 elements, whatever the size of the model
zero_optimization.{memory_efficient_linear=true,override_module_apply=true,log_trace_cache_warnings=false,enable_sanity_checks=false,save_muon_momentum_buffer_in_memory=false}|b||I|||details of DeepSpeed's implementation|nothing here corresponds to it
zero_optimization.leaf_module|x||I|||modules that are gathered as a whole|units are named by the recipe
zero_optimization.{stage3_prefetch_bucket_size=5e7,prefetch_bucket_size=5e7}|u||M|train.zero.prefetch||stage 3: ELEMENTS that are gathered ahead|
zero_optimization.{stage3_param_persistence_threshold=1e5,param_persistence_threshold=1e5}|u||M|train.zero.persistent||stage 3: smaller parameters stay whole|
zero_optimization.{stage3_max_live_parameters=1e9,max_live_parameters=1e9}|u||M|train.zero.live||stage 3: ELEMENTS that are whole at once|
zero_optimization.{stage3_max_reuse_distance=1e9,max_reuse_distance=1e9}|u||M|train.zero.reuse_distance||stage 3: what is used again within so many ELEMENTS is not released|
zero_optimization.{stage3_model_persistence_threshold,model_persistence_threshold}|u||I|||stage 3: largest sum of parameters that stay whole|train.zero.persistent alone decides
zero_optimization.{stage3_gather_16bit_weights_on_model_save=false,gather_16bit_weights_on_model_save=false,stage3_gather_fp16_weights_on_model_save=false}|b||I|||stage 3: gathers the weights when a model is saved|lockstep export writes whole weights of any checkpoint
zero_optimization.{stage3_module_granularity_threshold=0,module_granularity_threshold=0,stage3_use_all_reduce_for_fetch_params=false,use_all_reduce_for_fetch_params=false,stage3_allgather_sequential=false,allgather_sequential=false}|x||I|||stage 3: how parameters are gathered|the units of the recipe are gathered whole
zero_optimization.zero_hpz_partition_size|u|1|R||0,1|ZeRO++: second copy of the parameters in a node|parameters have one copy over all ranks
zero_optimization.{zero_quantized_weights=false,zero_quantized_nontrainable_weights=false,zero_quantized_gradients=false}|b||R||false|ZeRO++: quantized communication|nothing is quantized here: it gives other results
zero_optimization.mics_shard_size|i|-1|R||-1|MiCS (older versions)|parameters are shared out over all ranks
zero_optimization.mics_hierarchical_params_gather|b|false|R||false|MiCS (older versions)|parameters are shared out over all ranks
zero_optimization.zeropp_loco_param|x||R|||LoCo (older versions)|nothing is quantized here
zero_optimization.zenflow|x||R|||ZenFlow: updates that lag behind|every step uses the parameters of the step before; train.offload.share overlaps the update with the same results
zero_optimization.offload_optimizer|o||I|||where the optimizer's state lies|
zero_optimization.offload_optimizer.device|s|none|M|train.offload.optimizer|none,cpu|memory of the state|~nvme is not here: use cpu (12 bytes for a parameter, divided by the ranks), with ratio below 1 where the GPU has room
zero_optimization.offload_optimizer.ratio|n|1.0|M|train.offload.share||share of the state that the CPU updates|at any stage
zero_optimization.offload_optimizer.pin_memory|b|true|M|||page-locked host memory|what the GPU reads is always pinned, by registration and in its exact size
zero_optimization.offload_optimizer.super_offload|b|false|I|||other implementation for GH200|there is one implementation
zero_optimization.offload_optimizer.{nvme_path,buffer_count=4,pipeline=false,pipeline_read=false,pipeline_write=false,fast_init=false,cpuadam_cores_perc=0.8}|x||I|||of NVMe and of SuperOffload|of a device that is not used
zero_optimization.offload_param|o||I|||stage 3: where parameters lie|
zero_optimization.offload_param.device|s|none|M|train.offload.parameters|none,cpu|memory of the parameters|~nvme is not here: use cpu (2 bytes for a bf16 parameter, divided by the ranks)
zero_optimization.offload_param.pin_memory|b|true|M|||page-locked host memory|what the GPU reads is always pinned, by registration and in its exact size
zero_optimization.offload_param.{nvme_path,buffer_count=5,buffer_size=1e8,max_in_cpu=1e9}|x||I|||of NVMe|of a device that is not used
zero_optimization.cpu_offload|b|false|M|train.offload.optimizer||older form of offload_optimizer: {device: cpu}|
zero_optimization.{cpu_offload_param=false,cpu_offload_params=false}|b||M|train.offload.parameters||older form of offload_param: {device: cpu}|
zero_optimization.cpu_offload_use_pin_memory|b|false|I|||older form of pin_memory|what the GPU reads is always pinned
zero_allow_untested_optimizer|b|false|I|||allows other optimizers than DeepSpeed's|every optimizer works at every stage
zero_force_ds_cpu_optimizer|b|true|I|||demands DeepSpeedCPUAdam for offload|an offloaded optimizer is updated by one pass of our own
)";

// "a.{b=1,c}.d" is a.b.d and a.c.d; a default behind a name counts where the name is the last part.
std::vector<std::pair<std::string, std::string>> Spread(const std::string& path, const std::string& initial) {
  const size_t open = path.find('{');
  if (open == std::string::npos) return {{path, initial}};
  const size_t close = path.find('}', open);
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& one : Split(std::string_view(path).substr(open + 1, close - open - 1), ',')) {
    const size_t equals = one.find('=');
    const std::string spread = path.substr(0, open) + one.substr(0, equals) + path.substr(close + 1);
    for (auto& row : Spread(spread, equals == std::string::npos ? initial : one.substr(equals + 1))) {
      all.push_back(std::move(row));
    }
  }
  return all;
}

}  // namespace

void AddKeyRows(std::string_view text, std::vector<KeyRow>* rows) {
  for (const std::string& line : Split(text, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> cells = Split(line, '|');
    for (const auto& [path, initial] : Spread(cells[0], cells[2])) {
      KeyRow row{.path = path, .type = cells[1][0], .to = cells[4], .why = cells[7], .initial = initial};
      row.meaning = cells[6];
      if (const size_t tilde = row.why.find('~'); tilde != std::string::npos) {
        row.otherwise = Trim(row.why.substr(tilde + 1));
        row.why = Trim(row.why.substr(0, tilde));
      }
      row.fate = static_cast<KeyRow::Fate>(std::string_view("HMIRS").find(cells[3][0]));
      row.copied = cells[3].ends_with('+');
      if (!cells[5].empty()) row.allowed = Split(cells[5], ',');
      rows->push_back(std::move(row));
    }
  }
}

const std::vector<KeyRow>& DeepSpeedKeys() {
  static const std::vector<KeyRow> keys = [] {
    std::vector<KeyRow> all;
    for (const std::string_view part : {kTraining, kZero, DeepSpeedBlocks()}) AddKeyRows(part, &all);
    return all;
  }();
  return keys;
}

}  // namespace lockstep::foreign
