// Option files of KAIR and S-VRT. The texts below have the form of their files 001 to 009 and of 006 with spikes,
// written here from the description of the format.
#include "recipes/kair_options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::recipes {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// An option file of VRT, comma first, with both kinds of comments, // inside a string and a trailing comma.
std::string OptionFile(const std::string& data, const std::string& net, const std::string& train,
                       const std::string& more = "", int scale = 1) {
  return fmt::format(R"({{
  "task": "a_task"  // its name
  , "model": "vrt"
  , "gpu_ids": [0,1,2,3]
  , "dist": true
  , "find_unused_parameters": false
  , "use_static_graph": true /* not needed
       here */
  ,"scale": {}
  , "n_channels": 3
  , "path": {{ "root": "experiments//all" , "pretrained_netG": null , "pretrained_netE": null }}
  , "datasets": {{ "train": {{ {} }} }}
  , "netG": {{ {} }}
  , "train": {{ {} }}
  , "val": {{ "save_img": false, "pad_seq": false, "flip_seq": false, "center_frame_only": false,
              "num_frame_testing": 18, "num_frame_overlapping": 2, "size_patch_testing": 224, }}
  {}
}})",
                     scale, data, net, train, more);
}

std::string Data(const std::string& type, int frames, int crop, const std::string& more = "") {
  return fmt::format(R"("name": "train_dataset", "dataset_type": "{}", "dataroot_gt": "a/GT", "dataroot_lq": "a/LQ"
    , "meta_info_file": "m.txt", "filename_tmpl": "06d", "filename_ext": "png", "test_mode": false
    , "num_frame": {}, "gt_size": {}, "interval_list": [1], "random_reverse": false, "use_hflip": true, "use_rot": true
    , "dataloader_shuffle": true, "dataloader_num_workers": 32, "dataloader_batch_size": 8 {})",
                     type, frames, crop, more);
}

std::string Net(int frames, int size, int pa_frames, const std::string& more = "") {
  return fmt::format(R"("net_type": "vrt", "upscale": 1, "img_size": [{},{},{}], "window_size": [{},8,8]
    , "depths": [8,8,8,8,8,8,8, 4,4, 4,4], "indep_reconsts": [9,10], "embed_dims": [96,96,96,96,96,96,96, 120,120, 120,120]
    , "num_heads": [6,6,6,6,6,6,6, 6,6, 6,6], "spynet_path": "zoo/spynet.pth", "pa_frames": {}, "deformable_groups": 16
    , "nonblind_denoising": false, "use_checkpoint_attn": true, "use_checkpoint_ffn": true
    , "no_checkpoint_attn_blocks": [2,3,4], "no_checkpoint_ffn_blocks": [1,2,3,4,5,9], "init_type": "default" {})",
                     frames, size, size, frames, pa_frames, more);
}

std::string Train(const std::string& more = "") {
  return R"("G_lossfn_type": "charbonnier", "G_lossfn_weight": 1.0, "G_charbonnier_eps": 1e-9, "E_decay": 0
    , "G_optimizer_type": "adam", "G_optimizer_lr": 4e-4, "G_optimizer_betas": [0.9,0.99], "G_optimizer_wd": 0
    , "G_optimizer_clipgrad": null, "G_optimizer_reuse": true, "fix_iter": 20000, "fix_lr_mul": 0.125
    , "fix_keys": ["spynet", "deform"], "total_iter": 300000, "G_scheduler_type": "CosineAnnealingWarmRestarts"
    , "G_scheduler_periods": 300000, "G_scheduler_eta_min": 1e-7, "G_regularizer_orthstep": null
    , "G_regularizer_clipstep": null, "G_param_strict": true, "E_param_strict": true
    , "checkpoint_test": 5000, "checkpoint_save": 5000, "checkpoint_print": 200)" +
         more;
}

std::string Changed(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

const char* const kSpikes = R"(, "dataroot_spike": "a/spikes", "spike_h": 250, "spike_w": 400, "spike_channels": 1
    , "spike_flipud": true, "io_backend": {"type": "disk"})";

json ConfigOf(const std::string& text) {
  const Result<KairTranslation> made = TranslateKair(text, "o.json");
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_TRUE(made->Check().ok()) << made->Check().message();
  return json::parse(made->Json());
}

std::string ErrorOf(const std::string& text) {
  const Result<KairTranslation> made = TranslateKair(text, "o.json");
  return made.ok() ? made->Check().ToString() : made.status().ToString();
}

