// The weight gradient of a convolution on several CPU threads that sleep while they wait. oneDNN, which LibTorch calls
// for it, synchronises its threads with a spinning barrier: with other work on the cores, a spinning thread takes the
// core of the thread it waits for, and a step takes tens of times as long. Here the batch is cut into one part per
// thread, each part is computed by one thread alone, and the parts are added in a fixed order: the same number of
// threads gives the same bits.
#pragma once

namespace lockstep::engine {

// Once per process, before training: convolutions on the CPU take their weight gradient this way from then on.
void UseSleepingConvolutions();

}  // namespace lockstep::engine
