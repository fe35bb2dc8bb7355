#include "recipes/kair_derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "base/text.h"

namespace lockstep::recipes {
namespace {

ConfigNode KairScalar(std::string text, bool quoted = false) {
  ConfigNode node{.kind = ConfigNode::Kind::kScalar, .text = std::move(text)};
  node.quoted = quoted;
  return node;
}
ConfigNode KairNumber(int64_t value) { return KairScalar(std::to_string(value)); }

class KairDerivation {
 public:
  KairDerivation(const ConfigNode& options, const KairPhase& phase, KairTranslation* made)
      : options_(options), phase_(phase), made_(*made) {}

  void Run() {
    made_.task = Text("task").value_or("");
    std::string weights = Text("path.pretrained_netG").value_or("auto");
    if (const char* home = std::getenv("HOME"); home != nullptr && weights.starts_with("~/"))
      weights.replace(0, 1, home);
    if (weights != "auto") Set("checkpoint.weights", KairScalar(weights, true), "path.pretrained_netG");
    // What no option file says is as in upstream's constructor: the share of mutual attention, the rate of DropPath.
    Set("recipe.model", KairScalar("006", true));
    for (const char* section : {"datasets.train", "netG", "train"}) {
      if (Find(section) == nullptr)
        Refuse(section, "the file does not have it, and there is nothing to train without it");
    }
    LeftOut();
    Data();
    Spikes();
    TestSet();
    Fusion();
    Optimizer();
    Schedule();
    Precision();
    Lora();
    AdapterLosses();
    Phase();
    Sizes();
    if (True("logging.use_wandb")) {
      const std::string mode = Word("logging.wandb_mode").value_or("online");
      Set("track.wandb", KairScalar(mode == "offline" ? "offline" : mode == "disabled" ? "off" : "live"));
    }
  }

 private:
  const ConfigNode* Find(std::string_view path) const {
    const ConfigNode* node = foreign::FindKey(options_, path);
    return node == nullptr || node->kind == ConfigNode::Kind::kNull ? nullptr : node;
  }
  std::optional<std::string> Text(std::string_view path) const {
    const ConfigNode* node = Find(path);
    if (node == nullptr || node->kind != ConfigNode::Kind::kScalar) return std::nullopt;
    return node->text;
  }
  std::optional<double> Number(std::string_view path) const {
    const ConfigNode* node = Find(path);
    return node == nullptr ? std::nullopt : foreign::NumberOf(*node);
  }
  std::optional<int64_t> Whole(std::string_view path) const {
    const ConfigNode* node = Find(path);
    return node == nullptr ? std::nullopt : foreign::WholeOf(*node);
  }
  // A word out of a list, which the code compares without regard to case.
  std::optional<std::string> Word(std::string_view path) const {
    std::optional<std::string> word = Text(path);
    if (word) *word = foreign::LowerCase(*word);
    return word;
  }
  bool True(std::string_view path) const { return Text(path) == "true"; }
  // A number, or a list of one for each phase.
  std::vector<int64_t> Each(std::string_view path) const {
    const ConfigNode* node = Find(path);
    if (node == nullptr) return {};
    std::vector<int64_t> values;
    const auto add = [&](const ConfigNode& one) {
      if (const auto number = foreign::WholeOf(one)) values.push_back(*number);
    };
    add(*node);
    for (const ConfigNode& item : node->items) add(item);
    return values;
  }

  // `from`: the key of the file that an error of the value points to.
  void Set(std::string_view key, ConfigNode value, std::string_view from = "") {
    const ConfigNode* source = from.empty() ? nullptr : Find(from);
    if (source != nullptr) value.where = source->where;
    foreign::SetKey(&made_.settings, key, std::move(value));
  }
  void Refuse(const std::string& key, const std::string& reason) {
    const ConfigNode* node = Find(key);
    made_.refused.push_back(
        {key, node == nullptr ? "" : foreign::ValueText(*node), "", reason, node == nullptr ? 0 : node->where.line});
  }
  void Derived(std::string name, std::string value, std::string reason) {
    made_.derived.push_back({std::move(name), std::move(value), std::move(reason)});
  }