TEST(KairOptions, DeblurringWithSpikes) {
  const json all = ConfigOf(OptionFile(Data("VideoRecurrentTrainDatasetRGBSpike", 6, 224, kSpikes),
                                       Net(6, 224, 2, R"(,"in_chans": 4)"), Train()));
  const json expected = json::parse(R"({
    "train": {
      "find_unused": false, "batch": 8, "steps": 300000, "clip_norm": 0,
      "optimizer": {"kind": "adam", "lr": 4e-4, "betas": [0.9, 0.99], "weight_decay": 0},
      "groups": [{"match": "*spynet*", "lr_scale": 0.125, "freeze_until": 20000},
                 {"match": "*deform*", "lr_scale": 0.125, "freeze_until": 20000}],
      "schedule": {"kind": "cosine", "warmup": 0, "floor": 0.00025}},
    "data": {
      "scale": 1, "target": "a/GT", "input": "a/LQ", "meta_info": "m.txt", "kind": "folders", "frames": 6, "crop": 224,
      "intervals": [1], "random_reverse": false, "hflip": true, "rotate": true, "shuffle": true,
      "spikes": {"use": true, "path": "a/spikes", "height": 250, "width": 400, "flip": true, "form": "tfp", "channels": 1},
      "validation": {"every": 5000}},
    "recipe": {
      "model": "006", "in_channels": 4, "upscale": 1, "img_size": [6, 224, 224], "window": [6, 8, 8],
      "depths": [8,8,8,8,8,8,8,4,4,4,4], "indep_reconsts": [9,10], "embed_dims": [96,96,96,96,96,96,96,120,120,120,120],
      "heads": [6,6,6,6,6,6,6,6,6,6,6], "spynet": "zoo/spynet.pth", "pa_frames": 2, "deformable_groups": 16,
      "nonblind_denoising": false,
      "recompute": {"attention": true, "ffn": true, "keep_attention": [2,3,4], "keep_ffn": [1,2,3,4,5,9]},
      "fusion": {"operator": "concat"},
      "loss": "charbonnier", "loss_weight": 1.0, "epsilon": 1e-9,
      "test": {"frames": 18, "frame_overlap": 2, "tile": 224}},
    "checkpoint": {"every": 5000}, "track": {"every": 200}})");
  EXPECT_EQ(all["config"], expected) << json::diff(all["config"], expected);
  EXPECT_EQ(all["task"], "a_task");
  EXPECT_TRUE(all["refused"].empty());
}

// What utils_option.parse adds, and names of the run that the launcher gives.
TEST(KairOptions, TheCopyThatKairSavesIsRead) {
  const std::string more = R"(, "opt_path": "o.json", "is_train": true, "num_gpu": 8, "rank": 0, "world_size": 8)";
  const Result<KairTranslation> made =
      TranslateKair(OptionFile(Data("VideoRecurrentTrainDataset", 6, 192), Net(6, 192, 2), Train(), more), "o.json");
  ASSERT_TRUE(made.ok() && made->Check().ok()) << made.status().message();
  for (const char* key : {"opt_path", "world_size", "path.root", "task"}) {
    EXPECT_TRUE(std::ranges::any_of(made->ignored, [&](const KairNote& note) { return note.key == key; })) << key;
  }
}

TEST(KairOptions, TheListsSayWhatBecameOfEveryKey) {
  const std::string text =
      OptionFile(Data("VideoRecurrentTrainDataset", 6, 192), Net(6, 192, 2), Train(),
                 R"(, "logging": {"use_tensorboard": true, "use_wandb": true, "wandb_api_key": null})");
  const Result<KairTranslation> made = TranslateKair(text, "o.json");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const auto find = [](const std::vector<KairNote>& notes, const std::string& key) -> const KairNote* {
    const auto it = std::ranges::find(notes, key, &KairNote::key);
    return it == notes.end() ? nullptr : &*it;
  };
  const KairNote* batch = find(made->mapped, "datasets.train.dataloader_batch_size");
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->reason, HasSubstr("GLOBAL"));
  EXPECT_EQ(batch->to, "train.batch");
  EXPECT_GT(batch->line, 5);
  const KairNote* graph = find(made->mapped, "use_static_graph");
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(graph->reason, HasSubstr("CUDA graphs stay on"));
  EXPECT_THAT(made->Yaml(), Not(HasSubstr("\n  graph:")));
  ASSERT_NE(find(made->mapped, "logging.use_wandb"), nullptr);
  EXPECT_THAT(made->Yaml(), HasSubstr("wandb: live"));
  EXPECT_NE(find(made->honoured, "train.G_optimizer_lr"), nullptr);
  EXPECT_NE(find(made->ignored, "gpu_ids"), nullptr);
  EXPECT_THAT(find(made->ignored, "path.root")->value, "experiments//all");  // no comment: it is inside a string
  EXPECT_THAT(made->Table(""), HasSubstr("global batch = 8"));
  EXPECT_THAT(made->Table(""), HasSubstr("samples of a rank = 2: on 4 GPUs"));
  // Every key of the file is in exactly one list.
  std::multiset<std::string> keys;
  for (const auto* list : {&made->honoured, &made->mapped, &made->ignored, &made->refused}) {
    for (const KairNote& note : *list) keys.insert(note.key);
  }
  EXPECT_EQ(keys.count("datasets.train.filename_tmpl"), 1U);
  EXPECT_EQ(keys.size(), std::set<std::string>(keys.begin(), keys.end()).size());
}

