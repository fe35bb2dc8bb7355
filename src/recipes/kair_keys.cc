// The keys of KAIR's and S-VRT's option files, as data.
//
//   key | type | fate | our key | values | what it means here
//
// Fates: H honoured, M mapped, I ignored, R refused, S secret; a + behind it: the value goes to our key as it is.
// Values that are not in the list are refused; an empty list allows all. Null is allowed everywhere.
#include <fmt/format.h>

#include "base/text.h"
#include "recipes/kair_options.h"

namespace lockstep::recipes {
namespace {

constexpr std::string_view kTop = R"(
task|s|I|||name the run by lockstep train --name; the same command with a name resumes
opt_path|s|I|||written by KAIR into its copy of an option file
is_train|b|I|||written by KAIR into its copy of an option file
num_gpu|i|I|||written by KAIR into its copy of an option file
rank|i|I|||the launcher decides, from the environment or its flags
world_size|i|I|||the launcher decides, from the environment or its flags
model|s|H||vrt|this recipe is vrt; RVRT and image models are not here
gpu_ids|l|I|||the launcher chooses devices: lockstep train --gpus, CUDA_VISIBLE_DEVICES
dist|b|I|||the launcher decides, from the environment or its flags
find_unused_parameters|b|H+|train.find_unused||as in DDP
use_static_graph|b|M|||the reducer needs no such promise: parameters may be frozen and freed while it runs; CUDA graphs stay on
scale|i|H+|data.scale||size of the target / size of the input
n_channels|i|H||3|frames are RGB
merge_bn|b|I||false|VRT has no batch norm
merge_bn_startpoint|i|I|||VRT has no batch norm
path|o|I|||
path.root|s|I|||runs are below runs/, or where lockstep train --log-dir says
path.pretrained_netG|s|M|checkpoint.weights||weights to start from; "auto" is what lockstep train does anyway: it resumes its own run
path.pretrained_netE|s|I|||the EMA starts from the weights; a file with params_ema is read as checkpoint.weights
path.pretrained_optimizerG|s|I|||a run resumes with its own optimizer state: lockstep train --resume
path.task|s|I|||follows from the run directory
path.log|s|I|||follows from the run directory
path.options|s|I|||follows from the run directory
path.models|s|I|||follows from the run directory
path.images|s|I|||follows from the run directory
path.tensorboard|s|I|||follows from the run directory
datasets|o|I|||
datasets.*|o|I|||
netD|x|R|||VRT is trained without a discriminator
netG|o|I|||
train|o|I|||
val|o|I|||
logging|o|I|||
runtime|o|I|||
)";

constexpr std::string_view kData = R"(
datasets.*.name|s|I|||a label; val_partition is honoured whatever the name is
datasets.*.phase|s|I|||follows from the name of the section
datasets.*.dataset_type|s|M|data.starts, recipe.task|TrainDataset,TestDataset,TrainDatasetRGBSpike,TestDatasetRGBSpike,VideoRecurrentTrainDataset,VideoRecurrentTestDataset,VideoRecurrentTrainDatasetRGBSpike,VideoRecurrentTestDatasetRGBSpike,VideoRecurrentTrainNonblindDenoisingDataset,VideoRecurrentTrainVimeoDataset,VideoRecurrentTrainVimeoVFIDataset,VideoTestVimeo90KDataset,VFI_DAVIS,VFI_UCF101,VFI_Vid4,SingleVideoRecurrentTestDataset|pairs of clips, with spikes where dataroot_spike is given; VFI: frames and the one in their middle; images' data are not here
datasets.*.dataroot_gt|s|H+|data.target||sharp frames
datasets.*.dataroot_lq|s|H+|data.input||degraded frames
datasets.*.dataroot_spike|s|H+|data.spikes.path||folder of CLIP/spike/FRAME.dat
datasets.*.spike_h|i|H+|data.spikes.height||of the sensor; checked against the size of the files
datasets.*.spike_w|i|H+|data.spikes.width||of the sensor; checked against the size of the files
datasets.*.spike_channels|i|M|data.spikes.channels||channels of the spikes; spike.reconstruction.num_bins must agree
datasets.*.spike_flipud|b|H+|data.spikes.flip||the file's last row is the picture's first
datasets.*.spike_config|o|I|||spike_h and spike_w say it
datasets.*.spike_config.path|s|I|||spike_h and spike_w say it
datasets.*.spike_config.spike_h|i|I|||datasets.*.spike_h says it
datasets.*.spike_config.spike_w|i|I|||datasets.*.spike_w says it
datasets.*.spike_config.is_labeled|b|I|||labels are not read
datasets.*.spike_config.labeled_data_type|l|I|||labels are not read
datasets.*.spike_folder_name|s|H||spike|folder of a clip's spikes
datasets.*.spike_filename_ext|s|H||dat|ending of spike files
datasets.*.input_pack_mode|s|M||concat,dual|the recipe takes input and spikes apart; recipe.fusion says how they are joined
datasets.*.keep_legacy_l|b|I|||there is one form of a sample
datasets.*.compat|o|I|||
datasets.*.compat.keep_legacy_L|b|I|||there is one form of a sample
datasets.*.spike|o|I|||
datasets.*.spike.representation|s|M|data.spikes.form|tfp,raw_window|form of the spikes
datasets.*.spike.raw_window_length|i|M|data.spikes.channels||steps of the raw window, an odd number
datasets.*.spike.reconstruction|o|I|||
datasets.*.spike.reconstruction.type|s|M|data.spikes.form|spikecv_tfp,tfp,middle_tfp,middle-tfp|form of the spikes; snn needs a network of its own that is not here
datasets.*.spike.reconstruction.num_bins|i|M|data.spikes.channels||channels of the spikes
datasets.*.spike.reconstruction.middle_tfp_center|i|H+|data.spikes.middle||middle step of middle_tfp
datasets.*.spike_reconstruction|x|M|data.spikes.form|spikecv_tfp,tfp,middle_tfp,middle-tfp|older name of spike.reconstruction; snn needs a network of its own that is not here
datasets.*.spike_reconstruction.type|s|M|data.spikes.form|spikecv_tfp,tfp,middle_tfp,middle-tfp|older name of spike.reconstruction.type; snn needs a network of its own that is not here
datasets.*.spike_reconstruction.middle_tfp_center|i|M|data.spikes.middle||older name of spike.reconstruction.middle_tfp_center
datasets.*.spike_reconstruction.checkpoint_path|s|I|||of snn, which is refused where it is asked for
datasets.*.spike_reconstruction.spike_win|i|I|||of snn
datasets.*.middle_tfp_center|i|M|data.spikes.middle||older name of spike.reconstruction.middle_tfp_center
datasets.*.spike.precomputed|o|I|||
datasets.*.spike.precomputed.enable|b|H+|data.spikes.precomputed||arrays of lockstep data prepare instead of .dat; a missing one is a bad sample, not zeros
datasets.*.spike.precomputed.root|s|M|data.spikes.precomputed_path||auto: beside the spikes
datasets.*.spike.precomputed.format|s|H||npy|.npz is compressed and slower to read than .dat
datasets.*.spike_flow|o|I|||
datasets.*.spike_flow.representation|s|I|||input of SCFlow, which is refused where it is asked for
datasets.*.spike_flow.dt|i|I|||input of SCFlow
datasets.*.spike_flow.root|s|I|||input of SCFlow
datasets.*.spike_flow.subframes|i|I|||input of SCFlow
datasets.*.spike_flow.collapse_policy|s|I|||input of SCFlow
datasets.*.tfp_half_win_length|i|H+|data.spikes.half_window||steps on both sides of a centre
datasets.*.tfp_device|s|I|||spikes are counted by the loader's threads
datasets.*.tfp_devices|l|I|||spikes are counted by the loader's threads
datasets.*.rgb_normalize|x|M|||frames stay in [0, 1]: only the input would be normalised, and VRT adds it to its output
datasets.*.spike_normalize|x|M|||mean 0 and std 1 change nothing; others are refused
datasets.*.spike_normalize.mean|x|M|||0 changes nothing; others are refused: spikes stay in [0, 1]
datasets.*.spike_normalize.std|x|M|||1 changes nothing; others are refused: spikes stay in [0, 1]
datasets.*.meta_info_file|s|H+|data.meta_info||clips and their frames; the column of shapes is not read
datasets.*.filename_tmpl|s|M|||frames are found by the number in their name, whatever its width
datasets.*.filename_ext|s|M|||PNG and JPEG are recognised by content
datasets.*.test_mode|b|M|||the section's name says it
datasets.*.val_partition|s|H+|data.partition|REDS4,official,|clips of REDS that are not trained on (KAIR drops them only where name is REDS); empty: none are left out
datasets.*.io_backend|o|I|||
datasets.*.io_backend.type|s|M|data.kind|disk,lmdb|folders or lmdb; memcached is not here
datasets.*.io_backend.db_paths|x|I|||dataroot_gt and dataroot_lq say it
datasets.*.io_backend.client_keys|x|I|||dataroot_gt and dataroot_lq say it
datasets.*.scale|i|I|||scale at the top says it
datasets.*.n_channels|i|I|||n_channels at the top says it
datasets.*.num_frame|i|M|data.frames||frames of a clip; -1 in a test set: whole clips
datasets.*.gt_size|g|M|data.crop||square crop of the target; two numbers: one for each phase
datasets.*.interval_list|l|H+|data.intervals||distance of frames, drawn for each clip
datasets.*.random_reverse|b|H+|data.random_reverse||half of the clips backwards
datasets.*.use_hflip|b|H+|data.hflip||horizontal flip of half of the clips
datasets.*.use_rot|b|H+|data.rotate||vertical flip and transposition, half of the clips each
datasets.*.color_jitter|b|M|data.color_jitter||brightness, contrast, saturation and hue within 0.05, of VFI data alone
datasets.*.mirror_sequence|b|R||false|of RVRT's clips of 14 frames
datasets.*.pad_sequence|b|M|data.repeat_last||of Vimeo90K's septuplets: the last frame once again; test clips are padded where their length asks for it
datasets.*.temporal_scale|i|M|data.frames|1,2|2: every second of num_frame frames is input, the one in their middle is the target (VFI data)
datasets.*.sigma_min|n|H+|recipe.noise.min||of Gaussian noise, in levels of 255
datasets.*.sigma_max|n|H+|recipe.noise.max||of Gaussian noise, in levels of 255
datasets.*.sigma|n|M|recipe.noise.test||of Gaussian noise in validation, in levels of 255
datasets.*.dataloader_shuffle|b|H+|data.shuffle||another order in every epoch
datasets.*.dataloader_num_workers|i|M|data.threads||KAIR divides it by the ranks; here every rank has data.threads threads (default: by its cores)
datasets.*.dataloader_batch_size|g|M|train.batch||GLOBAL, as KAIR's code has it: divided by the ranks, not for each GPU; two numbers: one for each phase
datasets.*.dataloader_prefetch_factor|i|H+|data.prefetch||batches prepared ahead
datasets.*.dataloader_persistent_workers|b|I|||threads live as long as the run
datasets.*.dataloader_epoch_repeat|i|I|||epochs follow each other without a pause
datasets.*.cache_data|b|I|||clips are read when needed, in constant memory
datasets.*.in_memory_cache|b|I|||the page cache does it
datasets.*.in_memory_max_mem_ratio|n|I|||the page cache does it
datasets.*.in_memory_cache_workers|i|I|||the page cache does it
)";

