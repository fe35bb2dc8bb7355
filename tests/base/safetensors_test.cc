#include "base/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/files.h"
#include "run_python.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  // A file with this header text and so many data bytes; `length` overrides the header length written.
  std::string Put(const std::string& header, size_t data_bytes, std::optional<uint64_t> length = std::nullopt) {
    const uint64_t said = length.value_or(header.size());
    std::string file(8, '\0');
    std::memcpy(file.data(), &said, 8);
    file += header + std::string(data_bytes, 'd');
    const std::string path = dir_ / "f.safetensors";
    EXPECT_TRUE(WriteFileAtomic(path, file, 0644, Durability::kProcess).ok());
    return path;
  }
  // The error of opening such a file.
  std::string Error(const std::string& header, size_t data_bytes, std::optional<uint64_t> length = std::nullopt) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(Put(header, data_bytes, length));
    return file.ok() ? "opened" : file.status().message();
  }

  TempDir dir_ = *TempDir::Create();
};

TEST_F(SafetensorsTest, WhatIsWrittenInAnyOrderIsReadBack) {
  const std::string path = dir_ / "x.safetensors";
  const std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  const int64_t scalar = -7;
  auto writer = SafetensorsWriter::Create(
      path, {{"m", Dtype::kF32, {2, 3}}, {"s", Dtype::kI64, {}}, {"e", Dtype::kBF16, {0, 5}}}, {{"by", "us"}});
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer->Write("e", nullptr, 0).ok());
  ASSERT_TRUE(writer->Write("m", matrix.data(), 24).ok());
  EXPECT_THAT(writer->Finish().message(), HasSubstr("'s' was never written"));
  ASSERT_TRUE(writer->Write("s", &scalar, 8).ok());
  EXPECT_THAT(*ListDir(dir_.path()), testing::Not(testing::Contains("x.safetensors")));
  ASSERT_TRUE(writer->Finish().ok());

  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().at("by"), "us");
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "s");  // widest first
  EXPECT_EQ(file->data_begin() % 64, 0u);
  std::vector<float> got(6);
  ASSERT_TRUE(file->Read("m", got.data(), 24).ok());
  EXPECT_EQ(got, matrix);
  int64_t number = 0;
  ASSERT_TRUE(file->Read("s", &number, 8).ok());
  EXPECT_EQ(number, scalar);
  EXPECT_THAT(file->Find("m")->shape, ElementsAre(2, 3));
  EXPECT_EQ(file->Find("nope"), nullptr);
  EXPECT_THAT(file->Read("nope", nullptr, 0).message(), HasSubstr("nope"));
  EXPECT_THAT(file->Read("m", got.data(), 20).message(), HasSubstr("F32 [2, 3] with 24 bytes, the buffer has 20"));
}

