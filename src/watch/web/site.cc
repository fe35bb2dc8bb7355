#include "watch/web/site.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <strings.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/digits.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "record/reader.h"
#include "watch/web/prometheus.h"

namespace lockstep {
// NOLINTBEGIN(readability-identifier-naming)
extern const unsigned char page_html[], page_css[], page_js[], chart_js[], views_js[];
extern const size_t page_html_size, page_css_size, page_js_size, chart_js_size, views_js_size;
// NOLINTEND(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::watch {
namespace {

using nlohmann::json;

constexpr size_t kMostPyramids = 32;  // open at once, besides those of leading ranks
constexpr size_t kMostLogBytes = 256u << 10, kMostLogLines = 2000, kMostPictures = 500, kMostSetupBytes = 1u << 20;
constexpr size_t kFirstRuns = 4, kFirstCharts = 8, kFirstPoints = 1000;  // whose curves come with the page itself
constexpr char kFirstMark[] = "<!-- first -->";
constexpr char kLoss[] = "loss";

struct Embedded {
  const char* path;
  const char* type;
  const unsigned char* bytes;
  const size_t* size;
};
const Embedded kFiles[] = {
    {"/page.css", "text/css; charset=utf-8", page_css, &page_css_size},
    {"/page.js", "text/javascript; charset=utf-8", page_js, &page_js_size},
    {"/chart.js", "text/javascript; charset=utf-8", chart_js, &chart_js_size},
    {"/views.js", "text/javascript; charset=utf-8", views_js, &views_js_size},
};

HttpResponse Plain(int status, std::string body) { return {.status = status, .body = std::move(body)}; }

HttpResponse JsonAnswer(const json& value) { return {.type = "application/json", .body = ToJsonLine(value)}; }

bool SameSecret(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// Browsers keep one jar for all ports of a host: each server there has its own cookie.
std::string TokenCookie(const HttpRequest& request) {
  const std::string host = request.Header("host");
  const size_t colon = host.rfind(':');
  const std::string_view port =
      colon == std::string::npos ? std::string_view() : std::string_view(host).substr(colon + 1);
  return fmt::format("lockstep_watch_{}", ParseDigits(port).value_or(80));
}

std::optional<double> NumberOf(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != 0 || !std::isfinite(value)) return std::nullopt;
  return value;
}

json Finite(double value) { return std::isfinite(value) ? json(value) : json(); }

json CurveJson(const Curve& curve) {
  json x = json::array(), low = json::array(), high = json::array(), mean = json::array(), bad = json::array();
  for (const CurvePoint& point : curve.points) {
    x.push_back(point.x);
    mean.push_back(Finite(point.mean));
    if (curve.level >= 0) {
      low.push_back(Finite(point.low));
      high.push_back(Finite(point.high));
    }
    if (point.not_finite > 0) bad.push_back(point.x);
  }
  json out = {{"level", curve.level}, {"from", curve.first_x}, {"to", curve.last_x}, {"x", x}, {"mean", mean}};
  if (curve.level >= 0) {
    out["low"] = low;
    out["high"] = high;
  }
  if (!bad.empty()) out["not_finite"] = bad;
  return out;
}

// The charts that the page shows first.
constexpr std::string_view kFirst[] = {
    "loss", "lr", "grad_norm", "time/step", "samples_per_second", "tokens_per_second"};

std::vector<std::string> FirstCharts(std::vector<std::string> names) {
  const auto place = [](const std::string& name) {
    const auto* at = std::find(std::begin(kFirst), std::end(kFirst), name);
    return std::pair(at - std::begin(kFirst), name);
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  if (names.size() > kFirstCharts) names.resize(kFirstCharts);
  return names;
}

const char* PictureType(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kTypes[] = {{".png", "image/png"},
                                                                        {".jpg", "image/jpeg"},
                                                                        {".jpeg", "image/jpeg"},
                                                                        {".gif", "image/gif"},
                                                                        {".webp", "image/webp"}};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return type;
  }
  return nullptr;
}

int LeadingRank(const RunView& view) { return view.ranks.empty() ? 0 : view.ranks.front().rank; }

}  // namespace

Curve CurveOf(const RunView& view) {
  Curve curve;
  for (const SeriesPoint& point : view.curve.points()) {
    curve.points.push_back({.x = static_cast<double>(point.step),
                            .low = point.low,
                            .high = point.high,
                            .mean = point.mean(),
                            .step = point.step,
                            .values = static_cast<uint32_t>(point.count)});
  }
  if (curve.points.empty()) return curve;
  curve.first_x = curve.points.front().x;
  curve.last_x = curve.points.back().x;
  return curve;
}

bool IsLoopbackHost(std::string_view host) {
  if (host.starts_with('[')) return host == "[::1]" || host.starts_with("[::1]:");
  const std::string name(host.substr(0, host.find(':')));
  in_addr address{};
  if (::inet_pton(AF_INET, name.c_str(), &address) == 1) return (ntohl(address.s_addr) >> 24) == 127;
  return name == "localhost";
}

std::vector<std::string> LastLogLines(const std::string& path, size_t lines) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  std::vector<std::string> out;
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return out;
  const off_t begin = std::max<off_t>(0, info.st_size - static_cast<off_t>(kMostLogBytes));
  std::string text(static_cast<size_t>(info.st_size - begin), 0);
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), begin);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (begin > 0) text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return out;
  for (const std::string& raw : Split(text, '\n')) {
    std::string_view line = raw;
    while (line.ends_with('\r')) line.remove_suffix(1);
    if (const size_t drawn = line.rfind('\r'); drawn != std::string_view::npos) line.remove_prefix(drawn + 1);
    std::string clean;
    for (size_t i = 0; i < line.size(); ++i) {
      const unsigned char c = static_cast<unsigned char>(line[i]);
      if (c == 0x1b && i + 1 < line.size() && line[i + 1] == '[') {
        for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~');) ++i;
      } else if (c >= ' ' || c == '\t') {
        clean.push_back(line[i]);
      }
    }
    out.push_back(clean.substr(0, 4000));
  }
  if (out.size() > lines) out.erase(out.begin(), out.end() - static_cast<long>(lines));
  return out;
}

