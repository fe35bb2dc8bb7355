// Memory for state that is updated on the host: the size that was asked for, zeroed, taken at once, in huge pages where
// the kernel has them.
#include "engine/host_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

namespace lockstep::engine {
namespace {

TEST(HostMemory, IsZeroedAndTakenAtOnce) {
  const struct {
    int64_t numel;
    HostMemoryOptions options;
  } rows[] = {{0, {}},
              {1, {}},
              {kHostChunk + 3, {}},
              {kHostChunk + 3, {.chunk = 0}},
              {(1 << 20) + 5, {.type = at::kBFloat16, .chunk = 1 << 18}},
              {(1 << 20) + 5, {.pinned = true}}};  // without a GPU: as any other
  for (const auto& row : rows) {
    const at::Tensor memory = HostMemory(row.numel, row.options);
    EXPECT_EQ(memory.numel(), row.numel);
    EXPECT_EQ(memory.scalar_type(), row.options.type);
    EXPECT_EQ(memory.count_nonzero().item<int64_t>(), 0);
    if (row.numel == 0) continue;
    std::vector<unsigned char> pages((memory.nbytes() + 4095) / 4096 + 1);
    ASSERT_EQ(mincore(memory.data_ptr(), memory.nbytes(), pages.data()), 0);
    const auto missing = std::count_if(pages.begin(), pages.end() - 1, [](unsigned char page) { return !(page & 1); });
    EXPECT_EQ(missing, 0) << row.numel;
    memory.fill_(1);
  }
}

TEST(HostMemory, IsGivenBackWithItsLastView) {
  at::Tensor part;
  {
    const at::Tensor memory = HostMemory(1 << 20);
    part = memory.narrow(0, 5, 3);
  }
  part.fill_(2);
  const void* data = part.data_ptr();
  part.reset();
  unsigned char page = 0;
  const auto at = reinterpret_cast<uintptr_t>(data) / 4096 * 4096;
  EXPECT_NE(mincore(reinterpret_cast<void*>(at), 1, &page), 0) << "still mapped";
}

}  // namespace
}  // namespace lockstep::engine
