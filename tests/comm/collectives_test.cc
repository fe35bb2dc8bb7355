// Every operation against an independent sum: plain loops in the order the format page gives, for each type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ranks.h"
#include "sanitized.h"

namespace lockstep::comm {
namespace {

struct Case {
  std::string name;
  int size;
  std::vector<std::string> nodes;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"one", 1, {}},
    {"two", 2, {}},
    {"three", 3, {}},
    {"four", 4, {}},
    {"eight", 8, {}},
    {"two_nodes_of_one", 2, {"a", "b"}},
    {"three_nodes_of_one", 3, {"a", "b", "c"}},
    {"two_nodes_of_two", 4, {"a", "a", "b", "b"}},
    {"interleaved", 4, {"a", "b", "a", "b"}},
    {"uneven", 5, {"a", "a", "a", "b", "c"}},
    {"four_nodes_of_two", 8, {"a", "a", "b", "b", "c", "c", "d", "d"}},
};

// --- an independent implementation of types and of the tree ---
float Bf16(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
// To nearest even, by comparing the two neighbours as doubles.
uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t low = static_cast<uint16_t>(bits >> 16);
  const uint16_t high = static_cast<uint16_t>(low + 1);
  if ((bits & 0xffff) == 0) return low;
  const double below = std::fabs(static_cast<double>(value) - Bf16(low));
  const double above = std::fabs(static_cast<double>(Bf16(high)) - value);
  if (below != above) return below < above ? low : high;
  return (low & 1) == 0 ? low : high;
}
float F16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}
uint16_t ToF16(float value) {  // finite values in range only
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double wanted = std::fabs(static_cast<double>(value));
  uint16_t low = 0;  // the largest half that is not greater
  for (int bit = 14; bit >= 0; --bit) {
    const auto next = static_cast<uint16_t>(low | (1 << bit));
    if (next < 0x7c00 && F16(next) <= wanted) low = next;
  }
  const auto high = static_cast<uint16_t>(low + 1);
  const double below = wanted - F16(low);
  const double above = F16(high) - wanted;
  const uint16_t half = below != above ? (below < above ? low : high) : (low & 1) == 0 ? low : high;
  return static_cast<uint16_t>(sign | half);
}

template <typename T>
T Tree(std::vector<T> values, Op op) {  // level by level, an odd one is carried up
  while (values.size() > 1) {
    std::vector<T> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      const T a = values[i], b = values[i + 1];
      next.push_back(op == Op::kSum ? static_cast<T>(a + b) : op == Op::kMax ? std::max(a, b) : std::min(a, b));
    }
    if (values.size() % 2 == 1) next.push_back(values.back());
    values = std::move(next);
  }
  return values[0];
}

// The ranks of each node, nodes in the order of their lowest rank.
std::vector<std::vector<size_t>> Nodes(const Case& c) {
  std::vector<std::string> order;
  std::vector<std::vector<size_t>> ranks;
  for (size_t r = 0; r < static_cast<size_t>(c.size); ++r) {
    const std::string node = c.nodes.empty() ? "n" : c.nodes[r];
    const size_t at = static_cast<size_t>(std::find(order.begin(), order.end(), node) - order.begin());
    if (at == order.size()) {
      order.push_back(node);
      ranks.emplace_back();
    }
    ranks[at].push_back(r);
  }
  return ranks;
}

// Local ranks first, then nodes.
template <typename T>
T NodeTree(const std::vector<std::vector<size_t>>& nodes, const std::vector<T>& by_rank, Op op) {
  std::vector<T> sums;
  for (const std::vector<size_t>& ranks : nodes) {
    std::vector<T> values;
    for (size_t rank : ranks) values.push_back(by_rank[rank]);
    sums.push_back(Tree(std::move(values), op));
  }
  return Tree(std::move(sums), op);
}

using Data = std::vector<std::byte>;

