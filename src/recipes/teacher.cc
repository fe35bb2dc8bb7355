#include "recipes/teacher.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/checksum.h"
#include "base/files.h"
#include "base/log.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "data/random.h"

namespace lockstep::recipes {
namespace {

constexpr uint64_t kLookAtMost = 10000;  // files that are looked for before the first step

std::string Text(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string FirstLine(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  // TorchScript puts its own stack before the message.
  std::string last;
  for (const std::string& line : Split(text, '\n')) {
    if (!Trim(line).empty()) last = std::string(Trim(line));
    if (line.find("Error:") != std::string::npos) return std::string(Trim(line));
  }
  return last;
}

// Number of each sample among those of its video.
std::vector<uint64_t> NumbersInVideo(const data::Source& source) {
  std::map<std::string, uint64_t> seen;
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < source.size(); ++i) numbers.push_back(seen[source.Origin(i)]++);
  return numbers;
}

}  // namespace

void Declare(ConfigReader& reader, TeacherConfig* config) {
  reader.Choice("kind", &config->kind, {"none", "torchscript", "latents"},
                {.help = "where reference latents come from"});
  const bool script = config->kind == "torchscript";
  reader.When(config->kind != "none", "recipe.teacher.kind is none", [&] {
    reader.Field("path", &config->path,
                 {.required = true, .help = script ? "TorchScript file: frames in, latents out" : "folder of latents"});
  });
  reader.When(script, "only a TorchScript file has it", [&] {
    reader.Field("range", &config->range, {.help = "what the teacher takes for black and for white"});
    if (config->range[0] >= config->range[1]) reader.Fail("range", "black must be below white");
    reader.Choice("layout", &config->layout, {"NTCHW", "NCTHW"}, {.help = "axes of its frames and latents"});
    reader.Enum(
        "precision", &config->precision,
        {{"fp32", engine::Precision::kFp32}, {"bf16", engine::Precision::kBf16}, {"fp16", engine::Precision::kFp16}},
        {.help = "it is converted to this type"});
    reader.Field("write", &config->write, {.help = "folder its latents are kept in, for kind: latents; empty: none"});
  });
}

struct Teacher::Script {
  torch::jit::Module module;
};

Teacher::Teacher(TeacherConfig config, at::Device device)
    : config_(std::move(config)), device_(device), script_(std::make_unique<Script>()) {}
Teacher::~Teacher() = default;

Result<std::unique_ptr<Teacher>> Teacher::Load(const TeacherConfig& config, at::Device device) {
  if (std::error_code error; !std::filesystem::is_regular_file(config.path, error)) {
    return Status(Code::kUsage, fmt::format("recipe.teacher.path: {}: there is no such file", Printable(config.path)),
                  "name a file written by torch.jit.save (docs/taehv.md shows how to make one)");
  }
  std::unique_ptr<Teacher> teacher(new Teacher(config, device));
  try {
    teacher->script_->module = torch::jit::load(config.path, device);
    teacher->script_->module.eval();
    for (const auto& parameter : teacher->script_->module.parameters()) parameter.set_requires_grad(false);
    teacher->script_->module.to(device, engine::ComputeType(config.precision));
  } catch (const std::exception& error) {
    return Status(Code::kUsage,
                  fmt::format("{}: not a TorchScript module that loads: {}", config.path, FirstLine(error)),
                  "write it with torch.jit.save (docs/taehv.md shows how); weights alone are not enough");
  }
  return teacher;
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
    Result<at::Tensor> latents = Encode(clip, {7});
    if (!latents.ok()) return latents.status();
    found[i] = *latents;
  }
  probing_ = false;
  const std::vector<int64_t> expected = {1, student.Latents(frames), student.latent, height / student.SpaceDown(),
                                         width / student.SpaceDown()};
  if (found[0].sizes() != at::IntArrayRef(expected)) {
    const bool swapped = found[0].dim() == 5 && found[0].transpose(1, 2).sizes() == at::IntArrayRef(expected);
    return Status(
        Code::kUsage,
        fmt::format("{}: one clip of {} frames {}x{} gave latents {} (NTCHW), expected {} for the model {}",
                    config_.path, frames, width, height, Text(found[0].sizes()), Text(expected), student.name),
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
    if (must_repeat) return Status(Code::kUsage, what + ", which train.reproducible does not allow", hint);
    LogWarn("{}: results depend on the number of ranks; {}", what, hint);
  }
  return Status::Ok();
}

Result<at::Tensor> Teacher::Encode(const at::Tensor& frames, const std::vector<uint64_t>& keys) {
  const at::NoGradGuard no_grad;
  const engine::AutocastGuard plain(device_.type(), engine::Precision::kFp32);
  const bool time_second = config_.layout == "NTCHW";
  // TorchScript rewrites what it has run a few times; a resumed run would then not have the bits of the first steps.
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  try {
    at::Tensor x = frames.mul(config_.range[1] - config_.range[0]).add(config_.range[0]);
    x = x.to(engine::ComputeType(config_.precision));
    if (!time_second) x = x.transpose(1, 2).contiguous();
    const c10::IValue given = script_->module.forward({x});
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
      return latents(given);
    }
    TORCH_CHECK(given.isTuple() && given.toTupleRef().elements().size() == 2,
                "it must give latents, or the tuple (mean, standard deviation); it gives ", given.tagKind());
    const at::Tensor mean = latents(given.toTupleRef().elements()[0]);
    const at::Tensor deviation = latents(given.toTupleRef().elements()[1]);
    TORCH_CHECK(mean.sizes() == deviation.sizes(), "mean and deviation are of different shapes");
    TORCH_CHECK(!probing_ || deviation.min().item<double>() >= 0,
                "its standard deviation is negative: is it the logarithm of the variance?");
    std::vector<at::Tensor> noise;
    for (const uint64_t key : keys) {
      noise.push_back(
          at::randn(mean.sizes().slice(1), at::detail::createCPUGenerator(key >> 1), mean.options().device(at::kCPU)));
    }
    at::Tensor together = at::stack(noise);
    if (mean.is_cuda()) together = together.pin_memory();  // or the copy would wait for the device
    return mean + deviation * together.to(mean.device(), /*non_blocking=*/true);
  } catch (const std::exception& error) {
    return Status(
        Code::kUsage,
        fmt::format("{}: the teacher failed on frames {} ({}): {}", config_.path,
                    Text(time_second ? frames.sizes() : frames.transpose(1, 2).sizes()), config_.layout,
                    FirstLine(error)),
        "its forward takes one tensor of frames and gives latents (docs/taehv.md); recipe.teacher.layout says "
        "in which order of axes");
  }
}

