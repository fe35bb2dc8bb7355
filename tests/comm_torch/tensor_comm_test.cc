// Tensors over ranks as threads. The expected sums come from torch itself; the oracle of gradients is autograd on the
// joint batch.
#include "comm/torch/tensor_comm.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "base/sockets.h"
#include "comm/torch/c10d_backend.h"

namespace lockstep::comm {
namespace {

int FreePort() {  // outside of the range the system hands out by itself
  static std::atomic<int> counter{0};
  while (true) {
    const int port = 20000 + (static_cast<int>(getpid()) * 67 + counter++) % 12000;
    if (Listen(port).ok()) return port;
  }
}

void RunRanks(int size, const std::vector<std::string>& nodes,
              const std::function<void(std::shared_ptr<TensorCommunicator>)>& body) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Bootstrap me;
      me.rank = rank;
      me.size = size;
      me.master_port = port;
      me.node = nodes.empty() ? "n" : nodes[static_cast<size_t>(rank)];
      Options options;
      options.timeout = std::chrono::seconds(20);
      auto comm = TensorCommunicator::Create(me, options, Backend::kAuto, at::kCPU);
      ASSERT_TRUE(comm.ok()) << comm.status().ToString();
      body(*comm);
    });
  }
  for (auto& thread : threads) thread.join();
}

at::Tensor Values(int rank, int64_t count, at::ScalarType type) {
  return ((at::arange(count, at::kLong) * 37 + rank * 11) % 101 - 50).to(type);
}

TEST(TensorComm, SumsTensorsOfEveryTypeInPlace) {
  for (const auto& nodes : std::vector<std::vector<std::string>>{{}, {"a", "a", "b"}}) {
    RunRanks(3, nodes, [](const std::shared_ptr<TensorCommunicator>& comm) {
      for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kDouble}) {
        at::Tensor tensor = Values(comm->identity().rank, 70001, type);
        ASSERT_EQ(comm->AllReduce(tensor).Wait().ToString(), "");
        at::Tensor expected =
            Values(0, 70001, at::kDouble) + Values(1, 70001, at::kDouble) + Values(2, 70001, at::kDouble);
        EXPECT_TRUE(at::equal(tensor, expected.to(type))) << type;
      }
    });
  }
}

TEST(TensorComm, FlatTensorLivesInSharedMemoryAndOutlivesTheCommunicator) {
  at::Tensor kept[2];
  RunRanks(2, {}, [&](const std::shared_ptr<TensorCommunicator>& comm) {
    const int rank = comm->identity().rank;
    at::Tensor flat = comm->AllocateFlat(1000000, at::kFloat, at::kCPU);
    EXPECT_EQ(flat.sum().item<float>(), 0);
    at::Tensor bucket = flat.slice(0, 256, 900256);
    bucket.fill_(static_cast<float>(rank + 1));
    ASSERT_EQ(comm->Barrier().ToString(), "");
    const uint64_t before = comm->traffic().shm_bytes;
    ASSERT_EQ(comm->AllReduce(bucket).Wait().ToString(), "");
    // In place: half of the values, read from and written to the one peer. Staged would be three times that.
    EXPECT_NEAR(static_cast<double>(comm->traffic().shm_bytes - before), 900000 * 4, 4096);
    EXPECT_TRUE(at::equal(bucket, at::full({900000}, 3.0F)));
    EXPECT_EQ(flat[255].item<float>(), 0);
    kept[rank] = flat;
  });
  EXPECT_EQ(kept[0][256].item<float>(), 3);
  EXPECT_EQ(kept[1].sum().item<double>(), 2700000);
}

TEST(TensorComm, ScattersGathersAndBroadcasts) {
  RunRanks(2, {}, [](const std::shared_ptr<TensorCommunicator>& comm) {
    const int rank = comm->identity().rank;
    at::Tensor part = at::empty({500}, at::kFloat);
    ASSERT_EQ(comm->ReduceScatter(Values(rank, 1000, at::kFloat), part).Wait().ToString(), "");
    at::Tensor sum = Values(0, 1000, at::kFloat) + Values(1, 1000, at::kFloat);
    EXPECT_TRUE(at::equal(part, sum.slice(0, rank * 500, rank * 500 + 500)));
    at::Tensor all = at::empty({1000}, at::kFloat);
    ASSERT_EQ(comm->AllGather(part, all).Wait().ToString(), "");
    EXPECT_TRUE(at::equal(all, sum));
    at::Tensor bytes = at::empty({6}, at::kByte);  // an odd number of bytes per rank
    ASSERT_EQ(comm->AllGather(at::full({3}, rank + 1, at::kByte), bytes).Wait().ToString(), "");
    EXPECT_TRUE(at::equal(bytes, at::tensor({1, 1, 1, 2, 2, 2}, at::kByte)));
    at::Tensor flags = at::full({7}, rank == 1, at::kBool);
    ASSERT_EQ(comm->Broadcast(flags, 1).Wait().ToString(), "");
    EXPECT_TRUE(flags.all().item<bool>());
  });
}