Data RandomData(DType dtype, size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> wide(-3, 3);
  Data data(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i) {
    const float value = wide(random) * std::exp2(wide(random));
    std::byte* to = data.data() + i * SizeOf(dtype);
    const auto put = [&](auto typed) { std::memcpy(to, &typed, sizeof typed); };
    switch (dtype) {
      case DType::kF32:
        put(value);
        break;
      case DType::kF64:
        put(value * 1.0000001);
        break;
      case DType::kI64:
        put(static_cast<int64_t>(value * 1e9F));
        break;
      case DType::kBF16:
        put(ToBf16(value));
        break;
      case DType::kF16:
        put(ToF16(value));
        break;
    }
  }
  return data;
}

template <typename T>
T At(const Data& data, size_t i) {
  T value;
  std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void Put(Data* data, size_t i, T value) {
  std::memcpy(data->data() + i * sizeof(T), &value, sizeof(T));
}

Data Expected(const Case& c, DType dtype, Op op, const std::vector<Data>& inputs) {
  Data out(inputs[0].size());
  const std::vector<std::vector<size_t>> nodes = Nodes(c);
  const auto run = [&]<typename T, typename Load, typename Store>(T, Load load, Store store) {
    for (size_t i = 0; i < out.size() / SizeOf(dtype); ++i) {
      std::vector<T> values;
      for (const Data& input : inputs) values.push_back(load(input, i));
      store(&out, i, NodeTree(nodes, values, op));
    }
  };
  switch (dtype) {
    case DType::kF32:
      run(0.0F, At<float>, Put<float>);
      break;
    case DType::kF64:
      run(0.0, At<double>, Put<double>);
      break;
    case DType::kI64:
      run(int64_t{0}, At<int64_t>, Put<int64_t>);
      break;
    case DType::kBF16:
      run(
          0.0F, [](const Data& d, size_t i) { return Bf16(At<uint16_t>(d, i)); },
          [](Data* d, size_t i, float v) { Put(d, i, ToBf16(v)); });
      break;
    case DType::kF16:
      run(
          0.0F, [](const Data& d, size_t i) { return F16(At<uint16_t>(d, i)); },
          [](Data* d, size_t i, float v) { Put(d, i, ToF16(v)); });
      break;
  }
  return out;
}

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kF64};
constexpr size_t kSizes[] = {0, 1, 1001, kSanitized ? 4001 : 17001};

// Nothing may be null where there is nothing to copy or compare.
void Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
bool Equal(const void* a, const void* b, size_t bytes) { return bytes == 0 || std::memcmp(a, b, bytes) == 0; }

