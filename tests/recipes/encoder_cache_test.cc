#include "recipes/encoder_cache.h"

#include <gtest/gtest.h>
#include <torch/script.h>

#include "base/files.h"
#include "cache/reader.h"
#include "cache/upkeep.h"
#include "recipes/feature_build.h"

namespace lockstep::recipes {
namespace {

using cache::Context;

void WriteEncoder(const std::string& path, const std::string& result) {
  torch::jit::Module module("Encoder");
  module.define("def forward(self, x):\n    return " + result + "\n");
  module.save(path);
}

struct EncoderCache : testing::Test {
  Result<TempDir> folder = TempDir::Create();
  EncoderCacheConfig config;

  void SetUp() override {
    at::set_num_threads(1);
    config.encoder.file.path = folder->path() + "/encoder.pt";
    config.root = folder->path() + "/cache";
    config.clips = {.frames = 4, .height = 16, .width = 24, .clips = 6};
    config.batch = 1;
    config.threads = 0;
  }

  // Builds, then compares every record with what the encoder gives now. The number of records.
  uint64_t BuildAndCompare() {
    const Status built = BuildEncoderCache(config, at::kCPU, {});
    EXPECT_TRUE(built.ok()) << built.ToString();
    const auto ids = cache::Namespaces(config.root);
    if (!built.ok() || ids->size() != 1) return 0;
    const auto there = cache::Folder::Open(config.root + "/" + ids->front());
    const auto reader = cache::Reader::Open(*there);
    const auto source = data::OpenSource(config.clips);
    std::vector<int64_t> shape = (*source)->fields()[0].shape;
    const auto encoder = ClipEncoder::Load(config.encoder, at::kCPU, shape);
    const bool independent = config.encoder.context == Context::kIndependent;
    for (uint64_t i = 0; i < (*source)->size(); ++i) {
      at::Tensor clip = at::empty(shape, at::kByte);
      std::byte* const to[] = {static_cast<std::byte*>(clip.data_ptr())};
      EXPECT_TRUE((*source)->Read({.index = i}, to).ok());
      // Frames after the first in another order: the same record with reference+set.
      if (config.encoder.context == Context::kReferenceSet) clip = clip.index_select(0, at::tensor({0, 2, 3, 1}));
      for (const at::Tensor& one : independent ? clip.unbind(0) : std::vector<at::Tensor>{clip}) {
        const at::Tensor record = one.contiguous();
        const std::vector<at::Tensor> live = *(*encoder)->Features(record.unsqueeze(0));
        std::vector<at::Tensor> cached;
        cache::Request request;
        request.key = KeyOfFrames(*there, static_cast<const std::byte*>(record.const_data_ptr()), record.sizes().vec());
        for (const at::Tensor& feature : live) {
          cached.push_back(at::zeros_like(feature));
          request.fields.push_back(static_cast<std::byte*>(cached.back().data_ptr()));
        }
        (*reader)->Read({&request, 1});
        EXPECT_EQ(request.outcome, cache::Outcome::kHit) << i;
        for (size_t f = 0; f < live.size(); ++f) {
          const bool same = config.encoder.context == Context::kReferenceSet
                                ? at::allclose(cached[f], live[f], 1e-4, 1e-5)
                                : at::equal(cached[f], live[f]);
          EXPECT_TRUE(same) << i << " " << f;
        }
      }
    }
    EXPECT_TRUE(cache::VerifyAll(*there, 1)->damaged.empty());
    const auto summary = cache::Summarise(*there);
    EXPECT_EQ(summary->plans.at(0).samples(), (*source)->size());
    return (*reader)->records();
  }

