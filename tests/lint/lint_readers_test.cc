// The readers see what a shell, a cluster or a container would see, at the place where it is written.
#include <gtest/gtest.h>

#include "lint/lint.h"
#include "lint/readers.h"

namespace lockstep::lint {
namespace {

const Fact* Find(const Units& units, const std::string& kind, const std::string& name) {
  for (const Unit& unit : units) {
    for (const Fact& fact : unit.facts) {
      if (fact.kind == kind && fact.name == name) return &fact;
    }
  }
  return nullptr;
}

Units Script(const std::string& text) {
  Units units;
  ReadScript(text, 1, 1, false, "script", units);
  return units;
}

std::string ValueOf(const Units& units, const std::string& name) {
  const Fact* fact = Find(units, "variable", name);
  return fact == nullptr ? "(none)" : fact->known ? fact->value : "(open)";
}

std::vector<std::string> RulesIn(const std::string& text, FileType type) {
  std::vector<std::string> rules;
  const Result<std::vector<LintFinding>> found = LintText(text, "f", type, {});
  if (found.ok()) {
    for (const LintFinding& finding : *found) rules.push_back(finding.rule + ":" + std::to_string(finding.line));
  }
  return rules;
}

bool Holds(const std::vector<std::string>& list, const std::string& one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

TEST(ShellReader, TakesQuotesCommentsAndContinuationsAsTheShellDoes) {
  const Units units = Script(
      "export A_NCCL=1 NCCL_DEBUG='INFO' \\\n"
      "  NCCL_IB_HCA=\"=mlx5_0,mlx5_1\"  # not NCCL_NTHREADS=640\n"
      "# export NCCL_ALGO=Tree\n"
      "export NCCL_SOCKET_IFNAME=bo\\nd0\n");
  EXPECT_EQ(ValueOf(units, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(ValueOf(units, "NCCL_IB_HCA"), "=mlx5_0,mlx5_1");
  EXPECT_EQ(ValueOf(units, "NCCL_NTHREADS"), "(none)");
  EXPECT_EQ(ValueOf(units, "NCCL_ALGO"), "(none)");
  EXPECT_EQ(ValueOf(units, "NCCL_SOCKET_IFNAME"), "bond0");
  const Fact* fact = Find(units, "variable", "NCCL_IB_HCA");
  ASSERT_NE(fact, nullptr);
  EXPECT_EQ(fact->line, 2);
  EXPECT_EQ(fact->column, 3);
}

TEST(ShellReader, UsesValuesTheScriptGivesAndLeavesOthersOpen) {
  const Units units = Script(
      "SIZE=33554432\n"
      "export NCCL_BUFFSIZE=$SIZE\n"
      "export NCCL_NTHREADS=${THREADS:-640}\n"
      "export NCCL_IB_TIMEOUT=$FROM_OUTSIDE\n"
      "export NCCL_ALGO=$(choose)\n");
  EXPECT_EQ(ValueOf(units, "NCCL_BUFFSIZE"), "33554432");
  EXPECT_EQ(ValueOf(units, "NCCL_NTHREADS"), "640");
  EXPECT_TRUE(Find(units, "variable", "NCCL_NTHREADS")->fallback);
  EXPECT_EQ(ValueOf(units, "NCCL_IB_TIMEOUT"), "(open)");
  EXPECT_EQ(ValueOf(units, "NCCL_ALGO"), "(open)");
}

TEST(ShellReader, AValueSetInOneArmIsNotKnownOutsideOfIt) {
  const Units units = Script(
      "if [ \"$1\" = a ]; then\n  S=1\nfi\n"
      "export NCCL_IB_TIMEOUT=$S\n");
  EXPECT_EQ(ValueOf(units, "NCCL_IB_TIMEOUT"), "(open)");
}

TEST(ShellReader, FindsVariablesInEveryForm) {
  const Units units = Script(
      "declare -x NCCL_DEBUG=INFO\n"
      "env NCCL_ALGO=Ring python a.py\n"
      "NCCL_PROTO=LL NCCL_NTHREADS=64 torchrun a.py\n"
      "docker run -e NCCL_IB_DISABLE=1 --env NCCL_IB_SL=2 image python a.py\n"
      "mpirun -x NCCL_SOCKET_IFNAME=eth1 -np 4 python a.py\n"
      "srun --export=ALL,NCCL_IB_TC=106 python a.py\n"
      "ssh node2 'NCCL_CROSS_NIC=1 python a.py'\n"
      "bash -c \"export NCCL_P2P_LEVEL=NVL; python a.py\"\n"
      "echo 'export NCCL_IB_HCA=mlx5' >> ~/.bashrc\n");
  EXPECT_EQ(ValueOf(units, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(ValueOf(units, "NCCL_ALGO"), "Ring");
  EXPECT_EQ(ValueOf(units, "NCCL_NTHREADS"), "64");
  EXPECT_EQ(ValueOf(units, "NCCL_IB_DISABLE"), "1");
  EXPECT_EQ(ValueOf(units, "NCCL_IB_SL"), "2");
  EXPECT_EQ(ValueOf(units, "NCCL_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(ValueOf(units, "NCCL_IB_TC"), "106");
  EXPECT_EQ(ValueOf(units, "NCCL_CROSS_NIC"), "1");
  EXPECT_EQ(ValueOf(units, "NCCL_P2P_LEVEL"), "NVL");
  EXPECT_EQ(ValueOf(units, "NCCL_IB_HCA"), "mlx5");
  EXPECT_FALSE(Find(units, "variable", "NCCL_NTHREADS")->lasting);
  EXPECT_TRUE(Find(units, "variable", "NCCL_DEBUG")->lasting);
}

TEST(ShellReader, KnowsWhichProgramAFlagBelongsTo) {
  const Units units = Script(
      "ARGS=(--nnodes 2 --nproc_per_node 8)\n"
      "srun -n 2 --label numactl -N 0 torchrun \"${ARGS[@]}\" --standalone train.py --nnodes 7 --lr -1e-3 x\n");
  const Fact* nnodes = Find(units, "flag", "torchrun --nnodes");
  ASSERT_NE(nnodes, nullptr);
  EXPECT_EQ(nnodes->value, "2");
  const Fact* own = Find(units, "flag", "script --nnodes");
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->value, "7");
  EXPECT_EQ(Find(units, "flag", "script --lr")->value, "-1e-3");
  EXPECT_NE(Find(units, "flag", "srun -n"), nullptr);
}

TEST(ShellReader, CommandsWithoutTheirWordsAreNoTrouble) {
  for (const char* text :
       {"torchrun", "accelerate launch", "python -m", "python -m torch.distributed.run", "env -u", "srun", "docker run",
        "bash -c", "timeout -k", "mpirun -x", "export", "ssh", "deepspeed --", "sudo -u"}) {
    EXPECT_TRUE(RulesIn(text, FileType::kShell).empty()) << text;
  }
}

TEST(ShellReader, DocumentsAreReadAsWhatTheyBecome) {
  const std::string text =
      "cat > run.sh <<'EOF'\n"
      "export NCCL_NTHREADS=640\n"
      "EOF\n"
      "cat <<EOF | kubectl apply -f -\n"
      "apiVersion: batch/v1\n"
      "kind: Job\n"
      "metadata: {name: x}\n"
      "spec: {template: {spec: {containers: [{name: a}]}}}\n"
      "EOF\n"
      "cat > /etc/nccl.conf <<EOF\n"
      "NCCL_DEBUG = INFO\n"
      "EOF\n";
  const std::vector<std::string> rules = RulesIn(text, FileType::kShell);
  EXPECT_TRUE(Holds(rules, "nthreads-clamped:2"));
  EXPECT_TRUE(Holds(rules, "k8s-job-restart-policy:8"));
  EXPECT_TRUE(Holds(rules, "conf-line:11"));
}

TEST(ShellReader, DifferentArmsDoNotContradictEachOther) {
  const std::string arms =
      "if [ \"$FABRIC\" = none ]; then\n  export NCCL_IB_DISABLE=1\nelse\n  export NCCL_IB_TC=106\nfi\n";
  EXPECT_FALSE(Holds(RulesIn(arms, FileType::kShell), "ib-settings-without-ib:4"));
  EXPECT_TRUE(Holds(RulesIn("export NCCL_IB_DISABLE=1\nexport NCCL_IB_TC=106\n", FileType::kShell),
                    "ib-settings-without-ib:2"));
  const std::string cases = "case $1 in\n  a) export NCCL_IB_DISABLE=1 ;;\n  b) export NCCL_IB_TC=106 ;;\nesac\n";
  EXPECT_FALSE(Holds(RulesIn(cases, FileType::kShell), "ib-settings-without-ib:3"));
}

TEST(ShellReader, TrapsAndFunctionsThatExitZeroAreHandlers) {
  EXPECT_TRUE(Holds(RulesIn("trap 'echo bad; exit 0' ERR\npython a.py\n", FileType::kShell), "handler-exits-zero:1"));
  EXPECT_TRUE(Holds(RulesIn("handle_error() {\n  echo bad\n  exit 0\n}\n", FileType::kShell), "handler-exits-zero:3"));
  EXPECT_TRUE(Holds(RulesIn("if ! torchrun a.py; then\n  exit 0\nfi\n", FileType::kShell), "handler-exits-zero:2"));
  EXPECT_TRUE(Holds(RulesIn("if torchrun a.py; then\n  echo ok\nelse\n  exit 0\nfi\n", FileType::kShell),
                    "handler-exits-zero:4"));
  EXPECT_FALSE(Holds(RulesIn("if torchrun a.py; then\n  exit 0\nfi\n", FileType::kShell), "handler-exits-zero:2"));
  EXPECT_FALSE(
      Holds(RulesIn("if ! command -v nvidia-smi; then\n  exit 0\nfi\n", FileType::kShell), "handler-exits-zero:2"));
}

TEST(ShellReader, ErrexitReachesThroughPipesOnlyWithPipefail) {
  const std::string tail = "torchrun a.py | tee log\nrc=${PIPESTATUS[0]}\nif [ $rc -ne 0 ]; then\n  exit $rc\nfi\n";
  EXPECT_TRUE(Holds(RulesIn("set -eo pipefail\n" + tail, FileType::kShell), "status-after-errexit:3"));
  EXPECT_FALSE(Holds(RulesIn("set -e\n" + tail, FileType::kShell), "status-after-errexit:3"));
  EXPECT_FALSE(Holds(RulesIn("set -eo pipefail\nset +e\n" + tail, FileType::kShell), "status-after-errexit:4"));
}

TEST(ManifestReader, ScriptsInBlocksKeepTheirLinesAndColumns) {
  const std::string text =
      "apiVersion: v1\n"
      "kind: Pod\n"
      "metadata: {name: a}\n"
      "spec:\n"
      "  containers:\n"
      "  - name: a\n"
      "    command: [bash, -c]\n"
      "    args:\n"
      "    - |\n"
      "      echo start\n"
      "      export NCCL_NTHREADS=640\n"
      "    env:\n"
      "    - name: NCCL_TIMEOUT\n"
      "      value: \"5\"\n";
  Units units;
  ReadManifest(text, 1, units);
  const Fact* inside = Find(units, "variable", "NCCL_NTHREADS");
  ASSERT_NE(inside, nullptr);
  EXPECT_EQ(inside->line, 11);
  EXPECT_EQ(inside->column, 14);
  const Fact* env = Find(units, "variable", "NCCL_TIMEOUT");
  ASSERT_NE(env, nullptr);
  EXPECT_EQ(env->line, 13);
  EXPECT_EQ(env->value, "5");
}

TEST(ManifestReader, TemplatesAndListsAndOldChartsAreRead) {
  Units units;
  ReadManifest(
      "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: {{ .Values.name }}}\n  "
      "spec:\n"
      "    containers:\n    - name: a\n      env:\n      - name: NCCL_ALGO\n        value: {{ .Values.algo }}\n"
      "      - name: NCCL_DEBUG\n        value: INFO\n",
      1, units);
  EXPECT_EQ(ValueOf(units, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(ValueOf(units, "NCCL_ALGO"), "(open)");
  Units broken;
  ReadManifest("spec: [\n- name: NCCL_DEBUG\n  value: WARN\n", 1, broken);
  EXPECT_EQ(ValueOf(broken, "NCCL_DEBUG"), "WARN");
}

TEST(DockerfileReader, KnowsBothFormsOfEnv) {
  Units units;
  ReadDockerfile(
      "FROM base\nENV NCCL_DEBUG INFO\nENV NCCL_ALGO=Ring \\\n    # why\n    NCCL_PROTO=LL\nRUN export "
      "NCCL_NTHREADS=64 && make\n",
      1, units);
  EXPECT_EQ(ValueOf(units, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(ValueOf(units, "NCCL_ALGO"), "Ring");
  EXPECT_EQ(ValueOf(units, "NCCL_PROTO"), "LL");
  EXPECT_EQ(Find(units, "variable", "NCCL_PROTO")->line, 5);
  EXPECT_FALSE(Find(units, "variable", "NCCL_NTHREADS")->lasting);
}

TEST(DockerfileReader, AnEscapeRightBehindTheNameContinuesToo) {
  Units units;
  ReadDockerfile("FROM base\nENV\\\n NCCL_DEBUG=INFO\n\\\nENV NCCL_ALGO=Ring\n", 1, units);
  EXPECT_EQ(ValueOf(units, "NCCL_DEBUG"), "INFO");
}

TEST(MarkdownReader, ReadsEachBlockInItsLanguageAndNothingElse) {
  const std::string text =
      "# Title\n\nexport NCCL_ALGO=Tree in prose\n\n"
      "  ```bash\n  export NCCL_NTHREADS=640\n  ```\n\n"
      "```python\nos.environ['NCCL_TIMEOUT'] = '5'\n```\n\n"
      "```json\n{\"zero_optimization\": {\"stage\": 3}} // x\n```\n\n"
      "```cpp\nexport NCCL_ALGO=Tree\n```\n\n"
      "```console\n$ export NCCL_IB_TIMEOUT=30\nexport NCCL_ALGO=Tree\n```\n";
  const std::vector<std::string> rules = RulesIn(text, FileType::kMarkdown);
  EXPECT_TRUE(Holds(rules, "nthreads-clamped:6"));
  EXPECT_TRUE(Holds(rules, "variable-never-existed:10"));
  EXPECT_TRUE(Holds(rules, "json-comments-deepspeed:14"));
  EXPECT_TRUE(Holds(rules, "ib-timeout-endless:22"));
  EXPECT_EQ(rules.size(), 4u);
}

TEST(PythonReader, SeesThroughStringsCommentsAndLines) {
  Units units;
  ReadPython(
      "os.environ[\"NCCL_DEBUG\"] = \"INFO\"  # os.environ['NCCL_ALGO'] = 'Tree'\n"
      "text = \"os.environ['NCCL_PROTO'] = 'LL'\"\n"
      "os.environ.setdefault('NCCL_NTHREADS', '640')\n"
      "dist.init_process_group(\n    backend='nccl',\n    timeout=datetime.timedelta(minutes=90))\n"
      "if os.environ['RANK'] == '0': pass\n",
      1, 1, units);
  EXPECT_EQ(ValueOf(units, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(ValueOf(units, "NCCL_ALGO"), "(none)");
  EXPECT_EQ(ValueOf(units, "NCCL_PROTO"), "(none)");
  EXPECT_EQ(ValueOf(units, "NCCL_NTHREADS"), "640");
  EXPECT_EQ(ValueOf(units, "RANK"), "(none)");
  const Fact* timeout = Find(units, "call", "init_process_group.timeout");
  ASSERT_NE(timeout, nullptr);
  EXPECT_EQ(timeout->value, "5400");
  EXPECT_EQ(timeout->line, 6);
}

TEST(Recognise, ByContentThenByName) {
  EXPECT_EQ(Recognise("#!/bin/bash\n#SBATCH -N 2\n", "job"), FileType::kSbatch);
  EXPECT_EQ(Recognise("#!/bin/bash\nls\n", "job"), FileType::kShell);
  EXPECT_EQ(Recognise("apiVersion: v1\nkind: Pod\n", "x"), FileType::kManifest);
  EXPECT_EQ(Recognise(std::string("A=1\0B=2\0", 8), "environ"), FileType::kEnvironment);
  EXPECT_EQ(Recognise("A=1\nB=2\n", ""), FileType::kEnvironment);
  EXPECT_EQ(Recognise("FROM x\nRUN y\n", "x"), FileType::kDockerfile);
  EXPECT_EQ(Recognise("{\"a\": 1}", ""), FileType::kConfig);
  EXPECT_EQ(Recognise("NCCL_DEBUG=INFO\n", "/etc/nccl.conf"), FileType::kConf);
  EXPECT_EQ(Recognise("distributed_type: MULTI_GPU\n", "default_config.yaml"), FileType::kConfig);
  EXPECT_EQ(Recognise(std::string("\x7f"
                                  "ELF\0\0\0",
                                  7),
                      "a.out"),
            std::nullopt);
  EXPECT_EQ(Recognise("Dear reader, this is a letter.\n", ""), std::nullopt);
}

TEST(LintEnvironment, FindsWhatTheEnvironmentHoldsAndNoMore) {
  const std::vector<LintFinding> found = LintEnvironment(
      {{"NCCL_TIMEOUT", "7200"}, {"NCCL_DEBUG", "WARN"}, {"PATH", "/bin"}, {"MASTER_PORT", "40000"}}, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rule, "variable-never-existed");
  EXPECT_EQ(found[0].variable, "NCCL_TIMEOUT");
}

TEST(LintEnvironment, TheNamesOfTheLibraryDecide) {
  LintContext context;
  context.nccl = KnownLibrary{"libnccl.so.2", "2.31.0", {}};
  context.nccl->names.whole = {"NCCL_DEBUG", "NCCL_NEW_IN_THIS_ONE"};
  EXPECT_TRUE(LintEnvironment({{"NCCL_NEW_IN_THIS_ONE", "1"}}, context).empty());
  EXPECT_EQ(LintEnvironment({{"NCCL_NEW_IN_THIS_ONE", "1"}}, {}).size(), 1u);
}

}  // namespace
}  // namespace lockstep::lint