TEST(TensorComm, RefusesWhatItCannotDoAndGoesOn) {
  RunRanks(2, {}, [](const std::shared_ptr<TensorCommunicator>& comm) {
    EXPECT_NE(comm->AllReduce(at::ones({4}, at::kBool)).Wait().message().find("Bool"), std::string::npos);
    EXPECT_NE(comm->AllReduce(at::ones({4, 4}).t()).Wait().message().find("not contiguous"), std::string::npos);
    EXPECT_FALSE(comm->ReduceScatter(at::ones({5}), at::ones({2})).Wait().ok());
    EXPECT_FALSE(comm->AllGather(at::ones({5}), at::ones({5})).Wait().ok());
    EXPECT_FALSE(comm->AllReduce(at::Tensor()).Wait().ok());
    at::Tensor fine = at::ones({1});
    EXPECT_EQ(comm->AllReduce(fine).Wait().ToString(), "");
    EXPECT_EQ(fine.item<float>(), 2);
  });
}

TEST(TensorComm, NcclForTheCpuAndAGpuWithoutCudaAreErrors) {
  EXPECT_FALSE(TensorCommunicator::Create({}, {}, Backend::kNccl, at::kCPU).ok());
#ifndef LOCKSTEP_CUDA
  auto comm = TensorCommunicator::Create({}, {}, Backend::kAuto, at::Device(at::kCUDA, 0));
  ASSERT_FALSE(comm.ok());
  EXPECT_NE(comm.status().message().find("built without CUDA"), std::string::npos);
#endif
  EXPECT_TRUE(ParseBackend("nccl").ok());
  EXPECT_FALSE(ParseBackend("gloo").ok());
}

TEST(TensorComm, NcclNeedsRanksThatItWouldNotRefuse) {
  const std::vector<std::string> own = {"GPU-a", "GPU-b"}, shared = {"GPU-a", "GPU-a"};
  const std::vector<std::string> hosts = {"GPU-a as NCCL_HOSTID 0", "GPU-a as NCCL_HOSTID 1"};
  const std::vector<std::string> one_host = {"GPU-a as NCCL_HOSTID 0", "GPU-a as NCCL_HOSTID 0"};
  const auto uses = [](const std::vector<std::string>& devices, Backend backend) {
    std::string note;
    const auto answer = UsesNccl(devices, backend, &note);
    return !answer.ok() ? "error" : *answer ? "nccl" : note.empty() ? "host" : "host, said";
  };
  const struct {
    std::vector<std::string> devices;
    const char *nccl, *automatic, *host;
  } rows[] = {
      {own, "nccl", "nccl", "host"},
      {shared, "error", "host, said", "host"},
      {hosts, "nccl", "nccl", "host"},
      {one_host, "error", "host, said", "host"},
      {{"host", "host"}, "error", "host", "host"},
      {{"host", "GPU-a"}, "error", "error", "error"},
  };
  for (const auto& row : rows) {
    EXPECT_STREQ(uses(row.devices, Backend::kNccl), row.nccl) << row.devices[0];
    EXPECT_STREQ(uses(row.devices, Backend::kAuto), row.automatic) << row.devices[0];
    EXPECT_STREQ(uses(row.devices, Backend::kHost), row.host) << row.devices[0];
  }
  const auto refused = UsesNccl(shared, Backend::kNccl);
  EXPECT_NE(refused.status().message().find("ranks 0, 1 share one GPU (GPU-a)"), std::string::npos);
  EXPECT_NE(refused.status().hint().find("NCCL_HOSTID"), std::string::npos);
}

