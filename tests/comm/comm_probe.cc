// A rank as any launcher starts it: identity from the environment, some collectives, then one JSON line with its place,
// the transport and the bytes by transport. Exits 1 with the error on stderr.
//
//   comm_probe [megabytes [rounds]]
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "comm/communicator.h"

int main(int argc, char** argv) {
  using namespace lockstep::comm;
  const auto fail = [](const lockstep::Status& status) {
    fmt::print(stderr, "{}\n", status.ToString());
    return 1;
  };
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 4;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  auto me = BootstrapFromEnvironment();
  if (!me.ok()) return fail(me.status());
  Options options;
  options.timeout = std::chrono::seconds(30);
  auto comm = Communicator::Connect(*me, options);
  if (!comm.ok()) return fail(comm.status());
  options.group = "control";
  auto control = Communicator::Connect(*me, options);
  if (!control.ok()) return fail(control.status());

  const RankIdentity& identity = (*comm)->identity();
  std::vector<float> data(static_cast<size_t>(megabytes * (1 << 18)));
  for (int round = 0; round < rounds; ++round) {
    std::fill(data.begin(), data.end(), static_cast<float>(identity.rank + round));
    if (auto status = (*comm)->AllReduce(data.data(), data.size(), DType::kF32).Wait(); !status.ok())
      return fail(status);
    const float expected = static_cast<float>(identity.size * (identity.size - 1) / 2 + round * identity.size);
    for (float value : data) {
      if (value != expected) return fail(lockstep::Status(lockstep::Code::kInternal, fmt::format("sum {}", value)));
    }
  }
  auto names = (*control)->Gather(fmt::format("rank {}", identity.rank));
  if (!names.ok()) return fail(names.status());
  const Traffic traffic = (*comm)->traffic();
  fmt::print(
      "{{\"rank\": {}, \"size\": {}, \"node\": {}, \"nodes\": {}, \"local_rank\": {}, \"local_size\": {}, "
      "\"transport\": \"{}\", \"shm_bytes\": {}, \"tcp_bytes\": {}, \"gathered\": \"{}\"}}\n",
      identity.rank, identity.size, identity.node, identity.nodes, identity.local_rank, identity.local_size,
      (*comm)->transport(), traffic.shm_bytes, traffic.tcp_bytes, names->back());
  return 0;
}
