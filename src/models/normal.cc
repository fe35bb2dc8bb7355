#include "models/normal.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "base/mix.h"

namespace lockstep::models {
namespace {

uint64_t StreamKey(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return Mix(Mix(seed + kGolden) ^ Mix(hash + 2 * kGolden));
}

template <size_t N>
double Polynomial(const double (&coefficients)[N], double x) {
  double sum = coefficients[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

// The normal distribution's quantile of 0.5 + q, Wichura's algorithm AS 241 (1988): 16 digits, and for 85 % of all
// numbers nothing but one division of polynomials.
double Quantile(double q) {
  static constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                  1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                  3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double kB[] = {1.0,
                                  4.2313330701600911252e+1,
                                  6.8718700749205790830e+2,
                                  5.3941960214247511077e+3,
                                  2.1213794301586595867e+4,
                                  3.9307895800092710610e+4,
                                  2.8729085735721942674e+4,
                                  5.2264952788528545610e+3};
  static constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                  3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                  2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double kD[] = {1.0,
                                  2.05319162663775882187e0,
                                  1.67638483018380384940e0,
                                  6.89767334985100004550e-1,
                                  1.48103976427480074590e-1,
                                  1.51986665636164571966e-2,
                                  5.47593808499534494600e-4,
                                  1.05075007164441684324e-9};
  static constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                  2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                  2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double kF[] = {1.0,
                                  5.99832206555887937690e-1,
                                  1.36929880922735805310e-1,
                                  1.48753612908506148525e-2,
                                  7.86869131145613259100e-4,
                                  1.84631831751005468180e-5,
                                  1.42151175831644588870e-7,
                                  2.04426310338993978564e-15};
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? 0.5 + q : 0.5 - q));
  const double x =
      r <= 5 ? Polynomial(kC, r - 1.6) / Polynomial(kD, r - 1.6) : Polynomial(kE, r - 5) / Polynomial(kF, r - 5);
  return q < 0 ? -x : x;
}

// On all threads of the process: at::parallel_for needs a compiler with OpenMP, and a large model is drawn for minutes
// by one.
template <typename Work>
void OnThreads(int64_t count, const Work& work) {
  constexpr int64_t kGrain = 1 << 16;
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), (count + kGrain - 1) / kGrain);
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back([&work, part, parts, count] { work(count * part / parts, count * (part + 1) / parts); });
  }
  if (parts > 0) work(0, count / parts);
  for (std::thread& thread : threads) thread.join();
}

// Element i is value_of(q), q the middle of one of 2^52 equal parts of (-0.5, 0.5): never the ends, where the quantile
// is infinite.
template <typename ValueOf>
void DrawStream(uint64_t seed, std::string_view name, int64_t begin, const at::Tensor& out, const ValueOf& value_of) {
  TORCH_CHECK(out.scalar_type() == at::kFloat && out.is_contiguous(), "weights are drawn into contiguous float32");
  const at::Tensor here = out.is_cpu() ? out : at::empty(out.sizes(), out.options().device(at::kCPU));
  const uint64_t key = StreamKey(seed, name);
  auto* values = here.data_ptr<float>();
  OnThreads(here.numel(), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const uint64_t bits = Mix(key + kGolden * static_cast<uint64_t>(begin + i + 1));
      values[i] = static_cast<float>(value_of((static_cast<double>(bits >> 12) + 0.5) * 0x1p-52 - 0.5));
    }
  });
  if (!out.is_cpu()) out.copy_(here);
}

}  // namespace

void DrawNormal(uint64_t seed, std::string_view name, int64_t begin, double deviation, const at::Tensor& out) {
  DrawStream(seed, name, begin, out, [&](double q) { return deviation * Quantile(q); });
}

void DrawUniform(uint64_t seed, std::string_view name, int64_t begin, double bound, const at::Tensor& out) {
  DrawStream(seed, name, begin, out, [&](double q) { return 2 * bound * q; });
}

}  // namespace lockstep::models
