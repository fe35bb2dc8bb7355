#include "base/loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

struct Pipe {
  UniqueFd read_end, write_end;
  Pipe() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    read_end.reset(fds[0]);
    write_end.reset(fds[1]);
  }
};

TEST(Loop, TimersFireInOrderAndCancelledOnesDoNot) {
  Loop loop;
  std::string order;
  loop.After(Millis(20), [&] {
    order += "b";
    loop.Quit();
  });
  loop.After(Millis(1), [&] { order += "a"; });
  loop.Cancel(loop.After(Millis(5), [&] { order += "x"; }));
  loop.Run();
  EXPECT_EQ(order, "ab");
}

TEST(Loop, ReadableDescriptorsCallTheirOwner) {
  Loop loop;
  Pipe pipe;
  loop.Watch(pipe.read_end.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    loop.Quit();
  });
  ASSERT_EQ(write(pipe.write_end.get(), "x", 1), 1);
  loop.Run();
}

TEST(Loop, ACallbackMayRemoveItselfAndAnother) {
  Loop loop;
  Pipe a;
  Pipe b;
  int calls = 0;
  const auto both = [&](uint32_t) {
    ++calls;
    loop.Unwatch(a.read_end.get());
    loop.Unwatch(b.read_end.get());
  };
  loop.Watch(a.read_end.get(), EPOLLIN, both);
  loop.Watch(b.read_end.get(), EPOLLIN, both);
  ASSERT_EQ(write(a.write_end.get(), "x", 1), 1);
  ASSERT_EQ(write(b.write_end.get(), "x", 1), 1);
  loop.RunOnce(Millis(1000));
  loop.RunOnce(Millis(0));
  EXPECT_EQ(calls, 1);
}

TEST(Loop, AnEventOfAClosedDescriptorDoesNotReachItsSuccessor) {
  Loop loop;
  Pipe a;
  Pipe b;
  UniqueFd successor;
  int wrong = 0;
  const auto replace = [&](Pipe& other) {
    const int number = other.read_end.get();
    loop.Unwatch(number);
    other.read_end.reset();
    successor.reset(dup2(a.write_end.get(), number));  // same number, another file, never readable
    loop.Watch(number, EPOLLIN, [&](uint32_t) { ++wrong; });
  };
  bool done = false;
  loop.Watch(a.read_end.get(), EPOLLIN, [&](uint32_t) {
    if (!std::exchange(done, true)) replace(b);
  });
  loop.Watch(b.read_end.get(), EPOLLIN, [&](uint32_t) {
    if (!std::exchange(done, true)) replace(a);
  });
  ASSERT_EQ(write(a.write_end.get(), "x", 1), 1);
  ASSERT_EQ(write(b.write_end.get(), "x", 1), 1);
  loop.RunOnce(Millis(1000));
  EXPECT_EQ(wrong, 0);
}

TEST(Loop, OtherThreadsPostAndWakeIt) {
  Loop loop;
  std::thread other([&] { loop.Post([&] { loop.Quit(); }); });
  loop.Run();
  other.join();
}

TEST(Loop, APostedCallMayPostAgain) {
  Loop loop;
  int count = 0;
  std::function<void()> again = [&] {
    if (++count == 3) return loop.Quit();
    loop.Post(again);
  };
  loop.Post(again);
  loop.Run();
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace lockstep