  // What KAIR takes for keys that a file does not have, where the recipe would take something else; no value: KAIR's
  // code does not run without the key.
  void LeftOut() {
    struct Row {
      const char *section, *key, *to, *value;
    };
    constexpr Row kRows[] = {{"datasets.train", "gt_size", "data.crop", "256"},
                             {"datasets.train", "use_hflip", "data.hflip", "false"},
                             {"datasets.train", "use_rot", "data.rotate", "false"},
                             {"datasets.train", "dataloader_shuffle", "data.shuffle", "false"},
                             {"train", "G_optimizer_type", "train.optimizer.kind", "adam"},
                             {"train", "G_optimizer_betas", "train.optimizer.betas", "0.9 0.999"},
                             {"train", "G_optimizer_wd", "train.optimizer.weight_decay", "0"},
                             {"val", "num_frame_testing", "recipe.test.frames", "0"},
                             {"val", "size_patch_testing", "recipe.test.tile", "0"},
                             {"datasets.train", "num_frame", "data.frames", ""},
                             {"datasets.train", "dataloader_batch_size", "train.batch", ""},
                             {"train", "total_iter", "train.steps", ""},
                             {"train", "G_optimizer_lr", "train.optimizer.lr", ""},
                             {"train", "G_lossfn_type", "recipe.loss", ""},
                             {"train", "G_scheduler_type", "train.schedule", ""},
                             {"train", "checkpoint_test", "data.validation.every", ""},
                             {"train", "checkpoint_save", "checkpoint.every", ""}};
    for (const Row& row : kRows) {
      const std::string key = fmt::format("{}.{}", row.section, row.key), words = row.value;
      const bool in_phase = Find(fmt::format("train.two_run.phase1.{}", row.key)) != nullptr;
      if (Find(row.section) == nullptr || Find(key) != nullptr || in_phase) continue;
      if (words.empty()) {
        Derived(key, "the recipe's default",
                fmt::format("the file does not have it, and KAIR asks for it: {}", row.to));
        continue;
      }
      std::vector<ConfigNode> values;
      for (const std::string& word : Split(words, ' ')) values.push_back(KairScalar(word));
      ConfigNode list{.kind = ConfigNode::Kind::kList, .items = values};
      Set(row.to, values.size() > 1 ? std::move(list) : values.front());
      Derived(key, words, fmt::format("the file does not have it: KAIR's default, as {}", row.to));
    }
  }

