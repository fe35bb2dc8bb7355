#include "base/secrets.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Secrets, NamesThatAnnounceASecretAndThoseOfModels) {
  for (const char* name :
       {"WANDB_API_KEY", "HF_TOKEN", "hf-token", "--token", "AWS_SECRET_ACCESS_KEY", "db.password", "apiKey",
        "wandb.apikey", "GITHUB_TOKEN", "PRIVATE_KEY", "client_secret", "LOCKSTEP_TOKEN"}) {
    EXPECT_TRUE(IsSecretName(name)) << name;
  }
  for (const char* name : {"eos_token", "max_tokens", "tokenizer", "token_shift", "data.key_frames", "MONKEY", "keys",
                           "KEY", "pad-token", "tokens_per_second", "train.seed", "PATH", ""}) {
    EXPECT_FALSE(IsSecretName(name)) << name;
  }
}

TEST(Secrets, CommandLinesLoseTheValuesAndNothingElse) {
  using List = std::vector<std::string>;
  EXPECT_EQ(
      MaskArguments({"train.py", "--api-key", "abc", "--lr", "1", "--hf-token=abc", "MY_TOKEN=abc", "--password"}),
      (List{"train.py", "--api-key", "***", "--lr", "1", "--hf-token=***", "MY_TOKEN=***", "--password"}));
  EXPECT_EQ(MaskArguments({"--token", "--lr", "2"}), (List{"--token", "--lr", "2"})) << "a flag without a value";
  EXPECT_EQ(MaskArguments({"https://me:pw@host/a:b@c", "http://host:80/x", "a@b:c"}),
            (List{"https://me:***@host/a:b@c", "http://host:80/x", "a@b:c"}));
  EXPECT_EQ(MaskArguments({"positional-secret"}, {"positional-secret"}), (List{"***"}));
}

TEST(Secrets, ValuesOfTheEnvironmentAreMaskedWhereTheyAreLongEnough) {
  const std::vector<std::string> values = SecretValues(
      {{"A_TOKEN", "short"}, {"B_TOKEN", "long-enough"}, {"C_TOKEN", "long-enough-longer"}, {"D", "long-enough-d"}});
  EXPECT_EQ(values, (std::vector<std::string>{"long-enough-longer", "long-enough"}));
  EXPECT_EQ(MaskValues("x long-enough-longer long-enough, short", values), "x *** ***, short");
}

}  // namespace
}  // namespace lockstep
