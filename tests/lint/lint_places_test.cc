// Settings are found in whatever people write them into, at the line and column where they stand.
#include <gtest/gtest.h>

#include "lint/lint.h"

namespace lockstep::lint {
namespace {

// "rule line:column" of every finding of severity error or warning.
std::vector<std::string> Found(const std::string& text, FileType type) {
  std::vector<std::string> places;
  const Result<std::vector<LintFinding>> found = LintText(text, "f", type, {});
  EXPECT_TRUE(found.ok());
  if (!found.ok()) return places;
  for (const LintFinding& finding : *found) {
    if (finding.severity == Severity::kNote) continue;
    places.push_back(finding.rule + " " + std::to_string(finding.line) + ":" + std::to_string(finding.column));
  }
  return places;
}

using Places = std::vector<std::string>;

TEST(LintPlaces, AMarkOfTheEncodingIsNoCharacter) {
  EXPECT_EQ(Found("\xEF\xBB\xBF"
                  "export NCCL_IB_DISABLE=true\n",
                  FileType::kShell),
            Places{"value-bool-word 1:8"});
  EXPECT_EQ(Recognise("\xEF\xBB\xBF#!/bin/bash\n", "job"), FileType::kShell);
}

TEST(LintPlaces, AFlagInAStringStandsWhereTheStringIsWritten) {
  const std::string script =
      "CMD=\"torchrun \\\n"
      "  --nproc_per_nodes=8 \\\n"
      "  train.py\"\n"
      "eval $CMD\n";
  EXPECT_EQ(Found(script, FileType::kShell), Places{"torchrun-unknown-flag 2:3"});
  const std::string quoted = script.substr(0, script.find("eval")) + "bash -c \"$CMD\"\n";
  EXPECT_EQ(Found(quoted, FileType::kShell), Places{"torchrun-unknown-flag 2:3"});
}

TEST(LintPlaces, VariablesOfAListHaveAColumnEach) {
  EXPECT_EQ(Found("srun --export=ALL,NCCL_IB_DISABLE=true,NCCL_BUFFSIZE=8M python a.py\n", FileType::kShell),
            (Places{"value-bool-word 1:19", "value-not-number 1:40"}));
  EXPECT_EQ(Found("#!/bin/bash\n#SBATCH --export=ALL,NCCL_BUFFSIZE=8M\nhostname\n", FileType::kSbatch),
            Places{"value-not-number 2:22"});
  EXPECT_EQ(Found("docker run -eNCCL_BUFFSIZE=8M image\n", FileType::kShell), Places{"value-not-number 1:14"});
}

TEST(LintPlaces, WhatIsUnsetBeforeAnythingRunsIsNotSet) {
  EXPECT_EQ(Found("export NCCL_IB_DISABLE=true\nunset NCCL_IB_DISABLE\npython a.py\n", FileType::kShell), Places{});
  EXPECT_EQ(Found("export NCCL_IB_DISABLE=true\npython a.py\nunset NCCL_IB_DISABLE\n", FileType::kShell),
            Places{"value-bool-word 1:8"});
}

TEST(LintPlaces, AllExportHoldsFromItsLineToTheNext) {
  EXPECT_EQ(Found("set -a\nNCCL_DEBUG=WARN\nset +a\nNCCL_IB_SL=1\npython a.py\n", FileType::kShell),
            Places{"not-exported 4:1"});
}

TEST(LintPlaces, DefaultsAndAppendedValuesAreJudged) {
  EXPECT_EQ(Found(": \"${NCCL_IB_DISABLE:=true}\"\nexport NCCL_IB_DISABLE\npython a.py\n", FileType::kShell),
            Places{"value-bool-word 1:6"});
  EXPECT_EQ(Found("NCCL_PROTO=LL\nNCCL_PROTO+=,LL256\nexport NCCL_PROTO\npython a.py\n", FileType::kShell),
            (Places{"algo-forced 1:1", "algo-unknown 2:1"}));
}

TEST(LintPlaces, DockerfilesHaveDocumentsArgumentsAndAnotherEscape) {
  const std::string file =
      "ARG ANY=true\n"
      "FROM base\n"
      "ARG ANY\n"
      "ENV NCCL_IB_DISABLE=${ANY}\n"
      "RUN <<EOF\n"
      "export NCCL_BUFFSIZE=8M\n"
      "EOF\n"
      "COPY <<EOF /etc/nccl.conf\n"
      "NCCL_IB_SL=20\n"
      "EOF\n"
      "ENV NCCL_NTHREADS=640\n";
  EXPECT_EQ(Found(file, FileType::kDockerfile),
            (Places{"value-bool-word 4:5", "value-not-number 6:8", "value-out-of-range 9:1", "nthreads-clamped 11:5"}));
  EXPECT_EQ(Found("# escape=`\nFROM base\nENV NCCL_DEBUG=WARN `\n  NCCL_IB_DISABLE=true\n", FileType::kDockerfile),
            Places{"value-bool-word 4:3"});
}

TEST(LintPlaces, ComposeWorkflowsAndChartsAreRead) {
  EXPECT_EQ(Found("services:\n  a:\n    environment:\n      - NCCL_IB_DISABLE=true\n", FileType::kConfig),
            Places{"value-bool-word 4:9"});
  EXPECT_EQ(Found("env:\n  NCCL_IB_DISABLE: \"true\"\nmore:\n- name: NCCL_BUFFSIZE\n  value: 8M\n", FileType::kConfig),
            (Places{"value-bool-word 2:3", "value-not-number 4:9"}));
  EXPECT_EQ(Found("run: |\n  export NCCL_DEBUG=WARN\n  export NCCL_BUFFSIZE=8M\n", FileType::kConfig),
            Places{"value-not-number 3:10"});
  EXPECT_EQ(Found("env:\n  NCCL_TOPO_FILE: null\n  NCCL_IB_SL: null\n", FileType::kConfig), Places{});
}

TEST(LintPlaces, ManifestsOfAnyKindAreRead) {
  EXPECT_EQ(Found("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nconfigMapGenerator:\n- literals:\n"
                  "  - NCCL_IB_DISABLE=true\n",
                  FileType::kManifest),
            Places{"value-bool-word 5:5"});
  EXPECT_EQ(
      Found("apiVersion: v1\nkind: ConfigMap\ndata:\n  nccl.conf: |\n    NCCL_BUFFSIZE=8M\n", FileType::kManifest),
      Places{"value-not-number 5:5"});
  const std::string merged =
      "apiVersion: v1\nkind: Pod\nbase: &base\n  env:\n  - {name: NCCL_IB_SL, value: \"20\"}\n"
      "spec:\n  containers:\n  - <<: *base\n    name: a\n";
  EXPECT_EQ(Found(merged, FileType::kManifest), Places{"value-out-of-range 5:12"});
}

TEST(LintPlaces, TemplatesDoNotHideWhatFollows) {
  const std::string chart =
      "{{ $nodes := div .Values.gpus 8 }}\n"
      "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    env:\n"
      "    {{- if .Values.fabric }}\n    - name: NCCL_IB_SL\n      value: \"20\"\n    {{- end }}\n"
      "    - name: NCCL_IB_TC\n      value: {{ .Values.tc | quote }}\n";
  EXPECT_EQ(Found(chart, FileType::kManifest), Places{"value-out-of-range 9:13"});
}

TEST(LintPlaces, CommandsKeptInArmsAreReadThere) {
  EXPECT_EQ(Found("if [ $N -gt 1 ]; then\n  RUN=\"mpirun -np $N \\\n    -x NCCL_BUFFSIZE=8M\"\nfi\n$RUN python a.py\n",
                  FileType::kShell),
            Places{"value-not-number 3:8"});
  EXPECT_EQ(Found("NP=$(($A * $B))\nmpirun -np $NP -x NCCL_BUFFSIZE=8M python a.py\n", FileType::kShell),
            Places{"value-not-number 2:19"});
}

TEST(LintPlaces, FoldedAndQuotedCommandsKeepTheirLines) {
  const std::string head =
      "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    command: [bash, -c]\n    args:\n";
  EXPECT_EQ(Found(head + "    - >-\n      export NCCL_DEBUG=WARN\n      NCCL_BUFFSIZE=8M;\n      hostname\n",
                  FileType::kManifest),
            Places{"value-not-number 10:7"});
  EXPECT_EQ(Found(head + "    - \"hostname && \\\n      export NCCL_BUFFSIZE=8M\"\n", FileType::kManifest),
            Places{"value-not-number 9:14"});
}

TEST(LintPlaces, ProgramsSetTheirEnvironmentInManyWays) {
  EXPECT_EQ(Found("env = {**os.environ, \"NCCL_IB_SL\": \"20\"}\n", FileType::kPython),
            Places{"value-out-of-range 1:22"});
  EXPECT_EQ(Found("os.environ |= {\"NCCL_IB_SL\": \"20\"}\n", FileType::kPython), Places{"value-out-of-range 1:16"});
  EXPECT_EQ(Found("os.environ.update(NCCL_IB_SL=\"20\")\n", FileType::kPython), Places{"value-out-of-range 1:19"});
  // Names that are only read, and tables about them, set nothing.
  EXPECT_EQ(
      Found("if os.environ.get(\"NCCL_SOKET_IFNAME\"): pass\nHELP = {\"NCCL_DEBUG\": \"level\"}\n", FileType::kPython),
      Places{});
}

TEST(LintPlaces, CommandsThatPassVariablesOn) {
  EXPECT_EQ(Found("sbatch --wrap='export NCCL_BUFFSIZE=8M; hostname'\n", FileType::kShell),
            Places{"value-not-number 1:23"});
  EXPECT_EQ(Found("docker compose -f a.yaml run -e NCCL_BUFFSIZE=8M train\n", FileType::kShell),
            Places{"value-not-number 1:33"});
  EXPECT_EQ(Found("kubectl set env job/fit NCCL_BUFFSIZE=8M\n", FileType::kShell), Places{"value-not-number 1:25"});
}

TEST(LintPlaces, BlocksInQuotationsAndWithNamesOfTheirOwn) {
  EXPECT_EQ(Found("> ```bash\n> export NCCL_BUFFSIZE=8M\n> ```\n", FileType::kMarkdown),
            Places{"value-not-number 2:10"});
  EXPECT_EQ(Found("```{code-block} bash\nexport NCCL_BUFFSIZE=8M\n```\n", FileType::kMarkdown),
            Places{"value-not-number 2:8"});
}

TEST(LintPlaces, ScriptsUnderAnyKeyAndInIndentedBlocks) {
  EXPECT_EQ(Found("BEFORE: |\n  cd /opt\n  export NCCL_BUFFSIZE=8M\n", FileType::kConfig),
            Places{"value-not-number 3:10"});
  EXPECT_EQ(Found("Command:\n- bash\n- !Sub |\n    cd /opt\n    export NCCL_BUFFSIZE=8M\n", FileType::kConfig),
            Places{"value-not-number 5:12"});
  EXPECT_EQ(Found("Set this:\n\n    export NCCL_BUFFSIZE=8M\n\nText.\n", FileType::kMarkdown),
            Places{"value-not-number 3:12"});
  EXPECT_EQ(Found("LOG=$(mpirun -np 8 \\\n  -x NCCL_BUFFSIZE=8M python a.py)\n", FileType::kShell),
            Places{"value-not-number 2:6"});
}

TEST(LintPlaces, RestructuredTextHasBlocksToo) {
  EXPECT_EQ(Found(".. code-block:: bash\n\n   export NCCL_IB_DISABLE=true\n\nText.\n", FileType::kMarkdown),
            Places{"value-bool-word 3:11"});
}

TEST(LintPlaces, AnEnvironmentWithFunctionsIsOneStill) {
  EXPECT_EQ(Recognise("SHELL=/bin/bash\nPATH=/bin\nBASH_FUNC_ml%%=() {  eval $(x)\n}\n_=/usr/bin/env\n", "env.txt"),
            FileType::kEnvironment);
  EXPECT_EQ(Recognise("NCCL_DEBUG=INFO\n", ".deepspeed_env"), FileType::kEnvironment);
}

}  // namespace
}  // namespace lockstep::lint
