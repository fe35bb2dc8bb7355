// Latency and bandwidth of the host communicator, ranks as processes: p50 and p99 of all-reduce by size, staged (the
// data lies in ordinary memory) and in place (in a shared buffer). Every rank rewrites its data before every call,
// outside of the timed part, so that traffic between cores is counted. One JSON line per size.
//
//   comm_bench [ranks [seconds per size [staging KB]]]
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/clock.h"
#include "base/sockets.h"
#include "comm/communicator.h"

namespace lockstep::comm {
namespace {

struct Row {
  double least;
  double p50;
  double p99;
};

Row Measure(Communicator& comm, float* data, size_t count, double seconds) {
  std::vector<double> times;
  const TimePoint start = Now();
  int64_t more = 1;
  while (more != 0) {
    for (int k = 0; k < 20; ++k) {
      for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(k);
      if (!comm.Barrier().ok()) std::exit(1);
      const TimePoint before = Now();
      if (!comm.AllReduceNow(data, count, DType::kF32).ok()) std::exit(1);
      times.push_back(SecondsSince(before));
    }
    more = SecondsSince(start) < seconds ? 1 : 0;
    if (!comm.AllReduceNow(&more, 1, DType::kI64, Op::kMin).ok()) std::exit(1);
  }
  std::sort(times.begin(), times.end());
  return {times[0], times[times.size() / 2], times[times.size() * 99 / 100]};
}

void Rank(int rank, int size, int port, double seconds, size_t staging) {
  Bootstrap me;
  me.rank = rank;
  me.size = size;
  me.master_port = port;
  Options options;
  if (staging > 0) options.staging_bytes = staging;
  auto comm = Communicator::Connect(me, options);
  if (!comm.ok()) {
    fmt::print(stderr, "{}\n", comm.status().ToString());
    std::exit(1);
  }
  for (size_t bytes : {size_t{4} << 10, size_t{200} << 10, size_t{4} << 20, size_t{20} << 20}) {
    std::vector<float> own(bytes / 4);
    auto shared = (*comm)->Allocate(bytes);
    if (!shared.ok()) std::exit(1);
    const Row staged = Measure(**comm, own.data(), own.size(), seconds);
    const Row in_place = Measure(**comm, static_cast<float*>(shared->data()), own.size(), seconds);
    if (rank == 0) {
      fmt::print("{{\"bytes\": {}", bytes);
      for (const auto& [name, row] : {std::pair{"staged", staged}, std::pair{"in_place", in_place}}) {
        fmt::print(", \"{0}_min\": {1:.9f}, \"{0}_p50\": {2:.9f}, \"{0}_p99\": {3:.9f}", name, row.least, row.p50,
                   row.p99);
      }
      fmt::print("}}\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 2;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  const size_t staging = argc > 3 ? static_cast<size_t>(std::atol(argv[3])) << 10 : 0;
  const int port = lockstep::LocalPort(lockstep::Listen(0, true)->get());
  int failed = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (fork() == 0) {
      lockstep::comm::Rank(rank, size, port, seconds, staging);
      std::exit(0);
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    wait(&status);
    failed += status != 0;
  }
  return failed == 0 ? 0 : 1;
}
