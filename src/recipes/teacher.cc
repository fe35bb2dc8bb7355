#include "recipes/teacher.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/script.h>

#include <map>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/precision.h"
#include "recipes/frozen_script.h"

namespace lockstep::recipes {
namespace {

// What a dict (a program's answer) says: latents, or mean and deviation as a module's tuple.
c10::IValue FromDict(const c10::IValue& given) {
  if (!given.isGenericDict()) return given;
  std::map<std::string, at::Tensor> tensors = TensorsOf(given);
  if (tensors.contains("latents")) return tensors["latents"];
  TORCH_CHECK(tensors.contains("mean") && tensors.contains("deviation"),
              "it must give 'latents', or 'mean' and 'deviation'");
  return c10::ivalue::Tuple::create(tensors["mean"], tensors["deviation"]);
}

}  // namespace

void Declare(ConfigReader& reader, TeacherConfig* config) {
  reader.Choice("kind", &config->kind, {"none", "torchscript", "program"},
                {.help = "where reference latents come from"});
  reader.When(config->kind != "none", "recipe.teacher.kind is none", [&] {
    reader.Field("path", &config->path,
                 {.required = true, .help = "TorchScript file, or program: frames in, latents out"});
    reader.Field("range", &config->range, {.help = "what the teacher takes for black and for white"});
    if (config->range[0] >= config->range[1]) reader.Fail("range", "black must be below white");
    reader.Choice("layout", &config->layout, {"NTCHW", "NCTHW"}, {.help = "axes of its frames and latents"});
    reader.Enum(
        "precision", &config->precision,
        {{"fp32", engine::Precision::kFp32}, {"bf16", engine::Precision::kBf16}, {"fp16", engine::Precision::kFp16}},
        {.help = "it is converted to this type"});
  });
  reader.When(config->kind == "program", "only for kind: program", [&] {
    reader.Field("arguments", &config->arguments, {.help = "of the program"});
    reader.Field("weights", &config->weights,
                 {.help = "files it reads its weights from: another content, another cache"});
  });
  reader.Section("cache", [&](ConfigReader& r) {
    r.When(config->kind != "none", "recipe.teacher.kind is none", [&] {
      r.Field("root", &config->cache.root, {.help = "folder of a feature cache with its latents; empty: none"});
    });
    r.When(!config->cache.root.empty(), "recipe.teacher.cache.root is empty", [&] {
      r.Choice("policy", &config->cache.policy, {"auto", "read", "require"},
               {.help = "auto: what is faster; read: what is there; require: nothing is encoded live"});
      r.Enum("stored", &config->cache.stored,
             {{"same", cache::Storage::kSame},
              {"bf16", cache::Storage::kBf16},
              {"f8_e4m3", cache::Storage::kF8},
              {"int8", cache::Storage::kInt8}},
             {.help = "type of the values in it"});
      r.Field("max_error", &config->cache.max_error, {.above = 0, .help = "relative, of a build in another type"});
    });
  });
}

Teacher::Teacher(TeacherConfig config, at::Device device, std::unique_ptr<FrozenScript> script)
    : config_(std::move(config)), device_(device), script_(std::move(script)) {}
Teacher::~Teacher() = default;

ScriptFile FileOf(const TeacherConfig& config) {
  return {config.kind, config.path, config.arguments, config.weights, config.precision};
}

Result<std::unique_ptr<Teacher>> Teacher::Load(const TeacherConfig& config, at::Device device) {
  Result<std::unique_ptr<FrozenScript>> script = FrozenScript::Load(FileOf(config), "recipe.teacher.path", device);
  if (!script.ok()) return script.status();
  return std::unique_ptr<Teacher>(new Teacher(config, device, std::move(*script)));
}

Status Teacher::Probe(const models::TaehvConfig& student, int64_t frames, int64_t height, int64_t width,
                      bool must_repeat) {
  // Smooth and not constant, the same everywhere.
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device_);
  const at::Tensor ramp = at::linspace(0, 1, frames * 3 * height * width, options).view({1, frames, 3, height, width});
  const at::Tensor clip = ramp.mul(50).sin().mul(0.4).add(0.5);
  at::Tensor found[2];
  probing_ = true;
  for (int i = 0; i < 2; ++i) {
    torch::manual_seed(static_cast<uint64_t>(i) + 1);
    const TimePoint start = Now();
    Result<at::Tensor> latents = Encode(clip, {7});
    if (!latents.ok()) return latents.status();
    found[i] = *latents;
    static_cast<void>(found[i].sum().item<double>());  // waits for the device
    seconds_per_clip_ = SecondsSince(start);           // of the second: the first makes ready
  }
  probing_ = false;
  const std::vector<int64_t> expected = {1, student.Latents(frames), student.latent, height / student.SpaceDown(),
                                         width / student.SpaceDown()};
  if (found[0].sizes() != at::IntArrayRef(expected)) {
    const bool swapped = found[0].dim() == 5 && found[0].transpose(1, 2).sizes() == at::IntArrayRef(expected);
    return Status(Code::kUsage,
                  fmt::format("{}: one clip of {} frames {}x{} gave latents {} (NTCHW), expected {} for the model {}",
                              config_.path, frames, width, height, ShapeText(found[0].sizes()), ShapeText(expected),
                              student.name),
                  swapped ? "its latents have time and channels the other way round: recipe.teacher.layout"
                          : "choose the model of this teacher's latents (recipe.model), other data.frames, or another "
                            "recipe.teacher.layout");
  }
  if (!at::isfinite(found[0]).all().item<bool>()) {
    return Status(Code::kUsage, fmt::format("{}: its latents of a plain clip are not finite numbers", config_.path),
                  "try recipe.teacher.precision: fp32, and check recipe.teacher.range");
  }
  of_one_clip_.assign(expected.begin() + 1, expected.end());
  if (!at::equal(found[0], found[1])) {
    const std::string what = fmt::format("{}: it draws random numbers of its own", config_.path);
    const std::string hint = "let it give the tuple (mean, standard deviation): they are then sampled here";
    if (must_repeat)
      return Status(Code::kUsage, what + ", which a feature cache and train.reproducible do not allow", hint);
    LogWarn("{}: results depend on the number of ranks; {}", what, hint);
  }
  return Status::Ok();
}

