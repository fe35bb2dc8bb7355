// The page of one or more runs as a function of requests: what exists under which address, and who may see it. Polls
// the runs and builds their pyramids when told to. No socket in here. One thread.
//
//   Site site(std::move(runs), {.token = token});
//   site.Poll(UnixSeconds());
//   HttpResponse page = site.Answer(request);
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "watch/model.h"
#include "watch/web/http.h"
#include "watch/web/pyramid.h"

namespace lockstep::watch {

struct Access {
  std::string token;  // empty: none is asked for, and requests must name a loopback host
};

class Site {
 public:
  Site(std::vector<std::unique_ptr<Watch>> runs, Access access);

  void Poll(double now);
  // Whether what was there at first is still being read: the next Poll has work to do now.
  bool unread() const;
  // Reads metric lines into pyramids for about so long; true when there is more to do.
  bool Build(Millis limit);
  // Keeps what was built; before the end.
  void Save();
  // Of everything that is being built, 0 to 1.
  double progress() const;

  HttpResponse Answer(const HttpRequest& request);
  // All runs at this moment, as the page takes it.
  std::string Snapshot() const;
  size_t runs() const { return runs_.size(); }
  const RunView& view(size_t run) const { return runs_[run].watch->view(); }

 private:
  struct Run {
    std::unique_ptr<Watch> watch;
    std::map<int, Pyramid> pyramids;  // by rank
    std::string notice;               // why there are no charts
  };
  using Route = HttpResponse (Site::*)(const HttpRequest&);

  bool Allowed(const HttpRequest& request) const;
  Run* Named(const HttpRequest& request);
  Pyramid* PyramidOf(Run* run, int rank);
  // Whether its loss is known from progress lines alone: of a log, and of a run without a loss in its metric lines.
  static bool DrawsProgressLines(const Run& run);

  HttpResponse Page(const HttpRequest& request);
  HttpResponse State(const HttpRequest& request);
  HttpResponse Events(const HttpRequest& request);
  HttpResponse Chart(const HttpRequest& request);
  HttpResponse Log(const HttpRequest& request);
  HttpResponse Pictures(const HttpRequest& request);
  HttpResponse Picture(const HttpRequest& request);
  HttpResponse Setup(const HttpRequest& request);
  HttpResponse Metrics(const HttpRequest& request);

  std::vector<Run> runs_;
  std::vector<std::pair<Run*, int>> asked_;  // pyramids of other ranks than the leading one, the last asked for last
  Access access_;
  double now_ = 0;
  mutable std::string snapshot_;  // until something is read again; empty: not made yet
  std::string metrics_;           // likewise: of a thousand ranks it takes 25 ms, and many may ask
};

// The loss as the watch keeps it, of a log or of a run that writes no metric lines.
Curve CurveOf(const RunView& view);

// Whether a Host header names this machine's loopback: another name may be a foreign page's, bound to 127.0.0.1.
bool IsLoopbackHost(std::string_view host);

// The last lines of a log as a reader wants them: without escape sequences, of a bar that was drawn over the last
// state.
std::vector<std::string> LastLogLines(const std::string& path, size_t lines);

// Names below pictures/ of a run and its loss.png, in the order of their steps.
std::vector<std::string> PictureNames(const std::string& run_path);

}  // namespace lockstep::watch