  void ExpectRefused(const std::string& words) {
    const Status built = BuildEncoderCache(config, at::kCPU, {});
    EXPECT_FALSE(built.ok()) << words;
    EXPECT_NE((built.message() + built.hint()).find(words), std::string::npos) << built.ToString();
    EXPECT_FALSE(ListDir(config.root).ok()) << "nothing is made before the encoder is known to be right";
  }
};

TEST_F(EncoderCache, HoldsWhatTheEncoderGivesInEveryContext) {
  struct Case {
    Context context;
    const char* result;
    std::vector<std::string> fields, per_item;
    uint64_t records;
  };
  for (const Case& c : {
           Case{Context::kOrdered, "x.cumsum(1).mean([3, 4])", {}, {}, 6},
           Case{Context::kOrdered, "(x - x.mean(1, keepdim=True), x.mean([1, 3, 4]).half())", {"a", "b"}, {}, 6},
           Case{Context::kOrdered, "{'tokens': x.mean(1), 'other': x}", {"tokens"}, {}, 6},
           Case{Context::kIndependent, "torch.avg_pool2d(x, 4)", {}, {}, 24},
           Case{Context::kReferenceSet,
                "(x[:, :1] * x + x.mean(1, keepdim=True), x.mean([1, 3, 4]))",
                {"frames", "pooled"},
                {"frames"},
                6},
       }) {
    SCOPED_TRACE(c.result);
    EXPECT_TRUE(RemoveAll(config.root).ok());
    WriteEncoder(config.encoder.file.path, c.result);
    config.encoder.context = c.context;
    config.encoder.layout = LayoutsOf(c.context).front();
    config.encoder.fields = c.fields;
    config.encoder.per_item = c.per_item;
    EXPECT_EQ(BuildAndCompare(), c.records);
  }
}

TEST_F(EncoderCache, InputIsOfTheRangeAndLayoutAsked) {
  config.encoder.range = {-1, 1};
  config.encoder.mean = {0.5, 0, -0.5};
  config.encoder.deviation = {1, 2, 4};
  const at::Tensor frames = at::randint(0, 256, {2, 4, 3, 16, 24}, at::kByte);
  const auto features = [&](const std::string& layout) {
    config.encoder.layout = layout;
    WriteEncoder(config.encoder.file.path, "x");
    return (*(*ClipEncoder::Load(config.encoder, at::kCPU, {4, 3, 16, 24}))->Features(frames))[0];
  };
  const at::Tensor colours = at::tensor({0.5, 0.0, -0.5}).view({3, 1, 1}),
                   scale = at::tensor({1, 2, 4}).view({3, 1, 1});
  const at::Tensor expected = (frames.to(at::kDouble) / 255 * 2 - 1 - colours) / scale;
  EXPECT_TRUE(at::allclose(features("NTCHW").to(at::kDouble), expected, 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(features("NCTHW"), features("NTCHW").transpose(1, 2)));
  EXPECT_TRUE(at::equal(features("NTHWC"), features("NTCHW").permute({0, 1, 3, 4, 2})));
}

TEST_F(EncoderCache, RefusesBeforeItBegins) {
  struct Case {
    const char* result;
    Context context;
    std::vector<std::string> per_item;
    const char* words;
  };
  for (const Case& c : {
           Case{"x - x.mean(0, keepdim=True)", Context::kIndependent, {}, "cache.context: ordered"},
           Case{"x - x.mean(0, keepdim=True)", Context::kOrdered, {}, "depends on what else is in the batch"},
           Case{"x.cumsum(1)", Context::kReferenceSet, {"features"}, "depends on the order of the frames"},
           Case{"x", Context::kReferenceSet, {}, "does its first axis count frames?"},
           Case{"x.mean(1)", Context::kReferenceSet, {"features"}, "begins with an axis of the 4 frames"},
           Case{"x + torch.rand_like(x)", Context::kOrdered, {}, "differs between two calls"},
           Case{"x / 0", Context::kOrdered, {}, "is not finite"},
           Case{"x.flatten(0, 1)", Context::kOrdered, {}, "its first axis must count the 1 of the batch"},
           Case{"(x, x)", Context::kOrdered, {}, "it gives a tuple of 2, and cache.fields names 0"},
           Case{"torch.matmul(x, x)", Context::kOrdered, {}, "the encoder failed on frames [1, 4, 3, 16, 24] (NTCHW)"},
       }) {
    SCOPED_TRACE(c.words);
    WriteEncoder(config.encoder.file.path, c.result);
    config.encoder.context = c.context;
    config.encoder.layout = LayoutsOf(c.context).front();
    config.encoder.per_item = c.per_item;
    ExpectRefused(c.words);
  }
  config.encoder.file.path = "nowhere";
  ExpectRefused("encoder.path: nowhere: there is no such file");
}

TEST_F(EncoderCache, OtherWeightsAndOtherPreprocessingAreAnotherNamespace) {
  const auto id = [&] { return (*ClipEncoder::Load(config.encoder, at::kCPU, {4, 3, 16, 24}))->Describe()->Id(); };
  WriteEncoder(config.encoder.file.path, "x * 2");
  std::set<std::string> ids = {id()};
  config.encoder.range = {-1, 1};
  ids.insert(id());
  config.encoder.layout = "NCTHW";
  ids.insert(id());
  config.encoder.context = Context::kReferenceSet;
  config.encoder.per_item = {};
  WriteEncoder(config.encoder.file.path, "x.mean(2)");
  ids.insert(id());
  config.encoder.stored = cache::Storage::kBf16;
  ids.insert(id());
  EXPECT_EQ(ids.size(), 5u);
}

TEST(EncoderCacheConfig, MistakesAreNamedByKey) {
  struct Case {
    std::vector<std::string> sets;
    const char* words;
  };
  for (const Case& c : {
           Case{{"cache.root=c"}, "encoder.path"},
           Case{{"cache.root=c", "encoder.path=e", "encoder.kind=program"}, "encoder.weights"},
           Case{{"cache.root=c", "encoder.path=e", "cache.context=independent", "encoder.layout=NTCHW"}, "NHWC"},
           Case{{"cache.root=c", "encoder.path=e", "cache.per_item=[a]"}, "only for context: reference+set"},
           Case{{"cache.root=c", "encoder.path=e", "train.steps=3"}, "lockstep cache build RECIPE"},
       }) {
    const auto read = ReadEncoderCacheConfig("", c.sets);
    ASSERT_FALSE(read.ok()) << c.words;
    EXPECT_NE((read.status().message() + read.status().hint()).find(c.words), std::string::npos)
        << read.status().ToString();
  }
  const auto read = ReadEncoderCacheConfig(
      "", {"cache.root=c", "encoder.path=e", "encoder.kind=program", "encoder.weights=[]", "data.clips=3"});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->encoder.layout, "NTCHW");
  EXPECT_EQ(read->clips.clips, 3u);
}

}  // namespace
}  // namespace lockstep::recipes