TEST(KairOptions, OurOwnFormIsReadBack) {
  const std::string text = OptionFile(Data("VideoRecurrentTrainDatasetRGBSpike", 6, 224, kSpikes),
                                      Net(6, 224, 2, R"(,"in_chans": 4)"), Train());
  const Result<KairTranslation> made = TranslateKair(text, "o.json");
  ASSERT_TRUE(made.ok());
  const Result<ConfigTree> tree = ConfigTree::Parse(made->Yaml(), "vrt.yaml", ConfigTree::Format::kYaml);
  ASSERT_TRUE(tree.ok()) << tree.status().message() << made->Yaml();
  EXPECT_EQ(tree->root().Find("train")->Find("batch")->text, "8");
  EXPECT_EQ(tree->root().Find("train")->Find("groups")->items[1].Find("match")->text, "*deform*");
}

// The files 001 to 009 by what sets them apart.
TEST(KairOptions, TheShippedShapes) {
  const std::string lmdb = R"(, "io_backend": {"type": "lmdb"})";
  const json reds =
      ConfigOf(OptionFile(Data("VideoRecurrentTrainDataset", 6, 256, lmdb + R"(, "val_partition": "REDS4")"),
                          Net(6, 64, 2), Train(), "", 4))["config"];
  EXPECT_EQ(reds["data"]["kind"], "lmdb");
  EXPECT_EQ(reds["data"]["partition"], "REDS4");
  EXPECT_EQ(reds["data"]["scale"], 4);
  EXPECT_FALSE(reds["recipe"].contains("fusion"));
  const json gopro = ConfigOf(OptionFile(Data("VideoRecurrentTrainDataset", 6, 192, lmdb + R"(, "val_partition": "")"),
                                         Net(6, 64, 2), Train()))["config"];
  EXPECT_EQ(gopro["data"]["partition"], "");
  const json vimeo = ConfigOf(
      OptionFile(Data("VideoRecurrentTrainVimeoDataset", 7, 256, lmdb), Net(8, 64, 4), Train(), "", 4))["config"];
  EXPECT_EQ(vimeo["data"]["starts"], "clip");
  EXPECT_FALSE(vimeo["data"].contains("repeat_last"));
  // 003, 004: windows of 8 of septuplets; of other data KAIR does not read the key.
  for (const char* type : {"VideoRecurrentTrainVimeoDataset", "VideoRecurrentTrainDataset"}) {
    const json padded = ConfigOf(
        OptionFile(Data(type, 7, 256, lmdb + R"(, "pad_sequence": true)"), Net(8, 64, 4), Train(), "", 4))["config"];
    EXPECT_EQ(padded["data"].value("repeat_last", 0), std::string(type).find("Vimeo") == std::string::npos ? 0 : 1);
  }
  EXPECT_EQ(vimeo["recipe"]["pa_frames"], 4);
  const json noise = ConfigOf(OptionFile(
      Data("VideoRecurrentTrainNonblindDenoisingDataset", 6, 192, lmdb + R"(, "sigma_min": 0, "sigma_max": 50)"),
      Net(6, 192, 2), Train()))["config"];
  EXPECT_EQ(noise["recipe"]["noise"]["max"], 50);
  EXPECT_EQ(noise["recipe"]["task"], "denoise");
  // 009: frame interpolation has data of its own, and test sets of its own.
  const auto interpolation = [](const std::string& test) {
    const std::string train =
        Data("VideoRecurrentTrainVimeoVFIDataset", 7, 192, R"(, "temporal_scale": 2, "color_jitter": true)");
    return OptionFile(train + R"(}, "test": { "dataroot_gt": "t", "dataroot_lq": "t")" + test, Net(4, 192, 0), Train());
  };
  const json middle = ConfigOf(
      interpolation(R"(, "dataset_type": "VideoTestVimeo90KDataset", "num_frame": 7, "temporal_scale": 2)"))["config"];
  EXPECT_EQ(middle["recipe"]["task"], "interpolate");
  EXPECT_EQ(middle["recipe"]["pa_frames"], 0);
  EXPECT_EQ(middle["data"]["frames"], 4);
  EXPECT_EQ(middle["data"]["starts"], "clip");
  EXPECT_EQ(middle["data"]["color_jitter"], 0.05);
  EXPECT_FALSE(middle["data"]["test"].contains("center"));
  EXPECT_EQ(ConfigOf(interpolation(R"(, "dataset_type": "VFI_DAVIS")"))["config"]["data"]["test"]["center"],
            (json{480, 840}));
  EXPECT_EQ(ConfigOf(interpolation(R"(, "dataset_type": "VFI_Vid4")"))["config"]["data"]["test"]["repeat_ends"], true);
  EXPECT_THAT(ErrorOf(interpolation(R"(, "dataset_type": "VideoTestVimeo90KDataset", "temporal_scale": 1)")),
              HasSubstr("datasets.test.temporal_scale = 1: VFI data are here with temporal_scale 2"));
  EXPECT_THAT(ErrorOf(OptionFile(Data("VideoRecurrentTrainVimeoDataset", 7, 192, R"(, "temporal_scale": 2)"),
                                 Net(4, 192, 0), Train())),
              HasSubstr("datasets.train.temporal_scale = 2: of VFI data"));
  const json none =
      ConfigOf(OptionFile(Data("TrainDataset", 4, 192), Net(4, 192, 0),
                          R"("fix_iter": -1, "fix_lr_mul": 0, "fix_keys": [], "total_iter": 100)"))["config"];
  EXPECT_FALSE(none["train"].contains("groups"));
}

