// Negative control: arc4random and the pidfd_open wrapper came with glibc 2.36.
#include <unistd.h>

#include <cstdlib>

extern "C" int pidfd_open(pid_t pid, unsigned flags);  // glibc 2.36's own header forgets extern "C"

int main() { return pidfd_open(getpid(), arc4random() & 0) < 0; }
