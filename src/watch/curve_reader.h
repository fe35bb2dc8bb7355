// The loss of a whole run from the metric lines of one rank, in bounded time: a small file is read whole, a larger one
// at places spread evenly, then what is appended. In pieces, so that a screen goes on meanwhile. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "record/metrics.h"

namespace lockstep::watch {

class CurveReader {
 public:
  struct Limits {
    size_t whole_up_to = 64u << 20;  // bytes
    size_t places = 1024;            // of a larger file
    size_t place_bytes = 32u << 10;
  };

  explicit CurveReader(std::string path) : CurveReader(std::move(path), Limits()) {}
  CurveReader(std::string path, const Limits& limits) : path_(path), limits_(limits), tail_(std::move(path)) {}

  // One piece of what is new; true when there is more to read now.
  bool Read(const std::function<void(const record::MetricLine&)>& each);
  // Of what was there at first: 0 to 1.
  double part() const { return part_; }

 private:
  void ReadPlace(size_t place, const std::function<void(const record::MetricLine&)>& each) const;

  std::string path_;
  Limits limits_;
  record::MetricFollower tail_;
  bool begun_ = false;
  size_t size_ = 0;   // at first
  size_t place_ = 0;  // the next one
  bool whole_ = true;
  size_t pieces_ = 0;
  double part_ = 0;
};

}  // namespace lockstep::watch
