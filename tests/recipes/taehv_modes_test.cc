// Twenty steps of every way to train TAEHV with the engine, against PyTorch (tests/golden/seraena.py).
#include "golden/golden.h"
#include "recipes/taehv_bed.h"

namespace lockstep::recipes {
namespace {

// What a discriminator makes of roundings in twenty steps differs from run to run.
constexpr double kAllowed = 2;

class TaehvMode : public testing::TestWithParam<const char*> {
 protected:
  std::string name = GetParam();
  nlohmann::json doc = golden::Json("seraena_modes");
  nlohmann::json mode = doc["cases"][name];
  std::map<std::string, at::Tensor> tensors = golden::Tensors("seraena_modes");

  models::Execution execution = models::Execution::kReference;

  TaehvJob Job() {
    TaehvJob job;
    engine::TrainConfig& train = job.config.train;
    job.config.run.seed = doc["seed"];
    train.steps = mode["loss"].size();
    train.batch = doc["batch"];
    train.optimizer.lr = doc["lr"];
    train.optimizer.beta1 = doc["betas"][0];
    train.optimizer.beta2 = doc["betas"][1];
    train.optimizer.epsilon = doc["epsilon"];
    train.optimizer.weight_decay = doc["weight_decay"];
    job.source = std::make_shared<ClipsInMemory>(tensors["frames"], tensors["latents"]);
    job.set = [this](TaehvSettings& settings) {
      settings.execution = execution;
      settings.start = "grey";
      settings.mode = mode["mode"];
      settings.train = mode["train"];
      settings.teacher.kind = "latents";
      settings.reconstruction = mode["weights"][0];
      settings.encoder = mode["weights"][1];
      settings.adversarial = mode["weights"][2];
      settings.seraena.frames = mode["group"];
      settings.seraena.replay = doc["replay"];
      settings.seraena.optimizer.epsilon = doc["epsilon"];
    };
    return job;
  }
  void Note(const std::string& what, double far, double* largest) {
    if (far > *largest) farthest = what;
    *largest = std::max(*largest, far);
  }
  std::string farthest;
  // Largest distance from PyTorch, in units of what is allowed.
  double Distance(const TaehvOutcome& found) {
    double largest = 0;
    const std::map<std::string, std::string> names = {{"loss", "loss"},
                                                      {"reconstruction", "loss/reconstruction"},
                                                      {"encoder", "loss/encoder"},
                                                      {"adversarial", "loss/adversarial"},
                                                      {"discriminator", "seraena/loss"}};
    for (const auto& [ours, theirs] : names) {
      if (!mode.contains(ours)) {
        EXPECT_FALSE(found.series.contains(theirs)) << theirs;
        continue;
      }
      if (!found.series.contains(theirs)) {
        ADD_FAILURE() << theirs << " is not reported";
        return INFINITY;
      }
      const double far = golden::Distance(at::tensor(found.series.at(theirs), at::kDouble),
                                          at::tensor(mode[ours].get<std::vector<double>>(), at::kDouble)) /
                         golden::Allowed(mode["noise"][ours]);
      Note(theirs, far, &largest);
    }
    for (const auto& [prefix, weights] : {std::pair("model.", &found.model), std::pair("disc.", &found.disc)}) {
      for (const auto& [key, weight] : *weights) {
        if (!weight.is_floating_point()) continue;
        const double far = golden::Distance(golden::Digest(weight), tensors.at(name + "." + prefix + key)) /
                           golden::Allowed(mode["noise"]["end"]);
        Note(prefix + key, far, &largest);
      }
    }
    return largest;
  }
};

TEST_P(TaehvMode, TwentyStepsEndWherePyTorchEnds) {
  const TaehvOutcome outcome = TrainTaehv(1, Job())[0];
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_LT(Distance(outcome), kAllowed) << farthest;
}

// Each suite is one test of ctest, which runs several at once.
class TaehvModeFast : public TaehvMode {};

TEST_P(TaehvModeFast, TrainsAlike) {
  const auto train = [&](models::Execution way) {
    execution = way;
    TaehvJob job = Job();
    job.config.train.steps = 3;
    return TrainTaehv(1, job)[0];
  };
  const TaehvOutcome reference = train(models::Execution::kReference), fast = train(models::Execution::kFast);
  ASSERT_TRUE(fast.status.ok()) << fast.status.ToString();
  EXPECT_LT(Apart(reference.model, fast.model), 5e-3);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TaehvModeFast, testing::Values("joint", "distill_adversarial", "distill_decoder"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(GoldensOfJoint, TaehvMode, testing::Values("joint", "joint_encoder", "joint_adversarial"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(GoldensOfDistill, TaehvMode,
                         testing::Values("distill", "distill_adversarial", "distill_decoder"),
                         [](const auto& info) { return std::string(info.param); });

class TaehvModeControl : public TaehvMode {};

TEST_P(TaehvModeControl, WithoutTheReplayBufferItEndsElsewhere) {
  TaehvJob job = Job();
  job.set = [set = job.set](TaehvSettings& settings) {
    set(settings);
    settings.seraena.replay = 8;  // the pictures of this batch, and no older ones
  };
  EXPECT_GT(Distance(TrainTaehv(1, job)[0]), 10 * kAllowed);
}

TEST_P(TaehvModeControl, WithTheHalvesOfTheBatchExchangedItEndsElsewhere) {
  TaehvJob job = Job();
  job.source = std::make_shared<ClipsInMemory>(tensors["frames"].flip(0), tensors["latents"].flip(0));
  EXPECT_GT(Distance(TrainTaehv(1, job)[0]), 10 * kAllowed);
}

INSTANTIATE_TEST_SUITE_P(Goldens, TaehvModeControl, testing::Values("distill_adversarial"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep::recipes