class Collective : public testing::TestWithParam<Case> {
 protected:
  std::vector<Data> Inputs(DType dtype, size_t count) const {
    std::vector<Data> inputs;
    for (int r = 0; r < GetParam().size; ++r)
      inputs.push_back(RandomData(dtype, count, r * 100 + static_cast<int>(count)));
    return inputs;
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, Collective, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

TEST_P(Collective, AllReduceEqualsTheTreeSumBitForBit) {
  const Case& c = GetParam();
  struct Sum {
    DType dtype;
    size_t count;
    Op op;
    std::vector<Data> inputs;
    Data expected;
  };
  std::vector<Sum> sums;
  for (DType dtype : kTypes) {
    for (size_t count : kSizes) {
      const auto inputs = Inputs(dtype, count);
      for (Op op : {Op::kSum, Op::kMax, Op::kMin}) {
        sums.push_back({dtype, count, op, inputs, Expected(c, dtype, op, inputs)});
      }
    }
  }
  RunRanks(c.size, c.nodes, Patient(), [&](Communicator& comm) {
    for (const Sum& sum : sums) {
      Data mine = sum.inputs[static_cast<size_t>(comm.identity().rank)];
      ASSERT_EQ(comm.AllReduceNow(mine.data(), sum.count, sum.dtype, sum.op).ToString(), "");
      EXPECT_TRUE(mine == sum.expected) << Name(sum.dtype) << " x " << sum.count << " " << Name(sum.op);
    }
  });
}

TEST_P(Collective, AllReduceOfAMegabyteGoesThroughStagingInPieces) {
  const Case& c = GetParam();
  Options options = Patient();
  options.staging_bytes = kSanitized ? 16 << 10 : 128 << 10;
  const size_t count = kSanitized ? 32771 : 262147;
  const auto inputs = Inputs(DType::kF32, count);
  const Data expected = Expected(c, DType::kF32, Op::kSum, inputs);
  RunRanks(c.size, c.nodes, options, [&](Communicator& comm) {
    Data mine = inputs[static_cast<size_t>(comm.identity().rank)];
    ASSERT_EQ(comm.AllReduce(mine.data(), count, DType::kF32).Wait().ToString(), "");
    EXPECT_TRUE(mine == expected);
  });
}

TEST_P(Collective, AllReduceInASharedBufferIsTheSameSum) {
  const Case& c = GetParam();
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const size_t count = kSanitized ? 20003 : 100003;
    const auto inputs = Inputs(dtype, count);
    const Data expected = Expected(c, dtype, Op::kSum, inputs);
    RunRanks(c.size, c.nodes, Patient(), [&](Communicator& comm) {
      const Data& mine = inputs[static_cast<size_t>(comm.identity().rank)];
      auto buffer = comm.Allocate(mine.size() + 4096);
      ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
      std::byte* at = static_cast<std::byte*>(buffer->data()) + 1024;
      Copy(at, mine.data(), mine.size());
      ASSERT_EQ(comm.AllReduceNow(at, count, dtype).ToString(), "");
      EXPECT_TRUE(Equal(at, expected.data(), expected.size()));
      // Nothing around it was touched.
      EXPECT_EQ(std::to_integer<int>(at[-1]), 0);
      EXPECT_EQ(std::to_integer<int>(at[mine.size()]), 0);
      // At different offsets on different ranks it is staged, with the same result.
      ASSERT_EQ(comm.Barrier().ToString(), "");
      std::byte* shifted = static_cast<std::byte*>(buffer->data()) + 64 * comm.identity().rank;
      Copy(shifted, mine.data(), mine.size());
      ASSERT_EQ(comm.AllReduceNow(shifted, count, dtype).ToString(), "");
      EXPECT_TRUE(Equal(shifted, expected.data(), expected.size()));
    });
  }
}

TEST_P(Collective, ReduceScatterGivesEachRankItsPartOfTheSum) {
  const Case& c = GetParam();
  for (bool shared : {false, true}) {
    for (size_t each : {size_t{0}, size_t{1}, size_t{777}, size_t{kSanitized ? 3001 : 9001}}) {
      const auto all = static_cast<size_t>(c.size) * each;
      const auto inputs = Inputs(DType::kBF16, all);
      const Data expected = Expected(c, DType::kBF16, Op::kSum, inputs);
      Options options = Patient();
      options.staging_bytes = kSanitized ? 8 << 10 : 64 << 10;
      RunRanks(c.size, c.nodes, options, [&](Communicator& comm) {
        const auto rank = static_cast<size_t>(comm.identity().rank);
        Data mine = inputs[rank];
        const void* in = mine.data();
        Result<SharedBuffer> buffer = SharedBuffer();
        if (shared) {
          buffer = comm.Allocate(mine.size());
          ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
          Copy(buffer->data(), mine.data(), mine.size());
          in = buffer->data();
        }
        Data out(each * 2);
        ASSERT_EQ(comm.ReduceScatterNow(in, out.data(), each, DType::kBF16).ToString(), "");
        EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin() + static_cast<long>(rank * each * 2)));
        // Into its own part of the input.
        ASSERT_EQ(comm.ReduceScatter(mine.data(), mine.data() + rank * each * 2, each, DType::kBF16).Wait().ToString(),
                  "");
        EXPECT_TRUE(Equal(mine.data() + rank * each * 2, out.data(), out.size()));
      });
    }
  }
}

