#include "cache/encoder_program.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"

namespace lockstep::cache {
namespace {

// Twice the values it is given, in plain Python.
constexpr char kTwice[] = R"(
import json, struct, sys
read, write = sys.stdin.buffer, sys.stdout.buffer
while size := read.read(8):
    data = read.read(struct.unpack("<Q", size)[0])
    n = struct.unpack("<Q", data[:8])[0]
    info = json.loads(data[8:8 + n])["x"]
    values = struct.unpack("<%df" % ((len(data) - 8 - n) // 4), data[8 + n:])
    body = struct.pack("<%df" % len(values), *(2 * v for v in values))
    header = json.dumps({"y": {"dtype": "F32", "shape": info["shape"], "data_offsets": [0, len(body)]}}).encode()
    answer = struct.pack("<Q", len(header)) + header + body
    write.write(struct.pack("<Q", len(answer)) + answer)
    write.flush()
)";

NamedTensor Numbers(const std::vector<float>& values) {
  NamedTensor tensor{"x", Dtype::kF32, {static_cast<int64_t>(values.size())}, {}};
  tensor.data.resize(values.size() * 4);
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

TEST(CacheEncoderProgram, TakesAndGivesTensors) {
  const Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(WriteFileAtomic(*dir / "twice.py", kTwice).ok());
  auto program = EncoderProgram::Start(*dir / "twice.py", {});
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  for (const size_t count : {3u, 100'000u}) {  // more than a pipe holds
    const std::vector<float> values(count, 1.5f);
    const auto given = program->Call({Numbers(values)});
    ASSERT_TRUE(given.ok()) << given.status().ToString();
    ASSERT_EQ(given->size(), 1u);
    EXPECT_EQ((*given)[0].name, "y");
    EXPECT_EQ((*given)[0].shape, std::vector<int64_t>{static_cast<int64_t>(count)});
    float last = 0;
    std::memcpy(&last, (*given)[0].data.data() + (count - 1) * 4, 4);
    EXPECT_EQ(last, 3.0f);
  }
}

TEST(CacheEncoderProgram, SaysWhatIsWrong) {
  const Result<TempDir> dir = TempDir::Create();
  const auto says = [&](const std::string& text) {
    EXPECT_TRUE(WriteFileAtomic(*dir / "p.py", text).ok());
    auto program = EncoderProgram::Start(*dir / "p.py", {});
    return program.ok() ? program->Call({Numbers({1})}).status().message() : program.status().message();
  };
  EXPECT_NE(says("import sys\nsys.stdin.buffer.read(8)\n").find("p.py"), std::string::npos);
  EXPECT_NE(
      says("print('Loading the model, please wait ...', flush=True)\nimport sys\nsys.stdin.read()\n").find("length"),
      std::string::npos);
  EXPECT_FALSE(EncoderProgram::Start(*dir / "none", {}).ok());
}

TEST(CacheEncoderProgram, DigestIsOverProgramArgumentsAndWeights) {
  const Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(WriteFileAtomic(*dir / "p.py", "a").ok() && WriteFileAtomic(*dir / "w", "1").ok());
  const auto digest = [&](const std::vector<std::string>& arguments) {
    return *ProgramDigest(*dir / "p.py", arguments, {*dir / "w"});
  };
  const std::string first = digest({"x"});
  EXPECT_NE(first, digest({"y"}));
  ASSERT_TRUE(WriteFileAtomic(*dir / "w", "2").ok());
  EXPECT_NE(first, digest({"x"}));
  ASSERT_TRUE(WriteFileAtomic(*dir / "w", "1").ok() && WriteFileAtomic(*dir / "p.py", "b").ok());
  EXPECT_NE(first, digest({"x"}));
  EXPECT_FALSE(ProgramDigest(*dir / "p.py", {}, {*dir / "none"}).ok());
}

}  // namespace
}  // namespace lockstep::cache
