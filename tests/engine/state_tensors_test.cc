// Checkpoints of ranks that each have a share of the state: written by W ranks and read by V, over real communicators,
// by ranks that see the files and by others.
#include "engine/state_tensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "engine/ranks_fixture.h"
#include "record/background_saver.h"
#include "record/checkpoint_folder.h"

namespace lockstep::engine {
namespace {

constexpr const char* kBuffers[] = {"model/", "optimizer/exp_avg.", "ema/"};

struct StateNet : torch::nn::Module {
  StateNet() {
    for (const int64_t size : {3, 40, 1, 17}) register_parameter(fmt::format("p{}", size), at::zeros({size, 7}));
  }
};

// What rank `rank` of `world` has: a share of each of three buffers, or all of them; and a tensor that rank 0 keeps.
struct Part {
  Part(int rank, int world, bool sharded) : flat(Make(net, rank, world, sharded)) {
    for (size_t b = 0; b < std::size(kBuffers); ++b) {
      own.push_back(at::full({flat.owned().numel()}, std::nan(""), at::kFloat));
      AddFlat(kBuffers[b], flat, own.back(), world, &tensors);
    }
    counter = at::full({5}, -1, at::kLong);
    tensors.push_back({"recipe/counter", {5}, counter, {}, /*of_main=*/true});
  }
  static FlatParameters Make(StateNet& net, int rank, int world, bool sharded) {
    FlatParameters::Options options;
    options.layout = {.bucket_bytes = 400, .first_bucket_bytes = 100, .shares = sharded ? world : 1};
    options.stage = sharded ? Stage::kOptimizer : Stage::kReplicated;
    options.share = sharded ? rank : 0;
    return *FlatParameters::Create(net, [](int64_t n) { return at::zeros({n}); }, options);
  }
  // Visits every element this rank has, with the value it must have, which depends on nothing but its name and place.
  template <typename Visit>
  void ForEach(const Visit& visit) {
    for (size_t b = 0; b < own.size(); ++b) {
      for (const Segment& segment : flat.owned().segments) {
        const int64_t first = segment.flat - flat.parameters()[segment.parameter].offset;
        for (int64_t i = 0; i < segment.end - segment.begin; ++i) {
          visit(own[b].data_ptr<float>()[segment.begin + i],
                static_cast<float>(b * 1000000 + segment.parameter * 10000 + static_cast<size_t>(first + i)));
        }
      }
    }
  }