TEST_P(Collective, AllGatherPutsEveryPartInRankOrder) {
  const Case& c = GetParam();
  Options options = Patient();
  options.staging_bytes = 64 << 10;
  RunRanks(c.size, c.nodes, options, [&](Communicator& comm) {
    for (size_t each : {size_t{0}, size_t{1}, size_t{777}, size_t{kSanitized ? 3001 : 9001}}) {
      const auto inputs = Inputs(DType::kI64, each);
      Data expected;
      for (const Data& input : inputs) expected.insert(expected.end(), input.begin(), input.end());
      const auto rank = static_cast<size_t>(comm.identity().rank);
      Data out(expected.size());
      ASSERT_EQ(comm.AllGatherNow(inputs[rank].data(), out.data(), each, DType::kI64).ToString(), "");
      EXPECT_TRUE(out == expected) << each;
      // The input inside the output, the output in shared memory.
      auto buffer = comm.Allocate(expected.size() + 1);
      ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
      std::byte* shared = static_cast<std::byte*>(buffer->data());
      std::byte* own = shared + rank * each * 8;
      Copy(own, inputs[rank].data(), each * 8);
      ASSERT_EQ(comm.AllGather(own, shared, each, DType::kI64).Wait().ToString(), "");
      EXPECT_TRUE(Equal(shared, expected.data(), expected.size())) << each;
      // The input in shared memory, the output not.
      auto input = comm.Allocate(each * 8);
      ASSERT_TRUE(input.ok());
      Copy(input->data(), inputs[rank].data(), each * 8);
      Data again(expected.size());
      ASSERT_EQ(comm.AllGatherNow(input->data(), again.data(), each, DType::kI64).ToString(), "");
      EXPECT_TRUE(again == expected) << each;
    }
  });
}

TEST_P(Collective, BroadcastFromEveryRankReachesAll) {
  const Case& c = GetParam();
  Options options = Patient();
  options.staging_bytes = 64 << 10;
  RunRanks(c.size, c.nodes, options, [&](Communicator& comm) {
    auto buffer = comm.Allocate(1 << 20);
    ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
    for (int root = 0; root < c.size; ++root) {
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{1001}, size_t{kSanitized ? 70001 : 300007}}) {
        for (bool shared : {false, true}) {
          Data own(bytes);
          std::byte* data = shared ? static_cast<std::byte*>(buffer->data()) : own.data();
          for (size_t i = 0; i < bytes; ++i) {
            data[i] =
                static_cast<std::byte>(comm.identity().rank == root ? (i * 7 + static_cast<size_t>(root)) & 255 : 0);
          }
          if (shared) ASSERT_EQ(comm.Barrier().ToString(), "");
          ASSERT_EQ(comm.BroadcastNow(data, bytes, root).ToString(), "");
          bool equal = true;
          for (size_t i = 0; i < bytes; ++i) {
            equal = equal && data[i] == static_cast<std::byte>((i * 7 + static_cast<size_t>(root)) & 255);
          }
          EXPECT_TRUE(equal) << bytes << " bytes from " << root;
          if (shared) ASSERT_EQ(comm.Barrier().ToString(), "");
        }
      }
    }
  });
}

