#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "number_source.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<SampleId> Plan(uint64_t number) {
  Sampler sampler = *Sampler::Create(53, {.seed = 8}, 6, LastBatch::kKeep);
  return sampler.Peek(number);
}

const int64_t* Numbers(const Batch& batch, size_t row) {
  return reinterpret_cast<const int64_t*>(batch.fields[0].data) + 2 * row;
}

void ExpectContent(const Batch& batch, uint64_t seed, bool augment) {
  ASSERT_EQ(batch.fields.size(), 2);
  EXPECT_EQ(batch.fields[1].field->name, "bytes");
  for (const FieldBatch& field : batch.fields) EXPECT_EQ(field.count, batch.ids.size());
  for (size_t row = 0; row < batch.count(); ++row) {
    EXPECT_EQ(Numbers(batch, row)[0], batch.ids[row].index);
    EXPECT_EQ(Numbers(batch, row)[1], seed * 1000 + batch.ids[row].epoch * 10 + (augment ? 1 : 0));
    for (int i = 0; i < 15; ++i) {
      ASSERT_EQ(static_cast<uint64_t>(batch.fields[1].data[row * 15 + i]), batch.ids[row].index % 251);
    }
  }
}

class LoaderThreadsTest : public testing::TestWithParam<int> {};

TEST_P(LoaderThreadsTest, GivesBatchesInOrderWithTheContentOfThePlan) {
  Loader loader(std::make_shared<NumberSource>(53), Plan, 3, 60,
                {.threads = GetParam(), .prefetch = 3, .augment = true, .seed = 4});
  for (uint64_t number = 3; number < 60; ++number) {
    ASSERT_FALSE(loader.AtEnd());
    Result<Batch> batch = loader.Next();
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->number, number);
    EXPECT_EQ(batch->ids, Plan(number));
    EXPECT_TRUE(batch->bad.empty());
    EXPECT_GE(batch->wait_seconds, 0);
    ExpectContent(*batch, 4, true);
  }
  EXPECT_TRUE(loader.AtEnd());
  EXPECT_THAT(loader.Next().status().message(), HasSubstr("batch 60"));
}

// A sample has 31 bytes, a batch of the plan up to 6 samples.
TEST_P(LoaderThreadsTest, BatchesStayWithinTheirMemory) {
  for (const uint64_t memory : {400u, 100u}) {
    Loader loader(std::make_shared<NumberSource>(53), Plan, 0, 40,
                  {.threads = GetParam(), .prefetch = 8, .memory = memory, .augment = true, .seed = 4});
    for (uint64_t number = 0; number < 40; ++number) {
      const Result<Batch> batch = loader.Next();
      ASSERT_TRUE(batch.ok());
      ExpectContent(*batch, 4, true);
      EXPECT_LE(loader.stats().buffer_bytes, std::max<uint64_t>(memory, 2 * 6 * 31)) << "the one held, the next one";
    }
  }
}

TEST_P(LoaderThreadsTest, StagesAddUpToTheTimeOfReading) {
  Loader loader(std::make_shared<NumberSource>(53), Plan, 0, 5, {.threads = GetParam()});
  while (!loader.AtEnd()) ASSERT_TRUE(loader.Next().ok());
  const LoaderStats stats = loader.stats();
  double sum = 0;
  for (const double seconds : stats.stages.seconds) sum += seconds;
  EXPECT_NEAR(sum, stats.read_seconds, 1e-9);
  EXPECT_GT(stats.stages.seconds[static_cast<size_t>(LoadStage::kOther)], 0);
}

