// Negative control: arc4random and the pidfd_open wrapper came with glibc 2.36.
#include <sys/pidfd.h>
#include <unistd.h>

#include <cstdlib>

int main() { return pidfd_open(getpid(), arc4random() & 0) < 0; }