std::vector<std::string> PictureNames(const std::string& run_path) {
  std::vector<std::pair<uint64_t, std::string>> found;
  if (Result<std::vector<std::string>> names = ListDir(run_path + "/pictures"); names.ok()) {
    for (const std::string& name : *names) {
      if (PictureType(name) == nullptr || name.starts_with('.')) continue;
      const size_t digits = name.find_first_of("0123456789");
      found.emplace_back(digits == std::string::npos ? 0 : LeadingDigits<uint64_t>(name.substr(digits)).value_or(0),
                         name);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> out;
  for (auto& [step, name] : found) out.push_back(std::move(name));
  if (out.size() > kMostPictures) out.erase(out.begin(), out.end() - kMostPictures);
  struct stat info{};
  if (::lstat((run_path + "/loss.png").c_str(), &info) == 0 && S_ISREG(info.st_mode)) out.emplace_back("loss.png");
  return out;
}

Site::Site(std::vector<std::unique_ptr<Watch>> runs, Access access) : access_(std::move(access)) {
  for (std::unique_ptr<Watch>& watch : runs) runs_.push_back({std::move(watch), {}, ""});
}

void Site::Poll(double now) {
  now_ = now;
  snapshot_.clear();
  metrics_.clear();
  for (Run& run : runs_) {
    run.watch->Poll(now);
    const RunView& view = run.watch->view();
    if (!view.log) PyramidOf(&run, LeadingRank(view));
  }
}

bool Site::unread() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.watch->view().read < 1; });
}