constexpr std::string_view kNet = R"(
netG.net_type|s|H||vrt|this recipe is vrt; RVRT is not here
netG.in_chans|i|H+|recipe.in_channels||3 and the spike channels with early concatenation
netG.upscale|i|H+|recipe.upscale||
netG.scale|i|I|||scale at the top says it
netG.img_size|l|H+|recipe.img_size||frames, height and width of a training clip
netG.window_size|l|H+|recipe.window||
netG.depths|l|H+|recipe.depths||
netG.indep_reconsts|l|H+|recipe.indep_reconsts||groups whose temporal window is 1
netG.embed_dims|l|H+|recipe.embed_dims||
netG.num_heads|l|H+|recipe.heads||
netG.spynet_path|s|H+|recipe.spynet||weights of SpyNet; nothing is downloaded
netG.optical_flow|o|I|||
netG.optical_flow.module|s|H||spynet|SCFlow and SEA-RAFT are not here
netG.optical_flow.checkpoint|s|M|recipe.spynet||weights of SpyNet
netG.optical_flow.params|x|I||{}|SpyNet has none
netG.pa_frames|i|H+|recipe.pa_frames||0, 2, 4 or 6 neighbours
netG.deformable_groups|i|H+|recipe.deformable_groups||
netG.nonblind_denoising|b|H+|recipe.nonblind_denoising||one more channel: the noise level
netG.use_checkpoint_attn|b|H+|recipe.recompute.attention||activation recomputation
netG.use_checkpoint_ffn|b|H+|recipe.recompute.ffn||activation recomputation
netG.no_checkpoint_attn_blocks|l|H+|recipe.recompute.keep_attention||stages without it
netG.no_checkpoint_ffn_blocks|l|H+|recipe.recompute.keep_ffn||stages without it
netG.init_type|s|H||default,none|weights are initialised as VRT does itself
netG.init_bn_type|s|I|||VRT has no batch norm
netG.init_gain|n|I|||only for other values of init_type
netG.input_mode|s|M||concat,dual|recipe.fusion says it
netG.input|o|I|||
netG.input.strategy|s|M|recipe.fusion.operator|concat,fusion|concat: early concatenation
netG.input.mode|s|M||concat,dual|recipe.fusion says it
netG.input.raw_ingress_chans|i|M|||3 and data.spikes.channels
netG.concat|x|I||{}|early concatenation has no parameters
netG.output_mode|s|H||restoration|
netG.restoration_reducer|o|I|||
netG.restoration_reducer.type|s|H||index|which of the expanded frames is the result
netG.restoration_reducer.index|i|H+|recipe.fusion.reducer_index||which of the expanded frames is the result
netG.fusion|o|I|||
netG.fusion.enable|b|M|recipe.fusion.operator||false: early concatenation
netG.fusion.placement|s|H||early|features are not injected into stages (middle, hybrid)
netG.fusion.operator|s|M|recipe.fusion.operator|concat,gated,pase,pase_residual,attention|the adapter that makes 3 channels of RGB and spikes; mamba and its kin need a scan kernel of their own that is not here
netG.fusion.mode|s|H+|recipe.fusion.mode|replace,residual|
netG.fusion.out_chans|i|H+|recipe.fusion.out_channels||
netG.fusion.inject_stages|l|R|||features are not injected into stages
netG.fusion.early|o|I|||
netG.fusion.early.frame_contract|s|H+|recipe.fusion.frames|expanded,collapsed,operator_default|frames that the adapter gives VRT
netG.fusion.operator_params|o|I|||
netG.fusion.operator_params.hidden_chans|i|H+|recipe.fusion.hidden||
netG.fusion.operator_params.feature_chans|i|H+|recipe.fusion.features||
netG.fusion.operator_params.kernel_size|i|H+|recipe.fusion.kernel||
netG.fusion.operator_params.normalize_kernel|b|H+|recipe.fusion.normalize_kernel||
netG.fusion.operator_params.num_heads|i|H||4|of attention
netG.fusion.operator_params.mlp_ratio|n|H||2|of attention
netG.fusion.operator_params.attn_drop|n|H||0|of attention: there is no dropout
netG.fusion.operator_params.proj_drop|n|H||0|of attention: there is no dropout
netG.fusion.operator_params.alpha_init|n|H+|recipe.fusion.alpha||
netG.fusion.operator_params.gate_bias_init|n|H+|recipe.fusion.gate_bias||
netG.fusion.operator_params.init_gate_bias|n|H+|recipe.fusion.gate_bias||another name of gate_bias_init
netG.fusion.operator_params.token_dim|i|H+|recipe.fusion.token_dim||
netG.fusion.operator_params.model_dim|i|H+|recipe.fusion.token_dim||another name of token_dim
netG.fusion.operator_params.token_stride|i|H+|recipe.fusion.token_stride||
netG.fusion.operator_params.num_layers|i|H+|recipe.fusion.layers||
netG.fusion.operator_params.d_state|i|I|||of mamba
netG.fusion.operator_params.d_conv|i|I|||of mamba
netG.fusion.operator_params.expand|i|I|||of mamba
netG.fusion.operator_params.mamba_amp_policy|s|I|||of mamba
netG.fusion.operator_params.patch_stride|i|I|||of mamba
netG.fusion.operator_params.token_chunk_size|i|I|||of mamba
netG.fusion.operator_params.local_layers|i|I|||of mamba
netG.fusion.operator_params.global_layers|i|I|||of mamba
netG.fusion.operator_params.enable_diagnostics|b|I|||metrics of the adapter are always written
netG.fusion.debug|x|I|||validation writes pictures of input, output, target and error
netG.spike_encoder|o|I|||
netG.spike_encoder.enable|b|R||false|an encoder of its own is not here
netG.spike_encoder.type|s|I|||the encoder is off
netG.spike_encoder.checkpoint|s|I|||the encoder is off
netG.spike_encoder.params|x|I|||the encoder is off
netG.dcn_type|s|H||DCNv2|DCNv4 is not here: it drops the flow from its offsets
netG.dcn_apply_softmax|b|H||false|of DCNv4
netG.pa_fuse_amp_policy|s|I|||flow, norms and loss are always computed in fp32
netG.use_flash_attn|b|I|||a kernel is chosen for the device; the result is the same
netG.use_sgp|b|R||false|SGP blocks instead of self attention are not here
netG.sgp_w|n|I|||of SGP blocks
netG.sgp_k|n|I|||of SGP blocks
netG.sgp_reduction|n|I|||of SGP blocks
netG.sgp_use_partitioned|b|I|||of SGP blocks
netG.clip_size|x|R|||of RVRT
netG.num_blocks|x|R|||of RVRT
netG.inputconv_groups|x|R|||of RVRT
netG.attention_heads|x|R|||of RVRT
netG.attention_window|x|R|||of RVRT
netG.cpu_cache_length|x|R|||of RVRT
)";

