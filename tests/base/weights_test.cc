#include "base/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/files.h"
#include "base/safetensors.h"
#include "run_python.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string Bytes(const Weights& weights, const TensorInfo& tensor) {
  std::string data(tensor.bytes, '\0');
  const Status status = weights.Read(tensor.name, data.data(), data.size());
  EXPECT_TRUE(status.ok()) << status.message();
  return data;
}

class WeightsTest : public testing::Test {
 protected:
  void Make(const std::string& what) {
    const PythonRun run = RunPython("base/weights_cases.py", what + " '" + dir_.path() + "'");
    ASSERT_EQ(run.code, 0) << run.output;
  }
  std::string Error(const std::string& name) {
    auto weights = OpenWeights(dir_ / name);
    return weights.ok() ? "opened" : weights.status().ToString();
  }

  TempDir dir_ = *TempDir::Create();
};

// The same tensors were written by torch.save and, flat and dense, by Python's safetensors.
TEST_F(WeightsTest, FilesOfTorchSaveGiveTheTensorsThatPythonSees) {
  LOCKSTEP_NEEDS_PYTHON();
  Make("torch");
  int files = 0, compared = 0;
  for (const std::string& name : *ListDir(dir_.path())) {
    if (!name.ends_with(".pt")) continue;
    ++files;
    auto torch = OpenWeights(dir_ / name);
    ASSERT_TRUE(torch.ok()) << torch.status().ToString();
    EXPECT_EQ((*torch)->format(), "torch.save");
    auto expected = OpenWeights(dir_ / (name.substr(0, name.size() - 3) + ".safetensors"));
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    EXPECT_EQ((*expected)->format(), "safetensors");
    EXPECT_EQ((*torch)->tensors().size(), (*expected)->tensors().size()) << name;
    for (const TensorInfo& tensor : (*expected)->tensors()) {
      const TensorInfo* found = (*torch)->Find(tensor.name);
      ASSERT_NE(found, nullptr) << name << " " << tensor.name;
      EXPECT_EQ(found->dtype, tensor.dtype) << name << " " << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape) << name << " " << tensor.name;
      EXPECT_EQ(Bytes(**torch, *found), Bytes(**expected, tensor)) << name << " " << tensor.name;
      ++compared;
    }
  }
  EXPECT_EQ(files, 13);
  EXPECT_GT(compared, 80);
  auto nested = OpenWeights(dir_ / "protocol4.pt");
  const auto& text = (*nested)->metadata();
  EXPECT_EQ(text.at("epoch"), "7");
  EXPECT_EQ(text.at("lr"), "0.0001");
  EXPECT_EQ(text.at("name"), "taehv");
  EXPECT_EQ(text.at("done"), "False");
  EXPECT_EQ(text.at("none"), "None");
  EXPECT_EQ(text.at("long"), "1099511627776");
  EXPECT_EQ(text.at("negative"), "-5");
  EXPECT_EQ(text.at("betas.1"), "0.999");

  EXPECT_THAT(Error("legacy.refused"), HasSubstr("before PyTorch 1.6"));
  EXPECT_THAT(Error("legacy.refused"), HasSubstr("torch.save(torch.load("));
  EXPECT_THAT(Error("whole_model.refused"), HasSubstr("torch.nn.modules.container.Sequential"));
  EXPECT_THAT(Error("script.refused"), HasSubstr("TorchScript"));
  EXPECT_THAT(Error("sparse.refused"), HasSubstr("torch._utils._rebuild_sparse_tensor"));
  EXPECT_THAT(Error("big_endian.refused"), HasSubstr("byte order 'big'"));
  EXPECT_THAT(Error("deflated.refused"), HasSubstr("compressed (zip method 8)"));

  // By content, not by name.
  ASSERT_EQ(::rename((dir_ / "views.pt").c_str(), (dir_ / "views.bin.safetensors").c_str()), 0);
  EXPECT_EQ((*OpenWeights(dir_ / "views.bin.safetensors"))->format(), "torch.save");
}