Pyramid* Site::PyramidOf(Run* run, int rank) {
  if (rank != LeadingRank(run->watch->view())) {
    std::erase(asked_, std::pair(run, rank));
    asked_.emplace_back(run, rank);
  }
  const auto known = run->pyramids.find(rank);
  if (known != run->pyramids.end()) return &known->second;
  if (asked_.size() > kMostPyramids) {  // the one that was asked for longest ago makes room
    const auto [of, last] = asked_.front();
    asked_.erase(asked_.begin());
    if (const auto old = of->pyramids.find(last); old != of->pyramids.end()) {
      (void)old->second.Save();
      of->pyramids.erase(old);
    }
  }
  Result<Pyramid> made = Pyramid::Open(run->watch->view().path, rank);
  if (!made.ok()) {
    run->notice = made.status().message();
    return nullptr;
  }
  return &run->pyramids.emplace(rank, std::move(*made)).first->second;
}

bool Site::DrawsProgressLines(const Run& run) {
  const RunView& view = run.watch->view();
  if (view.curve.points().empty()) return false;
  const auto leading = run.pyramids.find(LeadingRank(view));
  if (view.log || leading == run.pyramids.end()) return true;
  if (leading->second.progress() < 1) return false;
  const std::vector<std::string> names = leading->second.names();
  return std::none_of(names.begin(), names.end(),
                      [](const std::string& name) { return name == kLoss || name == "rank/loss"; });
}

bool Site::Build(Millis limit) {
  const TimePoint until = Now() + limit;
  bool more = false;
  snapshot_.clear();
  for (Run& run : runs_) {
    for (auto& [rank, pyramid] : run.pyramids) {
      const Millis left = std::chrono::duration_cast<Millis>(until - Now());
      more = pyramid.Advance(std::max(left, Millis(0))) || more;
      if (!pyramid.error().ok()) run.notice = pyramid.error().message();
    }
  }
  return more;
}

void Site::Save() {
  for (Run& run : runs_) {
    for (auto& [rank, pyramid] : run.pyramids) {
      if (const Status saved = pyramid.Save(); !saved.ok()) run.notice = saved.message();
    }
  }
}

double Site::progress() const {
  double least = 1;
  for (const Run& run : runs_) {
    for (const auto& [rank, pyramid] : run.pyramids) least = std::min(least, pyramid.progress());
  }
  return least;
}

bool Site::Allowed(const HttpRequest& request) const {
  if (access_.token.empty()) return true;
  const std::string given = request.Header("authorization");
  const bool bearer = ::strncasecmp(given.c_str(), "Bearer ", 7) == 0;
  return (bearer && SameSecret(given.substr(7), access_.token)) ||
         SameSecret(request.Cookie(TokenCookie(request)), access_.token);
}

HttpResponse Site::Answer(const HttpRequest& request) {
  static const std::map<std::string, Route> routes = {
      {"/", &Site::Page},           {"/api/state", &Site::State},       {"/api/chart", &Site::Chart},
      {"/api/log", &Site::Log},     {"/api/pictures", &Site::Pictures}, {"/picture", &Site::Picture},
      {"/api/setup", &Site::Setup}, {"/events", &Site::Events},         {"/metrics", &Site::Metrics}};
  if (access_.token.empty() && !IsLoopbackHost(request.Header("host"))) {
    return Plain(403,
                 "this address answers to localhost only; for another name start with a token (--http ADDRESS:PORT)\n");
  }
  // The address with the token becomes a cookie, so that it does not stay in the browser's history.
  if (request.path == "/" && request.query.contains("token")) {
    if (!SameSecret(request.Query("token"), access_.token)) return Plain(401, "the token is wrong\n");
    HttpResponse moved = Plain(303, "");
    moved.headers["Location"] = "/";
    moved.headers["Set-Cookie"] =
        fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", TokenCookie(request), access_.token);
    return moved;
  }
  if (!Allowed(request)) {
    HttpResponse refused = Plain(401,
                                 "a token is needed: open the address that `lockstep watch` printed, or send "
                                 "\"Authorization: Bearer TOKEN\"\n");
    refused.headers["WWW-Authenticate"] = "Bearer";
    return refused;
  }
  for (const Embedded& file : kFiles) {
    if (request.path != file.path) continue;
    return {.type = file.type, .body = std::string(reinterpret_cast<const char*>(file.bytes), *file.size)};
  }
  const auto route = routes.find(request.path);
  if (route == routes.end()) return Plain(404, "there is no such page\n");
  return (this->*route->second)(request);
}

