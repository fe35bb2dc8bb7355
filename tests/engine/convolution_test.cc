#include "engine/convolution.h"

#include <ATen/Parallel.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep::engine {
namespace {

struct Case {
  int64_t batch, in, out, size, kernel, padding;
  at::ScalarType type = at::kFloat;
  bool bias = true;
};

struct Tensors {
  explicit Tensors(const Case& c)
      : input(at::randn({c.batch, c.in, c.size, c.size}).to(c.type)),
        weight(at::randn({c.out, c.in, c.kernel, c.kernel}).to(c.type)),
        gradient(at::randn_like(at::conv2d(input, weight, {}, 1, c.padding))) {}
  at::Tensor input, weight, gradient;
};

auto Ours(const Case& c, const Tensors& t) {
  return at::convolution_backward(t.gradient, t.input, t.weight, at::OptionalIntArrayRef({c.out}), {1, 1},
                                  {c.padding, c.padding}, {1, 1}, false, {0, 0}, 1, {true, true, c.bias});
}

TEST(Convolution, GradientsAreThoseOfLibTorch) {
  UseSleepingConvolutions();
  UseSleepingConvolutions();
  at::set_num_threads(4);
  for (const Case& c : {Case{8, 3, 16, 12, 3, 1}, Case{7, 16, 5, 9, 1, 0}, Case{2, 4, 4, 8, 3, 1},
                        Case{5, 4, 4, 8, 2, 0, at::kDouble, false}, Case{8, 8, 8, 8, 3, 1, at::kBFloat16}}) {
    const Tensors t(c);
    const auto [input, weight, bias] = Ours(c, t);
    const auto [input0, weight0, bias0] = at::compositeexplicitautograd::convolution_backward(
        t.gradient.to(at::kDouble), t.input.to(at::kDouble), t.weight.to(at::kDouble), at::OptionalIntArrayRef({c.out}),
        {1, 1}, {c.padding, c.padding}, {1, 1}, false, {0, 0}, 1, {true, true, c.bias});
    const double tolerance = c.type == at::kBFloat16 ? 2e-2 : c.type == at::kFloat ? 1e-5 : 1e-12;
    EXPECT_EQ(weight.scalar_type(), c.type);
    EXPECT_TRUE(at::allclose(input.to(at::kDouble), input0, tolerance, tolerance * 10)) << c.batch;
    EXPECT_LT((weight.to(at::kDouble) - weight0).norm().item<double>(), tolerance * weight0.norm().item<double>());
    EXPECT_EQ(bias.defined(), c.bias);
    if (c.bias) {
      EXPECT_LT((bias.to(at::kDouble) - bias0).norm().item<double>(), tolerance * bias0.norm().item<double>());
    }
    EXPECT_TRUE(at::equal(weight, std::get<1>(Ours(c, t)))) << "the same bits again";
  }
}

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) * 1e-6;
}

// Two threads on one CPU: whoever spins while it waits takes the time of the one it waits for.
TEST(Convolution, AThreadThatWaitsTakesNoCpuTime) {
  // OpenMP reads this once, when it is loaded; lockstep-train starts itself anew with it, too.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("OMP_WAIT_POLICY", "passive", 1);
      execl("/proc/self/exe", "engine_test", "--gtest_filter=Convolution.AThreadThatWaitsTakesNoCpuTime", nullptr);
      _exit(127);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return;
  }
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  UseSleepingConvolutions();
  const Case c{24, 16, 16, 32, 3, 1};
  const Tensors t(c);
  const auto measure = [&](int threads) {
    at::set_num_threads(threads);
    (void)Ours(c, t);
    const double before = CpuSeconds();
    for (int i = 0; i < 100; ++i) (void)Ours(c, t);
    return CpuSeconds() - before;
  };
  const double alone = measure(1);
  EXPECT_LT(measure(2), 2 * alone);
}

}  // namespace
}  // namespace lockstep::engine
