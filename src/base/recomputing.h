// Whether this thread runs part of a model again for backward: then only what that keeps is used, and a function may
// leave out the values it would return. One flag a thread; set by whoever recomputes, read by functions that know how
// to save the work.
#pragma once

namespace lockstep {

class Recomputing {
 public:
  Recomputing() : before_(now_) { now_ = true; }
  ~Recomputing() { now_ = before_; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;
  static bool Now() { return now_; }

 private:
  static inline thread_local bool now_ = false;
  bool before_;
};

}  // namespace lockstep