  void Data() {
    for (const char* phase : {"train", "test"}) {
      const std::string from = fmt::format("datasets.{}.", phase);
      if (Find(from.substr(0, from.size() - 1)) == nullptr) continue;
      const std::string to = std::string(phase) == "train" ? "data." : "data.test.";
      Set(to + "kind", KairScalar(Word(from + "io_backend.type") == "lmdb" ? "lmdb" : "folders"));
      for (const char* stat : {"mean", "std"}) CheckNormal(from + "spike_normalize." + stat, *stat == 'm' ? 0 : 1);
    }
    const std::string type = DataSetType("train");
    const bool vimeo = type.find("vimeo") != std::string::npos, between = type.find("vfi") != std::string::npos;
    if (vimeo) Set("data.starts", KairScalar("clip"));
    padded_ = vimeo && !between && True("datasets.train.pad_sequence");
    if (padded_) Set("data.repeat_last", KairNumber(1), "datasets.train.pad_sequence");
    Interpolation(between);
    if (type.find("denoising") != std::string::npos) Set("recipe.task", KairScalar("denoise"));
    if (type.ends_with("rgbspike") && Find("datasets.train.dataroot_spike") == nullptr) {
      Refuse("datasets.train.dataset_type", "a data set with spikes needs dataroot_spike");
    }
    if (const auto sigma = Find("datasets.test.sigma")) Set("recipe.noise.test", *sigma);
    if (const auto frames = Whole("datasets.train.num_frame"))
      Set("data.frames", KairNumber(interpolates_ ? (*frames + 1) / 2 : *frames), "datasets.train.num_frame");
    for (const std::string key : {"datasets.train.gt_size", "datasets.train.dataloader_batch_size"}) {
      const ConfigNode* list = Find(key);
      if (list == nullptr || list->kind != ConfigNode::Kind::kList) continue;
      if (list->items.size() != 2 || Each(key).size() != 2) {
        Refuse(key, "expected a whole number, or two: one for each phase");
      }
    }
    const std::vector<int64_t> crops = Each("datasets.train.gt_size"),
                               batches = Each("datasets.train.dataloader_batch_size");
    if (!crops.empty()) Set("data.crop", KairNumber(crops.front()), "datasets.train.gt_size");
    if (!batches.empty()) {
      Set("train.batch", KairNumber(batches.front()), "datasets.train.dataloader_batch_size");
      Derived("global batch", std::to_string(batches.front()),
              "dataloader_batch_size is the batch of all ranks together, as KAIR's code has it (S-VRT's guide says for "
              "each GPU)");
      const auto gpus = Find("gpu_ids") == nullptr ? 0 : static_cast<int64_t>(Find("gpu_ids")->items.size());
      if (gpus > 1) {
        Derived("samples of a rank", fmt::format("{}", batches.front() / gpus),
                batches.front() % gpus == 0
                    ? fmt::format("on {} GPUs", gpus)
                    : fmt::format("on {} GPUs, and one more on {} of them", gpus, batches.front() % gpus));
      }
    }
    Validation();
  }

  // An interval, or the steps themselves, of which the greatest common divisor becomes the interval; 0 or none: never,
  // here at the end.
  void Validation() {
    const ConfigNode* given = Find("train.checkpoint_test");
    if (given == nullptr) return;
    const std::vector<int64_t> steps = Each("train.checkpoint_test");
    int64_t every = 0;
    for (const int64_t step : steps) every = std::gcd(every, step);
    Set("data.validation.every", KairNumber(every), "train.checkpoint_test");
    if (given->kind != ConfigNode::Kind::kList || every == 0) return;
    const int64_t count = std::ranges::max(steps) / every;
    constexpr int64_t kMost = 10;  // validations for each that is asked for
    if (count > kMost * std::ssize(steps)) {
      Refuse("train.checkpoint_test",
             fmt::format("validation has one interval here, and {} is the greatest that these steps have in common: {} "
                         "validations instead of {}; expected multiples of one interval",
                         every, count, steps.size()));
      return;
    }
    Derived("validation steps", fmt::format("every {}", every),
            fmt::format("the greatest common divisor of {}", foreign::ValueText(*given)));
  }

  // In small letters, as KAIR compares it.
  std::string DataSetType(const std::string& phase) const {
    return Word(fmt::format("datasets.{}.dataset_type", phase)).value_or("");
  }

  // VFI data: every second frame, and the one in their middle as target. A test set is then cut as upstream's test
  // does.
  void Interpolation(bool asked) {
    interpolates_ = asked;
    const std::string test = DataSetType("test");
    for (const std::string phase : {"train", "test"}) {
      const std::string at = fmt::format("datasets.{}.", phase), key = at + "temporal_scale";
      if (Find("datasets." + phase) == nullptr || (phase == "test" && test != "videotestvimeo90kdataset")) continue;
      if (const int64_t step = Whole(key).value_or(1); step != (asked ? 2 : 1)) {
        Refuse(Find(key) == nullptr ? at + "dataset_type" : key,
               asked ? fmt::format("VFI data are here with temporal_scale 2, every second frame: found {}", step)
                     : "of VFI data (VideoRecurrentTrainVimeoVFIDataset)");
      }
    }
    if (!asked) return;
    const int64_t frames = Whole("datasets.train.num_frame").value_or(7);
    if (frames % 4 != 3) {
      Refuse("datasets.train.num_frame",
             fmt::format("{} frames have no target in the middle of every second one: expected 7 (or 3, 11)", frames));
    }
    Set("recipe.task", KairScalar("interpolate"));
    if (True("datasets.train.color_jitter")) Set("data.color_jitter", KairScalar("0.05"));
    const auto centre = [&](int64_t height, int64_t width) {
      ConfigNode size{.kind = ConfigNode::Kind::kList};
      size.items = {KairNumber(height), KairNumber(width)};
      Set("data.test.center", std::move(size));
    };
    if (test == "vfi_davis") centre(480, 840);
    if (test == "vfi_ucf101") centre(224, 224);
    if (test == "vfi_vid4") Set("data.test.repeat_ends", KairScalar("true"));
    Derived("input and target", fmt::format("{} frames, and the one in their middle", (frames + 1) / 2),
            fmt::format("every second of {}; validation is on such frames, as upstream's main_test_vrt.py", frames));
  }