TEST(KairOptions, AdditionsOfSVrt) {
  const std::string data =
      Data("TrainDatasetRGBSpike", 6, 192, R"(, "dataroot_spike": "s", "spike_h": 360, "spike_w": 640
      , "spike": {"representation": "raw_window", "raw_window_length": 9, "reconstruction": {"type": "spikecv_tfp"}
                  , "precomputed": {"enable": true, "root": "auto", "format": "npy"}}
      , "spike_normalize": {"mean": [0.0, 0.0], "std": 1.0}, "rgb_normalize": null, "tfp_devices": ["cuda:0"])");
  const std::string net =
      Net(6, 96, 2, R"(, "in_chans": 12, "input": {"strategy": "fusion", "mode": "dual", "raw_ingress_chans": 12}
      , "fusion": {"enable": true, "placement": "early", "operator": "pase_residual", "mode": "replace", "out_chans": 3
                  , "operator_params": {"feature_chans": 48, "kernel_size": 3}, "early": {"frame_contract": "collapsed"}
                  , "debug": {"enable": true, "anything": [1]}}
      , "optical_flow": {"module": "spynet", "checkpoint": "flow.pth", "params": {}}, "dcn_type": "DCNv2")");
  const std::string train = Train(R"(, "amp": {"enable": true, "dtype": "bfloat16"}, "use_lora": true, "lora_rank": 8
      , "lora_alpha": 16, "lora_target_modules": ["qkv", "proj"], "partial_load": true, "manual_seed": 7
      , "compile": {"enable": false, "scope": "fusion_only"}
      , "phase1_fusion_aux_loss_weight": 1.0, "phase2_fusion_aux_loss_weight": 0.2, "phase2_lora_mode": true
      , "fusion_warmup": {"head_only_iters": 800, "passthrough_weight_start": 0.2, "passthrough_weight_end": 0.0
                         , "update_penalty_weight": 0.01}
      , "two_run": {"enable": true, "phase1": {"total_iter": 4000, "fix_iter": 4000, "path": {"pretrained_netG": "a.pth"}}
                    , "phase2": {"total_iter": 6000, "fix_iter": 0, "G_optimizer_lr": 1e-4, "checkpoint_test": [2000, 4000]}})");
  const json all =
      ConfigOf(OptionFile(data, net, train, R"(, "runtime": {"cpu": {"torch_num_threads": 8}})"))["config"];
  EXPECT_EQ(all["data"]["spikes"]["form"], "raw_window");
  EXPECT_EQ(all["data"]["spikes"]["channels"], 9);
  EXPECT_EQ(all["data"]["spikes"]["precomputed"], true);
  EXPECT_EQ(all["recipe"]["in_channels"], 3);
  EXPECT_EQ(all["recipe"]["fusion"]["operator"], "pase_residual");
  EXPECT_EQ(all["recipe"]["fusion"]["features"], 48);
  EXPECT_EQ(all["recipe"]["fusion"]["frames"], "collapsed");
  EXPECT_EQ(all["recipe"]["spynet"], "flow.pth");
  EXPECT_FALSE(all["recipe"].contains("lora"));
  EXPECT_EQ(all["recipe"]["partial"], true);
  EXPECT_EQ(all["train"]["precision"], "bf16");
  EXPECT_FALSE(all["train"].contains("steps"));
  EXPECT_EQ(all["train"]["threads"], 8);
  EXPECT_EQ(all["run"]["seed"], 7);
  // Phase 1 trains the adapter alone, phase 2 with LoRA and fix_keys; a cosine longer than a phase is cut.
  EXPECT_EQ(all["train"]["schedule"]["length"], 300000);
  EXPECT_EQ(all["phases"], json::parse(R"([
    {"steps": 4000, "checkpoint": {"weights": "a.pth"},
     "recipe": {"fusion": {"loss": {"restored": false, "passthrough": 0.2, "passthrough_steps": 4000, "update": 0.01},
                           "warmup": 800}}},
    {"steps": 6000,
     "data": {"validation": {"every": 2000}},
     "train": {"optimizer": {"lr": 1e-4}, "groups": [{"match": "*spynet*", "lr_scale": 0.125}, {"match": "*deform*", "lr_scale": 0.125}],
               "schedule": {"floor": 0.001}},
     "recipe": {"fusion": {"loss": {"fused": 0.2}},
                "lora": {"rank": 8, "alpha": 16, "targets": ["*qkv*", "*proj*"], "also": ["*spynet*", "*deform*"]}}}])"))
      << all["phases"].dump(1);
  EXPECT_EQ(all["train"]["groups"], json::parse(R"([{"match": "fusion_adapter.*"}, {"match": "*", "freeze": true}])"));
  EXPECT_EQ(all["recipe"]["fusion"]["loss"]["fused"], 1.0);
}