constexpr std::string_view kTraining = R"(
train.G_lossfn_type|s|H+|recipe.loss|charbonnier,l1,l2|l2sum and ssim are not here
train.G_lossfn_weight|n|H+|recipe.loss_weight||
train.G_charbonnier_eps|n|H+|recipe.epsilon||the loss is computed in fp32, where 1e-9 does not vanish
train.F_feature_layer|x|I|||of a perceptual loss, which VRT does not have
train.F_weights|x|I|||of a perceptual loss, which VRT does not have
train.F_lossfn_type|s|I|||of a perceptual loss, which VRT does not have
train.F_use_input_norm|b|I|||of a perceptual loss, which VRT does not have
train.F_use_range_norm|b|I|||of a perceptual loss, which VRT does not have
train.amp|o|I|||
train.amp.enable|b|M|train.precision||false: fp32
train.amp.dtype|s|M|train.precision|bfloat16,float16,bf16,fp16|of the forward pass; loss, norms and flow in fp32
train.E_decay|n|M|train.ema.decay||0: no EMA; parameters and buffers, without a warm-up of the decay
train.G_optimizer_type|s|H+|train.optimizer.kind|adam,adamw,sgd|
train.G_optimizer_lr|n|H+|train.optimizer.lr||
train.G_optimizer_betas|l|H+|train.optimizer.betas||
train.G_optimizer_wd|n|H+|train.optimizer.weight_decay||
train.G_optimizer_clipgrad|n|M|train.clip_norm||null: no clipping (in KAIR any value raises an error)
train.G_optimizer_reuse|b|M|||optimizer state is part of every checkpoint, and a resumed run continues with it
train.fix_iter|i|M|train.groups||parameters named in fix_keys are frozen up to this step, then all are trained, in the same run
train.fix_lr_mul|n|M|train.groups||factor of their learning rate
train.fix_keys|l|M|train.groups||parts of parameter names
train.total_iter|p|H+|train.steps||optimizer steps
train.G_scheduler_type|s|M|train.schedule.kind|CosineAnnealingWarmRestarts,MultiStepLR|a closed form of the step, the same after a resume and on any number of ranks; other schedules are not here
train.G_scheduler_periods|g|M|train.schedule.cycles||steps of a cosine; the whole run: one; a longer one is cut (train.schedule.length)
train.G_scheduler_eta_min|n|M|train.schedule.floor||lowest learning rate; here a factor of the highest
train.G_scheduler_restart_weights|n|H||1|every cosine is as long as the first (KAIR gives it to PyTorch as T_mult)
train.G_scheduler_milestones|l|H+|train.schedule.milestones||
train.G_scheduler_gamma|n|H+|train.schedule.gamma||
train.G_regularizer_orthstep|i|R||0|regularisers of the weights are not here; null and 0 are fine
train.G_regularizer_clipstep|i|R||0|regularisers of the weights are not here; null and 0 are fine
train.G_param_strict|b|M|recipe.partial||false: weights may lack parameters; unknown names and other shapes stay errors, which KAIR passes over
train.E_param_strict|b|M|||as G_param_strict
train.pad_seq|b|R||false|validation pads clips where their length asks for it
train.flip_seq|b|R||false|validation restores a clip once, not forward and backward
train.center_frame_only|b|R||false|validation scores all frames of a clip
train.checkpoint_test|g|M|data.validation.every||validation on all ranks; a list: every greatest common divisor of its steps
train.checkpoint_save|u|H+|checkpoint.every||
train.checkpoint_print|u|H+|track.every||
train.manual_seed|i|H+|run.seed||the same on all ranks; samples do not depend on the number of ranks
train.timing|x|I|||every metric line has the times of a step
train.profiler|x|I|||track.profile traces steps
train.compile|x|I|||steps are captured as CUDA graphs (train.graph)
train.sync_cuda_timing|b|I|||every metric line has the times of a step
train.freeze_known_unused_parameters|b|I|||the reducer follows which parameters are used
train.freeze_backbone|b|M|train.groups, phases||the adapter alone is trained: in phase 1, or from first to last step without fix_iter
train.partial_load|b|M|recipe.partial||weights may lack parameters, which keep their initial values
train.use_lora|b|M|recipe.lora.rank||false: rank 0
train.lora_rank|i|M|recipe.lora.rank||
train.lora_alpha|n|M|recipe.lora.alpha||
train.lora_target_modules|l|M|recipe.lora.targets||
train.phase2_lora_mode|b|M|phases||phase 2 trains LoRA instead of all weights
train.phase1_fusion_aux_loss_weight|n|M|recipe.fusion.loss.fused||of phase 1, which trains the adapter alone
train.phase2_fusion_aux_loss_weight|n|M|recipe.fusion.loss.fused||of phase 2
train.fusion_passthrough_loss_weight|n|M|recipe.fusion.loss.passthrough||fusion_warmup.passthrough_weight_start wins
train.fusion_warmup|o|I|||
train.fusion_warmup.head_only_iters|i|M|recipe.fusion.warmup||of phase 1
train.fusion_warmup.passthrough_weight_start|n|M|recipe.fusion.loss.passthrough||of phase 1
train.fusion_warmup.passthrough_weight_end|n|M|recipe.fusion.loss.passthrough_end||of phase 1
train.fusion_warmup.update_penalty_weight|n|M|recipe.fusion.loss.update||of phase 1
train.two_run|o|I|||
train.two_run.enable|b|M|phases||two optimisation runs as one resumable plan
train.two_run.phase1|o|M|phases||
train.two_run.phase2|o|M|phases||
train.two_run.phase1.*|x|M|phases||of phase 1
train.two_run.phase2.*|x|M|phases||of phase 2
)";