  // Identity, or refused.
  void CheckNormal(const std::string& key, double identity) {
    const ConfigNode* node = Find(key);
    if (node == nullptr) return;
    std::vector<ConfigNode> values =
        node->kind == ConfigNode::Kind::kList ? node->items : std::vector<ConfigNode>{*node};
    if (std::ranges::any_of(values, [&](const ConfigNode& v) { return foreign::NumberOf(v) != identity; })) {
      Refuse(key, fmt::format("spikes stay in [0, 1]: expected {}", identity));
    }
  }

  void Spikes() {
    if (Find("datasets.train.dataroot_spike") == nullptr) {
      for (const std::string to : {"data.spikes", "data.test.spikes"}) {
        Drop(to);
        LeaveOut(to + ".", "datasets.train has no dataroot_spike: no spikes are read");
      }
      return;
    }
    const std::string at = "datasets.train.";
    Set("data.spikes.use", KairScalar("true"));
    const std::string type =
        Word(at + "spike.reconstruction.type")
            .value_or(Word(at + "spike_reconstruction.type").value_or(Word(at + "spike_reconstruction").value_or("")));
    const std::optional<int64_t> bins = Whole(at + "spike.reconstruction.num_bins"),
                                 legacy = Whole(at + "spike_channels");
    channels_ = bins ? *bins : legacy ? *legacy : 1;
    std::string form = "tfp";
    if (Word(at + "spike.representation") == "raw_window") {
      form = "raw_window";
      const int64_t half = Whole(at + "tfp_half_win_length").value_or(20);
      channels_ = Whole(at + "spike.raw_window_length").value_or(2 * half + 1);
      if (channels_ % 2 == 0) Refuse(at + "spike.raw_window_length", "expected an odd number of steps");
    } else if (type == "middle_tfp" || type == "middle-tfp") {
      form = "middle_tfp";
      channels_ = 1;
    }
    if (legacy && *legacy != channels_) {
      Refuse(at + "spike_channels", fmt::format("the spikes have {} channels by spike.*", channels_));
    }
    Set("data.spikes.form", KairScalar(form));
    Set("data.spikes.channels", KairNumber(channels_), at + "spike_channels");
    for (const char* key : {"middle_tfp_center", "spike_reconstruction.middle_tfp_center"}) {
      if (const auto middle = Whole(at + key)) Set("data.spikes.middle", KairNumber(*middle), at + key);
    }
    const std::string root = Text(at + "spike.precomputed.root").value_or("auto");
    if (root != "auto") Set("data.spikes.precomputed_path", KairScalar(root, true));
    const std::string test_root = Text("datasets.test.spike.precomputed.root").value_or("auto");
    if (test_root != "auto") Set("data.test.spikes.precomputed_path", KairScalar(test_root, true));
  }

  void TestSet() {
    const bool given = Find("datasets.test.dataroot_gt") != nullptr;
    if (given && (channels_ == 0 || Find("datasets.test.dataroot_spike") != nullptr)) return;
    const std::string why =
        Find("datasets.test") == nullptr ? "the file has no datasets.test"
        : given ? "datasets.test has no dataroot_spike, and a network with spikes cannot be tested without them"
                : "datasets.test has no dataroot_gt to compare with";
    Drop("data.test");
    LeaveOut("data.test.", why + ": clips of the training set are held out");
    Derived("validation", "clips of the training set", why + ": clips are held out (data.validation.fraction)");
  }