TEST_F(WeightsTest, HostileFilesAreRefusedByNameAndNothingRuns) {
  LOCKSTEP_NEEDS_PYTHON();
  Make("hostile");
  for (const std::string name :
       {"builtins.eval", "builtins.exec", "builtins.getattr", "__main__.Plain", "datetime.date"}) {
    EXPECT_THAT(Error(name), HasSubstr("'" + name)) << name;
    EXPECT_THAT(Error(name), HasSubstr("nothing of it was executed")) << name;
  }
  EXPECT_THAT(Error("os.system"), HasSubstr("'posix.system'"));
  EXPECT_THAT(Error("inst"), HasSubstr("'posix.system'"));
  EXPECT_THAT(Error("obj"), HasSubstr("'posix.system'"));
  EXPECT_THAT(Error("numpy.scalar"), HasSubstr("'numpy.core.multiarray.scalar'"));
  EXPECT_THAT(Error("set"), HasSubstr("a set"));
  EXPECT_THAT(Error("ext"), HasSubstr("extension code"));
  EXPECT_THAT(Error("build_on_dict"), HasSubstr("an object with state"));
  EXPECT_THAT(Error("call_of_text"), HasSubstr("no function"));

  EXPECT_THAT(Error("past_the_storage"), HasSubstr("tensor 'w' F32 [3, 2] reaches past its storage"));
  EXPECT_THAT(Error("huge_stride"), HasSubstr("reaches past its storage"));
  EXPECT_THAT(Error("huge_shape"), HasSubstr("too large"));
  EXPECT_THAT(Error("overflowing_shape"), HasSubstr("too large"));
  EXPECT_THAT(Error("expanded_to_a_terabyte"), HasSubstr("expanded view"));
  EXPECT_THAT(Error("negative_shape"), HasSubstr("no sizes"));
  EXPECT_THAT(Error("negative_stride"), HasSubstr("no sizes"));
  EXPECT_THAT(Error("rank_differs"), HasSubstr("do not match"));
  EXPECT_THAT(Error("negative_offset"), HasSubstr("offset"));
  EXPECT_THAT(Error("offset_behind"), HasSubstr("reaches past its storage"));
  EXPECT_THAT(Error("storage_too_short"), HasSubstr("'data/0' has 16 bytes"));
  EXPECT_THAT(Error("storage_missing"), HasSubstr("'data/7' is not in the archive"));
  EXPECT_THAT(Error("storage_path"), HasSubstr("not in the archive"));
  EXPECT_THAT(Error("storage_unknown"), HasSubstr("torch.QInt8Storage"));

  for (const char* name : {"deep", "cycle", "billion_laughs"})
    EXPECT_THAT(Error(name), HasSubstr("nested too deeply")) << name;
  EXPECT_THAT(Error("long_text"), HasSubstr("4294967295 bytes wanted"));
  EXPECT_THAT(Error("long_text8"), HasSubstr("18446744073709551615 bytes wanted"));
  EXPECT_THAT(Error("wide_number"), HasSubstr("more than 64 bits"));
  EXPECT_THAT(Error("no_memo"), HasSubstr("never remembered"));
  EXPECT_THAT(Error("key_is_list"), HasSubstr("neither text nor integer"));
  EXPECT_THAT(Error("zip_crc"), HasSubstr("opened"));  // seen when the tensor is read
  auto flipped = OpenWeights(dir_ / "zip_crc");
  float four[4];
  EXPECT_THAT((*flipped)->Read("w", four, 16).message(), HasSubstr("CRC"));
  EXPECT_THAT(Error("zip_overlap"), HasSubstr("in its own header"));
  EXPECT_THAT(Error("zip_encrypted"), HasSubstr("encrypted"));
  EXPECT_THAT(Error("zip_other"), HasSubstr("without data.pkl"));
  EXPECT_THAT(Error("zip_two_pickles"), HasSubstr("two data.pkl"));
  EXPECT_THAT(Error("lfs"), HasSubstr("git lfs pull"));
  EXPECT_THAT(Error("page"), HasSubstr("web page"));
  EXPECT_THAT(Error("bare_pickle"), HasSubstr("bare pickle"));

  for (const char* name : {"good64", "good"}) {
    auto good = OpenWeights(dir_ / name);
    ASSERT_TRUE(good.ok()) << good.status().ToString();
    std::fill(four, four + 4, 0.0f);
    ASSERT_TRUE((*good)->Read("w", four, 16).ok());
    EXPECT_THAT(four, testing::ElementsAre(1, 2, 3, 4));
    EXPECT_FALSE((*good)->Read("w", four, 12).ok());
    EXPECT_FALSE((*good)->Read("v", four, 16).ok());
  }

  int refused = 0;
  for (const std::string& name : *ListDir(dir_.path())) {
    if (name == "good" || name == "good64" || name == "zip_crc") continue;
    EXPECT_NE(Error(name), "opened") << name;
    ++refused;
  }
  EXPECT_GT(refused, 55);
  EXPECT_NE(::access((dir_ / "executed").c_str(), F_OK), 0) << "a file ran code";
}

TEST_F(WeightsTest, ShardsAreReadThroughTheirIndex) {
  const float one = 1, two = 2;
  for (const auto& [file, name, value] : {std::tuple{"model-00001-of-00002.safetensors", "a", &one},
                                          std::tuple{"model-00002-of-00002.safetensors", "b", &two}}) {
    auto writer = SafetensorsWriter::Create(dir_ / file, {{name, Dtype::kF32, {}}});
    ASSERT_TRUE(writer.ok() && writer->Write(name, value, 4).ok() && writer->Finish().ok());
  }
  auto index = [&](const std::string& map) {
    EXPECT_TRUE(
        WriteFileAtomic(dir_ / "model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + map + "}").ok());
  };
  index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  auto weights = OpenWeights(dir_.path());
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  EXPECT_EQ((*weights)->format(), "sharded safetensors");
  float got = 0;
  ASSERT_TRUE((*weights)->Read("b", &got, 4).ok());
  EXPECT_EQ(got, 2);
  index(R"({"a":"model-00002-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  EXPECT_THAT(Error(""), HasSubstr("tensor 'a' is not in"));
  index(R"({"a":"../secret"})");
  EXPECT_THAT(Error(""), HasSubstr("no file of this folder"));
  index(R"({"a":"model-00003-of-00002.safetensors"})");
  EXPECT_THAT(Error(""), HasSubstr("ENOENT"));
  index("[]");
  EXPECT_THAT(Error("model.safetensors.index.json"), HasSubstr("weight_map"));
}

TEST_F(WeightsTest, AFolderWithoutWeightsSaysWhatWasLookedFor) {
  EXPECT_THAT(Error(""), HasSubstr("neither model.safetensors.index.json nor model.safetensors"));
  EXPECT_THAT(Error("none.pt"), HasSubstr("ENOENT"));
}

}  // namespace
}  // namespace lockstep
