#include "base/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep {
namespace {

constexpr size_t kShortestSecret = 8;

// A name in upper-case words: "wandb.apiKey" is WANDB, API, KEY.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words(1);
  bool lower = false;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) == 0 || (std::isupper(u) != 0 && lower)) {
      if (!words.back().empty()) words.emplace_back();
    }
    lower = std::islower(u) != 0;
    if (std::isalnum(u) != 0) words.back().push_back(static_cast<char>(std::toupper(u)));
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

template <size_t N>
bool OneOf(const std::array<std::string_view, N>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

constexpr std::array<std::string_view, 10> kSecretWords = {"SECRET",     "SECRETS",    "PASSWORD",    "PASSWD",
                                                           "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY",
                                                           "AUTHKEY",    "BEARER"};
// At the end of a word: PGPASSWORD.
constexpr std::array<std::string_view, 2> kSecretEnds = {"PASSWORD", "PASSWD"};
// Before PWD: working directories, not passwords.
constexpr std::array<std::string_view, 6> kFolders = {"OLD", "ORIGINAL", "ORIG", "INITIAL", "INIT", "START"};
// Before KEY.
constexpr std::array<std::string_view, 8> kKeyKinds = {"API",  "ACCESS",  "SECRET",  "PRIVATE",
                                                       "AUTH", "ACCOUNT", "LICENSE", "ENCRYPTION"};
// Before TOKEN: those of a vocabulary.
constexpr std::array<std::string_view, 16> kVocabulary = {"EOS",  "BOS",   "PAD",  "UNK",   "SEP",  "CLS",
                                                          "MASK", "STOP",  "END",  "START", "NEXT", "SPECIAL",
                                                          "PER",  "IMAGE", "EACH", "LAST"};

// Issued tokens: GitHub, GitLab, Hugging Face, npm, Google, AWS, Slack, OpenAI, Anthropic, JSON Web Tokens.
struct TokenForm {
  std::string_view beginning;
  std::string_view also;  // what its characters may be beside letters and digits
  std::string_view must;  // what one of them is
};
constexpr std::array<TokenForm, 16> kTokens = {{{"ghp_", "", ""},
                                                {"gho_", "", ""},
                                                {"ghs_", "", ""},
                                                {"ghu_", "", ""},
                                                {"ghr_", "", ""},
                                                {"github_pat_", "_", ""},
                                                {"glpat-", "_-.", ""},
                                                {"hf_", "", ""},
                                                {"npm_", "", ""},
                                                {"AIza", "_-", ""},
                                                {"AKIA", "", ""},
                                                {"xoxb-", "-", ""},
                                                {"sk-", "", ""},
                                                {"sk-proj-", "_-", ""},
                                                {"sk-ant-", "_-", ""},
                                                {"eyJ", "_-.", "."}}};
constexpr size_t kShortestToken = 20;

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

bool IsSecretName(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (OneOf(kSecretWords, word)) return true;
    if (std::any_of(kSecretEnds.begin(), kSecretEnds.end(), [&](auto end) { return word.ends_with(end); })) return true;
    // PWD alone is the working directory.
    if (word == "PWD" && i > 0 && i + 1 == words.size() && !OneOf(kFolders, words[i - 1])) return true;
    if (words[i] == "KEY" && i > 0 && OneOf(kKeyKinds, words[i - 1])) return true;
    // "token" alone, or what is called so at its end; "token_shift" and "eos_token" are of a model.
    if (words[i] == "TOKEN" && i + 1 == words.size() && (i == 0 || !OneOf(kVocabulary, words[i - 1]))) return true;
  }
  return false;
}

std::string_view PasswordIn(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos) return {};
  const size_t at = text.find('@', scheme), slash = text.find('/', scheme + 3), colon = text.find(':', scheme + 3);
  if (at == std::string_view::npos || colon == std::string_view::npos || colon > at || slash < at) return {};
  return text.substr(colon + 1, at - colon - 1);
}

std::string TokenBeginningIn(std::string_view text) {
  for (const TokenForm& form : kTokens) {
    for (size_t at = 0; (at = text.find(form.beginning, at)) != std::string_view::npos; ++at) {
      if (at > 0 && IsWordCharacter(text[at - 1])) continue;
      const std::string_view token = text.substr(at);
      size_t size = form.beginning.size();
      while (size < token.size() && (std::isalnum(static_cast<unsigned char>(token[size])) != 0 ||
                                     form.also.find(token[size]) != std::string_view::npos)) {
        ++size;
      }
      const bool whole = form.must.empty() || token.substr(0, size).find(form.must) != std::string_view::npos;
      if (size >= kShortestToken && whole) return std::string(form.beginning);
    }
  }
  return "";
}

std::vector<std::string> SecretValues(const Environment& env) {
  std::vector<std::string> values;
  for (const auto& [name, value] : env) {
    if (value.size() >= kShortestSecret && IsSecretName(name)) values.push_back(value);
  }
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return values;
}

std::string MaskValues(std::string text, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    for (size_t at = 0; (at = text.find(value, at)) != std::string::npos; at += sizeof kMasked - 1) {
      text.replace(at, value.size(), kMasked);
    }
  }
  return text;
}

std::vector<std::string> MaskArguments(std::vector<std::string> arguments, const std::vector<std::string>& values) {
  bool next = false;
  for (std::string& argument : arguments) {
    argument = MaskValues(std::move(argument), values);
    const bool flag = argument.starts_with("-");
    if (next && !flag) argument = kMasked;
    next = false;
    if (const std::string_view password = PasswordIn(argument); !password.empty()) {
      argument.replace(static_cast<size_t>(password.data() - argument.data()), password.size(), kMasked);
    }
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      next = flag && IsSecretName(argument);
    } else if (IsSecretName(std::string_view(argument).substr(0, equals))) {
      argument = argument.substr(0, equals + 1) + kMasked;
    }
  }
  return arguments;
}

}  // namespace lockstep