  // What became of some keys is taken back.
  void LeaveOut(std::string_view to, const std::string& reason) {
    for (auto* notes : {&made_.honoured, &made_.mapped}) {
      const auto kept = std::ranges::stable_partition(*notes, [&](const KairNote& n) { return !n.to.starts_with(to); });
      for (KairNote& note : kept) made_.ignored.push_back({note.key, note.value, "", reason, note.line});
      notes->erase(kept.begin(), kept.end());
    }
  }

  void Drop(std::string_view path) {
    const size_t dot = path.rfind('.');
    ConfigNode* above = &made_.settings;
    for (const std::string& part : Split(path.substr(0, dot), '.')) {
      const auto it = std::ranges::find(above->entries, part, &ConfigEntry::key);
      if (it == above->entries.end()) return;
      above = &it->value;
    }
    std::erase_if(above->entries, [&](const ConfigEntry& e) { return e.key == path.substr(dot + 1); });
  }

  void Fusion() {
    const std::optional<int64_t> channels = Whole("netG.in_chans");
    if (const auto raw = Whole("netG.input.raw_ingress_chans"); raw && channels_ > 0 && *raw != 3 + channels_) {
      Refuse("netG.input.raw_ingress_chans",
             fmt::format("the data have {} channels: 3 RGB and {} of spikes", 3 + channels_, channels_));
    }
    if (channels_ == 0) {
      if (channels && *channels > 3) {
        Refuse("netG.in_chans",
               fmt::format("{} channels, and the data have 3 (RGB): the first layer would get {} instead "
                           "of {} channels",
                           *channels, 9 * 3, 9 * *channels));
      }
      return;
    }
    fuses_ = FusesKair(options_);
    if (fuses_) {
      const std::string adapter = Word("netG.fusion.operator").value_or("concat");
      if (adapter == "concat") {
        Refuse("netG.fusion.operator",
               "with an adapter (strategy fusion) concat, S-VRT's default, is a convolution of one pixel to 3 "
               "channels, which is not here: expected gated, pase, pase_residual or attention, or strategy concat");
      }
      Set("recipe.fusion.operator", KairScalar(adapter));
      const ConfigNode* hidden = Find("netG.fusion.operator_params.hidden_chans");
      const bool features = Find("netG.fusion.operator_params.feature_chans") != nullptr;
      if (adapter == "pase_residual" && hidden != nullptr && !features) {
        Set("recipe.fusion.features", *hidden);  // as S-VRT's code
      }
      const int64_t out = Whole("netG.fusion.out_chans").value_or(3);
      Set("recipe.in_channels", KairNumber(out));
      Derived("input of VRT", fmt::format("{} channels", out),
              fmt::format("the adapter makes them of 3 RGB and {} spike channels", channels_));
      return;
    }
    Drop("recipe.fusion");
    Set("recipe.fusion.operator", KairScalar("concat"));
    if (!channels) Set("recipe.in_channels", KairNumber(3 + channels_));
    if (channels && *channels != 3 + channels_) {
      Refuse("netG.in_chans", fmt::format("{} channels, and the data have {} (3 RGB and {} of spikes): the first layer "
                                          "would get {} instead of {} channels",
                                          *channels, 3 + channels_, channels_, 9 * (3 + channels_), 9 * *channels));
    }
    Derived("input of VRT", fmt::format("{} channels", 3 + channels_),
            fmt::format("3 RGB and {} of spikes, concatenated; {} after alignment", channels_, 9 * (3 + channels_)));
  }

