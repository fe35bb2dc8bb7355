// lockstep-demo: data-parallel training of a small network on Fisher's Iris data, without LibTorch. Each rank holds
// every world-th flower; gradients are summed over ranks, so N ranks train the same network as one (up to rounding). It
// is an ordinary program: it knows the launcher only by RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and appends metric
// lines to the file LOCKSTEP_METRICS names. --crash-at, --hang and --crash-once make it fail on purpose.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/status.h"
#include "iris.h"
#include "star.h"

namespace lockstep::demo {
namespace {

constexpr int kInputs = 4;
constexpr int kHidden = 8;
constexpr int kClasses = 3;
// One flat vector holds all parameters, so that one Sum reduces all gradients: W1 [hidden x inputs], b1, W2, b2.
constexpr int kB1 = kHidden * kInputs;
constexpr int kW2 = kB1 + kHidden;
constexpr int kB2 = kW2 + kClasses * kHidden;
constexpr int kParameters = kB2 + kClasses;
// Behind the gradients travel two sums: loss and number of right answers.
constexpr int kLoss = kParameters;
constexpr int kRight = kParameters + 1;

struct Options {
  int steps = 200;
  int crash_at = -1;
  int crash_rank = -1;
  int crash_code = 17;
  bool crash_once = false;
  bool hang = false;
  int step_ms = 0;
  int patience_s = 600;
};

// Features with mean 0 and deviation 1, over all flowers: equal on all ranks.
std::vector<Flower> Standardised() {
  std::vector<Flower> flowers(kIris.begin(), kIris.end());
  for (size_t i = 0; i < kInputs; ++i) {
    double sum = 0;
    double squares = 0;
    for (const Flower& flower : kIris) {
      sum += flower.size[i];
      squares += flower.size[i] * flower.size[i];
    }
    const double mean = sum / kIris.size();
    const double deviation = std::sqrt(squares / kIris.size() - mean * mean);
    for (Flower& flower : flowers) flower.size[i] = static_cast<float>((flower.size[i] - mean) / deviation);
  }
  return flowers;
}

std::vector<float> FirstWeights() {
  std::mt19937 random(1936);
  std::vector<float> weights(kParameters, 0.0F);
  // mt19937 is the same everywhere, the standard's distributions are not.
  const auto uniform = [&random] { return static_cast<float>(random()) / 4294967296.0F - 0.5F; };
  for (int i = 0; i < kB1; ++i) weights[static_cast<size_t>(i)] = uniform();
  for (int i = kW2; i < kB2; ++i) weights[static_cast<size_t>(i)] = uniform();
  return weights;
}

// Adds the gradient of the cross entropy for one flower to `sums`, and its loss and answer behind it.
void Accumulate(const std::vector<float>& weights, const Flower& flower, std::vector<float>* sums) {
  const float* w = weights.data();
  float* g = sums->data();
  float hidden[kHidden];
  for (int h = 0; h < kHidden; ++h) {
    float sum = w[kB1 + h];
    for (int i = 0; i < kInputs; ++i) sum += w[h * kInputs + i] * flower.size[static_cast<size_t>(i)];
    hidden[h] = std::tanh(sum);
  }
  float scores[kClasses];
  for (int c = 0; c < kClasses; ++c) {
    scores[c] = w[kB2 + c];
    for (int h = 0; h < kHidden; ++h) scores[c] += w[kW2 + c * kHidden + h] * hidden[h];
  }
  const float* best = std::max_element(scores, scores + kClasses);
  const float highest = *best;
  float total = 0;
  for (float score : scores) total += std::exp(score - highest);

  float hidden_gradient[kHidden] = {};
  for (int c = 0; c < kClasses; ++c) {
    const float gradient = std::exp(scores[c] - highest) / total - (c == flower.species ? 1.0F : 0.0F);
    g[kB2 + c] += gradient;
    for (int h = 0; h < kHidden; ++h) {
      g[kW2 + c * kHidden + h] += gradient * hidden[h];
      hidden_gradient[h] += gradient * w[kW2 + c * kHidden + h];
    }
  }
  for (int h = 0; h < kHidden; ++h) {
    const float gradient = hidden_gradient[h] * (1 - hidden[h] * hidden[h]);
    g[kB1 + h] += gradient;
    for (int i = 0; i < kInputs; ++i) g[h * kInputs + i] += gradient * flower.size[static_cast<size_t>(i)];
  }
  g[kLoss] += std::log(total) + highest - scores[flower.species];
  g[kRight] += best - scores == flower.species ? 1.0F : 0.0F;
}

int IntFromEnv(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void FailOnPurpose(const Options& options, int rank, int step) {
  if (step != options.crash_at || rank != options.crash_rank) return;
  if (options.crash_once && IntFromEnv("TORCHELASTIC_RESTART_COUNT", 0) > 0) return;
  if (options.hang) {
    std::fprintf(stderr, "rank %d: hanging at step %d, as asked\n", rank, step);
    for (;;) pause();
  }
  std::fprintf(stderr, "rank %d: crashing at step %d, as asked\n", rank, step);
  std::_Exit(options.crash_code);
}

Status Train(const Options& given) {
  auto star = Star::Connect(std::chrono::seconds(given.patience_s));
  if (!star.ok()) return star.status();
  Options options = given;
  if (options.crash_rank < 0) options.crash_rank = star->world() - 1;
  if (options.hang && options.crash_at < 0) options.crash_at = options.steps / 2;

  std::ofstream metrics;
  if (const char* path = std::getenv("LOCKSTEP_METRICS"); path != nullptr && *path != '\0') {
    metrics.open(path, std::ios::app);
    if (!metrics) return {Code::kEnvironment, std::string("LOCKSTEP_METRICS: cannot append to ") + path};
  }
  std::printf("rank %d of %d: pid %d, %zu flowers\n", star->rank(), star->world(), getpid(), kIris.size());
  std::fflush(stdout);

  const int attempt = IntFromEnv("LOCKSTEP_ATTEMPT", 0);
  const std::vector<Flower> flowers = Standardised();
  std::vector<float> weights = FirstWeights();
  std::vector<float> velocity(kParameters, 0.0F);
  for (int step = 1; step <= options.steps; ++step) {
    FailOnPurpose(options, star->rank(), step);
    std::vector<float> sums(kParameters + 2, 0.0F);
    for (size_t i = static_cast<size_t>(star->rank()); i < flowers.size(); i += static_cast<size_t>(star->world())) {
      Accumulate(weights, flowers[i], &sums);
    }
    LOCKSTEP_RETURN_IF_ERROR(star->Sum(&sums).Context("step " + std::to_string(step)));
    const float count = static_cast<float>(flowers.size());
    for (size_t i = 0; i < kParameters; ++i) {
      velocity[i] = 0.9F * velocity[i] - 0.1F * sums[i] / count;
      weights[i] += velocity[i];
    }
    const float loss = sums[kLoss] / count;
    const float accuracy = sums[kRight] / count;
    if (metrics.is_open()) {
      nlohmann::json line = {{"t", UnixSeconds()},
                             {"attempt", attempt},
                             {"rank", star->rank()},
                             {"step", step},
                             {"scalars", {{"loss", loss}, {"accuracy", accuracy}}}};
      metrics << line.dump() + "\n" << std::flush;
    }
    if (star->rank() == 0 && (step == 1 || step % 10 == 0 || step == options.steps)) {
      std::printf("step %d/%d loss %.4f accuracy %.3f\n", step, options.steps, loss, accuracy);
      std::fflush(stdout);
    }
    if (options.step_ms > 0) usleep(static_cast<useconds_t>(options.step_ms) * 1000);
  }
  return {};
}

int Main(int argc, char** argv) {
  Options options;
  Arguments args("Data-parallel training of a small network on Fisher's Iris data", "");
  args.Option("--steps", &options.steps, "optimizer steps").Between(1, 1000000).ShowDefault();
  args.Option("--step-ms", &options.step_ms, "pause after each step").Between(0, 60000);
  args.Option("--crash-at", &options.crash_at, "end one rank at this step");
  args.Option("--crash-rank", &options.crash_rank, "which rank fails (default: the last)");
  args.Option("--crash-code", &options.crash_code, "its exit code").Between(0, 255).ShowDefault();
  args.Flag("--crash-once", &options.crash_once, "only before the first restart");
  args.Flag("--hang", &options.hang, "hang instead of crashing (default: half way)");
  args.Option("--patience", &options.patience_s, "seconds to wait for a silent rank").ShowDefault();
  if (const auto code = args.Parse(argc, argv)) return *code;
  const Status status = Train(options);
  if (!status.ok()) std::fprintf(stderr, "lockstep-demo: %s\n", status.ToString().c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace lockstep::demo

int main(int argc, char** argv) { return lockstep::demo::Main(argc, argv); }