Site::Run* Site::Named(const HttpRequest& request) {
  const std::optional<int> number = ParseDigits(request.Query("run"));
  return number && static_cast<size_t>(*number) < runs_.size() ? &runs_[static_cast<size_t>(*number)] : nullptr;
}

std::string Site::Snapshot() const {
  if (!snapshot_.empty()) return snapshot_;
  json runs = json::array();
  for (const Run& run : runs_) {
    const RunView& view = run.watch->view();
    json one = view.ToColumns(now_);
    const auto leading = run.pyramids.find(LeadingRank(view));
    std::vector<std::string> series;
    if (leading != run.pyramids.end()) {
      series = leading->second.names();
      one["lines"] = leading->second.lines();
      one["progress"] = leading->second.progress();
    }
    if (DrawsProgressLines(run)) series.emplace_back(kLoss);
    std::sort(series.begin(), series.end());
    one["series"] = std::move(series);
    one["leading_rank"] = LeadingRank(view);
    one["notice"] = run.notice;
    runs.push_back(std::move(one));
  }
  return snapshot_ = ToJsonLine({{"now", now_}, {"runs", std::move(runs)}});
}

// With the state and the first curves inside: charts stand there when the page is loaded.
HttpResponse Site::Page(const HttpRequest&) {
  std::string text(reinterpret_cast<const char*>(page_html), page_html_size);
  json curves = json::array();
  for (size_t i = 0; i < std::min(runs_.size(), kFirstRuns); ++i) {
    json& of_run = curves.emplace_back(json::object());
    const RunView& view = runs_[i].watch->view();
    if (DrawsProgressLines(runs_[i])) of_run[kLoss] = CurveJson(CurveOf(view));
    const auto leading = runs_[i].pyramids.find(LeadingRank(view));
    if (leading == runs_[i].pyramids.end() || leading->second.progress() < 1) continue;
    for (const std::string& name : FirstCharts(leading->second.names())) {
      CurveQuestion question;
      question.points = kFirstPoints;
      if (const auto curve = leading->second.Query(name, question)) of_run[name] = CurveJson(*curve);
    }
  }
  // No text of a run may end the element it stands in.
  std::string first;
  for (const char c :
       fmt::format(R"({{"first":{},"state":{},"curves":{}}})", ToJsonLine(kFirst), Snapshot(), ToJsonLine(curves))) {
    c == '<' ? first += "\\u003c" : first += c;
  }
  if (const size_t mark = text.find(kFirstMark); mark != std::string::npos)
    text.replace(mark, strlen(kFirstMark), first);
  return {.type = "text/html; charset=utf-8", .body = std::move(text)};
}

HttpResponse Site::State(const HttpRequest&) { return {.type = "application/json", .body = Snapshot()}; }

HttpResponse Site::Events(const HttpRequest&) {
  return {.type = "text/event-stream", .body = "retry: 2000\ndata: " + Snapshot() + "\n\n", .events = true};
}