TEST(KairOptions, TwoPhasesBySizes) {
  std::string data = Changed(Data("TrainDataset", 6, 192), "192", "[160, 96]");
  data = Changed(data, "\"dataloader_batch_size\": 8", "\"dataloader_batch_size\": [32, 16]");
  const json all = ConfigOf(OptionFile(data, Net(6, 96, 2), Train()))["config"];
  EXPECT_EQ(all["data"]["crop"], 160);
  EXPECT_EQ(all["train"]["batch"], 32);
  // One optimizer and one schedule: fix_iter counts from the beginning.
  EXPECT_EQ(all["train"]["groups"][0]["freeze_until"], 20000);
  EXPECT_EQ(all["phases"],
            json::parse(R"([{"steps": 20000}, {"steps": 280000, "optimizer": "keep", "data": {"crop": 96},
                                            "train": {"batch": 16}}])"));
}

// A training shorter than fix_iter, of a file made for debugging, ends in the first phase.
TEST(KairOptions, ATrainingThatEndsBeforeFixIterHasOnePhase) {
  const std::string data = Changed(Data("TrainDataset", 6, 192), "192", "[160, 96]");
  const std::string train = Changed(Train(), "300000", "10");
  const json all = ConfigOf(OptionFile(data, Net(6, 96, 2), train))["config"];
  EXPECT_EQ(all["data"]["crop"], 160);
  EXPECT_EQ(all["phases"], json::parse(R"([{"steps": 10}])"));
}

// The defaults of KAIR's code, not the recipe's.
TEST(KairOptions, KeysThatAreLeftOutAreAsInKair) {
  const json all =
      ConfigOf(R"({"task": "t", "model": "vrt", "datasets": {"train": {"dataroot_gt": "a", "dataroot_lq": "b"}},
    "netG": {"net_type": "vrt"}, "train": {"total_iter": 10, "G_regularizer_orthstep": 0, "pad_seq": false}, "val": {}})");
  EXPECT_EQ(all["config"], json::parse(R"({
    "recipe": {"model": "006", "test": {"frames": 0, "tile": 0}},
    "data": {"kind": "folders", "target": "a", "input": "b", "crop": 256, "hflip": false, "rotate": false, "shuffle": false},
    "train": {"steps": 10, "clip_norm": 0, "optimizer": {"kind": "adam", "betas": [0.9, 0.999], "weight_decay": 0}}})"))
      << all["config"].dump(1);
  EXPECT_THAT(all["derived"].dump(), HasSubstr("train.G_optimizer_betas"));
}

// As KAIR's code uses them: words without regard to case, a learning rate of their own for fix_keys also without a
// freeze, no validation before the end for 0.
TEST(KairOptions, ValuesMeanWhatTheyMeanInTheCode) {
  std::string train = Train(R"(, "amp": {"enable": true, "dtype": "BFloat16"})");
  for (const auto& [from, to] : {std::pair(R"("adam")", R"("Adam")"), std::pair(R"("charbonnier")", R"("Charbonnier")"),
                                 std::pair(R"("fix_iter": 20000)", R"("fix_iter": -1)"),
                                 std::pair(R"("checkpoint_test": 5000)", R"("checkpoint_test": 0)"),
                                 std::pair(R"("total_iter": 300000)", R"("total_iter": 3e5)"),
                                 std::pair(R"("E_decay": 0)", R"("E_decay": 1e-400)")}) {
    train = Changed(train, from, to);
  }
  const std::string text = OptionFile(Data("TrainDataset", 6, 192), Net(6, 192, 2), train);
  const json all = ConfigOf(text)["config"];
  EXPECT_EQ(all["train"]["optimizer"]["kind"], "adam");
  EXPECT_EQ(all["train"]["precision"], "bf16");
  EXPECT_EQ(all["train"]["steps"], 300000);
  EXPECT_EQ(all["recipe"]["loss"], "charbonnier");
  EXPECT_EQ(all["data"]["validation"]["every"], 0);
  EXPECT_FALSE(all["train"].contains("ema"));
  EXPECT_EQ(all["train"]["groups"], json::parse(R"([{"match": "*spynet*", "lr_scale": 0.125},
                                                    {"match": "*deform*", "lr_scale": 0.125}])"));
  setenv("HOME", "/home/someone", 1);
  const std::string home = Changed(text, R"("pretrained_netG": null)", R"("pretrained_netG": "~/w.pth")");
  EXPECT_EQ(ConfigOf(home)["config"]["checkpoint"]["weights"], "/home/someone/w.pth");
  // What our own reader finds wrong points to the key of the file.
  const Result<KairTranslation> made = TranslateKair(text, "o.json");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(foreign::FindKey(made->settings, "data.frames")->where.ToString().substr(0, 10), "o.json:14:");
  EXPECT_EQ(foreign::FindKey(made->settings, "data.kind")->where.ToString(), "o.json");
  const std::string steps = Changed(Train(), R"("checkpoint_test": 5000)", R"("checkpoint_test": [4000, 10000])");
  const json listed = ConfigOf(OptionFile(Data("TrainDataset", 6, 192), Net(6, 192, 2), steps));
  EXPECT_EQ(listed["config"]["data"]["validation"]["every"], 2000);
  EXPECT_THAT(listed["derived"].dump(), HasSubstr("validation steps"));
}