TEST(TensorComm, WorldOfOneNeedsNobody) {
  auto comm = TensorCommunicator::Create({}, {}, Backend::kAuto, at::kCPU);
  ASSERT_TRUE(comm.ok());
  at::Tensor tensor = (*comm)->AllocateFlat(10, at::kBFloat16, at::kCPU).fill_(2);
  EXPECT_EQ((*comm)->AllReduce(tensor).Wait().ToString(), "");
  EXPECT_EQ(tensor.sum().item<float>(), 20);
}

// --- c10d over our communicator ---
TEST(C10dBackend, ProcessGroupRunsItsCollectivesOverUs) {
  RunRanks(2, {}, [](const std::shared_ptr<TensorCommunicator>& comm) {
    auto group = MakeProcessGroup(comm);
    const int rank = comm->identity().rank;
    std::vector<at::Tensor> tensors{at::full({5}, rank + 1.0F)};
    group->allreduce(tensors)->wait();
    EXPECT_TRUE(at::equal(tensors[0], at::full({5}, 3.0F)));
    std::vector<std::vector<at::Tensor>> outputs{{at::empty({5}), at::empty({5})}};
    std::vector<at::Tensor> inputs{at::full({5}, rank + 1.0F)};
    group->allgather(outputs, inputs)->wait();
    EXPECT_TRUE(at::equal(outputs[0][0], at::full({5}, 1.0F)));
    EXPECT_TRUE(at::equal(outputs[0][1], at::full({5}, 2.0F)));
    c10d::BroadcastOptions root;
    root.rootRank = 1;
    std::vector<at::Tensor> shared{at::full({3}, rank * 7.0F)};
    group->broadcast(shared, root)->wait();
    EXPECT_TRUE(at::equal(shared[0], at::full({3}, 7.0F)));
    at::Tensor part = at::empty({1});
    at::Tensor whole = at::tensor({1.0F, 2.0F});
    group->getBackend(at::kCPU)->_reduce_scatter_base(part, whole)->wait();
    EXPECT_EQ(part.item<float>(), 2.0F * static_cast<float>(rank + 1));
    group->barrier()->wait();
  });
}

std::unique_ptr<c10d::Reducer> MakeReducer(const std::vector<at::Tensor>& parameters,
                                           const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  std::vector<std::vector<size_t>> buckets;  // two, so that they overlap
  buckets.emplace_back();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i == parameters.size() / 2) buckets.emplace_back();
    buckets.back().push_back(i);
  }
  const std::vector<bool> sparse(parameters.size(), false);
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
  return std::make_unique<c10d::Reducer>(parameters, buckets, group, sparse, 1 << 20, false, true,
                                         std::unordered_map<size_t, std::string>{}, 1 << 20, false, false,
                                         std::vector<int64_t>{});
#else
  return std::make_unique<c10d::Reducer>(parameters, buckets, std::vector<size_t>(buckets.size(), 1 << 20), group,
                                         sparse, 1 << 20, false, true, std::unordered_map<size_t, std::string>{},
                                         1 << 20);
#endif
}

torch::nn::Sequential Model() {
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
  torch::NoGradGuard no_grad;
  for (auto& p : model->parameters()) p.copy_(torch::linspace(-1, 1, p.numel()).view_as(p));
  return model;
}

TEST(C10dBackend, ReducerGivesTheGradientsOfTheJointBatch) {
  const at::Tensor batch = torch::linspace(-2, 2, 64).view({8, 8});
  torch::nn::Sequential joint = Model();
  joint->forward(batch).pow(2).mean().backward();
  RunRanks(2, {}, [&](const std::shared_ptr<TensorCommunicator>& comm) {
    torch::nn::Sequential model = Model();
    auto reducer = MakeReducer(model->parameters(), MakeProcessGroup(comm));
    const int64_t first = comm->identity().rank * 4;
    reducer->prepare_for_forward();
    const at::Tensor loss = model->forward(batch.slice(0, first, first + 4)).pow(2).mean();
    reducer->prepare_for_backward({loss});
    loss.backward();
    for (size_t i = 0; i < joint->parameters().size(); ++i) {
      EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), joint->parameters()[i].grad(), 1e-5, 1e-6)) << i;
    }
    // Negative control: without the reduction the halves differ from the whole.
    torch::nn::Sequential alone = Model();
    alone->forward(batch.slice(0, first, first + 4)).pow(2).mean().backward();
    EXPECT_FALSE(at::allclose(alone->parameters()[0].grad(), joint->parameters()[0].grad(), 1e-5, 1e-6));
  });
}

}  // namespace
}  // namespace lockstep::comm
