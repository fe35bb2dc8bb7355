#include "cache/description.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>

#include "base/safetensors.h"
#include "small_cache.h"

namespace lockstep::cache {
namespace {

TEST(CacheDescription, EveryPartOfItIsInTheId) {
  const std::vector<std::function<void(Description*)>> changes = {
      [](Description*) {},
      [](Description* d) { d->encoder["compute"] = "BF16"; },
      [](Description* d) { d->weights.back() = '1'; },
      [](Description* d) { d->preprocessing["mean"] = 0.25; },
      [](Description* d) { d->preprocessing["flip"] = true; },
      [](Description* d) { d->context = Context::kReferenceSet; },
      [](Description* d) { d->stem = std::string(32, 'a'); },
      [](Description* d) { d->fields[0].name = "other"; },
      [](Description* d) { d->fields[0].dtype = Dtype::kBF16; },
      [](Description* d) { d->fields[0].stored = Storage::kInt8; },
      [](Description* d) { d->fields[0].shape = {33, 7}; },
      [](Description* d) { d->fields[0].per_item = true; },
      [](Description* d) { d->fields.pop_back(); },
  };
  std::set<std::string> ids;
  for (const auto& change : changes) {
    Description made = SmallDescription();
    change(&made);
    const Result<Description> back = Description::Parse(made.Line(), "test");
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(back->Id(), made.Id());
    ids.insert(made.Id());
  }
  EXPECT_EQ(ids.size(), changes.size());
}

TEST(CacheDescription, KeysDependOnTheWholeContextInItsOrder) {
  const std::vector<ItemDigest> abc = {Item(1), Item(2), Item(3)}, acb = {Item(1), Item(3), Item(2)},
                                bac = {Item(2), Item(1), Item(3)}, ab = {Item(1), Item(2)};
  const auto key = [](const char* id, Context context, const std::vector<ItemDigest>& items) {
    return KeyOf(id, context, items)->key;
  };
  const Digest ordered = key("n", Context::kOrdered, abc);
  EXPECT_EQ(ordered, key("n", Context::kOrdered, abc));
  EXPECT_NE(ordered, key("n", Context::kOrdered, acb));
  EXPECT_NE(ordered, key("n", Context::kOrdered, ab));
  EXPECT_NE(ordered, key("m", Context::kOrdered, abc));
  const Digest set = key("n", Context::kReferenceSet, abc);
  EXPECT_NE(set, ordered);
  EXPECT_EQ(set, key("n", Context::kReferenceSet, acb));
  EXPECT_NE(set, key("n", Context::kReferenceSet, bac));  // the reference is another one
  EXPECT_NE(set, key("n", Context::kReferenceSet, ab));
  EXPECT_FALSE(KeyOf("n", Context::kIndependent, abc).ok());
  EXPECT_FALSE(KeyOf("n", Context::kOrdered, {}).ok());
  // Places of the items in the record, whatever the order they are given in.
  const auto order = KeyOf("n", Context::kReferenceSet, abc)->order,
             other = KeyOf("n", Context::kReferenceSet, acb)->order;
  EXPECT_EQ(order[0], 0u);
  EXPECT_EQ(order[1], other[2]);
  EXPECT_EQ(order[2], other[1]);
}

TEST(CacheDescription, RefusesWhatCannotBe) {
  const auto says = [](const std::function<void(Description*)>& change) {
    Description made = SmallDescription();
    change(&made);
    return made.Check().message();
  };
  EXPECT_EQ(says([](Description*) {}), "");
  EXPECT_NE(says([](Description* d) { d->weights = "v2"; }), "");
  EXPECT_NE(says([](Description* d) { d->fields.clear(); }), "");
  EXPECT_NE(says([](Description* d) { d->fields[0].name = "__key__"; }), "");
  EXPECT_NE(says([](Description* d) { d->fields[1].name = "tokens"; }), "");
  EXPECT_NE(says([](Description* d) { d->fields[0].shape = {0}; }), "");
  EXPECT_NE(says([](Description* d) { d->fields[0] = {"x", Dtype::kI64, Storage::kF8, {4}, false}; }), "");
}

TEST(CacheFolder, IsMadeOnceAndRefusesOthers) {
  const Result<TempDir> root = TempDir::Create();
  const Result<Folder> made = Folder::Create(root->path(), SmallDescription());
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_TRUE(Folder::Create(root->path(), SmallDescription()).ok());
  EXPECT_EQ(*Namespaces(root->path()), std::vector<std::string>{made->id()});
  EXPECT_FALSE(Namespaces(*root / "nothing").ok());

  const std::string file = made->path() + "/namespace.json";
  std::string line = *ReadFile(file);
  const auto open_with = [&](std::string from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_TRUE(WriteFileAtomic(file, changed).ok());
    return Folder::Open(made->path()).status().message();
  };
  EXPECT_NE(open_with("bicubic", "bilinear").find("digest"), std::string::npos);
  EXPECT_NE(open_with("\"version\":1", "\"version\":2").find("expected format lockstep-cache version 1"),
            std::string::npos);
  EXPECT_NE(open_with("\"fields\"", "\"columns\"").find("not the description"), std::string::npos);
  EXPECT_EQ(open_with("bicubic", "bicubic"), "");
}

TEST(CacheDigest, OneBitOfTheWeightsIsAnother) {
  const Result<TempDir> dir = TempDir::Create();
  const auto digest = [&](float value, const char* name) {
    const std::string path = *dir / "w.safetensors";
    const std::vector<float> data = {1, 2, 3, value};
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, {{name, Dtype::kF32, {2, 2}}});
    EXPECT_TRUE(writer->Write(name, data.data(), 16).ok() && writer->Finish().ok());
    return *WeightsDigest(**OpenWeights(path));
  };
  const std::string one = digest(4, "a");
  EXPECT_EQ(one, digest(4, "a"));
  EXPECT_NE(one, digest(std::nextafter(4.0f, 5.0f), "a"));
  EXPECT_NE(one, digest(4, "b"));
  EXPECT_NE(*FileDigest(*dir / "w.safetensors"), one);
}

}  // namespace
}  // namespace lockstep::cache