// What becomes of a cosine's end and of parameters beside LoRA differs from the code: it is said.
TEST(KairOptions, LearningRatesOfGroupsAndParametersBesideLora) {
  const std::string data = Data("TrainDataset", 6, 192), net = Net(6, 192, 2);
  const json plain = ConfigOf(OptionFile(data, net, Train()));
  EXPECT_THAT(plain["derived"].dump(), HasSubstr("5e-05 to 1.25e-08"));
  const json lora = ConfigOf(OptionFile(data, net, Train(R"(, "use_lora": true)")));
  EXPECT_EQ(lora["config"]["recipe"]["lora"]["also"], (json{"*spynet*", "*deform*"}));  // from fix_iter on
  EXPECT_THAT(lora["derived"].dump(), HasSubstr("unless phase2_lora_mode is true"));
  const std::string frozen = Changed(Train(R"(, "use_lora": true, "freeze_backbone": true)"), "20000", "0");
  const json alone = ConfigOf(OptionFile(data, net, frozen));
  EXPECT_FALSE(alone["config"]["recipe"]["lora"].contains("also"));
  EXPECT_THAT(alone["derived"].dump(), Not(HasSubstr("beside LoRA")));
}

// In one phase, by VRT's loss.
TEST(KairOptions, AFrozenBackboneLeavesTheAdapter) {
  const std::string net = Net(6, 192, 2, R"(, "fusion": {"enable": true, "operator": "gated"})");
  const std::string train = Changed(Train(R"(, "freeze_backbone": true)"), R"("fix_iter": 20000)", R"("fix_iter": 0)");
  const json all = ConfigOf(OptionFile(Data("TrainDataset", 6, 192, kSpikes), net, train))["config"];
  EXPECT_EQ(all["train"]["groups"], json::parse(R"([{"match": "fusion_adapter.*"}, {"match": "*", "freeze": true}])"));
  EXPECT_FALSE(all.contains("phases"));
  EXPECT_FALSE(all["recipe"]["fusion"].contains("loss"));
}

// Not a freeze that never was.
TEST(KairOptions, AFreezeBeyondAllStepsStaysOne) {
  const std::string train = Changed(Train(), R"("fix_iter": 20000)", R"("fix_iter": 99999999999999999999)");
  const json all = ConfigOf(OptionFile(Data("TrainDataset", 6, 192), Net(6, 192, 2), train))["config"];
  EXPECT_EQ(all["train"]["groups"][0]["freeze_until"], int64_t{1} << 62);
}

// What holds for one phase alone is said for that phase.
TEST(KairOptions, DerivedValuesOfPhases) {
  const std::string train = Train(R"(, "two_run": {"enable": true, "phase1": {"total_iter": 4000, "fix_iter": 3000}
                             , "phase2": {"total_iter": 6000, "fix_iter": 0}})");
  const Result<KairTranslation> made =
      TranslateKair(OptionFile(Data("TrainDataset", 6, 192), Net(6, 192, 2), train), "o.json");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const std::string table = made->Table("");
  EXPECT_THAT(table, HasSubstr("  phase 1: freeze = steps 0 to 2999"));
  EXPECT_THAT(table, Not(HasSubstr("  freeze =")));
  EXPECT_THAT(table, HasSubstr("  global batch = 8"));
}

struct Refusal {
  std::string data, net, train, more, words;
};

