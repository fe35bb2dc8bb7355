// Expected values: RFC 3720, appendix B.4, and the check value of the CRC catalogue.
#include "track/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::track {
namespace {

TEST(Crc32c, AgreesWithPublishedValues) {
  std::string rising(32, 0);
  for (size_t i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  const std::pair<std::string, uint32_t> cases[] = {
      {"", 0},
      {"123456789", 0xe3069283},
      {std::string(32, '\0'), 0x8a9136aa},
      {std::string(32, '\xff'), 0x62a8ab43},
      {rising, 0x46dd794e},
  };
  for (const auto& [data, crc] : cases) {
    EXPECT_EQ(Crc32c(data), crc) << data.size();
    EXPECT_EQ(Crc32cPortable(data), crc) << data.size();
  }
}

TEST(Crc32c, TheInstructionAndTheTableAgreeOnEveryLengthAndAlignment) {
  std::string data(600, 0);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i * 31 + 7 * i);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; size < 100; ++size) {
      const std::string_view part = std::string_view(data).substr(begin, size);
      ASSERT_EQ(Crc32c(part), Crc32cPortable(part));
    }
  }
}

}  // namespace
}  // namespace lockstep::track
