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
#include "launch/link.h"

using namespace lockstep;          // NOLINT(google-build-using-namespace): a program of one file
using namespace lockstep::launch;  // NOLINT(google-build-using-namespace)

namespace {

constexpr char kToken[] = "a job token of a sensible length";

Member Seat(int index, int count) {
  Member member;
  member.index = index;
  member.count = count;
  member.nproc = 8;
  member.host = fmt::format("node-{}", index);
  member.boot_id = "bench";
  member.version = ThisBuild().version;
  member.job = "bench";
  member.pid = 1000 + index;
  member.command = {"train.py", "--config", "big.yaml"};
  return member;
}

int Serve(UniqueFd listener, int count) {
  Loop loop;
  CoordinatorOptions options;
  options.token = kToken;
  options.master_addr = "127.0.0.1";
  options.pick_port = []() -> Result<int> { return 29500; };
  Coordinator coordinator(
      loop, options, Seat(0, count),
      {[](const std::string&) {}, [](const std::string&) {}, [](const char*, const Json&) {}, [](const Outcome&) {}});
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
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 1; i <= clients; ++i) {
    LinkOptions options;
    options.host = "127.0.0.1";
    options.port = port;
    options.token = kToken;
    links.push_back(std::make_unique<Link>(loop, options, Seat(i, clients + 1),
                                           Link::Events{[&](const Json& message) {
                                                          if (GetString(message, "type") == "go" &&
                                                              ++started == clients)
                                                            loop.Quit();
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
  for (auto& link : links) link->Start();
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