  StateNet net;
  FlatParameters flat;
  std::vector<at::Tensor> own;
  at::Tensor counter;
  std::vector<StateTensor> tensors;
};

struct How {
  bool sharded;
  uint64_t split_bytes;
};
constexpr How kHow[] = {{true, 1}, {true, 1u << 30}, {false, 1}, {false, 1u << 30}};  // steps 1 to 4

void Write(const std::string& folder, Ranks& ranks) {
  auto comm = ranks.tensors().ConnectHost("checkpoint", std::chrono::seconds(60));
  ASSERT_TRUE(comm.ok()) << comm.status().ToString();
  for (uint64_t step = 1; step <= std::size(kHow); ++step) {
    const How& how = kHow[step - 1];
    record::BackgroundSaver::Options options;
    options.folder = folder;
    options.durability = Durability::kProcess;
    options.keep.last = 9;
    options.chunk_bytes = 4096;
    options.staging_bytes = 4096;
    options.split_bytes = how.split_bytes;
    options.peers.rank = ranks.rank();
    options.peers.size = ranks.size();
    options.peers.writers.clear();
    for (int rank = 0; rank < std::max(1, ranks.size() - 1); ++rank) options.peers.writers.push_back(rank);
    options.peers.send = [&](void* data, size_t bytes, int from, int to) {
      return (*comm)->Send(data, bytes, from, to);
    };
    options.peers.gather = [&](std::string_view text) { return (*comm)->Gather(text); };
    Part part(ranks.rank(), ranks.size(), how.sharded);
    part.ForEach([](float& value, float expected) { value = expected; });
    part.counter.fill_(ranks.is_main() ? 42 : 13);
    auto saver = record::BackgroundSaver::Create(std::move(options));
    std::vector<at::Tensor> hold;
    record::CheckpointContent content{step, "toy", nlohmann::json::object(), {}};
    content.tensors = ForCheckpoint(part.tensors, ranks.rank(), ranks.size(), &hold);
    const Result<bool> begun = (*saver)->Begin(content);
    ASSERT_TRUE(begun.ok() && *begun) << begun.status().message();
    ASSERT_TRUE((*saver)->WaitCopied().ok());
    const auto reports = (*saver)->Drain();
    ASSERT_TRUE(reports.at(0).status.ok()) << reports[0].status.message();
  }
}

void ReadState(const std::string& folder, Ranks& ranks, bool sharded) {
  for (uint64_t step = 1; step <= std::size(kHow); ++step) {
    // The last of several ranks does not see the files.
    const bool blind = ranks.size() > 1 && ranks.rank() == ranks.size() - 1;
    Part part(ranks.rank(), ranks.size(), sharded);
    const auto checkpoint =
        SharedCheckpoint::Open(fmt::format("{}{}/step-{}", folder, blind ? "-elsewhere" : "", step), &ranks);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    EXPECT_EQ(checkpoint->readers().size(), static_cast<size_t>(std::max(1, ranks.size() - 1)));
    EXPECT_EQ(checkpoint->manifest().step, step);
    const Status read = checkpoint->Read(part.tensors, &ranks, /*piece_bytes=*/128);
    ASSERT_TRUE(read.ok()) << read.ToString();
    int64_t wrong = 0;
    part.ForEach([&](const float& value, float expected) { wrong += value == expected ? 0 : 1; });
    EXPECT_EQ(wrong, 0) << "step " << step << " on rank " << ranks.rank() << " of " << ranks.size();
    EXPECT_EQ(part.counter.sum().item<int64_t>(), 5 * 42);
  }
}

TEST(StateTensors, OfSeveralSharesAreWrittenByAnyNumberOfRanksAndReadByAnyOther) {
  for (const int world : {1, 2, 3, 4}) {
    const TempDir dir = *TempDir::Create();
    const std::string folder = dir / "checkpoints";
    OnRanks(world, [&](Ranks& ranks) { Write(folder, ranks); });
    for (uint64_t step = 1; step <= std::size(kHow); ++step) {
      const auto reader = record::CheckpointReader::Open(fmt::format("{}/step-{}", folder, step));
      ASSERT_TRUE(reader.ok()) << reader.status().message();
      EXPECT_TRUE(reader->Verify().ok());
      EXPECT_EQ(reader->manifest().files.size() > 4, world > 2 && kHow[step - 1].split_bytes == 1);
    }
    for (const int readers : {1, 2, 3, 4}) {
      OnRanks(readers, [&](Ranks& ranks) { ReadState(folder, ranks, /*sharded=*/readers != world); });
    }
  }
}

TEST(StateTensors, ADamagedPartIsAnErrorOnAllRanks) {
  const TempDir dir = *TempDir::Create();
  const std::string folder = dir / "checkpoints";
  OnRanks(2, [&](Ranks& ranks) { Write(folder, ranks); });
  const std::string file = folder + "/step-2/ema.safetensors";
  std::string data = *ReadFile(file);
  data.back() = static_cast<char>(data.back() ^ 1);
  ASSERT_TRUE(WriteFileAtomic(file, data).ok());
  OnRanks(3, [&](Ranks& ranks) {
    Part part(ranks.rank(), ranks.size(), true);
    const auto checkpoint = SharedCheckpoint::Open(folder + "/step-2", &ranks);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    const Status read = checkpoint->Read(part.tensors, &ranks, 128);
    EXPECT_NE(read.message().find("does not match its checksum"), std::string::npos) << read.message();
    EXPECT_EQ(checkpoint->Verify(&ranks).message(), read.message());
    // Rank 0 asks for one after the other, and all ranks find the newest good one.
    std::string found;
    std::vector<record::Candidate> rejected;
    const Status asked = WithVerification(&ranks, [&](const VerifyCheckpoint& verify) {
      ASSERT_TRUE(RemoveAll(folder + "/step-3").ok() && RemoveAll(folder + "/step-4").ok());
      found = (*record::NewestGood(folder, &rejected, verify)).value_or("");
    });
    EXPECT_TRUE(asked.ok()) << asked.ToString();
    EXPECT_EQ(found, ranks.is_main() ? folder + "/step-1" : "");
    EXPECT_EQ(rejected.size(), ranks.is_main() ? 1u : 0u);
    part.tensors[0].shape = {1};
    EXPECT_NE(checkpoint->Read(part.tensors, &ranks).message().find("expected F32 [1], found F32"), std::string::npos);
  });
}

}  // namespace
}  // namespace lockstep::engine
