#include "submit/job.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "submit/client.h"
#include "submit/records.h"

namespace lockstep::submit {
namespace {

TEST(Job, WordsAsAShellSplitsThem) {
  const std::pair<const char*, std::vector<std::string>> table[] = {
      {"train.py --lr 1e-4", {"train.py", "--lr", "1e-4"}},
      {"  a\t'b c'  \"d 'e'\" f\\ g ", {"a", "b c", "d 'e'", "f g"}},
      {R"(a '' "" "x\"y\\z\n")", {"a", "", "", R"(x"y\z\n)"}},
      {"a$ b$1 'c$HOME' x=\"{1,2}\"", {"a$", "b$1", "c$HOME", "x={1,2}"}},
      {"a \\\n  --b \\\n--c\n", {"a", "--b", "--c"}},
      {"\na\n  --b c\n\n  -d \\\n e\n \n", {"a", "--b", "c", "-d", "e"}},
      {R"("\$HOME" "a\`b" ~x x~)", {"$HOME", "a`b", "~x", "x~"}},
      {"", {}}};
  for (const auto& [text, words] : table) {
    Result<std::vector<std::string>> found = SplitWords(text);
    ASSERT_TRUE(found.ok()) << text;
    EXPECT_EQ(*found, words) << text;
  }
  for (const char* text : {"a | b", "a > b", "a; b", "a && b", "$HOME/x", "${X}", "$(x)", "`x`", "\"$HOME/x\"",
                           "\"`x`\"", "$_X", "~/x", "'a", "\"a", "a\\", "a\nb", "a --x\n\n b\n", "a -x \\\n y\nb"}) {
    EXPECT_FALSE(SplitWords(text).ok()) << text;
  }
}

TEST(Job, CommandOfLockstepIsTakenApart) {
  const auto of = [](std::vector<std::string> words) { return CommandOf({.program = std::move(words)}); };
  EXPECT_EQ(of({"lockstep", "train", "taehv"}).subcommand, "train");
  EXPECT_EQ(of({"/opt/lockstep", "run", "a.py"}).lockstep, "/opt/lockstep");
  EXPECT_EQ(of({"/opt/lockstep", "run", "a.py"}).words, std::vector<std::string>{"a.py"});
  EXPECT_EQ(of({"lockstep", "doctor"}).words.size(), 2u);
  EXPECT_EQ(of({"train.py", "train"}).subcommand, "run");
}

TEST(Job, NameOfTheProgram) {
  const std::pair<std::vector<std::string>, const char*> table[] = {
      {{"src/Train_VRT.py", "--x"}, "train-vrt"},
      {{"lockstep", "train", "taehv"}, "taehv"},
      {{"python", "-u", "fit.py"}, "fit"},
      {{"-m", "pkg"}, "pkg"},
      {{"训练.py"}, "job"},
      {{".hidden"}, "hidden"},
      {{"123.py"}, "job"},
      {{std::string(99, 'a')}, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}};
  for (const auto& [program, name] : table) EXPECT_EQ(DefaultName({.program = program}), name);
}

TEST(Job, SecretsAreKnownByNameAndByValue) {
  for (const char* name : {"HF_TOKEN", "WANDB_API_KEY", "aws_secret_access_key", "DB_PASSWORD", "GH_CREDENTIALS",
                           "SSH_PASSPHRASE", "AUTH_BEARER", "ACCOUNT_KEY", "LICENSE_KEY", "AWS_SECRETS", "wandbApiKey",
                           "PGPASSWORD", "MYSQL_PWD", "GH_CREDENTIAL"}) {
    EXPECT_FALSE(SecretReason(name, "x").empty()) << name;
  }
  for (const char* name : {"TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "KEYBOARD", "SORT_KEY", "MAX_TOKENS", "SECRETARY",
                           "PWD", "OLDPWD", "ORIGINAL_PWD", "EOS_TOKEN", "PAD_TOKEN"}) {
    EXPECT_TRUE(SecretReason(name, "x").empty()) << name;
  }
  for (const auto& [name, value] :
       {std::pair{"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}, std::pair{"GOOGLE_APPLICATION_CREDENTIALS", "/etc/key.json"},
        std::pair{"USE_AUTH_TOKEN", "True"}, std::pair{"AUDIO_TOKEN", "<audio>"}, std::pair{"HF_TOKEN", ""},
        std::pair{"X", "hf_my_model_of_last_week_v2"}, std::pair{"X", "eyJhIjoxLCJiIjpbMSwyLDNdfQ"},
        std::pair{"X", "https://host:80/a@b"}}) {
    EXPECT_TRUE(SecretReason(name, value).empty()) << name;
  }
  EXPECT_FALSE(SecretReason("PASSWORD", "12345678").empty());
  for (const char* value :
       {"ghp_0123456789abcdefghij0123456789", "gho_0123456789abcdefghij", "ghs_0123456789abcdefghij",
        "npm_0123456789abcdefghij", "AIza0123456789_abcdef-ghij", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "postgres://u:pw@h", "http://me:pw@proxy", "-----BEGIN RSA PRIVATE KEY-----"}) {
    EXPECT_FALSE(SecretReason("X", value).empty()) << value;
  }
  EXPECT_TRUE(SecretReason("X", "hf_short").empty());
}

TEST(Job, SecretsAreFoundInCommandLines) {
  const std::string token = "hf_0123456789abcdefghij";
  const std::vector<std::string> secrets[] = {{"lockstep", "run", "--env", "HF_TOKEN=abc", "train.py"},
                                              {"--env=WANDB_API_KEY=abc"},
                                              {"train.py", "--token", "abc"},
                                              {"train.py", "--api-key=abc"},
                                              {"train.py", token},
                                              {"bash", "-c", "HF_TOKEN=abc train.py"},
                                              {"bash", "-c", "train.py --hf-token abc"},
                                              {"export HF_TOKEN=abc"},
                                              {"export HF_TOKEN='abc'; true"},
                                              {"export A=${B:-" + token + "}"},
                                              {"git clone https://" + token + "@host/x"},
                                              {"export A=$B:" + token},
                                              {"pip install -i https://me:pw@host/simple x"},
                                              {"--export=ALL,HF_TOKEN=abc"},
                                              {"-v A=1,HF_TOKEN=abc"},
                                              {"echo '-----BEGIN RSA PRIVATE KEY-----'"}};
  for (const auto& words : secrets) {
    const std::string found = SecretIn(words);
    EXPECT_FALSE(found.empty()) << words.back();
    EXPECT_EQ(found.find("abc"), std::string::npos) << "the value itself: " << found;
  }
  const std::vector<std::string> harmless[] = {
      {"export HF_TOKEN=$HF_TOKEN"},
      {"export HF_TOKEN=\"$(cat /home/me/token)\""},
      {"HF_TOKEN=`cat x`"},
      {"export HTTPS_PROXY=http://me:$PW@proxy"},
      {"train.py", "--use-auth-token", "True"},
      {"train.py", "--token", "--lr", "1"},
      {"train.py", "--token-file", "/x", "--eos-token", "</s>", "--max-tokens=5"},
      {"--export=NONE"},
      {"--env", "NCCL_DEBUG=INFO"},
      {"train.py", "--model", "hf_my_model_of_last_week"},
      {"nodeSelector: {secret-pool: a}"}};
  for (const auto& words : harmless) EXPECT_EQ(SecretIn(words), "") << words.back();
  const Job job{.program = {"train.py", "--token", "abc"},
                .flags = {"--env=HF_TOKEN=abc"},
                .native = {"--qos=high", "--export=HF_TOKEN=abc"},
                .setup = {"export HF_TOKEN=abc"}};
  const std::vector<std::string> problems = Problems(job);
  ASSERT_EQ(problems.size(), 4u);
  const char* keys[] = {"program: ", "flags: ", "setup[0]: ", "native[1]: "};
  for (size_t i = 0; i < problems.size(); ++i) EXPECT_TRUE(problems[i].starts_with(keys[i])) << problems[i];
}

TEST(Records, ComeBackNewestFirstAndDamageIsNamed) {
  Result<TempDir> folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  JobRecord old;
  old.name = "a";
  old.platform = "slurm";
  old.id = "1";
  old.submitted = 5;
  JobRecord young = old;
  young.id = "123[1].server";
  young.submitted = 9;
  ASSERT_TRUE(WriteRecord(folder->path(), old).ok());
  ASSERT_TRUE(WriteRecord(folder->path(), young).ok());
  ASSERT_TRUE(WriteFileAtomic(*folder / "torn.json", "{\"format\": 1, \"na").ok());
  ASSERT_TRUE(WriteFileAtomic(*folder / "other.json", "[]").ok());
  ASSERT_TRUE(
      WriteFileAtomic(*folder / "newer.json", R"({"format": 2, "name": "a", "platform": "x", "id": "1"})").ok());
  ASSERT_TRUE(WriteFileAtomic(*folder / "nobody.json", R"({"format": 1, "name": "a", "platform": "lsf"})").ok());
  std::vector<std::string> unreadable;
  const std::vector<JobRecord> records = ReadRecords(folder->path(), &unreadable);
  ASSERT_EQ(records.size(), 2u);
  ASSERT_EQ(unreadable.size(), 4u);
  EXPECT_TRUE(unreadable[0].starts_with(*folder / "newer.json: expected format 1, found 2"));
  for (const auto& [at, name] : {std::pair{1, "nobody"}, {2, "other"}, {3, "torn"}}) {
    EXPECT_TRUE(unreadable[at].starts_with(fmt::format("{}.json: the record of a job is damaged", *folder / name)));
  }
  unreadable.clear();
  EXPECT_TRUE(ReadRecords(*folder / "none", &unreadable).empty() && unreadable.empty());
  EXPECT_EQ(FindRecord(records, "a", "")->id, "123[1].server");
  EXPECT_EQ(FindRecord(records, "1", "")->id, "1");
  EXPECT_EQ(FindRecord(records, "a", "pbs"), nullptr);
  EXPECT_FALSE(RecordsRoot({}).ok());
  EXPECT_EQ(*RecordsRoot({{"HOME", "/h"}}), "/h/.local/state/lockstep/jobs");
}

TEST(Records, NamespacesOfAClusterWithALongNameHaveOneEach) {
  Result<TempDir> folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  for (const char* space : {"team-a", "team-b"}) {
    JobRecord record;
    record.name = record.id = "night";
    record.platform = "kubernetes";
    record.cluster = "arn:aws:eks:eu-central-1:123456789012:cluster/production-training-cluster-of-vision";
    record.name_space = space;
    ASSERT_TRUE(WriteRecord(folder->path(), record).ok());
  }
  EXPECT_EQ(ReadRecords(folder->path()).size(), 2u);
}

TEST(Records, IdOfPbsIsFoundWithoutItsServer) {
  JobRecord record;
  record.name = "night";
  record.platform = "pbs";
  record.id = "4712.server";
  const std::vector<JobRecord> records = {record};
  EXPECT_NE(FindRecord(records, "4712", ""), nullptr);
  EXPECT_EQ(FindRecord(records, "471", ""), nullptr);
  EXPECT_EQ(FindRecord(records, "4712", "lsf"), nullptr);
}

TEST(Records, JobOfAnArrayIsFoundByItsOwnId) {
  JobRecord array;
  array.name = "wide";
  array.platform = "slurm";
  array.id = "6";
  array.output = "x";
  const std::vector<JobRecord> records = {array};
  ASSERT_TRUE(FindInArray(records, "6_1", "").has_value());
  EXPECT_EQ(FindInArray(records, "6_1", "")->id + FindInArray(records, "6_1", "slurm")->output, "6_1");
  for (const char* which : {"6", "7_1", "wide_1", "6[1]"}) EXPECT_FALSE(FindInArray(records, which, "")) << which;
  EXPECT_FALSE(FindInArray(records, "6_1", "lsf"));
  array.platform = "pbs";
  array.id = "6[].server";
  for (const char* which : {"6[1]", "6[1].server"}) EXPECT_EQ(FindInArray({array}, which, "")->id, "6[1].server");
  EXPECT_FALSE(FindInArray({array}, "61[1]", ""));
}

TEST(Lists, PodsHaveStartedWhenAllHave) {
  const auto pods = [](const std::vector<std::string>& phases) {
    std::vector<std::string> items;
    for (const std::string& phase : phases) items.push_back(fmt::format(R"({{"status":{{"phase":"{}"}}}})", phase));
    return fmt::format(R"({{"items":[{}]}})", fmt::join(items, ","));
  };
  EXPECT_TRUE(ReadPods(pods({"Running", "Succeeded"}), 2)->started);
  EXPECT_TRUE(ReadPods(pods({"Failed"}), 0)->started) << "how many is not known";
  EXPECT_FALSE(ReadPods(pods({"Running", "Pending"}), 2)->started);
  EXPECT_FALSE(ReadPods(pods({"Running"}), 2)->started);
  EXPECT_FALSE(ReadPods(pods({}), 0)->started);
  EXPECT_FALSE(ReadPods("no json", 1).ok());
}

TEST(Lists, OutputOfSlurm) {
  const std::pair<const char*, const char*> table[] = {
      {"JobId=1 StdErr=/e StdOut=/home/me/a-1.out Power= X=1\n", "/home/me/a-1.out"},
      {"JobId=1 StdOut=/my folder/a b.out Power=\n", "/my folder/a b.out"},
      {"JobId=1 StdOut=/my folder/a.out\n", "/my folder/a.out"},
      {"JobId=1 StdOut=/x/a-%A_%a.out Power=\n", ""},
      {"JobId=1 StdOut=/x/1.out Power=\nJobId=2 StdOut=/x/2.out Power=\n", ""},
      {"JobId=1\n", ""}};
  for (const auto& [text, path] : table) EXPECT_EQ(SlurmOutput(text), path) << text;
}

TEST(Lists, WhatClientsPrint) {
  const auto read = [](const char* platform, const std::string& text) {
    Result<std::vector<JobState>> jobs = ReadList(**FindPlatform(platform), text);
    EXPECT_TRUE(jobs.ok()) << jobs.status().message();
    return jobs.ok() ? *jobs : std::vector<JobState>{};
  };
  const std::vector<JobState> slurm =
      read("slurm", "12|night|RUNNING|1:02|2|gpu[1-2]\n13|x|PENDING|0:00|1|(Resources)\n\nbad\n");
  ASSERT_EQ(slurm.size(), 2u);
  EXPECT_EQ(slurm[0].state + slurm[0].where, "runninggpu[1-2]");
  EXPECT_EQ(slurm[1].state, "pending");
  // Objects as Kubernetes, the training operator, the trainer and Volcano write them, cut to what is read.
  const std::pair<const char*, std::pair<const char*, const char*>> objects[] = {
      {"kubernetes", {R"({"metadata":{"name":"a"},"spec":{"parallelism":2},"status":{"active":2}})", "running 2"}},
      {"kubernetes",
       {R"({"metadata":{"name":"a"},"spec":{"parallelism":2},"status":{"conditions":[{"type":"Failed","status":"True","reason":"PodFailurePolicy"}]}})",
        "failed 2"}},
      {"kubernetes", {R"({"metadata":{"name":"a"},"spec":{"parallelism":1},"status":{}})", "pending 1"}},
      {"pytorchjob",
       {R"({"metadata":{"name":"a"},"spec":{"pytorchReplicaSpecs":{"Master":{"replicas":1},"Worker":{"replicas":3}}},"status":{"conditions":[{"type":"Running","status":"False"},{"type":"Succeeded","status":"True"}]}})",
        "succeeded 4"}},
      {"trainjob",
       {R"({"metadata":{"name":"a"},"spec":{"trainer":{"numNodes":2}},"status":{"jobsStatus":[{"name":"node","active":1}]}})",
        "running 2"}},
      {"volcano",
       {R"({"metadata":{"name":"a"},"spec":{"tasks":[{"replicas":2}]},"status":{"state":{"phase":"Aborted"}}})",
        "cancelled 2"}},
      {"volcano",
       {R"({"metadata":{"name":"a"},"spec":{"tasks":[{"replicas":2}]},"status":{"failed":1,"state":{"phase":"Aborted"}}})",
        "failed 2"}},
      {"volcano",
       {R"({"metadata":{"name":"a"},"spec":{"tasks":[{"replicas":2}]},"status":{"state":{"phase":"Completing"}}})",
        "running 2"}},
      {"kubernetes", {R"({"metadata":{"name":"a"},"spec":{"parallelism":1},"status":{"terminating":1}})", "running 1"}},
      {"volcano", {R"({"metadata":{"name":"a"},"spec":{"tasks":null},"status":null})", "pending 0"}}};
  for (const auto& [platform, object] : objects) {
    const std::vector<JobState> jobs = read(platform, fmt::format("{{\"items\":[{}]}}", object.first));
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(fmt::format("{} {}", jobs[0].state, jobs[0].nodes), object.second) << platform;
  }
  const std::pair<const char*, const char*> ends[] = {{"    substate = 92\n    Exit_status = 0\n", "succeeded 0"},
                                                      {"    substate = 93\n    Exit_status = 1\n", "failed 1"},
                                                      {"    substate = 93\n    Exit_status = -29\n", "failed -29"},
                                                      {"    substate = 91\n    Exit_status = 75\n", "cancelled 75"},
                                                      {"    substate = 93\n    Exit_status = 271\n", "failed 271"},
                                                      {"    substate = 91\n", "cancelled none"},
                                                      {"    substate = 92\n", "ended none"}};
  for (const auto& [end, state] : ends) {
    const std::vector<JobState> jobs = read("pbs", fmt::format("Job Id: 1.s\n    job_state = F\n{}\n", end));
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].state + " " + (jobs[0].exit_code ? std::to_string(*jobs[0].exit_code) : "none"), state) << end;
  }
  const std::pair<const char*, const char*> words[] = {{"TIMEOUT", "failed"},       {"NODE_FAIL", "failed"},
                                                       {"EXPEDITING", "pending"},   {"REVOKED", "cancelled"},
                                                       {"SPECIAL_EXIT", "pending"}, {"A_WORD_OF_NEXT_YEAR", "unknown"}};
  for (const auto& [word, state] : words) EXPECT_EQ(StateOf("slurm", word), state) << word;
  const Platform& accounting = **FindPlatform("slurm");
  EXPECT_EQ(ReadPast(accounting, "26_1", "26_1|a|COMPLETED|1:00|1|gpu1|0:0\n")->id, "26_1");
  EXPECT_FALSE(ReadPast(accounting, "26", "27|a|COMPLETED|1:00|1|gpu1|0:0\n"));
  EXPECT_FALSE(ReadList(**FindPlatform("kubernetes"), "not json").ok());
  EXPECT_TRUE(read("pbs", "").empty());
}

// As `qstat -f` writes them. The variables of the second job are a module function and a number that its JSON spoils.
TEST(Lists, JobsOfPbsWithTheVariablesOfAnybody) {
  const std::string text =
      "Job Id: 4.scheduler\n    Job_Name = night\n    Job_Owner = me@login1.cluster\n    resources_used.walltime = "
      "00:00:10\n"
      "    job_state = R\n    exec_host = gpu-node-0001/0*64+gpu-node-0002/0*64+gpu-node-0003/0*64\n"
      "\t+gpu-node-0004/0*64\n    Resource_List.nodect = 4\n    substate = 42\n"
      "    Variable_List = PBS_O_HOME=/home/me,foo=005\n    comment = Job run at Fri = 1\n\n"
      "Job Id: 5[].scheduler\n    Job_Name = STDIN\n    Job_Owner = you@login1\n    job_state = B\n"
      "    Variable_List = BASH_FUNC_module()=() {  eval `modulecmd \"bash\" $*`\n    job_state = F\n}\n\n";
  const Result<std::vector<JobState>> jobs = ReadList(**FindPlatform("pbs"), text);
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  const JobState& mine = jobs->front();
  EXPECT_EQ(fmt::format("{} {} {} {} {} {}", mine.id, mine.name, mine.owner, mine.state, mine.time, mine.nodes),
            "4.scheduler night me running 00:00:10 4");
  EXPECT_EQ(mine.where, "gpu-node-0001/0*64+gpu-node-0002/0*64+gpu-node-0003/0*64+gpu-node-0004/0*64");
  EXPECT_EQ(jobs->back().id + " " + jobs->back().owner + " " + jobs->back().state, "5[].scheduler you running");
}

}  // namespace
}  // namespace lockstep::submit