TEST_P(LoaderThreadsTest, LeavesOutBadSamplesAndNamesThem) {
  auto source = std::make_shared<NumberSource>(53);
  source->bad_ = {3, 4, 10};
  source->throwing_ = {20};
  const auto plan = [](uint64_t number) {
    std::vector<SampleId> ids;
    for (uint64_t index : number == 0 ? std::vector<uint64_t>{3, 5, 4, 6, 20, 7, 99, 8} : std::vector<uint64_t>{10}) {
      ids.push_back({.epoch = 1, .index = index});
    }
    return ids;
  };
  Loader loader(source, plan, 0, 2, {.threads = GetParam()});
  Result<Batch> batch = loader.Next();
  ASSERT_TRUE(batch.ok());
  ASSERT_EQ(batch->count(), 4);
  ExpectContent(*batch, 0, false);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(batch->ids[i].index, 5 + i);
  std::vector<std::string> names;
  for (const BadSample& bad : batch->bad) names.push_back(bad.name + ": " + bad.status.message());
  EXPECT_THAT(names, ElementsAre("number 3: damaged", "number 4: damaged", "number 20: reading failed: thrown",
                                 "sample 99: sample 99 was planned, but there are 53"));
  batch = loader.Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->count(), 0);
  EXPECT_EQ(batch->bad.size(), 1);
  EXPECT_EQ(loader.stats().samples_read, 4);
  EXPECT_EQ(loader.stats().samples_bad, 5);
}

TEST_P(LoaderThreadsTest, ASampleToBeLeftOutIsInNoLaterBatchAndIsNotReadAgain) {
  auto source = std::make_shared<NumberSource>(8);
  source->bad_ = {3};
  const auto plan = [](uint64_t number) {
    std::vector<SampleId> ids;
    for (uint64_t index : {1, 3, 5}) ids.push_back({.epoch = number, .index = index});
    return ids;
  };
  Loader loader(source, plan, 0, 6, {.threads = GetParam(), .prefetch = 2});
  ASSERT_EQ(loader.Next()->bad.size(), 1);
  loader.LeaveOut(3);
  loader.LeaveOut(5);  // also one that was read well, ahead of this call
  for (int i = 0; i < 5; ++i) {
    Result<Batch> batch = loader.Next();
    ASSERT_TRUE(batch.ok());
    EXPECT_TRUE(batch->bad.empty());
    ASSERT_EQ(batch->count(), 1);
    EXPECT_EQ(batch->ids[0].index, 1);
    ExpectContent(*batch, 0, false);
  }
  EXPECT_LE(loader.stats().samples_bad, 3) << "those that were under way, no more";
}

TEST_P(LoaderThreadsTest, AnEmptyPlanIsAnEmptyBatch) {
  Loader loader(std::make_shared<NumberSource>(5),
                [](uint64_t number) {
                  return number % 2 == 0 ? std::vector<SampleId>{} : std::vector<SampleId>{{.index = number}};
                },
                0, 4, {.threads = GetParam(), .prefetch = 1});
  for (uint64_t number = 0; number < 4; ++number) {
    Result<Batch> batch = loader.Next();
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->count(), number % 2);
    EXPECT_NE(batch->fields[0].data, nullptr);
  }
}

TEST_P(LoaderThreadsTest, MemoryStaysFlat) {
  std::atomic<int> allocated = 0;
  std::atomic<int64_t> live = 0;
  {
    LoaderOptions options{.threads = GetParam(), .prefetch = 3};
    options.allocate = [&](size_t bytes) {
      ++allocated;
      live += static_cast<int64_t>(bytes);
      return ::operator new(bytes);
    };
    options.release = [&](void* memory, size_t bytes) {
      live -= static_cast<int64_t>(bytes);
      ::operator delete(memory);
    };
    std::optional<Batch> kept;
    {
      Loader loader(std::make_shared<NumberSource>(53), Plan, 0, std::nullopt, options);
      std::optional<Batch> first = *loader.Next();
      const Batch copy = *first;  // keeps the buffers when the first is gone
      first.reset();
      for (int i = 0; i < 200; ++i) {
        kept = *loader.Next();
        EXPECT_LE(loader.stats().buffers, 3 + 2 + 1);
        EXPECT_LE(loader.stats().buffer_bytes, 6 * 6 * 31);
      }
      EXPECT_EQ(copy.ids, Plan(0));
      ExpectContent(copy, 0, false);  // nobody wrote into buffers that are still held
    }
    EXPECT_EQ(kept->number, 200);  // a batch outlives its loader
    ExpectContent(*kept, 0, false);
    EXPECT_GT(live, 0);
  }
  EXPECT_LE(allocated, 2 * 8);  // an early short batch may have been replaced by a larger one
  EXPECT_EQ(live, 0);
}

