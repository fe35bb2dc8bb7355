#include "cache/arbiter.h"

namespace lockstep::cache {
namespace {

// The newest measurement counts a quarter: storage that slows down is noticed within a few batches.
constexpr double kNewest = 0.25;
// A few records are always read, or a storage that has recovered would never be noticed.
constexpr double kLeast = 0.02;

void Note(double* cost, uint64_t records, double seconds) {
  if (records == 0 || !(seconds > 0)) return;
  const double one = seconds / static_cast<double>(records);
  *cost = *cost == 0 ? one : (1 - kNewest) * *cost + kNewest * one;
}

// At the best share reading and encoding take equally long: share * read = (1 - share) * encode.
double BestShare(double read, double encode) {
  if (read == 0 || encode == 0 || read <= encode) return 1;
  return encode / (read + encode) < kLeast ? kLeast : encode / (read + encode);
}

}  // namespace

void Arbiter::Read(uint64_t records, double seconds) {
  const std::lock_guard<std::mutex> hold(mutex_);
  Note(&read_, records, seconds);
}

void Arbiter::Encoded(uint64_t records, double seconds) {
  const std::lock_guard<std::mutex> hold(mutex_);
  Note(&encode_, records, seconds);
}

double Arbiter::Share() const {
  const std::lock_guard<std::mutex> hold(mutex_);
  return BestShare(read_, encode_);
}

bool Arbiter::ReadNext() {
  const std::lock_guard<std::mutex> hold(mutex_);
  owed_ += BestShare(read_, encode_);
  if (owed_ < 1) return false;
  owed_ -= 1;
  return true;
}

double Arbiter::read_cost() const {
  const std::lock_guard<std::mutex> hold(mutex_);
  return read_;
}

double Arbiter::encode_cost() const {
  const std::lock_guard<std::mutex> hold(mutex_);
  return encode_;
}

}  // namespace lockstep::cache
