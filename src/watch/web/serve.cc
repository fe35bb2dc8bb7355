#include "watch/web/serve.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "base/files.h"
#include "base/loop.h"
#include "base/sockets.h"
#include "base/text.h"
#include "watch/web/http_server.h"
#include "watch/web/site.h"

namespace lockstep::watch {
namespace {

constexpr size_t kShortestToken = 16, kLongestToken = 512;

Result<std::string> NewToken() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return Status(Code::kEnvironment, "no random numbers: " + ErrnoText(errno));
  }
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

// What can stand in a cookie and a header as it is.
Status CheckToken(const std::string& token, const std::string& where) {
  const bool plain = token.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~") ==
                     std::string::npos;
  if (token.size() >= kShortestToken && token.size() <= kLongestToken && plain) return Status::Ok();
  return Status(
      Code::kUsage,
      fmt::format("{}: expected a token of {} to {} letters, digits, '-', '.', '_' or '~', found {} characters{}",
                  where, kShortestToken, kLongestToken, token.size(), plain ? "" : " with others among them"),
      "openssl rand -hex 16 makes one");
}

}  // namespace

Result<ServeOptions> ParseHttp(const std::string& text) {
  ServeOptions options;
  if (text.empty()) return options;
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  const bool port_only =
      text.starts_with(':') && text.size() > 1 && text.find_first_not_of("0123456789", 1) == std::string::npos;
  Result<HostPort> parsed = ParseHostPort(digits ? options.host + ":" + text : port_only ? options.host + text : text);
  if (!parsed.ok() || parsed->port > 65535 || parsed->host.empty()) {
    return Status(Code::kUsage, fmt::format("--http: expected ADDRESS:PORT, found '{}'", Printable(text)),
                  "--http 127.0.0.1:7077, --http :0 for any free port, --http 0.0.0.0:7077 for all interfaces");
  }
  options.host = parsed->host;
  if (parsed->port >= 0) options.port = parsed->port;
  return options;
}

Status ChooseToken(const std::string& file, const Environment& env, ServeOptions* options) {
  options->token = ValueOf(env, kTokenVariable);
  std::string where = kTokenVariable;
  if (!file.empty()) {
    struct stat info{};
    if (::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 077) != 0) {
      return Status(Code::kUsage, fmt::format("--token-file: others may read '{}'", Printable(file)),
                    "chmod 600 " + ShellQuote(file));
    }
    Result<std::string> text = ReadFile(file, 4096);
    if (!text.ok()) return text.status().Context("--token-file");
    options->token = Trim(*text);
    where = "--token-file";
    if (options->token.empty()) return CheckToken("", where);
  }
  if (!options->token.empty()) return CheckToken(options->token, where);
  // What a name means here decides, not how it looks.
  const Result<std::vector<Address>> found = Resolve(options->host, options->port);
  if (!found.ok()) return found.status().Context("--http").WithCode(Code::kUsage);
  if (found->front().IsLoopback()) return Status::Ok();
  Result<std::string> made = NewToken();
  if (!made.ok()) return made.status();
  options->token = *made;
  options->show_token = true;
  return Status::Ok();
}

Status Serve(std::vector<std::unique_ptr<Watch>> runs, const ServeOptions& options) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  Loop loop;
  const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  loop.Watch(signals.get(), EPOLLIN, [&](uint32_t) { loop.Quit(); });

  Site site(std::move(runs), {options.token});
  HttpServer server(&loop, [&](const HttpRequest& request) { return site.Answer(request); });
  Result<std::string> address = server.Listen(options.host, options.port);
  if (!address.ok()) return address.status();
  fmt::print("http://{}/{}\n", *address, options.show_token ? "?token=" + options.token : "");
  std::fflush(stdout);

  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  double shown = 1;
  std::function<void()> build = [&] {
    if (!site.Build(Millis(30))) {
      if (shown < 1) fmt::print(stderr, "{}\n", terminal ? "\rreading metric lines: 100%" : "metric lines are read");
      shown = 1;
      return;
    }
    const double part = site.progress();
    if (shown == 1 || part - shown >= 0.01) {
      if (terminal)
        fmt::print(stderr, "\rreading metric lines: {:3.0f}%", 100 * part);
      else if (shown == 1)
        fmt::print(stderr, "reading metric lines\n");
      shown = std::min(part, 0.999);
    }
    loop.After(Millis(0), build);
  };
  std::function<void()> poll = [&] {
    site.Poll(UnixSeconds());
    if (shown == 1) build();
    if (server.listeners() > 0) server.Broadcast("data: " + site.Snapshot() + "\n\n");
    loop.After(site.unread() ? Millis(0) : options.interval, poll);
  };
  poll();
  loop.Run();
  site.Save();
  return Status::Ok();
}

}  // namespace lockstep::watch