TEST_P(LoaderThreadsTest, NoMemoryIsAnErrorThatStays) {
  LoaderOptions options{.threads = GetParam()};
  int left = 2;
  options.allocate = [&](size_t bytes) -> void* {
    if (left-- <= 0) return nullptr;
    return ::operator new(bytes);
  };
  options.release = [](void* memory, size_t) { ::operator delete(memory); };
  Loader loader(std::make_shared<NumberSource>(53), Plan, 0, std::nullopt, options);
  Result<Batch> first = loader.Next();
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(loader.Next().status().message(), HasSubstr("no memory for 6 samples"));
}

TEST_P(LoaderThreadsTest, APlanThatThrowsIsAnError) {
  Loader loader(std::make_shared<NumberSource>(5),
                [](uint64_t) -> std::vector<SampleId> { throw std::runtime_error("no plan"); }, 0, std::nullopt,
                {.threads = GetParam()});
  EXPECT_THAT(loader.Next().status().message(), HasSubstr("no plan"));
}

INSTANTIATE_TEST_SUITE_P(Threads, LoaderThreadsTest, testing::Values(0, 1, 2, 5));

TEST(LoaderTest, ReadsNoFurtherAheadThanAsked) {
  auto source = std::make_shared<NumberSource>(100);
  Loader loader(source, [](uint64_t n) { return std::vector<SampleId>{{.index = 2 * n}, {.index = 2 * n + 1}}; }, 0, 40,
                {.threads = 3, .prefetch = 2});
  for (int taken = 1; taken <= 10; ++taken) {
    ASSERT_TRUE(loader.Next().ok());
    EXPECT_LE(source->reads_, 2 * (taken + 2));
  }
}

TEST(LoaderTest, EndsWhileSamplesAreBeingRead) {
  auto source = std::make_shared<NumberSource>(1000);
  source->hold_ = 1;
  std::thread waker;
  {
    Loader loader(source, Plan, 0, std::nullopt, {.threads = 2, .prefetch = 4});
    source->WaitUntilHeld(2);
    // The held reads look at `cancelled` again and again, as decoders do between frames.
    waker = std::thread([source] {
      while (source->hold_ == 1) {
        source->Wake();
        std::this_thread::yield();
      }
    });
  }
  source->hold_ = 0;
  waker.join();
  EXPECT_EQ(source->reads_, 2);  // nothing was started after the end was asked for
}

// Long enough that no healthy read takes it on a busy machine.
constexpr std::chrono::milliseconds kTimeout{1500};

std::vector<SampleId> FourEach(uint64_t number) {
  std::vector<SampleId> ids;
  for (uint64_t i = 0; i < 4; ++i) ids.push_back({.epoch = 1, .index = 4 * number + i});
  return ids;
}