  void Optimizer() {
    if (Find("train") == nullptr) return;
    Set("train.clip_norm", KairScalar(Text("train.G_optimizer_clipgrad").value_or("0")), "train.G_optimizer_clipgrad");
    if (const double decay = Number("train.E_decay").value_or(0); decay > 0) {
      Set("train.ema.decay", KairScalar(*Text("train.E_decay")), "train.E_decay");
      Set("train.ema.warmup", KairScalar("none"));
    }
    Groups();
    if (const auto pretrained = Find("netG.optical_flow.checkpoint")) Set("recipe.spynet", *pretrained);
  }

  static ConfigNode Group(const std::string& match) {
    ConfigNode group{.kind = ConfigNode::Kind::kMap};
    group.entries.push_back({"match", {}, KairScalar(match, true)});
    return group;
  }

  // Which parameters train, and how fast. S-VRT's phase 1 trains the adapter alone; so does a later or only phase whose
  // backbone stays frozen without LoRA.
  void Groups() {
    ConfigNode groups{.kind = ConfigNode::Kind::kList};
    const bool frozen = True("train.freeze_backbone") && !True("train.use_lora");
    const bool alone = fuses_ && (phase_.number == 1 || ((phase_.number == 0 || phase_.two_run) && frozen));
    if (frozen && !fuses_) Refuse("train.freeze_backbone", "without a fusion adapter or LoRA nothing would be trained");
    const ConfigNode* keys = Find("train.fix_keys");
    const ConfigNode* factor = Find("train.fix_lr_mul");
    const int64_t until = std::max<int64_t>(Whole("train.fix_iter").value_or(0), 0);
    if (alone) {
      groups.items.push_back(Group("fusion_adapter.*"));
      ConfigNode rest = Group("*");
      rest.entries.push_back({"freeze", {}, KairScalar("true")});
      groups.items.push_back(std::move(rest));
    } else if (keys != nullptr && (until > 0 || factor != nullptr)) {
      if (!keys->items.empty()) slowed_ = Number("train.fix_lr_mul").value_or(1);
      for (const ConfigNode& key : keys->items) {
        ConfigNode group = Group("*" + key.text + "*");
        if (factor != nullptr) group.entries.push_back({"lr_scale", {}, *factor});
        if (until > 0) group.entries.push_back({"freeze_until", {}, KairNumber(until)});
        groups.items.push_back(std::move(group));
      }
      if (until > 0 && !keys->items.empty())
        Derived("freeze", fmt::format("steps 0 to {}", until - 1),
                fmt::format("parameters with {} in their names; then they train, too, without a restart (KAIR counts "
                            "steps from 1 and frees them one earlier)",
                            foreign::ValueText(*keys)));
    }
    if (!groups.items.empty() || phase_.number > 0) Set("train.groups", std::move(groups));
  }

  void Schedule() {
    const std::string type = Word("train.G_scheduler_type").value_or("");
    if (type == "multisteplr") return Set("train.schedule.kind", KairScalar("multistep"));
    if (type.empty()) return;
    const std::vector<int64_t> periods = Each("train.G_scheduler_periods");
    if (periods.size() > 1) {
      return Refuse("train.G_scheduler_periods", "every cosine has the same length: expected one whole number");
    }
    const int64_t steps = Whole("train.total_iter").value_or(0);
    const int64_t period = periods.empty() ? steps : periods.front();
    if (!periods.empty() && period < 1) {
      return Refuse("train.G_scheduler_periods", "steps of a cosine: expected a whole number above 0");
    }
    if (period < 1 || steps < 1) return;
    const double lr = Number("train.G_optimizer_lr").value_or(0),
                 least = Number("train.G_scheduler_eta_min").value_or(0);
    Set("train.schedule.warmup", KairScalar("0"));
    if (lr > 0) Set("train.schedule.floor", KairScalar(fmt::format("{:.6g}", least / lr)), "train.G_scheduler_eta_min");
    // A cosine that is longer than the training is cut, as there.
    const int64_t cycles = (steps + period - 1) / period;
    Set("train.schedule.kind", KairScalar(cycles == 1 ? "cosine" : "cosine_restarts"));
    if (cycles > 1) Set("train.schedule.cycles", KairNumber(cycles));
    if (cycles * period != steps) Set("train.schedule.length", KairNumber(cycles * period));
    Derived("learning rate", fmt::format("{} to {}", lr, least),
            fmt::format("cosine over {} steps, a closed form of the step", period));
    if (least > 0 && slowed_ != 1)
      Derived("learning rate of fix_keys", fmt::format("{:.6g} to {:.6g}", slowed_ * lr, slowed_ * least),
              "fix_lr_mul times the others' at every step (in KAIR it ends at G_scheduler_eta_min, too)");
  }

