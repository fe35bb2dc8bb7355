#include "engine/square_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::engine {
namespace {

std::vector<float> Numbers(size_t n, int spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> mantissa(-2, 2);
  std::uniform_int_distribution<int> exponent(-spread, spread);
  std::vector<float> numbers(n);
  for (float& number : numbers) number = std::ldexp(mantissa(random), exponent(random));
  return numbers;
}

TEST(SquareSum, IsTheNorm) {
  for (const int spread : {0, 10, 60}) {
    const std::vector<float> numbers = Numbers(10'003, spread, 1);
    long double sum = 0;
    for (const float number : numbers) sum += static_cast<long double>(number) * static_cast<long double>(number);
    SquareSum squares;
    squares.Add(numbers.data(), numbers.size());
    EXPECT_NEAR(squares.Norm() / static_cast<double>(std::sqrt(sum)), 1, 1e-14) << spread;
  }
}

TEST(SquareSum, HasTheSameBitsHoweverBlocksAreDividedAndOrdered) {
  const std::vector<float> numbers = Numbers(16 * 3000, 50, 2);
  SquareSum whole;
  whole.Add(numbers.data(), numbers.size());
  for (const size_t parts : {2, 3, 7, 100}) {
    std::vector<SquareSum> sums(parts);
    for (size_t block = 0; block < 3000; ++block) sums[block * 31 % parts].Add(&numbers[block * 16], 16);
    SquareSum all;
    for (size_t i = parts; i-- > 0;) all.Add(SquareSum::FromWords(sums[i].ToWords()));
    EXPECT_EQ(all.Norm(), whole.Norm()) << parts;
    EXPECT_EQ(all.ToWords(), whole.ToWords()) << parts;
  }
}

TEST(SquareSum, TakesTheSmallestAndTheLargest) {
  const struct {
    float value;
    double norm;
  } rows[] = {{0, 0},
              {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::denorm_min()},
              {std::numeric_limits<float>::max(), std::numeric_limits<float>::max()}};
  for (const auto& row : rows) {
    SquareSum sum;
    sum.Add(&row.value, 1);
    EXPECT_EQ(sum.Norm(), row.norm);
  }
  const std::vector<float> largest(4096, std::numeric_limits<float>::max());
  SquareSum sum;
  for (int i = 0; i < 64; ++i) sum.Add(largest.data(), largest.size());
  EXPECT_DOUBLE_EQ(sum.Norm(), 512.0 * static_cast<double>(std::numeric_limits<float>::max()));
}

TEST(SquareSum, IsNotFiniteWhereANumberIsNot) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> numbers(40, 1.0F);
    numbers[37] = bad;
    SquareSum sum;
    sum.Add(numbers.data(), numbers.size());
    EXPECT_FALSE(std::isfinite(sum.Norm()));
    EXPECT_FALSE(std::isfinite(SquareSum::FromWords(sum.ToWords()).Norm()));
  }
}

}  // namespace
}  // namespace lockstep::engine
