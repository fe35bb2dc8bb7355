#include "watch/screen_loop.h"

#include <algorithm>
#include <optional>

#include "watch/log_lines.h"
#include "watch/pages.h"

namespace lockstep::watch {
namespace {

// The lines of the rank that is chosen; another choice begins anew.
class ChosenLog {
 public:
  void Read(const Watch& watch, int rank) {
    const LogPlace place = watch.LogOf(rank);
    if (!lines_ || place.path != place_.path || place.only != place_.only) {
      place_ = place;
      lines_.reset();
      if (!place.path.empty()) lines_.emplace(place.path, place.only);
    }
    if (lines_) lines_->Read();
  }

  void Show(ScreenInput* input) const {
    input->log_path = place_.path;
    input->log_lines = lines_ ? &lines_->lines() : nullptr;
  }

 private:
  LogPlace place_;
  std::optional<LogLines> lines_;
};

}  // namespace

int ShowRuns(const std::vector<std::unique_ptr<Watch>>& watches, Millis interval, Screen* screen) {
  ScreenState state;
  state.page = watches.size() > 1 ? Page::kRuns : Page::kOverview;
  ScreenInput input;
  input.utf8 = screen->utf8();
  for (const std::unique_ptr<Watch>& watch : watches) input.views.push_back(&watch->view());
  ChosenLog log;
  for (TimePoint next = Now(); !state.quit;) {
    // A run that has ended does not change; one look an interval remains, for a launch under the same name.
    bool unread = false;
    if (!state.paused && Now() >= next) {
      input.now = UnixSeconds();
      for (const std::unique_ptr<Watch>& watch : watches) watch->Poll(input.now);
      unread = std::any_of(watches.begin(), watches.end(), [](const auto& watch) { return watch->view().read < 1; });
      next = Now() + (unread ? Millis(0) : interval);
    }
    const size_t run = std::min(state.run, watches.size() - 1);
    if (!state.paused || state.page == Page::kLog) log.Read(*watches[run], state.rank);
    log.Show(&input);
    screen->Draw(ComposeScreen(input, screen->size(), &state));
    const Millis left = std::chrono::duration_cast<Millis>(next - Now()) + Millis(1);
    const int key = screen->Wait(state.paused ? Millis(3600'000) : std::clamp(left, Millis(1), Millis(3600'000)));
    if (screen->signal() != 0) return screen->signal();
    if (key == 'r') next = Now();
    if (key != static_cast<int>(Key::kNone)) PressKey(key, input, screen->size(), &state);
  }
  return 0;
}

}  // namespace lockstep::watch
