#include "cache/arbiter.h"

namespace lockstep::cache {
namespace {

// The newest measurement counts a quarter: storage that slows down is noticed within a few batches.
constexpr double kNewest = 0.25;
// Storage that is slower than the encoder by more than this is only probed. A read then takes longer than the batches
// that are prepared ahead, so a training would wait for it, and sharing the work would gain less than it costs.
constexpr double kTooSlow = 3;
// Time that probing may cost: or a storage that has recovered would never be noticed.
constexpr double kProbing = 0.02;
// While reads overlap without a pause, the storage is measured after so many, or when encoding them had been faster.
constexpr uint64_t kMeasureRecords = 16;
// Reads under way before the first has ended: storage of unknown speed holds up no more than these.
constexpr uint64_t kFirstReads = 2;

void Note(double* cost, uint64_t records, double seconds) {
  if (records == 0 || !(seconds > 0)) return;
  const double one = seconds / static_cast<double>(records);
  // Not all at once when it is fast: limited storage gives the first reads after a pause for nothing.
  *cost = *cost == 0 ? one : (1 - kNewest) * *cost + kNewest * one;
}

// At the best share reading and encoding take equally long: share * read = (1 - share) * encode.
double BestShare(double read, double encode) {
  if (read == 0 || encode == 0 || read <= encode) return 1;
  return read > kTooSlow * encode ? kProbing * encode / read : encode / (read + encode);
}

}  // namespace

void Arbiter::Read(uint64_t records, double seconds) {
  const std::lock_guard<std::mutex> hold(mutex_);
  Note(&read_, records, seconds);
}

void Arbiter::ReadBegins() {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (reading_++ == 0) busy_since_ = Now();
}

void Arbiter::ReadEnds() {
  const std::lock_guard<std::mutex> hold(mutex_);
  const bool last = --reading_ == 0;
  ++since_;
  const double busy = SecondsSince(busy_since_);
  const bool slow = read_ == 0 || busy > static_cast<double>(kMeasureRecords) * encode_;
  if (!last && !slow && since_ < kMeasureRecords) return;
  Note(&read_, since_, busy);
  since_ = 0;
  busy_since_ = Now();
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
  if (read_ == 0 && encode_ != 0 && reading_ >= kFirstReads) return false;
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
