// A recipe whose batches weigh what their content says (labelled tokens), not what their shape says.
#include <map>

#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

// Sums of float32 gradients in another order, over 12 steps.
constexpr double kWeightTolerance = 2e-6;

double LabelsOf(const data::SampleId& id) { return static_cast<double>(id.index % 4); }  // some samples have none

// The mean over all labels; ComputeLoss itself knows the shape of the batch alone, as a captured graph does.
class Labelled : public Toy {
 public:
  Loss ComputeLoss(const TensorBatch& batch) override {
    std::vector<float> labels;
    for (const data::SampleId& id : batch.ids) labels.push_back(static_cast<float>(LabelsOf(id)));
    const at::Tensor out = net->second->forward(at::tanh(net->first->forward(batch["x"])));
    const at::Tensor each = (out - batch["y"]).square().mean(1);
    const auto count = static_cast<double>(batch.count());
    return {at::dot(each, at::tensor(labels)) / count, count, {}};
  }
  std::optional<double> Weight(const TensorBatch& batch) override {
    double sum = 0;
    for (const data::SampleId& id : batch.ids) sum += LabelsOf(id);
    return sum;
  }
  std::vector<std::pair<std::string, double>> Derive(
      const std::vector<std::pair<std::string, double>>& means) override {
    return {{"perplexity", std::exp(means.front().second)}};
  }
  std::vector<std::string> Scores() const override { return {"error", "perplexity"}; }
  std::pair<std::string, bool> Best() const override { return {"perplexity", false}; }
};

Job LabelledJob() {
  Job job;
  job.make = [] { return std::make_unique<Labelled>(); };
  return job;
}

TEST(Weight, PassesWithUnequalNumbersOfLabelsEqualOneBatch) {
  const Outcome one = TrainOn(1, LabelledJob())[0];
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  for (const int world : {1, 2, 3}) {
    for (const uint64_t micro : {1, 3}) {
      Job job = LabelledJob();
      job.config.train.micro_batch = micro;
      const Outcome some = TrainOn(world, job)[0];
      ASSERT_TRUE(some.status.ok()) << some.status.ToString();
      EXPECT_LT(Difference(some.weights, one.weights), kWeightTolerance) << world << " ranks, micro-batch " << micro;
      EXPECT_NEAR(some.loss, one.loss, 1e-6);
    }
  }
}

// The mean of all labels of a batch of 8, by the definition.
TEST(Weight, TheLossIsTheMeanOverLabels) {
  Job job = LabelledJob();
  job.config.train.steps = 1;
  double sum = 0, labels = 0;
  const Outcome done = TrainOn(1, job)[0];
  Labelled toy;
  ASSERT_TRUE(toy.Build(job.config, job.config.run.seed).ok());
  auto sampler = data::Sampler::Create(61, {.seed = job.config.run.seed}, 8, job.config.data.last_batch);
  for (const data::SampleId& id : sampler->Take()) {
    float x[4], y[2];
    std::byte* out[] = {reinterpret_cast<std::byte*>(x), reinterpret_cast<std::byte*>(y)};
    ASSERT_TRUE(toy.points->Read({.index = id.index}, out).ok());
    const at::Tensor found =
        toy.net->second->forward(at::tanh(toy.net->first->forward(at::tensor({x[0], x[1], x[2], x[3]}))));
    sum += LabelsOf(id) * at::mse_loss(found, at::tensor({y[0], y[1]})).item<double>();
    labels += LabelsOf(id);
  }
  EXPECT_NEAR(done.loss, sum / labels, 1e-6);
}

TEST(Weight, ValidationIsTheMeanOverLabelsAndScoresFollowFromIt) {
  std::map<uint64_t, double> best;
  for (const uint64_t batch : {1, 2, 7}) {
    Job job = LabelledJob();
    job.config.train.optimizer.lr = 1e-9;
    job.config.train.steps = 1;
    job.config.data.validation.batch = batch;
    job.prepare = [](Toy& toy, int) { toy.held_out = std::make_shared<Points>(7); };
    for (const int world : {1, 2}) {
      const Outcome outcome = TrainOn(world, job)[0];
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      ASSERT_TRUE(outcome.position.best.has_value());
      EXPECT_GT(*outcome.position.best, 1);
      if (best.empty()) best[0] = *outcome.position.best;
      EXPECT_NEAR(*outcome.position.best, best[0], 1e-6) << "validation batch " << batch << ", " << world << " ranks";
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