TEST_F(SafetensorsTest, AWriterThatIsDroppedLeavesNothing) {
  {
    auto writer = SafetensorsWriter::Create(dir_ / "x.safetensors", {{"m", Dtype::kF32, {2}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(ListDir(dir_.path())->size(), 1u);
  }
  EXPECT_TRUE(ListDir(dir_.path())->empty());
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatTheFormatCannotHold) {
  auto error = [&](const std::vector<TensorSpec>& tensors) {
    auto layout = LayoutSafetensors(tensors, {});
    return layout.ok() ? "laid out" : layout.status().message();
  };
  EXPECT_THAT(error({{"a", Dtype::kF32, {1}}, {"a", Dtype::kF32, {1}}}), HasSubstr("'a' is given twice"));
  EXPECT_THAT(error({{"a", Dtype::kF32, {-1}}}), HasSubstr("negative"));
  EXPECT_THAT(error({{"a", Dtype::kF32, {int64_t{1} << 62, 2}}}), HasSubstr("too large"));
  EXPECT_THAT(error({{"a", Dtype::kF4, {3}}}), HasSubstr("whole bytes"));
  EXPECT_THAT(error({{"__metadata__", Dtype::kF32, {1}}}), HasSubstr("__metadata__"));
  EXPECT_THAT(error({{"\xff", Dtype::kF32, {1}}}), HasSubstr("UTF-8"));
  EXPECT_EQ(error({{"a", Dtype::kF4, {4}}}), "laid out");
}

TEST_F(SafetensorsTest, EveryTypeSurvivesItsName) {
  for (int i = 0; i <= static_cast<int>(Dtype::kU64); ++i) {
    const Dtype dtype = static_cast<Dtype>(i);
    EXPECT_EQ(ParseDtype(DtypeName(dtype)), dtype);
  }
  EXPECT_EQ(ParseDtype("F33"), std::nullopt);
  EXPECT_EQ(*TensorBytes(Dtype::kF6E2M3, {4}), 3u);
  EXPECT_EQ(*TensorBytes(Dtype::kBF16, {0, int64_t{1} << 62}), 0u);
}

TEST_F(SafetensorsTest, AcceptsWhatUpstreamAccepts) {
  EXPECT_EQ(Error("{}", 0), "opened");
  EXPECT_EQ(Error("{}        ", 0), "opened");
  EXPECT_EQ(Error(R"({"__metadata__":{"a":"b"}})", 0), "opened");
  EXPECT_EQ(Error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "opened");
  EXPECT_EQ(
      Error(
          R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
          5),
      "opened");
  EXPECT_EQ(
      Error(
          R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
          2),
      "opened");
}

TEST_F(SafetensorsTest, RefusesADamagedHeaderAndSaysWhere) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_THAT(Error(good, 8, ~uint64_t{0}), HasSubstr("header has 18446744073709551615 bytes"));
  EXPECT_THAT(Error(good, 8, ~uint64_t{0} - 7), HasSubstr("header has"));  // 8 + N would wrap to nothing
  EXPECT_THAT(Error(good, 8, good.size() + 9), HasSubstr("header has"));
  EXPECT_THAT(Error(good, 7), HasSubstr("tensor 'a' lies at 0..8 of 7 data bytes"));
  EXPECT_THAT(Error(good, 9), HasSubstr("has 9 data bytes, its tensors 8"));
  EXPECT_THAT(Error(good.substr(0, 20), 8), HasSubstr("no JSON"));
  EXPECT_THAT(Error(" " + good, 8), HasSubstr("does not start with '{'"));
  EXPECT_THAT(Error(good + "x", 8), HasSubstr("no JSON"));
  EXPECT_THAT(Error("", 0), HasSubstr("does not start"));
  EXPECT_THAT(
      Error(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
          8),
      HasSubstr("tensor 'a' is there twice"));
  EXPECT_THAT(
      Error(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      HasSubstr("overlap"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), HasSubstr("hole"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), HasSubstr("8..0"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("needs 12 bytes, but has 8"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
              HasSubstr("too large"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8),
              HasSubstr("number too large"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), HasSubstr("negative"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), HasSubstr("fraction"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), HasSubstr("'F33'"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("lacks"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), HasSubstr("unknown field"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8),
              HasSubstr("list in a wrong place"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("doubled shape"));
  EXPECT_THAT(Error(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), HasSubstr("two numbers"));
  EXPECT_THAT(Error(R"({"a":7})", 8), HasSubstr("wrong place"));
  EXPECT_THAT(Error(R"({"__metadata__":{"a":1}})", 0), HasSubstr("wrong place"));
  EXPECT_THAT(Error(std::string("{\"a\":") + std::string(100'000, '['), 0), HasSubstr("wrong place"));
  EXPECT_THAT(Error(good, 7), HasSubstr("f.safetensors"));
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(SafetensorsFile::Open(dir_ / "none").status().message(), HasSubstr("ENOENT"));
  EXPECT_THAT(SafetensorsFile::Open(dir_.path()).status().message(), HasSubstr("EISDIR"));
  ASSERT_TRUE(WriteFileAtomic(dir_ / "short", "1234567").ok());
  EXPECT_THAT(SafetensorsFile::Open(dir_ / "short").status().message(), HasSubstr("only 7 bytes"));
}

TEST_F(SafetensorsTest, ReadsWhatPythonWrote) {
  LOCKSTEP_NEEDS_PYTHON();
  const PythonRun run = RunPython("base/weights_cases.py", "safetensors '" + dir_.path() + "'");
  ASSERT_EQ(run.code, 0) << run.output;
  auto file = SafetensorsFile::Open(dir_ / "python.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), 5u);
  EXPECT_EQ(file->metadata().at("by"), "python");
  std::vector<float> matrix(12);
  ASSERT_TRUE(file->Read("matrix", matrix.data(), 48).ok());
  for (int i = 0; i < 12; ++i) EXPECT_EQ(matrix[static_cast<size_t>(i)], static_cast<float>(i));
  double scalar = 0;
  ASSERT_TRUE(file->Read("scalar", &scalar, 8).ok());
  EXPECT_EQ(scalar, 2.5);
  EXPECT_THAT(file->Find("empty")->shape, ElementsAre(0, 3));
  EXPECT_EQ(file->Find("flags")->dtype, Dtype::kBool);
  EXPECT_NE(file->Find("näme \"quoted\""), nullptr);
}

TEST_F(SafetensorsTest, PythonReadsWhatWeWrite) {
  LOCKSTEP_NEEDS_PYTHON();
  const std::string path = dir_ / "ours.safetensors";
  const std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  auto writer = SafetensorsWriter::Create(path,
                                          {{"a.weight", Dtype::kBF16, {2, 2}},
                                           {"b", Dtype::kF64, {}},
                                           {"c \"quoted\" ü", Dtype::kU8, {3}},
                                           {"d", Dtype::kF32, {0, 2}}},
                                          {{"format", "pt"}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Write("a.weight", bytes.data(), 8).ok());
  ASSERT_TRUE(writer->Write("b", bytes.data(), 8).ok());
  ASSERT_TRUE(writer->Write("c \"quoted\" ü", bytes.data(), 3).ok());
  ASSERT_TRUE(writer->Write("d", bytes.data(), 0).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const PythonRun run = RunPython("base/weights_cases.py", "check '" + path + "'");
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.output,
            "a.weight torch.bfloat16 [2, 2] 36\n"
            "b torch.float64 [] 36\n"
            "c \"quoted\" ü torch.uint8 [3] 6\n"
            "d torch.float32 [0, 2] 0\n"
            "metadata [('format', 'pt')]\n");
}

}  // namespace
}  // namespace lockstep
