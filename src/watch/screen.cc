#include "watch/screen.h"

#define NCURSES_NOMACROS  // move, clear, timeout and others are names of ours, too
#include <curses.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "base/text.h"
#include "watch/plot.h"

// Of term.h, which makes "lines" and "columns" macros.
extern "C" int setupterm(const char* term, int fd, int* error);

namespace lockstep::watch {
namespace {

constexpr int kEnds[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
volatile sig_atomic_t g_screen_signal = 0;  // written by a signal handler, hence no member

void NoteSignal(int number) { g_screen_signal = number; }

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kEnds) sigaddset(&set, number);
  return set;
}

// Multi-byte characters reach the terminal only in a locale that has them. C.UTF-8 is part of glibc's own data from
// 2.35 on and of Debian before; numbers stay those of the C locale.
bool UseUtf8() {
  if (!TerminalIsUtf8()) return false;
  for (const char* name : {"", "C.UTF-8", "C.utf8", "en_US.UTF-8"}) {
    if (std::setlocale(LC_CTYPE, name) != nullptr && MB_CUR_MAX > 1) return true;
  }
  return false;
}

struct StyleRow {
  Style style;
  short colour;  // -1: none
  attr_t attributes;
};

constexpr StyleRow kStyleRows[] = {{Style::kPlain, -1, A_NORMAL},
                                   {Style::kDim, -1, A_DIM},
                                   {Style::kBold, -1, A_BOLD},
                                   {Style::kTitle, -1, A_REVERSE},
                                   {Style::kHeading, COLOR_BLUE, A_BOLD},
                                   {Style::kGood, COLOR_GREEN, A_NORMAL},
                                   {Style::kWarn, COLOR_YELLOW, A_NORMAL},
                                   {Style::kBad, COLOR_RED, A_BOLD},
                                   {Style::kAccent, COLOR_CYAN, A_NORMAL},
                                   {Style::kChosen, -1, A_REVERSE | A_BOLD}};

int KeyOf(int key) {
  switch (key) {
    case KEY_UP:
      return static_cast<int>(Key::kUp);
    case KEY_DOWN:
      return static_cast<int>(Key::kDown);
    case KEY_LEFT:
      return static_cast<int>(Key::kLeft);
    case KEY_RIGHT:
      return static_cast<int>(Key::kRight);
    case KEY_PPAGE:
      return static_cast<int>(Key::kPageUp);
    case KEY_NPAGE:
      return static_cast<int>(Key::kPageDown);
    case KEY_HOME:
      return static_cast<int>(Key::kHome);
    case KEY_END:
      return static_cast<int>(Key::kEnd);
    case KEY_ENTER:
      return static_cast<int>(Key::kEnter);
    case '\t':
      return static_cast<int>(Key::kTab);
    default:
      return key < 0x100 ? key : static_cast<int>(Key::kNone);
  }
}

}  // namespace

std::unique_ptr<Screen> Screen::Open(std::string* why) {
  const char* term = std::getenv("TERM");
  if (::isatty(STDOUT_FILENO) != 1 || ::isatty(STDIN_FILENO) != 1) {
    *why = "input and output are not both a terminal";
    return nullptr;
  }
  if (term == nullptr || *term == 0) {
    *why = "TERM is not set";
    return nullptr;
  }
  int error = 0;
  if (::setupterm(term, STDOUT_FILENO, &error) != OK) {
    *why = "there is no terminfo entry for TERM=" + Printable(term);
    return nullptr;
  }
  const char* move = ::tigetstr("cup");
  if (move == nullptr || move == reinterpret_cast<char*>(-1)) {
    *why = "TERM=" + Printable(term) + " cannot move its cursor";
    return nullptr;
  }
  std::unique_ptr<Screen> screen(new Screen);
  screen->utf8_ = UseUtf8();
  g_screen_signal = 0;
  screen->terminal_ = ::newterm(term, stdout, stdin);
  if (screen->terminal_ == nullptr) {
    *why = "TERM=" + Printable(term) + " cannot be used";
    return nullptr;
  }
  // Signals arrive only while Wait waits: no draw is cut in two.
  const sigset_t ends = EndSignals();
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  struct sigaction action{};
  action.sa_handler = NoteSignal;
  for (const int number : kEnds) ::sigaction(number, &action, nullptr);
  ::cbreak();
  ::noecho();
  ::nonl();
  ::curs_set(0);
  ::set_escdelay(25);
  ::keypad(::stdscr, TRUE);
  ::nodelay(::stdscr, TRUE);
  screen->colour_ = UseColour(STDOUT_FILENO) && ::has_colors() && ::start_color() == OK;
  if (screen->colour_) {
    ::use_default_colors();
    for (const StyleRow& row : kStyleRows) {
      if (row.colour >= 0) ::init_pair(static_cast<short>(row.colour + 1), row.colour, -1);
    }
  }
  return screen;
}

Screen::~Screen() {
  if (terminal_ == nullptr) return;
  ::endwin();
  ::delscreen(static_cast<SCREEN*>(terminal_));
  for (const int number : kEnds) ::signal(number, SIG_DFL);
  const sigset_t ends = EndSignals();
  ::sigprocmask(SIG_UNBLOCK, &ends, nullptr);
}

ScreenSize Screen::size() const {
  return {static_cast<size_t>(std::max(1, ::getmaxx(::stdscr))), static_cast<size_t>(std::max(1, ::getmaxy(::stdscr)))};
}

int Screen::signal() const { return gone_ ? SIGHUP : g_screen_signal; }

void Screen::Draw(const StyledLines& lines) {
  for (size_t y = 0; y < lines.size(); ++y) {
    ::wmove(::stdscr, static_cast<int>(y), 0);
    for (const Span& span : lines[y].spans()) {
      const StyleRow& row = kStyleRows[static_cast<size_t>(span.style)];
      ::wattrset(::stdscr, static_cast<int>(row.attributes |
                                            (colour_ && row.colour >= 0 ? COLOR_PAIR(row.colour + 1) : attr_t{0})));
      ::waddnstr(::stdscr, span.text.data(), static_cast<int>(span.text.size()));
    }
    ::wattrset(::stdscr, A_NORMAL);
    // A full line has left the cursor at the start of the next one.
    if (lines[y].Width() < size().columns) ::wclrtoeol(::stdscr);
  }
  ::wrefresh(::stdscr);
}

int Screen::Wait(Millis limit) {
  int key = ::wgetch(::stdscr);
  if (key == ERR) {
    sigset_t open;
    ::sigprocmask(SIG_BLOCK, nullptr, &open);
    for (const int number : kEnds) sigdelset(&open, number);
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const timespec time = {.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1000000};
    const int ready = ::ppoll(&input, 1, &time, &open);
    // A terminal that is closed is readable for ever and gives nothing.
    if (ready > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) gone_ = true;
    if (signal() != 0) return static_cast<int>(Key::kNone);
    key = ::wgetch(::stdscr);
    if (key == ERR && ready > 0 && !gone_) {
      // Readable and nothing to read: end of file, unless a resize woke us.
      char none = 0;
      pollfd again{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (::poll(&again, 1, 0) > 0 && ::read(STDIN_FILENO, &none, 0) < 0) gone_ = true;
    }
  }
  if (key == ERR || key == KEY_RESIZE) return static_cast<int>(Key::kNone);
  return KeyOf(key);
}

}  // namespace lockstep::watch
