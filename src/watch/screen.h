// The terminal as a screen of lines, by ncurses: entered when opened, given back as it was when destroyed, also when a
// signal ends the program. One per process, one thread.
//
//   std::string why;
//   if (std::unique_ptr<Screen> screen = Screen::Open(&why)) { screen->Draw(lines); int key =
//   screen->Wait(Millis(500)); }
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "watch/pages.h"
#include "watch/styled.h"

namespace lockstep::watch {

class Screen {
 public:
  // Null where there is no terminal for keys and output, or none that can be drawn on; *why says it.
  static std::unique_ptr<Screen> Open(std::string* why);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  ScreenSize size() const;
  bool utf8() const { return utf8_; }
  void Draw(const StyledLines& lines);
  // The next key (pages.h), or Key::kNone after the time, at a resize and at a signal.
  int Wait(Millis limit);
  // The signal that asks to end (SIGINT, SIGTERM, SIGHUP, SIGQUIT; SIGHUP also where the terminal has gone); 0: none.
  int signal() const;

 private:
  Screen() = default;

  void* terminal_ = nullptr;  // ncurses' SCREEN
  bool utf8_ = false;
  bool colour_ = false;
  bool gone_ = false;
};

}  // namespace lockstep::watch
