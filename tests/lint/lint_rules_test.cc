// Every rule carries an example it fires on and one it is silent on; this test tries them all.
#include <gtest/gtest.h>

#include <set>

#include "lint/checks.h"
#include "lint/lint.h"
#include "lint/rules.h"
#include "lint/variables.h"

namespace lockstep::lint {
namespace {

using hardware::GpuState;
using hardware::Hardware;
using hardware::IbPort;
using hardware::Interface;

IbPort Port(const std::string& device, const std::string& layer, double gbit, const std::string& state = "ACTIVE") {
  IbPort port;
  port.device = device;
  port.state = state;
  port.link_layer = layer;
  port.gbit = gbit;
  return port;
}

Interface Link(const std::string& name, bool up) {
  Interface link;
  link.name = name;
  link.up = up;
  return link;
}

std::vector<GpuState> Gpus(int count, int links) {
  std::vector<GpuState> gpus(count);
  for (GpuState& gpu : gpus) {
    gpu.name = "NVIDIA H100";
    gpu.compute_capability = "9.0";
    gpu.nvlinks_active = links;
  }
  return gpus;
}

// The machines the examples name.
LintContext Machine(const std::string& name) {
  LintContext context;
  if (name.empty()) return context;
  if (name == "torch213") {
    context.torch = KnownLibrary{"libtorch_cuda.so", "2.13.0", {}};
    return context;
  }
  if (name == "nccl228") {
    context.nccl = KnownLibrary{"libnccl.so.2", "2.28.9", {}};
    context.nccl->names.whole = {"NCCL_DEBUG", "NCCL_IB_TIMEOUT"};
    return context;
  }
  Hardware here;
  here.cpus = 64;
  here.peermem = "nvidia_peermem";
  here.interfaces = {Link("eth0", true), Link("eth9", false), Link("lo", true)};
  if (name == "ib8" || name == "ib16" || name == "nopeermem") {
    for (int i = 0; i < (name == "ib16" ? 16 : 8); ++i)
      here.ib.push_back(Port("mlx5_" + std::to_string(i), "InfiniBand", 400));
    here.gpus = Gpus(8, 18);
    if (name == "nopeermem") here.peermem.clear();
  } else if (name == "downport") {
    here.ib = {Port("mlx5_0", "InfiniBand", 400), Port("mlx5_1", "InfiniBand", 400, "DOWN")};
  } else if (name == "roce") {
    here.ib = {Port("mlx5_0", "Ethernet", 200), Port("mlx5_1", "Ethernet", 200), Port("mlx5_2", "Ethernet", 25)};
    for (IbPort& port : here.ib) {
      port.gids = {{0, "fe80::1", "IB/RoCE v1", "eth0", false}, {3, "::ffff:10.0.0.1", "RoCE v2", "eth0", true}};
    }
  } else if (name == "bonded") {
    here.interfaces = {Link("bond0", true), Link("bond0.100", true)};
  } else if (name == "nvlink8") {
    here.gpus = Gpus(8, 18);
  } else if (name == "pcie4") {
    here.gpus = Gpus(4, 0);
  } else if (name != "ethernet") {
    ADD_FAILURE() << "no machine called " << name;
  }
  context.hardware = here;
  return context;
}

std::vector<LintFinding> Try(const Example& example) {
  LintContext context = Machine(example.hardware);
  if (const size_t equals = example.variable.find('='); equals != std::string::npos) {
    context.environment[example.variable.substr(0, equals)] = example.variable.substr(equals + 1);
  }
  const std::optional<FileType> type = FileTypeFromName(example.type);
  EXPECT_TRUE(type) << "line " << example.line << ": type '" << example.type << "'";
  if (!type) return {};
  Result<std::vector<LintFinding>> found = LintText(example.text, "example", *type, context);
  EXPECT_TRUE(found.ok());
  return found.ok() ? *found : std::vector<LintFinding>();
}

bool Fired(const std::vector<LintFinding>& findings, const std::string& rule) {
  for (const LintFinding& finding : findings) {
    if (finding.rule == rule) return true;
  }
  return false;
}

TEST(LintRules, TheTableCanBeRead) {
  // Rules() is what the program uses: an unreadable table would be an empty one.
  EXPECT_GT(Rules().size(), 100u);
}

TEST(LintRules, EveryRuleIsWhole) {
  std::set<std::string> ids;
  for (const Rule& rule : Rules()) {
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id << " is there twice";
    for (const std::string* text : {&rule.kind, &rule.what, &rule.why, &rule.fix, &rule.source}) {
      EXPECT_FALSE(text->empty()) << rule.id;
    }
    for (const Condition& condition : rule.when) {
      if (condition.verb == "is")
        EXPECT_NE(FindCheck(condition.operand), nullptr) << rule.id << ": is " << condition.operand;
      if (condition.verb == "hardware" || condition.verb == "not-hardware") {
        EXPECT_NE(FindHardwareCheck(condition.operand), nullptr) << rule.id << ": hardware " << condition.operand;
      }
    }
    for (const std::string& other : rule.unless_rules) {
      EXPECT_TRUE(ids.count(other)) << rule.id << " gives way to '" << other << "', which must stand before it";
    }
  }
}

TEST(LintRules, EveryRuleFiresOnItsExampleAndIsSilentOnTheOther) {
  for (const Rule& rule : Rules()) {
    EXPECT_FALSE(rule.fires.empty()) << rule.id << " has no example it fires on";
    EXPECT_FALSE(rule.silent.empty()) << rule.id << " has no example it is silent on";
    for (const Example& example : rule.fires) {
      EXPECT_TRUE(Fired(Try(example), rule.id)) << rule.id << " does not fire on\n" << example.text;
    }
    for (const Example& example : rule.silent) {
      EXPECT_FALSE(Fired(Try(example), rule.id)) << rule.id << " fires on\n" << example.text;
    }
  }
}

TEST(LintRules, EveryMessageIsFilledIn) {
  for (const Rule& rule : Rules()) {
    for (const Example& example : rule.fires) {
      for (const LintFinding& finding : Try(example)) {
        if (finding.rule != rule.id) continue;
        for (const std::string* text : {&finding.what, &finding.why, &finding.fix}) {
          for (const char* word :
               {"{name}", "{value}", "{detail}", "{nearest}", "{new}", "{note}", "{other}", "{by}", "{range}"}) {
            EXPECT_EQ(text->find(word), std::string::npos) << rule.id << ": " << *text;
          }
        }
        EXPECT_GT(finding.line + (example.type == "env" ? 1 : 0), 0) << rule.id;
      }
    }
  }
}

TEST(LintRules, AnUnreadableTableIsRefused) {
  EXPECT_FALSE(ParseRules("what: before a rule\n").ok());
  EXPECT_FALSE(ParseRules("[a]\non: variable X\nwhen: value\n").ok());
  EXPECT_FALSE(ParseRules("[a]\nseverity: terrible\n").ok());
  EXPECT_FALSE(ParseRules("[a]\nwhere: here\n").ok());
  EXPECT_FALSE(ParseRules("[a]\nno colon\n").ok());
}

TEST(Variables, TheTableCanBeReadAndIsConsistent) {
  const Variables& table = Variables::Table();
  EXPECT_GT(table.rows().size(), 400u);
  for (const Variable& row : table.rows()) {
    if (!row.NewName().empty()) {
      EXPECT_NE(table.Find(row.NewName()), nullptr) << row.name << " became an unknown name";
    }
    if (row.status == "never") EXPECT_FALSE(row.note.empty()) << row.name;
  }
}

TEST(Variables, ARowWithTooManyFieldsIsRefused) {
  EXPECT_FALSE(Variables::Parse("A\tnccl\tint\t\t\t\t\tcurrent\tnote\textra\n").ok());
  EXPECT_FALSE(Variables::Parse("A\n").ok());
}

TEST(Variables, PluginsAndBuildsKeepTheirNames) {
  for (const char* name :
       {"NCCL_OFI_NIC_DUP_CONNS", "NCCL_VERSION", "NCCL_UCX_RNDV_THRESH", "NCCL_GPUDIRECTTCPX_CTRL_DEV",
        "NCCL_TESTS_DEVICE", "NCCL_IBEXT_DISABLE", "NCCL_COLLNET_ENABLE"}) {
    EXPECT_NE(Variables::Table().Find(name), nullptr) << name;
  }
}

TEST(Variables, AMisspeltNameFindsItsNearest) {
  const Variables& table = Variables::Table();
  EXPECT_EQ(table.Meant("NCCL_SOKET_IFNAME"), "NCCL_SOCKET_IFNAME");
  EXPECT_EQ(table.Meant("NCCL_IB_TIMEUOT"), "NCCL_IB_TIMEOUT");
  EXPECT_EQ(table.Meant("TORCH_NCCL_ASYNC_ERROR_HANDELING"), "TORCH_NCCL_ASYNC_ERROR_HANDLING");
  EXPECT_EQ(table.Meant("NCLL_DEBUG"), "NCCL_DEBUG");
  EXPECT_EQ(table.Meant("CUDA_VISIBLE_DEVICE"), "CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(table.Meant("MY_OWN_VARIABLE"), std::nullopt);
  EXPECT_EQ(table.Meant("NCCL_WHOLLY_DIFFERENT_THING"), std::nullopt);
}

TEST(Variables, VersionsCompareByNumber) {
  EXPECT_LT(CompareVersions("2.9.6", "2.10.3"), 0);
  EXPECT_EQ(CompareVersions("2.28", "2.28.0"), 0);
  EXPECT_GT(CompareVersions("2.30.7", "2.28.9"), 0);
}

}  // namespace
}  // namespace lockstep::lint
