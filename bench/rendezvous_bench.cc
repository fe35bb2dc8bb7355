// N launchers through one rendezvous on loopback: real sockets, real HMAC introduction, the real coordinator.
// Coordinator and clients are two processes, as they are in life; each client is a connection of its own. Prints one
// JSON object with the time from the first connect to the last go.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "base/json.h"
#include "base/sockets.h"
#include "base/version.h"
#include "launch/coordinator.h"
#include "launch/rendezvous_client.h"

using namespace lockstep;          // NOLINT(google-build-using-namespace): a program of one file
using namespace lockstep::launch;  // NOLINT(google-build-using-namespace)

namespace {

constexpr char kToken[] = "a job token of a sensible length";

Participant Slot(int index, int count) {
  Participant participant;
  participant.index = index;
  participant.count = count;
  participant.nproc = 8;
  participant.host = fmt::format("node-{}", index);
  participant.boot_id = "bench";
  participant.version = ThisBuild().version;
  participant.job = "bench";
  participant.pid = 1000 + index;
  participant.command = {"train.py", "--config", "big.yaml"};
  return participant;
}

int Serve(UniqueFd listener, int count) {
  Loop loop;
  CoordinatorOptions options;
  options.token = kToken;
  options.master_addr = "127.0.0.1";
  options.pick_port = []() -> Result<int> { return 29500; };
  Coordinator coordinator(loop, options, Slot(0, count),
                          {[](const std::string&) {}, [](const std::string&) {}, [](const char*, const Json&) {},
                           [](const RunOutcome&) {}});
  coordinator.Serve(std::move(listener));
  coordinator.Start([](const Json&) {});
  loop.Run();  // until the parent kills it
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int clients = argc > 1 ? std::atoi(argv[1]) : 1024;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  auto listener = Listen(0, /*loopback_only=*/true);
  if (!listener.ok()) {
    fmt::print(stderr, "{}\n", listener.status().ToString());
    return 1;
  }
  const int port = LocalPort(listener->get());
  const pid_t server = fork();
  if (server == 0) _exit(Serve(std::move(*listener), clients + 1));
  listener->reset();

  Loop loop;
  int started = 0;
  std::string trouble;
  std::vector<std::unique_ptr<RendezvousClient>> joining;
  for (int i = 1; i <= clients; ++i) {
    RendezvousClientOptions options;
    options.host = "127.0.0.1";
    options.port = port;
    options.token = kToken;
    joining.push_back(std::make_unique<RendezvousClient>(
        loop, options, Slot(i, clients + 1),
        RendezvousClient::Events{[&](const Json& message) {
                                   if (GetString(message, "type") == "go" && ++started == clients) loop.Quit();
                                 },
                                 [&](const Status& status) {
                                   trouble = status.message();
                                   loop.Quit();
                                 },
                                 [&](const std::string& why) {
                                   trouble = why;
                                   loop.Quit();
                                 },
                                 [](const std::string&) {}, [](const std::string&) {}}));
  }
  const TimePoint start = Now();
  for (auto& client : joining) client->Start();
  loop.After(Millis(60000), [&] { loop.Quit(); });
  loop.Run();
  const double seconds = SecondsSince(start);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  if (started != clients) {
    fmt::print(stderr, "only {} of {} clients started: {}\n", started, clients, trouble);
    return 1;
  }
  fmt::print("{{\"clients\": {}, \"seconds\": {:.4f}}}\n", clients, seconds);
  fflush(stdout);
  _exit(0);
}
