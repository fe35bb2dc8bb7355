#include "base/secrets.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Secrets, NamesThatAnnounceASecretAndThoseOfModels) {
  for (const char* name : {"WANDB_API_KEY", "HF_TOKEN", "hf-token", "--token", "AWS_SECRET_ACCESS_KEY", "db.password",
                           "apiKey", "wandb.apikey", "GITHUB_TOKEN", "PRIVATE_KEY", "client_secret", "LOCKSTEP_TOKEN",
                           "wandb_key", "AZURE_STORAGE_KEY", "Authorization"}) {
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
  List found;
  EXPECT_EQ(MaskArguments({"--api-key", "long-enough", "--token=long-enough-2", "--lr=0.1"}, {}, &found).size(), 4u);
  EXPECT_EQ(found, (List{"long-enough", "long-enough-2"}));
}

TEST(Secrets, OneArgumentWithASecretInsideLosesItAlone) {
  const std::pair<const char*, const char*> cases[] = {
      {"--url=https://me:p@ss:w@host/x@y", "--url=https://me:***@host/x@y"},
      {"https://0123456789abcdef0123@host/x", "https://***@host/x"},
      {"ssh://git@host/x", "ssh://git@host/x"},
      {"http://a:80/x http://me:pw@b http://me:pw2@c", "http://a:80/x http://me:***@b http://me:***@c"},
      {"https://h/x?api_key=abc&b=1", "https://h/x?api_key=***&b=1"},
      {"--u=https://h/x?b=1&token=abc", "--u=https://h/x?b=1&token=***"},
      {"https://s/x?X-Amz-Signature=abc&sig=abc", "https://s/x?X-Amz-Signature=***&sig=***"},
      {"Authorization: Bearer abc", "Authorization: ***"},
      {"X-Api-Key: abc", "X-Api-Key: ***"},
      {R"({"api_key": "a b", "lr": 1})", R"({"api_key": "***", "lr": 1})"},
      {"{db: {password: abc, port: 1}}", "{db: {password: ***, port: 1}}"},
      {"++wandb.api_key=abc", "++wandb.api_key=***"},
      {"hf_0123456789abcdefghij", "***"},
      {"--x=ghp_0123456789abcdefghij,1", "--x=***,1"},
      {"data.max_tokens=5", "data.max_tokens=5"},
      {"model:eos_token", "model:eos_token"},
      {"sk-learn", "sk-learn"},
      {"C:/data/token", "C:/data/token"},
  };
  for (const auto& [given, masked] : cases) EXPECT_EQ(MaskArguments({given})[0], masked);
}

TEST(Secrets, ValuesOfTheEnvironmentAreMaskedWhereTheyAreLongEnough) {
  const std::vector<std::string> values = SecretValues({{"A_TOKEN", "short"},
                                                        {"B_TOKEN", "long-enough"},
                                                        {"C_TOKEN", "long-enough-longer"},
                                                        {"D", "long-enough-d"},
                                                        {"DATABASE_URL", "postgres://me:long-password@host/db"}});
  EXPECT_EQ(values, (std::vector<std::string>{"long-enough-longer", "long-password", "long-enough"}));
  EXPECT_EQ(MaskSecrets("x long-enough-longer long-enough, short long-password", values), "x *** ***, short ***");
  EXPECT_EQ(MaskSecrets("401 for https://h/x?t=hf_0123456789abcdefghij by https://me:pw@h", {}),
            "401 for https://h/x?t=*** by https://me:***@h");
}

TEST(Secrets, FieldsInLinesOfALogLoseTheirValuesAndSentencesStay) {
  const std::pair<const char*, const char*> cases[] = {
      {"Authorization: Bearer abc\nnext: line", "Authorization: ***\nnext: line"},
      {R"(failed: {"Authorization": "Bearer abc", "max_tokens": 512})",
       R"(failed: {"Authorization": "***", "max_tokens": 512})"},
      {"{'password': 'a b', 'x-api-key': b'abc', 'lr': 1}", "{'password': '***', 'x-api-key': b'***', 'lr': 1}"},
      {"Namespace(api_key='abc', hub_token=None, lr=1)", "Namespace(api_key='***', hub_token=None, lr=1)"},
      {"Config(lr=1, hf_token=abc)", "Config(lr=1, hf_token=***)"},
      {"api_key: abc\nlr: 1", "api_key: ***\nlr: 1"},
      {"+ export HF_TOKEN=abc", "+ export HF_TOKEN=***"},
      {"+ python train.py --api-key abc --lr 1 --token --x", "+ python train.py --api-key *** --lr 1 --token --x"},
      {"GET https://h/x?token=abc&n=1 403", "GET https://h/x?token=***&n=1 403"},
      {"{\"token\": \"abc\"}", "{\"token\": \"***\"}"},
      {"nvapi-0123456789abcdefghij", "***"},
  };
  for (const auto& [given, masked] : cases) EXPECT_EQ(MaskSecrets(given, {}), masked);
  for (const char* sentence :
       {"botocore.exceptions.NoCredentialsError: Unable to locate credentials", "no credentials: run aws configure",
        "SyntaxError: unexpected token: '}'", "generated token=42, next token: the", "max_tokens=512 tokenizer: gpt2",
        "pad_token='<pad>' token_dropout=0.1", "password", "secret=", "--token", "--hf-token"}) {
    EXPECT_EQ(MaskSecrets(sentence, {}), sentence);
  }
}

}  // namespace
}  // namespace lockstep
