// Preloaded into a rank: its messages to other nodes leave late, as over a slow link. SLOW_SENDS="rank:milliseconds:file":
// from the moment on at which the file exists.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int delay_ms = -1;
static char trigger[4096];

static void Setup(void) {
  int rank = -1, ms = 0;
  const char* spec = getenv("SLOW_SENDS");
  const char* own = getenv("RANK");
  delay_ms = 0;
  if (!spec || !own || sscanf(spec, "%d:%d:%4095s", &rank, &ms, trigger) != 3) return;
  if (rank == atoi(own)) delay_ms = ms;
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static ssize_t (*real)(int, const struct msghdr*, int);
  if (!real) real = (ssize_t(*)(int, const struct msghdr*, int))dlsym(RTLD_NEXT, "sendmsg");
  if (delay_ms < 0) Setup();
  struct sockaddr_storage peer;
  socklen_t size = sizeof peer;
  // Only TCP: not the unix sockets of the ranks of one machine.
  if (delay_ms > 0 && getpeername(fd, (struct sockaddr*)&peer, &size) == 0 &&
      (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) && access(trigger, F_OK) == 0) {
    usleep((useconds_t)delay_ms * 1000);
  }
  return real(fd, message, flags);
}