TEST(KairOptions, WhatIsRefusedOrWrongSaysWhyAndWhere) {
  const std::string plain = Data("TrainDataset", 6, 192), net = Net(6, 192, 2), train = Train();
  const std::vector<Refusal> cases = {
      {plain, net, Train(R"(, "G_optimizer_Ir": 1)"), "",
       "unknown key 'train.G_optimizer_Ir' (did you mean 'train.G_optimizer_lr'?)"},
      {plain + R"(, "total_iter": 5)", net, train, "",
       "unknown key 'datasets.train.total_iter' (did you mean 'train.total_iter'?)"},
      {plain, net, Train(R"(, "two_run": {"enable": true, "phase1": {"totl_iter": 1}})"), "",
       "unknown key 'train.two_run.phase1.totl_iter'"},
      {plain, net, Train(R"(, "two_run": {"enable": true, "phase1": {"total_iter": 5}, "phase2": {}})"), "",
       "train.two_run.phase2.total_iter: phase 2 needs its steps: found 0"},
      {plain, net, Train(R"(, "two_run": {"enable": true, "phase1": {"total_iter": 5, "G_optimizer_lr": "x"}})"), "",
       "train.G_optimizer_lr: expected a number"},
      {plain, net, Train(R"(, "manual_seed": "7")"), "",
       "train.manual_seed: expected a whole number, found the string '7'"},
      {plain, Net(6, 192, 2, R"(, "dcn_type": "DCNv4")"), train, "", "netG.dcn_type = DCNv4: DCNv4 is not here"},
      {plain, Net(6, 192, 2, R"(, "optical_flow": {"module": "scflow"})"), train, "",
       "SCFlow and SEA-RAFT are not here"},
      {plain, Net(6, 192, 2, R"(, "fusion": {"enable": true, "operator": "mamba"})"), train, "",
       "netG.fusion.operator = mamba"},
      {plain, Net(6, 192, 2, R"(, "use_sgp": true)"), train, "", "SGP blocks"},
      {plain, Net(6, 192, 2, R"(, "in_chans": 4)"), train, "", "the first layer would get 27 instead of 36 channels"},
      {plain + kSpikes, net.substr(0, net.size()) + R"(, "in_chans": 7)", train, "",
       "would get 36 instead of 63 channels"},
      {plain + R"(, "spike_normalize": {"mean": 0.5})", net, train, "", "spikes stay in [0, 1]: expected 0"},
      {plain + R"(, "io_backend": {"type": "memcached"})", net, train, "",
       "memcached is not here; expected disk, lmdb"},
      {plain, net, Train(R"(, "G_scheduler_restart_weights": 0.5)"), "", "PyTorch as T_mult); expected 1"},
      {plain, net, Train(R"(, "freeze_backbone": true)"), "",
       "train.freeze_backbone = true: without a fusion adapter or LoRA nothing would be trained"},
      {plain, net, Train(R"(, "flip_seq": true)"), "", "train.flip_seq = true: validation restores a clip once"},
      {plain, net, Train(R"(, "two_run": {"enable": true, "phase1": {"total_iter": 5, "G_scheduler_periods": [3, 2]}
                                          , "phase2": {"total_iter": 5}})"),
       "", "train.G_scheduler_periods = [3, 2]: every cosine has the same length"},
      {plain, net, Train(R"(, "two_run": {"enable": true, "phase1": {"total_iter": 5}
                                          , "phase2": {"total_iter": 5, "G_optimizer_reuse": true}})"),
       "", "train.two_run.phase2.G_optimizer_reuse = true: the second run begins with a fresh optimizer"},
      {plain, net, Changed(train, R"("checkpoint_test": 5000)", R"("checkpoint_test": [5000, 12345])"), "",
       "5 is the greatest that these steps have in common: 2469 validations instead of 2"},
      {plain, net, Changed(train, R"("checkpoint_test": 5000)", R"("checkpoint_test": ["5000", 10000])"), "",
       "train.checkpoint_test = [5000, 10000]: found the string 5000 in the list: expected whole numbers"},
      {plain, net, Changed(train, R"("G_scheduler_periods": 300000)", R"("G_scheduler_periods": [3000.5])"), "",
       "found 3000.5 in the list"},
      {plain, net, Changed(train, R"(["spynet", "deform"])", R"([["spynet"], "deform"])"), "",
       "train.fix_keys = [[spynet], deform]: found [spynet] in the list: expected strings"},
      {plain, net, Changed(train, R"("G_scheduler_periods": 300000)", R"("G_scheduler_periods": 0)"), "",
       "train.G_scheduler_periods = 0: steps of a cosine: expected a whole number above 0"},
      {plain + kSpikes,
       Net(6, 192, 2, R"(, "in_chans": 4, "fusion": {"enable": true, "operator": "gated"}, "input": {"mode": "dual"})"),
       Train(
           R"(, "two_run": {"enable": true, "phase1": {"total_iter": 5, "fix_iter": 3}, "phase2": {"total_iter": 5}})"),
       "", "train.fix_iter = 3: phase 1 of two_run trains the adapter alone to its end: expected 5"},
      {Changed(plain, "192", "[192, 96, 64]"), net, train, "",
       "datasets.train.gt_size = [192, 96, 64]: expected a whole number, or two"},
      {plain + R"(, "gtsize": 3)", net, train, "", "(did you mean 'datasets.train.gt_size'?)"},
      {plain, net, train, R"(, "netD": {"net_type": "discriminator_unet"})", "VRT is trained without a discriminator"},
      {plain + kSpikes, Net(6, 192, 2, R"(, "in_chans": 4, "input": {"strategy": "concat", "raw_ingress_chans": 7})"),
       train, "", "netG.input.raw_ingress_chans = 7: the data have 4 channels"},
      {plain + kSpikes, Net(6, 192, 2, R"(, "in_chans": 4, "input": {"strategy": "fusion", "mode": "dual"})"), train,
       "", "netG.fusion.operator: with an adapter (strategy fusion) concat"},
      {plain, R"("net_type": "swinir", "mlp_ratio": 2)", train, "", "netG.net_type = swinir: this recipe is vrt"},
      {plain + R"(, "dataroot_spike": "s", "spike_reconstruction": {"type": "snn", "spike_win": 8})", net, train, "",
       "snn needs a network of its own"},
      {Data("TrainDatasetRGBSpike", 6, 192), net, train, "", "needs dataroot_spike"},
      {plain, net, train, R"(, "logging": {"wandb_api_key": "0123456789abcdef"})",
       "logging.wandb_api_key: a secret in a file"},
      {plain, net, train, R"(, "logging": {"logfire_token": 12345678})",
       "logging.logfire_token: expected a string, found something else"},
      {plain, net, train, R"(, "task": "again")", "task"},
  };
  for (const Refusal& one : cases) {
    const std::string error = ErrorOf(OptionFile(one.data, one.net, one.train, one.more));
    EXPECT_THAT(error, HasSubstr(one.words));
    EXPECT_THAT(error, HasSubstr("o.json:"));
    EXPECT_THAT(error, Not(HasSubstr("0123456789abcdef")));
  }
  for (const char* section : {"datasets.train", "netG", "train"}) {
    EXPECT_THAT(ErrorOf(""), HasSubstr(fmt::format("{}: the file does not have it", section)));
  }
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("expected sections with keys at the top"));
  EXPECT_THAT(ErrorOf("{\"task\": "), HasSubstr("o.json:1"));
}

