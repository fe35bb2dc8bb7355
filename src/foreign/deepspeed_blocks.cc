// Keys of DeepSpeed's configuration around the training, as data: columns as in deepspeed_keys.cc.
#include "foreign/deepspeed_keys.h"

namespace lockstep::foreign {

std::string_view DeepSpeedBlocks() {
  return R"(
activation_checkpointing|o||I|||how checkpointed activations are kept; it turns nothing on|
activation_checkpointing.cpu_checkpointing|b|false|R||false|moves kept activations to host memory|kept activations stay on the device: train.recompute: true recomputes the others
activation_checkpointing.{partition_activations=false,contiguous_memory_optimization=false,number_checkpoints,synchronize_checkpoint_boundary=false,profile=false}|x||I|||for model parallelism and its timing|train.recompute: true recomputes the units of the recipe; there is no model parallelism here
steps_per_print|n||I|||steps between progress reports|every step is a metric line (track.every) and moves the progress line
{wall_clock_breakdown=false,memory_breakdown=false}|b||I|||times and memory in the log|every metric line has the times of a step and the memory
{dump_state=false,disable_python_gc=false}|b||I|||debugging|lockstep config prints what is in force; there is no Python
log_level|x||I|||of DeepSpeed's logger|
vocabulary_size|u||I|||for a warning about alignment|the model knows it
dataloader_drop_last|b|false|M|data.last_batch||leaves the smaller last batch out|true: drop; false: keep
sequence_parallel_size|p|1|R||1|Ulysses sequence parallelism|there is no sequence parallelism here
use_data_before_expert_parallelism|b|false|R||false|order of process groups|there is no expert parallelism here
checkpoint|o||I|||writing of checkpoints|
checkpoint.use_node_local_storage|b|false|R||false|a part of a checkpoint on each node|all nodes write to one folder: --log-dir on shared storage
checkpoint.parallel_write|o||I|||writing in parallel|
checkpoint.{tag_validation=Warn,load_universal=false,checkpoint_serialization=true,writer,parallel_write.pipeline_stage=false}|x||I|||writing of checkpoints|every rank writes its part in the background, and any number of ranks reads it
datastates_ckpt|x||I|||checkpoints in the background|checkpoints are written in the background
tensorboard|o||I|||monitor|
tensorboard.enabled|b|false|H+|track.tensorboard||writes TensorBoard's files|
tensorboard.{output_path,job_name=DeepSpeedJobName}|s||I|||where they go|below the run directory: --log-dir, --name
wandb|o||I|||monitor|
wandb.enabled|b|false|M|track.wandb||writes to Weights & Biases|true: live; false: off
wandb.team|s||H+|track.wandb_entity||the entity of Weights & Biases|
wandb.project|s|deepspeed|H+|track.wandb_project||the project of Weights & Biases|
wandb.group|s||I|||groups runs|the variable WANDB_RUN_GROUP does
csv_monitor|o||I|||monitor|
csv_monitor.enabled|b|false|H+|track.csv||writes CSV files|
csv_monitor.{output_path,job_name=DeepSpeedJobName}|s||I|||where they go|below the run directory: --log-dir, --name
comet|o||I|||monitor|
comet.enabled|b|false|M|||writes to Comet|Comet is not a tracker here: metrics.jsonl and TensorBoard have every number
comet.api_key|s||S|COMET_API_KEY||a secret|a key belongs in the environment
comet.{samples_log_interval=100,project,workspace,experiment_name,experiment_key,online,mode}|x||I|||of Comet|of Comet
comms_logger|o||I|||logger of collectives|
comms_logger.{enabled=false,verbose=false,prof_all=true,prof_ops,debug=false}|x||I|||which collectives are logged|track.profile.steps traces every operation of a step
flops_profiler|o||I|||profiler|
flops_profiler.{enabled=false,recompute_fwd_factor=0.0,profile_step=1,module_depth=-1,top_modules=1,detailed=true,output_file}|x||I|||times and FLOPs of modules|track.profile.steps traces every operation of a step
timers|o||I|||timers|
timers.throughput|o||I|||timer of a step|
timers.throughput.{enabled=true,synchronized=true}|b||I|||times of a step|every metric line has the times of a step
compile|o||I|||torch.compile and DeepCompile|
compile.{enabled,disable=false,backend,kwargs,deepcompile=false,autoep_non_moe=false,free_activation=false,free_activation_threshold=10485760,offload_activation=false,offload_activation_pin_memory=true,offload_opt_states=false,double_buffer=true,symmetric_memory=false,debug_log=false,offload_parameters=false,sync_before_reduce=false,sync_after_reduce=false,sync_before_allgather=false,sync_after_allgather=false,keep_int_input_tensors=true,keep_all_input_tensors=false,passes}|x||I|||compiles the model|steps are captured as CUDA graphs (train.graph); nothing is compiled in Python
graph_harvesting|b|false|I|||CUDA graphs (older versions)|train.graph says it
aio|o||I|||asynchronous reads and writes of NVMe|
aio.{block_size=1048576,queue_depth=8,intra_op_parallelism=1,thread_count=1,single_submit=false,overlap_events=true,use_gds=false}|x||I|||of NVMe|of NVMe, which is not used
amp|o||I|||NVIDIA Apex (older versions)|
amp.enabled|b|false|R||false|turns it on|Apex is not here: use bf16.enabled or fp16.enabled
amp.*|x||I|||opt_level and other arguments of Apex|of Apex, which is off
autotuning|o||I|||search by trial runs|
autotuning.enabled|b|false|R||false|turns it on|nothing is searched by trial runs: lockstep config RECIPE --gpus N derives batch and micro-batch
autotuning.{fast=true,results_dir=autotuning_results,exps_dir=autotuning_exps,overwrite=true,start_profile_step=3,end_profile_step=5,metric=throughput,metric_path,tuner_type=gridsearch,tuner_early_stopping=5,tuner_num_trials=50,arg_mappings,model_info,model_info_path,mp_size=1,max_train_batch_size,min_train_batch_size=1,max_train_micro_batch_size_per_gpu=1024,min_train_micro_batch_size_per_gpu=1,num_tuning_micro_batch_sizes=3}|x||I|||of the search|of autotuning, which is off
elasticity|o||I|||batches for a changing number of GPUs (older versions)|
elasticity.enabled|b|false|R||false|turns it on|the global batch stays the same on any number of ranks: train.batch
elasticity.{max_train_batch_size=2000,micro_batch_sizes,min_gpus=1,max_gpus=10000,min_time=0,version=0.2,ignore_non_elastic_batch_info=false,prefer_large_batch=true,num_gpus_per_node=1,model_parallel_size=1}|x||I|||of elastic training|of elasticity, which is off
curriculum_learning|o||I|||longer sequences as training goes on (older versions)|
curriculum_learning.enabled|b|false|R||false|turns it on|the length of sequences does not change in a run
curriculum_learning.schedule_config|o||I|||of curriculum learning|
curriculum_learning.{curriculum_type,min_difficulty,max_difficulty,schedule_type,schedule_config.total_curriculum_step,schedule_config.difficulty_step,schedule_config.root_degree,schedule_config.difficulty,schedule_config.max_step}|x||I|||of curriculum learning|of curriculum learning, which is off
data_efficiency|o||I|||curriculum sampling and token dropping|
data_efficiency.enabled|b|false|R||false|turns it on|samples are drawn by arithmetic, and no token is dropped
data_efficiency.seed|i|1234|I|||of its sampling|run.seed says it
data_efficiency.data_sampling|o||I|||sampling by difficulty|
data_efficiency.data_sampling.{enabled=false,num_epochs=1000,num_workers=0,pin_memory=false}|x||I|||of the sampler|of data_efficiency, which is off
data_efficiency.data_sampling.curriculum_learning|o||I|||metrics of difficulty|
data_efficiency.data_sampling.curriculum_learning.{enabled=false,data_cluster_path}|x||I|||of the sampler|of data_efficiency, which is off
data_efficiency.data_sampling.curriculum_learning.curriculum_metrics|o||I|||metrics of difficulty by name|
data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*|o||I|||a metric of difficulty|
data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.{index_to_sample_path,index_to_metric_path,difficulty_type,clustering_type,min_difficulty,max_difficulty,schedule_type,schedule_config}|x||I|||of a metric|of data_efficiency, which is off
data_efficiency.data_sampling.dynamic_batching|o||I|||batches by number of tokens|
data_efficiency.data_sampling.dynamic_batching.{enabled=false,metrics_path,lr_scaling_method=linear,min_batch_size=1,max_batch_size,sequence_picking_order=dataloader,max_tokens,verbose=false}|x||I|||of the sampler|of data_efficiency, which is off
data_efficiency.data_routing|o||I|||dropping of tokens|
data_efficiency.data_routing.enabled|b|false|I|||turns it on|of data_efficiency, which is off
data_efficiency.data_routing.random_ltd|o||I|||random layerwise token dropping|
data_efficiency.data_routing.random_ltd.{enabled=false,total_layer_num,random_ltd_layer_num,random_ltd_layer_id,model_mask_name,model_type,hidden_state_order,layer_token_lr_schedule,micro_batch_size,global_batch_size}|x||I|||of token dropping|of data_efficiency, which is off
data_efficiency.data_routing.random_ltd.random_ltd_schedule|o||I|||of token dropping|
data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config|o||I|||of token dropping|
data_efficiency.data_routing.random_ltd.random_ltd_schedule.{min_value,max_value,schedule_type,schedule_config.require_steps,schedule_config.seq_per_step}|x||I|||of token dropping|of data_efficiency, which is off
progressive_layer_drop|o||I|||drops layers (older versions)|
progressive_layer_drop.enabled|b|false|R||false|turns it on|every layer is trained in every step
progressive_layer_drop.{theta=1.0,gamma=0.001}|n||I|||of layer dropping|of layer dropping, which is off
eigenvalue|o||I|||for quantization (older versions)|
eigenvalue.enabled|b|false|R||false|turns it on|nothing is quantized here
eigenvalue.*|x||I|||verbose, max_iter, tol, stability, gas_boundary_resolution, layer_name, layer_num|of eigenvalues, which are off
quantize_training|x||R|||mixture of quantization (older versions)|nothing is quantized here
compression_training|o||I|||quantization, pruning and layer reduction (older versions)|
compression_training.layer_reduction|o||I|||fewer layers|
compression_training.layer_reduction.enabled|b|false|R||false|turns it on|recipe.layers says how many layers a model has
compression_training.layer_reduction.{keep_number_layer,module_name_prefix,teacher_layer,other_module_name}|x||I|||of layer reduction|of layer reduction, which is off
compression_training.{weight_quantization,activation_quantization,sparse_pruning,row_pruning,head_pruning,channel_pruning}|o||I|||a way of compression|
compression_training.{weight_quantization,activation_quantization,sparse_pruning,row_pruning,head_pruning,channel_pruning}.{shared_parameters,different_groups}|o||I|||of compression|
compression_training.{weight_quantization,activation_quantization,sparse_pruning,row_pruning,head_pruning,channel_pruning}.shared_parameters.enabled|b|false|R||false|turns it on|nothing is quantized or pruned here
compression_training.weight_quantization.shared_parameters.{quantizer_kernel=false,schedule_offset=0,quantize_groups=1,quantize_verbose=false,quantization_type=symmetric,rounding=nearest,quantize_weight_in_forward=false,fp16_mixed_quantize}|x||I|||of quantization|of quantization, which is off
compression_training.activation_quantization.shared_parameters.{schedule_offset=0,quantization_type=symmetric,range_calibration=dynamic}|x||I|||of quantization|of quantization, which is off
compression_training.{sparse_pruning,row_pruning,head_pruning,channel_pruning}.shared_parameters.{schedule_offset=0,method=l1,schedule_offset_end,schedule_offset_stride,num_heads,block_pattern,dense_ratio,excluded_modules}|x||I|||of pruning|of pruning, which is off
compression_training.{weight_quantization,activation_quantization,sparse_pruning,row_pruning,head_pruning,channel_pruning}.different_groups.*|x||I|||params (start_bits, target_bits, quantization_period, bits, dense_ratio), modules and related_modules of a group|of compression, which is off
weight_quantization|x||R|||quantized weights|nothing is quantized here
sparse_attention|o||I|||block-sparse attention (older versions)|
sparse_attention.{mode=fixed,block=16,different_layout_per_head=false,num_local_blocks=4,num_global_blocks=1,attention=bidirectional,horizontal_global_attention=false,num_different_global_patterns=1,num_random_blocks=0,local_window_blocks,global_block_indices,global_block_end_indices,num_sliding_window_blocks=3}|x||R|||layout of the blocks|attention is dense here
nebula|o||I|||checkpoints in Azure (older versions)|
nebula.enabled|b|false|R||false|turns it on|checkpoints are written in the background into the run directory
nebula.{persistent_storage_path,persistent_time_interval=100,num_of_version_in_retention=2,enable_nebula_load=true,load_path}|x||I|||of Nebula|of Nebula, which is off
hybrid_engine|o||I|||inference inside of training, for RLHF|
hybrid_engine.enabled|b|false|R||false|turns it on|training and generation are commands of their own: lockstep generate
hybrid_engine.{max_out_tokens=512,inference_tp_size=1,release_inference_cache=false,pin_parameters=true,tp_gather_partition_size=8,enable_cuda_graph=false}|x||I|||of the hybrid engine|of the hybrid engine, which is off
tensor_parallel|o||I|||tensor parallelism (AutoTP)|
tensor_parallel.autotp_size|u|0|R||0,1|ranks that share a layer|there is no tensor parallelism here: ZeRO stage 3 shares parameters out
tensor_parallel.{tp_overlap_comm=false,vocab_parallel_lm_head,vocab_parallel_ce_backend=torch,tensor_parallel,tp,injection_policy_tuple,preset_model,keep_module_on_host=false,replace_with_kernel_inject=false,kernel_inject=false,dtype}|x||I|||of tensor parallelism|of tensor parallelism, which is off
tensor_parallel.partition_config|o||I|||of tensor parallelism|
tensor_parallel.partition_config.{use_default_specs=true,layer_specs,tp_size,embedding_partition_dim,lm_head_patterns,strict_mode}|x||I|||of tensor parallelism (layer_specs: patterns, partition_type, shape, partition_dim, model_types)|of tensor parallelism, which is off
expert_parallel|o||I|||expert parallelism (AutoEP)|
expert_parallel.enabled|b|false|R||false|turns it on|there are no mixture-of-experts models here
expert_parallel.{autoep_size=1,expert_tensor_parallel_size=1,validate_folding_routing=false,async_split_plan=false,preset_model,moe_layer_pattern,expert_pattern,router_pattern,use_grouped_mm=true,disable_triton_grouped_mm=false,route_norm,route_scale=1.0,score_apply=auto,combine_impl=auto,row_weighting_impl=auto,gate_up_impl=separate,comm_backend=comm,comm_num_sm=12,comm_qp_margin=4,comm_max_tokens_per_rank=0,num_expert_groups,num_limited_groups,score_func=auto,top_k=auto,load_balance_coeff,routed_scaling_factor=auto,expert_w1,expert_w2,expert_w3,num_experts_attr,top_k_attr,has_shared_experts,shared_experts_pattern,shared_experts_gate_pattern,expert_activation,model_types}|x||I|||of expert parallelism|of expert parallelism, which is off
pipeline|x||R|||pipeline parallelism|there is no pipeline parallelism here: ZeRO stage 3 shares parameters out
)";
}

}  // namespace lockstep::foreign