  void Precision() {
    const std::string type = Word("train.amp.dtype").value_or("float16");
    if (Find("train.amp.enable") == nullptr) {
      Derived("precision", "as the recipe",
              "without amp KAIR trains in fp32; here train.precision decides (auto: bf16 on GPUs that have it); set "
              "fp32 for theirs");
      return;
    }
    Set("train.precision", KairScalar(!True("train.amp.enable")              ? "fp32"
                                      : type == "bfloat16" || type == "bf16" ? "bf16"
                                                                             : "fp16"));
  }

  void Lora() {
    const bool later = phase_.number == 1 && (fuses_ || True("train.phase2_lora_mode"));
    if (True("train.use_lora") && !later) {
      Set("recipe.lora.rank", KairNumber(Whole("train.lora_rank").value_or(8)), "train.lora_rank");
      Set("recipe.lora.alpha", KairScalar(Text("train.lora_alpha").value_or("16")), "train.lora_alpha");
      ConfigNode targets{.kind = ConfigNode::Kind::kList};
      const ConfigNode* names = Find("train.lora_target_modules");
      for (const std::string& name : names == nullptr ? std::vector<std::string>{"qkv", "proj"} : Names(*names)) {
        targets.items.push_back(KairScalar("*" + name + "*", true));
      }
      Set("recipe.lora.targets", std::move(targets));
      // At fix_iter S-VRT frees fix_keys or, without phase2_lora_mode, everything.
      const ConfigNode* keys = Find("train.fix_keys");
      const bool frees = Whole("train.fix_iter").value_or(0) > 0;
      const bool named = (phase_.number == 2 || frees) && keys != nullptr && !keys->items.empty();
      const std::string alone = frees ? "phase2_lora_mode" : "freeze_backbone";
      if (!True("train." + alone))
        Derived("beside LoRA", named ? "fix_keys; all others stay frozen" : "nothing: all others stay frozen",
                fmt::format("S-VRT trains them as well unless {} is true", alone));
      if (named) {
        ConfigNode also{.kind = ConfigNode::Kind::kList};
        for (const std::string& name : Names(*keys)) also.items.push_back(KairScalar("*" + name + "*", true));
        Set("recipe.lora.also", std::move(also));
      }
    }
    if (True("train.partial_load") || Text("train.G_param_strict") == "false")
      Set("recipe.partial", KairScalar("true"));
  }

  static std::vector<std::string> Names(const ConfigNode& list) {
    std::vector<std::string> names;
    for (const ConfigNode& item : list.items) names.push_back(item.text);
    return names;
  }

