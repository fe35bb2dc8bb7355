// Linked into every program, so that it runs with glibc 2.34: the static libstdc++ refers to symbols that came later,
// and a definition of ours takes their place. Called by nobody but std::random_device. Any thread.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" {

// glibc 2.36
uint32_t arc4random() noexcept {
  uint32_t value = 0;
  // getrandom gives up to 256 bytes in one piece once the kernel's pool is ready; it only fails on a kernel without it.
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) std::abort();
  return value;
}

}  // extern "C"