TEST_P(Collective, SendReachesTheReceiverAndNobodyElse) {
  const Case& c = GetParam();
  Options options = Patient();
  options.staging_bytes = 64 << 10;
  RunRanks(c.size, c.nodes, options, [&](Communicator& comm) {
    for (int from = 0; from < c.size; ++from) {
      const int to = (from * 3 + 1) % c.size;
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{1001}, size_t{150001}}) {
        const auto value = [&](size_t i) { return static_cast<std::byte>((i * 7 + static_cast<size_t>(from)) & 255); };
        Data data(bytes);
        for (size_t i = 0; i < bytes; ++i) data[i] = comm.identity().rank == from ? value(i) : std::byte{0};
        const uint64_t sent = comm.traffic().tcp_bytes;
        ASSERT_EQ(comm.Send(data.data(), bytes, from, to).ToString(), "");
        const bool has = comm.identity().rank == from || comm.identity().rank == to;
        bool right = true;
        for (size_t i = 0; i < bytes; ++i) right = right && data[i] == (has ? value(i) : std::byte{0});
        EXPECT_TRUE(right) << bytes << " bytes from " << from << " to " << to << " on " << comm.identity().rank;
        const uint64_t more = comm.traffic().tcp_bytes - sent;
        EXPECT_TRUE(more == 0 || more == bytes) << more;
        if (comm.identity().rank == from && comm.identity().nodes == comm.identity().size && from != to)
          EXPECT_EQ(more, bytes);
      }
    }
  });
}

TEST_P(Collective, GatherBringsObjectsOfDifferentSizes) {
  const Case& c = GetParam();
  RunRanks(c.size, c.nodes, Patient(), [&](Communicator& comm) {
    for (size_t scale : {size_t{0}, size_t{1}, size_t{40000}}) {
      auto objects = comm.Gather(std::string(scale * static_cast<size_t>(comm.identity().rank), 'x'));
      ASSERT_TRUE(objects.ok()) << objects.status().ToString();
      ASSERT_EQ(objects->size(), static_cast<size_t>(c.size));
      for (int r = 0; r < c.size; ++r) {
        EXPECT_EQ((*objects)[static_cast<size_t>(r)], std::string(scale * static_cast<size_t>(r), 'x'));
      }
    }
  });
}

TEST_P(Collective, StartedOperationsFinishInOrderWhateverIsWaitedForFirst) {
  const Case& c = GetParam();
  RunRanks(c.size, c.nodes, Patient(), [&](Communicator& comm) {
    std::vector<std::vector<int64_t>> data;
    for (int k = 0; k < 20; ++k) data.emplace_back(static_cast<size_t>(k) * 3000, comm.identity().rank + k);
    std::vector<Work> works;
    for (auto& d : data) works.push_back(comm.AllReduce(d.data(), d.size(), DType::kI64));
    ASSERT_EQ(works.back().Wait().ToString(), "");
    for (auto& work : works) EXPECT_TRUE(work.Done());
    for (int k = 1; k < 20; ++k) {
      EXPECT_EQ(data[static_cast<size_t>(k)].back(), c.size * (c.size - 1) / 2 + k * c.size);
    }
    // A blocking call behind started ones waits its turn.
    std::vector<int64_t> big(200000, 1);
    Work started = comm.AllReduce(big.data(), big.size(), DType::kI64);
    int64_t one = 1;
    ASSERT_EQ(comm.AllReduceNow(&one, 1, DType::kI64).ToString(), "");
    EXPECT_TRUE(started.Done());
    EXPECT_EQ(one, c.size);
    EXPECT_EQ(big[0], c.size);
  });
}

TEST_P(Collective, BytesAreCountedByTransport) {
  const Case& c = GetParam();
  RunRanks(c.size, c.nodes, Patient(), [&](Communicator& comm) {
    const Traffic before = comm.traffic();
    std::vector<float> data(250000, 1);
    ASSERT_EQ(comm.AllReduceNow(data.data(), data.size(), DType::kF32).ToString(), "");
    const Traffic after = comm.traffic();
    const RankIdentity& identity = comm.identity();
    EXPECT_EQ(after.calls, before.calls + 1);
    EXPECT_EQ(after.shm_bytes > before.shm_bytes, identity.local_size > 1);
    const bool carries = identity.nodes > 1 && identity.local_rank == 0;
    EXPECT_EQ(after.tcp_bytes > before.tcp_bytes, carries);
    if (carries && identity.nodes == 2) EXPECT_EQ(after.tcp_bytes - before.tcp_bytes, 1000000U);  // 2 (N-1)/N
  });
}