Result<std::vector<at::Tensor>> Teacher::Features(const at::Tensor& frames) {
  const at::NoGradGuard no_grad;
  const bool time_second = config_.layout == "NTCHW";
  try {
    at::Tensor x = frames.mul(config_.range[1] - config_.range[0]).add(config_.range[0]);
    x = x.to(engine::ComputeType(config_.precision));
    if (!time_second) x = x.transpose(1, 2).contiguous();
    const c10::IValue given = FromDict(script_->Forward(x));
    const auto latents = [&](const c10::IValue& value) {
      at::Tensor tensor = value.toTensor().to(at::kFloat);
      TORCH_CHECK(tensor.dim() == 5, "latents of 5 axes are expected, not ", tensor.sizes());
      if (!time_second) tensor = tensor.transpose(1, 2).contiguous();
      // A loss would stretch one clip's latents over all.
      TORCH_CHECK(tensor.size(0) == frames.size(0), "it gave latents of ", tensor.size(0), " clips for ",
                  frames.size(0));
      TORCH_CHECK(of_one_clip_.empty() || tensor.sizes().slice(1) == at::IntArrayRef(of_one_clip_), "it gave latents ",
                  tensor.sizes().slice(1), " (NTCHW) for a clip, and ", of_one_clip_, " before");
      return tensor;
    };
    if (given.isTensor()) {
      TORCH_CHECK(given.toTensor().is_floating_point(), "latents of a floating-point type are expected, not ",
                  given.toTensor().scalar_type());
      sampled_ = false;
      return std::vector<at::Tensor>{latents(given)};
    }
    TORCH_CHECK(given.isTuple() && given.toTupleRef().elements().size() == 2,
                "it must give latents, or the tuple (mean, standard deviation); it gives ", given.tagKind());
    const at::Tensor mean = latents(given.toTupleRef().elements()[0]);
    const at::Tensor deviation = latents(given.toTupleRef().elements()[1]);
    TORCH_CHECK(mean.sizes() == deviation.sizes(), "mean and deviation are of different shapes");
    TORCH_CHECK(!probing_ || deviation.min().item<double>() >= 0,
                "its standard deviation is negative: is it the logarithm of the variance?");
    sampled_ = true;
    return std::vector<at::Tensor>{mean, deviation};
  } catch (const std::exception& error) {
    return Status(
        Code::kUsage,
        fmt::format("{}: the teacher failed on frames {} ({}): {}", config_.path,
                    ShapeText(time_second ? frames.sizes() : frames.transpose(1, 2).sizes()), config_.layout,
                    ScriptError(error)),
        "its forward takes one tensor of frames and gives latents (docs/taehv.md); recipe.teacher.layout says "
        "in which order of axes");
  }
}

at::Tensor Teacher::Sample(const std::vector<at::Tensor>& features, const std::vector<uint64_t>& keys) {
  if (features.size() == 1) return features[0];
  const at::Tensor& mean = features[0];
  std::vector<at::Tensor> noise;
  for (const uint64_t key : keys) {
    noise.push_back(
        at::randn(mean.sizes().slice(1), at::detail::createCPUGenerator(key >> 1), mean.options().device(at::kCPU)));
  }
  at::Tensor together = at::stack(noise);
  if (mean.is_cuda()) together = together.pin_memory();  // or the copy would wait for the device
  return mean + features[1] * together.to(mean.device(), /*non_blocking=*/true);
}

Result<at::Tensor> Teacher::Encode(const at::Tensor& frames, const std::vector<uint64_t>& keys) {
  const at::NoGradGuard no_grad;
  const Result<std::vector<at::Tensor>> features = Features(frames);
  if (!features.ok()) return features.status();
  return Sample(*features, keys);
}

}  // namespace lockstep::recipes