HttpResponse Site::Chart(const HttpRequest& request) {
  Run* run = Named(request);
  if (run == nullptr) return Plain(404, "there is no such run\n");
  const RunView& view = run->watch->view();
  CurveQuestion question;
  question.by_time = request.Query("x") == "time";
  if (const std::optional<double> from = NumberOf(request.Query("from"))) question.from = *from;
  if (const std::optional<double> to = NumberOf(request.Query("to"))) question.to = *to;
  question.points = static_cast<size_t>(std::clamp(NumberOf(request.Query("n")).value_or(1000), 16.0, 10'000.0));
  const bool of_leader = request.Query("rank").empty() || request.Query("rank") == std::to_string(LeadingRank(view));
  if (view.log || (of_leader && request.Query("name") == kLoss && DrawsProgressLines(*run))) {
    return JsonAnswer(CurveJson(question.by_time ? Curve() : CurveOf(view)));
  }
  const int rank = ParseDigits(request.Query("rank")).value_or(LeadingRank(view));
  const bool known =
      std::any_of(view.ranks.begin(), view.ranks.end(), [&](const RankView& r) { return r.rank == rank; });
  Pyramid* pyramid = known || rank == LeadingRank(view) ? PyramidOf(run, rank) : nullptr;
  if (pyramid == nullptr) return Plain(404, "there are no metric lines of this rank\n");
  pyramid->Advance(Millis(20));
  const std::optional<Curve> curve = pyramid->Query(request.Query("name"), question);
  json answer = CurveJson(curve.value_or(Curve()));
  answer["progress"] = pyramid->progress();
  return JsonAnswer(answer);
}

HttpResponse Site::Log(const HttpRequest& request) {
  Run* run = Named(request);
  if (run == nullptr) return Plain(404, "there is no such run\n");
  const RunView& view = run->watch->view();
  const size_t lines =
      static_cast<size_t>(std::clamp(NumberOf(request.Query("lines")).value_or(200), 1.0, 1.0 * kMostLogLines));
  if (view.log) return JsonAnswer({{"files", json::array()}, {"lines", LastLogLines(view.path, lines)}});
  const std::vector<int> attempts = record::LogAttempts(view.path);
  json files = json::array();
  std::string path;
  const int attempt = ParseDigits(request.Query("attempt")).value_or(attempts.empty() ? 0 : attempts.back());
  const int rank = ParseDigits(request.Query("rank")).value_or(0);
  for (const record::LogFile& file : record::LogFiles(view.path, attempt)) {
    files.push_back({{"node", file.node}, {"rank", file.rank}});
    if (file.rank == rank) path = file.path;
  }
  return JsonAnswer({{"attempts", attempts},
                     {"attempt", attempt},
                     {"rank", rank},
                     {"files", files},
                     {"lines", path.empty() ? std::vector<std::string>() : LastLogLines(path, lines)}});
}

HttpResponse Site::Pictures(const HttpRequest& request) {
  Run* run = Named(request);
  if (run == nullptr) return Plain(404, "there is no such run\n");
  return JsonAnswer(run->watch->view().log ? json::array() : json(PictureNames(run->watch->view().path)));
}

HttpResponse Site::Picture(const HttpRequest& request) {
  Run* run = Named(request);
  const std::string name = request.Query("name");
  // Only what the listing has: no path of the client's making is ever opened.
  if (run == nullptr || run->watch->view().log) return Plain(404, "there is no such run\n");
  const std::string& path = run->watch->view().path;
  const std::vector<std::string> names = PictureNames(path);
  if (std::find(names.begin(), names.end(), name) == names.end()) return Plain(404, "there is no such picture\n");
  return {.type = PictureType(name), .file = path + (name == "loss.png" ? "/" : "/pictures/") + name};
}

HttpResponse Site::Setup(const HttpRequest& request) {
  Run* run = Named(request);
  if (run == nullptr) return Plain(404, "there is no such run\n");
  json answer = json::object();
  for (const char* name : {"train.yaml", "config.yaml", "run.json", "report.json"}) {
    Result<std::string> text = ReadFile(run->watch->view().path + "/" + name, kMostSetupBytes);
    if (text.ok()) answer[name] = *text;
  }
  return JsonAnswer(answer);
}

HttpResponse Site::Metrics(const HttpRequest&) {
  if (metrics_.empty()) {
    std::vector<const RunView*> views;
    for (const Run& run : runs_) views.push_back(&run.watch->view());
    metrics_ = PrometheusText(views, now_);
  }
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_};
}

}  // namespace lockstep::watch