TEST(Canonical, IsTrueWhereNodesHoldEqualPowersOfTwoOfContiguousRanks) {
  const std::pair<std::vector<std::string>, bool> kExpected[] = {
      {{"a", "a", "a"}, true},       {{"a", "b", "c"}, true},
      {{"a", "a", "b", "b"}, true},  {{"a", "b", "a", "b"}, false},
      {{"a", "a", "b"}, false},      {{"a", "a", "b", "b", "c", "c"}, true},
      {{"a", "b", "b", "b"}, false}, {{"a", "a", "a", "b", "b", "b"}, false},
  };
  for (const auto& row : kExpected) {
    RunRanks(static_cast<int>(row.first.size()), row.first, Patient(),
             [&](Communicator& comm) { EXPECT_EQ(comm.canonical_tree(), row.second); });
  }
}

TEST(Canonical, SumDoesNotDependOnHowRanksAreSpread) {
  const size_t count = 5000;
  std::vector<std::vector<float>> results;
  for (const auto& nodes :
       std::vector<std::vector<std::string>>{{"a", "a", "a", "a"}, {"a", "a", "b", "b"}, {"a", "b", "c", "d"}}) {
    std::vector<float> result;
    RunRanks(4, nodes, Patient(), [&](Communicator& comm) {
      Data mine = RandomData(DType::kF32, count, comm.identity().rank);
      ASSERT_EQ(comm.AllReduceNow(mine.data(), count, DType::kF32).ToString(), "");
      if (comm.identity().rank != 0) return;
      for (size_t i = 0; i < count; ++i) result.push_back(At<float>(mine, i));
    });
    results.push_back(result);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  // Negative control: another grouping adds in another order.
  std::vector<float> other;
  RunRanks(4, {"a", "b", "b", "a"}, Patient(), [&](Communicator& comm) {
    Data mine = RandomData(DType::kF32, count, comm.identity().rank);
    ASSERT_EQ(comm.AllReduceNow(mine.data(), count, DType::kF32).ToString(), "");
    if (comm.identity().rank != 0) return;
    for (size_t i = 0; i < count; ++i) other.push_back(At<float>(mine, i));
  });
  EXPECT_NE(results[0], other);
}

TEST(Extremes, NanWinsAndInfinitiesStay) {
  RunRanks(2, [](Communicator& comm) {
    const float nan = std::nanf("");
    const bool first = comm.identity().rank == 0;
    std::vector<float> data = {first ? nan : 1.0F, first ? 1.0F : nan, first ? INFINITY : 1.0F,
                               first ? -INFINITY : 1.0F};
    std::vector<float> smallest = data;
    ASSERT_TRUE(comm.AllReduceNow(data.data(), 4, DType::kF32, Op::kMax).ok());
    ASSERT_TRUE(comm.AllReduceNow(smallest.data(), 4, DType::kF32, Op::kMin).ok());
    EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[1]) && std::isnan(smallest[0]) && std::isnan(smallest[1]));
    EXPECT_EQ(data[2], INFINITY);
    EXPECT_EQ(smallest[3], -INFINITY);
    // 16-bit: a sum past the largest half is infinite, infinity plus its opposite is not a number.
    std::vector<uint16_t> half = {0x7bff, static_cast<uint16_t>(first ? 0x7c00 : 0xfc00), 0x0001};
    ASSERT_TRUE(comm.AllReduceNow(half.data(), 3, DType::kF16).ok());
    EXPECT_EQ(half[0], 0x7c00);
    EXPECT_GT(half[1] & 0x7fff, 0x7c00);
    EXPECT_EQ(half[2], 0x0002);  // subnormals count
  });
}

}  // namespace
}  // namespace lockstep::comm
