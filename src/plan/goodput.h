// How often to save, and how much of the time is training: Young 1974 ("A first order approximation to the optimum
// checkpoint interval") and Daly 2006 ("A higher order estimate of the optimum checkpoint interval for restart dumps").
// Failures are independent, at a constant rate. Pure, any thread.
#pragma once

namespace lockstep::plan {

struct Reliability {
  double failures_per_node_hour = 1.0 / 8760 * 6;  // six a year and node
  double save = 10;                                // seconds that training stands still for a checkpoint
  double restart = 180;                            // seconds from a failure to the first new step
};

struct Goodput {
  double mean_time = 0;        // seconds between failures of the whole job
  double young = 0, daly = 0;  // seconds of training between checkpoints
  double training = 0;         // share of the time that is training and not lost, with Daly's interval
};

// The share with a given interval, by Daly's complete model.
double TrainingShare(double interval, double save, double restart, double mean_time);
Goodput GoodputOf(int nodes, const Reliability& reliability);

}  // namespace lockstep::plan