std::string LatentsPath(const std::string& folder, const std::string& origin, uint64_t number) {
  std::string path = folder;
  for (const std::string& part : Split(origin, '/')) {
    if (part.empty() || part == ".") continue;
    path += "/" + (part == ".." ? std::string("%2e%2e") : part);
  }
  return fmt::format("{}.{}.safetensors", path, number);
}

Status WriteLatents(const std::string& path, const at::Tensor& latents, const at::Tensor& frames) {
  LOCKSTEP_RETURN_IF_ERROR(MakeDirs(std::filesystem::path(path).parent_path().string()));
  const at::Tensor values = latents.detach().to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor bytes = frames.to(at::kCPU).contiguous();
  const std::string_view seen(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, {{"latents", Dtype::kF32, values.sizes().vec()}},
                                                               {{"frames", ChecksumText(seen)}});
  if (!writer.ok()) return writer.status();
  LOCKSTEP_RETURN_IF_ERROR(writer->Write("latents", values.const_data_ptr(), values.nbytes()));
  return writer->Finish();
}

namespace {

class LatentSource final : public data::Source {
 public:
  LatentSource(std::shared_ptr<const data::Source> source, std::string folder, std::vector<int64_t> shape)
      : source_(std::move(source)), folder_(std::move(folder)), fields_(source_->fields()) {
    numbers_ = NumbersInVideo(*source_);
    fields_.push_back({"latents", data::ElementType::kF32, std::move(shape)});
  }
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return source_->size(); }
  std::string Name(uint64_t index) const override { return source_->Name(index); }
  std::string Origin(uint64_t index) const override { return source_->Origin(index); }
  std::string Describe() const override { return source_->Describe() + ", latents in " + folder_; }
  std::string Digest() const override { return source_->Digest(); }

