// Where bilinear interpolation reads in a picture: the four pixels around (x, y) and their weights. Pixels outside
// count as zero; so does everything for a point that no pixel is near, NaN included. A plain value.
#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep::models {

template <typename T>
struct BilinearPlace {
  int64_t row[4];  // number of a pixel in its picture; -1: outside
  T weight[4], wx, wy;

  BilinearPlace(T x, T y, int64_t height, int64_t width) {
    const bool near = x > T(-1) && x < T(width) && y > T(-1) && y < T(height);  // also false for NaN
    const T left = near ? std::floor(x) : T(0), top = near ? std::floor(y) : T(0);
    wx = near ? x - left : T(0);
    wy = near ? y - top : T(0);
    const auto x0 = static_cast<int64_t>(left), y0 = static_cast<int64_t>(top);
    for (int k = 0; k < 4; ++k) {
      const int64_t xk = x0 + k % 2, yk = y0 + k / 2;
      row[k] = near && xk >= 0 && xk < width && yk >= 0 && yk < height ? yk * width + xk : -1;
      weight[k] = (k % 2 ? wx : 1 - wx) * (k / 2 ? wy : 1 - wy);
    }
  }
};

}  // namespace lockstep::models
