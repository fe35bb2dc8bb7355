// The DeepSpeed configurations of the VLN recipes, by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::foreign {

inline std::vector<std::pair<std::string, std::string>> FiveConfigs() {
  const std::string batch = R"("train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto")";
  const std::string clip = R"("gradient_clipping": "auto", "zero_allow_untested_optimizer": true)";
  const std::string fp16 = R"("fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
    "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1})";
  const std::string bf16 = R"("bf16": {"enabled": "auto"})";
  const std::string overlap = R"("overlap_comm": true, "contiguous_gradients": true)";
  const std::string live = R"("stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true)";
  const std::string quiet = R"("steps_per_print": 10, "wall_clock_breakdown": false,
    "comms_logger": {"enabled": false, "verbose": false, "prof_all": false, "debug": false})";
  const auto file = [&](const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : ",\n  ") + part;
    return "{\n  " + out + "\n}\n";
  };
  const auto zero = [](const std::string& keys) { return "\"zero_optimization\": {" + keys + "}"; };
  return {
      {"zero0", file({batch, clip, fp16, bf16,
                      zero(R"("stage": 0, "allgather_partitions": true, "allgather_bucket_size": 5e8,
                              "reduce_scatter": true, "round_robin_gradients": true, "reduce_bucket_size": 5e8, )" +
                           overlap)})},
      {"zero2", file({batch, fp16, bf16,
                      zero(R"("stage": 2, "sub_group_size": 1e9, "reduce_bucket_size": "auto", )" + overlap)})},
      {"zero2_offload",
       file({batch, clip, bf16,
             zero(R"("stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},
                     "allgather_bucket_size": 5e8, "reduce_bucket_size": 5e8, )" +
                  overlap),
             R"("activation_checkpointing": {"partition_activations": false, "cpu_checkpointing": false,
                "contiguous_memory_optimization": true, "synchronize_checkpoint_boundary": false})"})},
      {"zero3", file({batch, clip, fp16, bf16,
                      zero(R"("stage": 3, "sub_group_size": 1e9, "reduce_bucket_size": 5e8,
                              "stage3_prefetch_bucket_size": 5e8, "stage3_param_persistence_threshold": 1e6, )" +
                           live + ", " + overlap),
                      quiet})},
      {"zero3_first", file({batch, clip, fp16, bf16,
                            zero(R"("stage": 3, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
                                    "stage3_prefetch_bucket_size": "auto",
                                    "stage3_param_persistence_threshold": "auto", )" +
                                 live + ", " + overlap)})},
  };
}

}  // namespace lockstep::foreign