constexpr std::string_view kRest = R"(
val.save_img|b|M|||pictures of input, output, target and error are always written
val.pad_seq|b|I|||KAIR looks for it in train, so it has no effect there either
val.flip_seq|b|I|||KAIR looks for it in train, so it has no effect there either
val.center_frame_only|b|I|||KAIR looks for it in train, so it has no effect there either
val.num_frame_testing|i|H+|recipe.test.frames||0: whole clips
val.num_frame_overlapping|i|H+|recipe.test.frame_overlap||
val.size_patch_testing|i|H+|recipe.test.tile||0: whole frames
val.size_patch_overlapping|i|H+|recipe.test.tile_overlap||
val.patch_batch_size|i|H+|recipe.test.tile_batch||
val.distributed_patch_testing|b|M|||clips and tiles are always shared by all ranks
val.lazy_flow_cache_mode|s|I|||flow is computed once for each clip window
val.cache_flow_patches_cpu|b|I|||flow is computed once for each clip window
val.disable_checkpoint_during_validation|b|I|||nothing is recomputed without gradients
val.profile_patch_timing|b|I|||track.profile traces steps
val.amp|x|M|train.precision||validation runs in the precision of training
logging.use_tensorboard|b|H+|track.tensorboard||
logging.use_wandb|b|M|track.wandb||true: live, with wandb_mode offline its files alone; false: off
logging.wandb_api_key|s|S|WANDB_API_KEY||a key belongs in the environment
logging.wandb_project|s|H+|track.wandb_project||
logging.wandb_entity|s|H+|track.wandb_entity||
logging.wandb_name|s|I|||the run in W&B has the name of the run: --name
logging.wandb_mode|s|M|track.wandb|online,offline,disabled|with use_wandb
logging.use_swanlab|b|M|||SwanLab is not a tracker here: the metric stream and TensorBoard have every number
logging.swanlab_api_key|s|S|SWANLAB_API_KEY||a key belongs in the environment
logging.swanlab_project|s|I|||of SwanLab
logging.swanlab_workspace|s|I|||of SwanLab
logging.swanlab_name|s|I|||of SwanLab
logging.swanlab_description|s|I|||of SwanLab
logging.swanlab_mode|s|I|||of SwanLab
logging.swanlab_auto_resume|b|I|||of SwanLab
logging.swanlab_resume_strategy|s|I|||of SwanLab
logging.swanlab_run_id|s|I|||of SwanLab
logging.swanlab_run_id_file|s|I|||of SwanLab
logging.use_logfire|b|M|||Logfire is not a tracker here: the metric stream and TensorBoard have every number
logging.logfire_token|s|S|LOGFIRE_TOKEN||a key belongs in the environment
logging.logfire_project_name|s|I|||of Logfire
logging.logfire_service_name|s|I|||of Logfire
logging.logfire_environment|s|I|||of Logfire
logging.logfire_log_text|b|I|||of Logfire
logging.logfire_log_metrics|b|I|||of Logfire
logging.logfire_log_timings|b|I|||of Logfire
runtime.cpu|o|I|||
runtime.cpu.torch_num_threads|i|H+|train.threads||
runtime.cpu.torch_num_interop_threads|i|I|||train.threads says how many threads a rank has
runtime.cpu.interop|i|I|||train.threads says how many threads a rank has
runtime.cpu.inductor_compile_threads|i|I|||nothing is compiled while it trains, kernels aside
runtime.cpu.omp_num_threads|i|I|||train.threads says how many threads a rank has
runtime.cpu.omp|i|I|||train.threads says how many threads a rank has
runtime.cpu.mkl_num_threads|i|I|||train.threads says how many threads a rank has
runtime.cpu.mkl|i|I|||train.threads says how many threads a rank has
runtime.cpu.openblas_num_threads|i|I|||train.threads says how many threads a rank has
runtime.cpu.openblas|i|I|||train.threads says how many threads a rank has
runtime.cpu.numexpr_num_threads|i|I|||train.threads says how many threads a rank has
runtime.cpu.numexpr|i|I|||train.threads says how many threads a rank has
runtime.cpu.tmpdir|s|I|||nothing is compiled while it trains, kernels aside
runtime.cpu.inductor_cache_dir|s|I|||nothing is compiled while it trains, kernels aside
)";

KairKey ParseRow(const std::string& line) {
  const std::vector<std::string> cells = Split(line, '|');
  KairKey key{.path = cells[0], .type = cells[1][0], .to = cells[3], .why = cells[5]};
  const std::string_view fates = "HMIRS";
  key.fate = static_cast<KairKey::Fate>(fates.find(cells[2][0]));
  key.copied = cells[2].ends_with('+');
  if (!cells[4].empty()) key.allowed = Split(cells[4], ',');
  return key;
}

}  // namespace

const std::vector<KairKey>& KairKeys() {
  static const std::vector<KairKey> keys = [] {
    std::vector<KairKey> all;
    for (const std::string_view part : {kTop, kData, kNet, kTraining, kRest}) {
      for (const std::string& line : Split(part, '\n')) {
        if (!line.empty()) all.push_back(ParseRow(line));
      }
    }
    return all;
  }();
  return keys;
}

}  // namespace lockstep::recipes