// A test set has clips of its own, and nothing else.
TEST(KairOptions, TestSetsFollowTheTrainingSet) {
  const std::string data = Data("TrainDataset", 6, 192) + R"(}, "test": {"dataset_type": "VideoRecurrentTestDataset"
      , "dataroot_gt": "t/GT", "dataroot_lq": "t/LQ", "io_backend": {"type": "lmdb"}, "num_frame": -1
      , "dataloader_batch_size": 1, "gt_size": 64)";
  const json all = ConfigOf(OptionFile(data, Net(6, 192, 2), Train()));
  EXPECT_EQ(all["config"]["data"]["test"], json::parse(R"({"target": "t/GT", "input": "t/LQ", "kind": "lmdb"})"));
  EXPECT_EQ(all["config"]["data"]["crop"], 192);
  std::map<std::string, std::string> became;
  for (const char* list : {"honoured", "mapped", "ignored"}) {
    for (const json& note : all[list]) became[note["key"]] = fmt::format("{} {}", list, note["to"].get<std::string>());
  }
  EXPECT_EQ(became["datasets.test.dataroot_gt"], "honoured data.test.target");
  EXPECT_EQ(became["datasets.test.io_backend.type"], "mapped data.test.kind");
  EXPECT_EQ(became["datasets.test.dataset_type"], "mapped ");
  for (const char* key : {"num_frame", "dataloader_batch_size", "gt_size"}) {
    EXPECT_EQ(became[fmt::format("datasets.test.{}", key)], "ignored ") << key;
  }
}

// Not a test set whose frames nobody compares, beside clips that are held out and do not train.
TEST(KairOptions, WithoutTargetsClipsOfTheTrainingSetAreHeldOut) {
  const std::string data = Data("TrainDataset", 6, 192);
  for (const auto& [test, words] :
       {std::pair(R"(}, "test": {"dataset_type": "SingleVideoRecurrentTestDataset", "dataroot_lq": "t")",
                  "datasets.test has no dataroot_gt"),
        std::pair("", "the file has no datasets.test")}) {
    const json all = ConfigOf(OptionFile(data + test, Net(6, 192, 2), Train()));
    EXPECT_FALSE(all["config"]["data"].contains("test")) << all["config"]["data"].dump(1);
    EXPECT_THAT(all["derived"].dump(), HasSubstr(words));
  }
}

// Sizes of a sensor without spikes say nothing: they are listed, and the translation has no key for them.
TEST(KairOptions, WithoutAFolderOfSpikesItsOtherKeysAreLeftOut) {
  const std::string data = Data("TrainDataset", 6, 192) + R"(, "spike_h": 360, "spike_w": 640, "dataroot_spike": null)";
  const Result<KairTranslation> made = TranslateKair(OptionFile(data, Net(6, 192, 2), Train()), "o.json");
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_THAT(made->Yaml(), HasSubstr("datasets.train.spike_h = 360: datasets.train has no dataroot_spike"));
  EXPECT_THAT(WriteYaml(made->settings), Not(HasSubstr("spikes:")));
}

// A secret appears in no list and in none of the forms.
TEST(KairOptions, ASecretIsNotReadFurther) {
  const Result<KairTranslation> made = TranslateKair(OptionFile(Data("TrainDataset", 6, 192), Net(6, 192, 2), Train(),
                                                                R"(, "logging": {"swanlab_api_key": "sesame"})"),
                                                     "o.json");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->refused.size(), 1U);
  EXPECT_THAT(made->Json() + made->Yaml() + made->Check().ToString(), Not(HasSubstr("sesame")));
}

// The table itself: unique keys, each with a fate; what is copied has a place to go; what is refused or ignored says
// why.
TEST(KairOptions, TheTable) {
  std::set<std::string> seen;
  for (const KairKey& key : KairKeys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    EXPECT_THAT(std::string("binslgoxup"), HasSubstr(std::string(1, key.type))) << key.path;
    if (key.copied) EXPECT_NE(key.to, "") << key.path;
    const bool says = key.fate == KairKey::Fate::kRefused || (key.fate == KairKey::Fate::kIgnored && key.type != 'o');
    if (says) EXPECT_NE(key.why, "") << key.path;
    const size_t dot = key.path.rfind('.');
    if (dot != std::string::npos && !key.path.ends_with("*")) {
      EXPECT_TRUE(seen.contains(key.path.substr(0, dot))) << key.path << ": the section has no row before it";
    }
  }
  EXPECT_GE(KairKeys().size(), 240U);
}

}  // namespace
}  // namespace lockstep::recipes