TEST(LoaderTest, AReadThatHangsBecomesABadSampleAndOthersGoOn) {
  auto source = std::make_shared<NumberSource>(53);
  source->hanging_ = {1, 6};
  Loader loader(source, FourEach, 0, 5, {.threads = 1, .prefetch = 2, .timeout = kTimeout});
  std::vector<Batch> batches;
  for (uint64_t number = 0; number < 5; ++number) {
    Result<Batch> batch = loader.Next();
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    EXPECT_EQ(batch->count(), number < 2 ? 3u : 4u);
    ASSERT_EQ(batch->bad.size(), number < 2 ? 1u : 0u);
    batches.push_back(*batch);
  }
  EXPECT_EQ(batches[0].bad[0].name, "number 1");
  EXPECT_EQ(batches[1].bad[0].name, "number 6");
  EXPECT_EQ(batches[0].bad[0].status.code(), Code::kTimeout);
  EXPECT_THAT(batches[0].bad[0].status.message(), HasSubstr("longer than data.timeout (1.5 s)"));
  EXPECT_EQ(loader.stats().hanging_reads, 2u);
  EXPECT_EQ(loader.stats().samples_bad, 2u);
  // What hung writes its sample at last, into memory that nobody looks at.
  source->Release();
  while (loader.stats().hanging_reads > 0) std::this_thread::yield();
  for (const Batch& batch : batches) ExpectContent(batch, 0, false);
}

TEST(LoaderTest, EndsWhileAReadHangs) {
  auto source = std::make_shared<NumberSource>(53);
  source->hanging_ = {0, 1};
  {
    Loader loader(source, FourEach, 0, 5, {.threads = 2, .timeout = kTimeout});
    while (source->reads_ < 2) std::this_thread::yield();
  }
  const std::weak_ptr<NumberSource> still_used = source;
  source->Release();
  source.reset();
  while (!still_used.expired()) std::this_thread::yield();  // the threads let go of all they held
}

TEST(LoaderTest, WhenEverythingHangsItIsAnError) {
  auto source = std::make_shared<NumberSource>(200);
  for (uint64_t i = 0; i < 200; ++i) source->hanging_.insert(i);
  const auto plan = [](uint64_t number) {
    std::vector<SampleId> ids;
    for (uint64_t i = 0; i < 40; ++i) ids.push_back({.index = 40 * number + i});
    return ids;
  };
  {
    Loader loader(source, plan, 0, 5, {.threads = 40, .timeout = kTimeout});
    EXPECT_THAT(loader.Next().status().message(), HasSubstr("reads of data hang"));
    source->Release();
  }
  const std::weak_ptr<NumberSource> still_used = source;
  source.reset();
  while (!still_used.expired()) std::this_thread::yield();
}

TEST(LoaderTest, ThreadsComeAndGoAndBatchesStayTheSame) {
  Loader loader(std::make_shared<NumberSource>(53), Plan, 0, 200, {.threads = 2, .prefetch = 4, .seed = 4});
  const int wanted[] = {2, 7, 1, 5, 0, 3};
  for (uint64_t number = 0; number < 200; ++number) {
    if (number % 20 == 0) {
      const int threads = wanted[number / 20 % 6];
      loader.SetThreads(threads);
      EXPECT_EQ(loader.stats().threads, static_cast<size_t>(std::max(threads, 1)));
    }
    Result<Batch> batch = loader.Next();
    ASSERT_TRUE(batch.ok());
    ASSERT_EQ(batch->ids, Plan(number));
    ExpectContent(*batch, 4, false);
  }
}

TEST(LoaderTest, AnUnusedLoaderEnds) {
  for (int threads : {0, 1, 5}) {
    Loader loader(std::make_shared<NumberSource>(5), [](uint64_t) { return std::vector<SampleId>{}; }, 0, std::nullopt,
                  {.threads = threads});
  }
}

TEST(LoaderTest, CountsWhatItDoes) {
  Loader loader(std::make_shared<NumberSource>(53), Plan, 0, 2, {.threads = 2, .prefetch = 2});
  ASSERT_TRUE(loader.Next().ok());
  ASSERT_TRUE(loader.Next().ok());
  const LoaderStats stats = loader.stats();
  EXPECT_EQ(stats.samples_read, 12);
  EXPECT_GT(stats.read_seconds, 0);
  EXPECT_EQ(stats.ready_batches + stats.started_batches, 0);
}

}  // namespace
}  // namespace lockstep::data