  std::string PathOf(uint64_t index) const { return LatentsPath(folder_, source_->Origin(index), numbers_[index]); }

  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    LOCKSTEP_RETURN_IF_ERROR(source_->Read(draw, out.first(out.size() - 1)));
    const std::string path = PathOf(draw.index);
    const Result<SafetensorsFile> file = SafetensorsFile::Open(path);
    if (!file.ok()) return file.status().Context("latents of " + source_->Name(draw.index));
    const data::Field& field = fields_.back();
    const TensorInfo* info = file->Find("latents");
    if (info == nullptr) return Status(Code::kEnvironment, path + ": it has no tensor named latents");
    const bool half = info->dtype == Dtype::kF16 || info->dtype == Dtype::kBF16;
    if (info->shape != field.shape || (info->dtype != Dtype::kF32 && !half)) {
      return Status(Code::kEnvironment,
                    fmt::format("{}: latents are {}, expected {} (or F16, BF16)", path,
                                DescribeTensor(info->dtype, info->shape), DescribeTensor(Dtype::kF32, field.shape)));
    }
    auto* values = reinterpret_cast<float*>(out.back());
    at::Tensor to = at::from_blob(values, field.shape, at::kFloat);
    if (half) {
      at::Tensor narrow = at::empty(field.shape, info->dtype == Dtype::kF16 ? at::kHalf : at::kBFloat16);
      LOCKSTEP_RETURN_IF_ERROR(file->Read(*info, narrow.data_ptr(), narrow.nbytes()));
      to.copy_(narrow);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(file->Read(*info, values, field.bytes()));
    }
    for (size_t i = 0; i < field.elements(); ++i) {
      if (!std::isfinite(values[i])) {
        return Status(Code::kEnvironment, fmt::format("{}: value {} of the latents is {}", path, i, values[i]));
      }
    }
    const auto made_from = file->metadata().find("frames");
    if (made_from == file->metadata().end()) return Status::Ok();
    const std::string found =
        ChecksumText({reinterpret_cast<const char*>(out[0]), static_cast<size_t>(fields_[0].bytes())});
    if (found == made_from->second) return Status::Ok();
    return Status(Code::kEnvironment,
                  fmt::format("{}: made from other frames ({}) than those of {} ({})", path, made_from->second,
                              source_->Name(draw.index), found),
                  "make the latents with the same data.frames, size, stride and clips_per_video");
  }

 private:
  std::shared_ptr<const data::Source> source_;
  std::string folder_;
  std::vector<uint64_t> numbers_;
  std::vector<data::Field> fields_;
};

}  // namespace

Result<std::shared_ptr<const data::Source>> WithLatents(std::shared_ptr<const data::Source> source,
                                                        const std::string& folder, const std::vector<int64_t>& shape) {
  auto with = std::make_shared<const LatentSource>(std::move(source), folder, shape);
  std::vector<std::string> missing;
  const uint64_t looked = std::min<uint64_t>(with->size(), kLookAtMost);
  for (uint64_t i = 0; i < looked; ++i) {
    if (std::error_code error; !std::filesystem::is_regular_file(with->PathOf(i), error))
      missing.push_back(with->PathOf(i));
  }
  if (!missing.empty()) {
    return Status(Code::kUsage,
                  fmt::format("recipe.teacher.path: {} of {} clips have no latents, the first: {}", missing.size(),
                              looked, missing.front()),
                  "docs/formats/latents.md says how the files are named");
  }
  return std::shared_ptr<const data::Source>(with);
}

LatentsFolder::LatentsFolder(std::string folder, std::shared_ptr<const data::Source> source)
    : folder_(std::move(folder)), source_(std::move(source)), numbers_(NumbersInVideo(*source_)) {
  done_.assign(numbers_.size(), false);
}

Status LatentsFolder::Keep(const std::vector<data::SampleId>& ids, const at::Tensor& latents,
                           const at::Tensor& frames) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t index = ids[i].index;
    if (done_[index]) continue;
    done_[index] = true;
    const std::string path = LatentsPath(folder_, source_->Origin(index), numbers_[index]);
    if (std::error_code error; std::filesystem::is_regular_file(path, error)) continue;
    const auto at = static_cast<int64_t>(i);
    LOCKSTEP_RETURN_IF_ERROR(WriteLatents(path, latents[at], frames[at]).Context("recipe.teacher.write"));
  }
  return Status::Ok();
}

}  // namespace lockstep::recipes