  // Of what the adapter gives: in S-VRT's phase 1 they are the whole loss.
  void AdapterLosses() {
    if (!fuses_) return;
    const auto set = [&](const char* key, const ConfigNode* value) {
      if (value != nullptr && foreign::NumberOf(*value) != 0) Set(fmt::format("recipe.fusion.loss.{}", key), *value);
    };
    if (phase_.number != 1) return set("fused", Find("train.phase2_fusion_aux_loss_weight"));
    Set("recipe.fusion.loss.restored", KairScalar("false"));
    const ConfigNode* weight = Find("train.phase1_fusion_aux_loss_weight");
    if (weight == nullptr) {
      Set("recipe.fusion.loss.fused", KairScalar("1"));
      Derived("train.phase1_fusion_aux_loss_weight", "1", "the file does not have it, and phase 1 trains by this loss");
    } else if (Number("train.phase1_fusion_aux_loss_weight").value_or(0) <= 0) {
      Refuse("train.phase1_fusion_aux_loss_weight",
             "phase 1 trains the adapter alone, by this loss: expected a weight above 0");
    }
    set("fused", weight);
    const ConfigNode* plain = Find("train.fusion_passthrough_loss_weight");
    const ConfigNode* start = Find("train.fusion_warmup.passthrough_weight_start");
    const ConfigNode* end = Find("train.fusion_warmup.passthrough_weight_end");
    set("passthrough", start != nullptr ? start : plain);
    set("passthrough_end", end != nullptr ? end : plain);
    if (start != nullptr || end != nullptr || plain != nullptr)
      Set("recipe.fusion.loss.passthrough_steps", KairNumber(phase_.steps));
    set("update", Find("train.fusion_warmup.update_penalty_weight"));
    if (const auto head = Whole("train.fusion_warmup.head_only_iters"); head && *head > 0)
      Set("recipe.fusion.warmup", KairNumber(*head), "train.fusion_warmup.head_only_iters");
  }

  void Phase() {
    if (True("train.two_run.enable") && True("train.two_run.phase2.G_optimizer_reuse")) {
      Refuse("train.two_run.phase2.G_optimizer_reuse",
             "the second run begins with a fresh optimizer: expected false, as in S-VRT's code");
    }
    if (phase_.number == 0) return;
    if (phase_.steps < 1) {
      Refuse(phase_.steps_key, fmt::format("phase {} needs its steps: found {}", phase_.number, phase_.steps));
    }
    const bool alone = fuses_ && phase_.number == 1;
    if (const int64_t fix = Whole("train.fix_iter").value_or(0); alone && fix > 0 && fix < phase_.steps) {
      Refuse("train.fix_iter",
             fmt::format("phase 1 of two_run trains the adapter alone to its end: expected {}, its total_iter",
                         phase_.steps));
    }
    Derived(fmt::format("phase {}", phase_.number), fmt::format("{} steps", phase_.steps),
            fmt::format("{}{}",
                        phase_.number == 1 ? "from the weights of the file"
                        : phase_.two_run   ? "two_run: from the weights of phase 1, with a fresh optimizer and schedule"
                                           : "optimizer and schedule of phase 1 go on",
                        alone                    ? "; trains the adapter alone, by its own losses"
                        : True("train.use_lora") ? "; trains LoRA, fix_keys and the adapter where there is one"
                                                 : ""));
  }

  void Sizes() {
    const int64_t read = Whole("datasets.train.num_frame").value_or(0), frames = read + (padded_ ? 1 : 0);
    const int64_t scale = Whole("scale").value_or(1);
    const std::vector<int64_t> crops = Each("datasets.train.gt_size");
    if (read < 1 || crops.empty() || scale < 1) return;
    const int64_t target = crops.front() * crops.front(), input = target / (scale * scale);
    const int64_t in = interpolates_ ? (frames + 1) / 2 : frames, out = interpolates_ ? 1 : frames;
    Derived("bytes of a sample", std::to_string(in * (3 + channels_) * input + out * 3 * target),
            interpolates_
                ? fmt::format("{} frames of {} x {} in and 1 out, one byte each", in, crops.front(), crops.front())
                : fmt::format("{} frames of {} x {}, {} channels in and 3 out, one byte each", frames, crops.front(),
                              crops.front(), 3 + channels_));
  }

  const ConfigNode& options_;
  const KairPhase& phase_;
  KairTranslation& made_;
  int64_t channels_ = 0;  // of spikes
  bool fuses_ = false;    // an adapter makes RGB of RGB and spikes
  bool interpolates_ = false;
  double slowed_ = 1;    // the learning rate of fix_keys / that of the others
  bool padded_ = false;  // the last frame of a sample follows once again
};

}  // namespace

void DeriveKair(const ConfigNode& options, const KairPhase& phase, KairTranslation* made) {
  KairDerivation(options, phase, made).Run();
}

}  // namespace lockstep::recipes
