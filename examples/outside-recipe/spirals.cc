// A classifier of points on two spirals that lie inside each other. The points are the recipe's own data: no files, no
// video, only what the section `data` of the configuration says.
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "data/random.h"
#include "engine/recipe.h"
#include "models/weights.h"

namespace {

using lockstep::Result;
using lockstep::Status;
namespace data = lockstep::data;
namespace engine = lockstep::engine;

// Sample i is a pure function of i, so every rank has the same points without reading or sending anything.
class Points : public data::Source {
 public:
  Points(uint64_t count, double turns, double noise) : count_(count), turns_(turns), noise_(noise) {}
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return count_; }
  std::string Name(uint64_t index) const override { return "point " + std::to_string(index); }
  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    data::Random random(data::Fold(0, draw.index));
    const int64_t spiral = static_cast<int64_t>(draw.index % 2);
    const double radius = std::sqrt(random.Uniform(0.01, 1));
    const double angle = std::numbers::pi * (2 * turns_ * radius + static_cast<double>(spiral));
    const float point[2] = {static_cast<float>(radius * std::cos(angle) + random.Uniform(-noise_, noise_)),
                            static_cast<float>(radius * std::sin(angle) + random.Uniform(-noise_, noise_))};
    std::memcpy(out[0], point, sizeof point);
    std::memcpy(out[1], &spiral, sizeof spiral);
    return Status::Ok();
  }
  std::string Describe() const override { return std::to_string(count_) + " points on two spirals"; }
  std::string Digest() const override {
    return "spirals-" + std::to_string(count_) + "-" + std::to_string(turns_) + "-" + std::to_string(noise_);
  }

 private:
  uint64_t count_;
  double turns_, noise_;
  std::vector<data::Field> fields_ = {{"point", data::ElementType::kF32, {2}}, {"spiral", data::ElementType::kI64, {}}};
};

struct Net : torch::nn::Module {
  explicit Net(int width) {
    in = register_module("in", torch::nn::Linear(2, width));
    mid = register_module("mid", torch::nn::Linear(width, width));
    out = register_module("out", torch::nn::Linear(width, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return out->forward(at::tanh(mid->forward(at::tanh(in->forward(x))))).to(at::kFloat);
  }
  torch::nn::Linear in{nullptr}, mid{nullptr}, out{nullptr};
};

class Spirals : public engine::Recipe {
 public:
  std::string name() const override { return "spirals"; }
  std::string help() const override { return "which of two spirals a point lies on"; }

  void Defaults(engine::Config* config) override {
    config->train.batch = 64;
    config->train.optimizer.lr = 1e-2;
  }
  void Declare(lockstep::ConfigReader& reader) override {
    reader.Field("width", &width_, {.min = 1, .help = "of the hidden layers"});
  }
  void DeclareData(lockstep::ConfigReader& reader, engine::DataConfig* /*data*/) override {
    reader.Field("points", &points_, {.min = 4, .help = "of both spirals"});
    reader.Field("turns", &turns_, {.above = 0, .help = "of each spiral"});
    reader.Field("noise", &noise_, {.min = 0, .help = "largest distance from the spiral; its radius is 1"});
  }
  Result<engine::Sources> Open(const engine::Config& config) override {
    return engine::HoldOut(std::make_shared<Points>(points_, turns_, noise_), config);
  }

  Status Build(const engine::Config& /*config*/, uint64_t seed) override {
    torch::manual_seed(seed);
    net_ = std::make_shared<Net>(width_);
    return Status::Ok();
  }
  torch::nn::Module& model() override { return *net_; }
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override {
    return lockstep::models::LoadWeights(*net_, weights).Context(file);
  }
  nlohmann::json Identity() const override { return {{"width", width_}}; }

  engine::Loss ComputeLoss(const engine::TensorBatch& batch) override {
    return {
        at::cross_entropy_loss(net_->forward(batch["point"]), batch["spiral"]), static_cast<double>(batch.count()), {}};
  }
  std::vector<engine::Score> Validate(const engine::TensorBatch& batch) override {
    const at::Tensor right = net_->forward(batch["point"]).argmax(1).eq(batch["spiral"]);
    return {{"accuracy", right.sum().item<double>()}};
  }
  std::vector<std::string> Scores() const override { return {"accuracy"}; }
  std::pair<std::string, bool> Best() const override { return {"accuracy", true}; }

 private:
  int width_ = 32;
  uint64_t points_ = 4000;
  double turns_ = 1, noise_ = 0.02;
  std::shared_ptr<Net> net_;
};

}  // namespace

std::unique_ptr<engine::Recipe> MakeSpirals() { return std::make_unique<Spirals>(); }
