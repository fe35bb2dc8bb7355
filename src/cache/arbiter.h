// Read a record or encode it again? Whichever is faster by what was measured, and where reading is the slower one, both
// at once in the proportion that keeps both busy. Any thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace lockstep::cache {

class Arbiter {
 public:
  // Around the reading of a record; reads of several threads may be under way at once.
  void ReadBegins();
  void ReadEnds();
  // `seconds` in which the storage was busy with so many records; of all threads together.
  void Read(uint64_t records, double seconds);
  void Encoded(uint64_t records, double seconds);

  // How many of the next records should be read, 0 to 1. 1 until both costs are known.
  double Share() const;
  // The decision for one record: over many, Share() of them are read.
  bool ReadNext();
  double read_cost() const;  // seconds a record; 0: unknown
  double encode_cost() const;

 private:
  mutable std::mutex mutex_;
  double read_ = 0, encode_ = 0;
  double owed_ = 0;                   // reads that are due
  uint64_t reading_ = 0, since_ = 0;  // reads under way; those that ended since busy_since_
  TimePoint busy_since_;
};

}  // namespace lockstep::cache
