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

constexpr std::array<std::string_view, 11> kSecretWords = {"SECRET",     "SECRETS",    "PASSWORD",     "PASSWD",
                                                           "PASSPHRASE", "CREDENTIAL", "CREDENTIALS",  "APIKEY",
                                                           "AUTHKEY",    "BEARER",     "AUTHORIZATION"};
// At the end of a word: PGPASSWORD.
constexpr std::array<std::string_view, 2> kSecretEnds = {"PASSWORD", "PASSWD"};
// Before PWD: working directories, not passwords.
constexpr std::array<std::string_view, 6> kFolders = {"OLD", "ORIGINAL", "ORIG", "INITIAL", "INIT", "START"};
// Alone before a colon in running text; "no credentials: ..." is a sentence.
constexpr std::array<std::string_view, 5> kAlone = {"PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "AUTHORIZATION"};
// At the end of the name of an exception: "NoCredentialsError: ..." says why.
constexpr std::array<std::string_view, 4> kTroubles = {"ERROR", "EXCEPTION", "WARNING", "FAILURE"};
// Before KEY.
constexpr std::array<std::string_view, 11> kKeyKinds = {
    "API", "ACCESS", "SECRET", "PRIVATE", "AUTH", "ACCOUNT", "LICENSE", "ENCRYPTION", "STORAGE", "WANDB", "HF"};
// Before TOKEN: those of a vocabulary.
constexpr std::array<std::string_view, 16> kVocabulary = {"EOS",  "BOS",   "PAD",  "UNK",   "SEP",  "CLS",
                                                          "MASK", "STOP",  "END",  "START", "NEXT", "SPECIAL",
                                                          "PER",  "IMAGE", "EACH", "LAST"};

// Issued tokens: GitHub, GitLab, Hugging Face, npm, Google, AWS, Slack, NVIDIA, OpenAI, Anthropic, JSON Web Tokens.
struct TokenForm {
  std::string_view beginning;
  std::string_view also;  // what its characters may be beside letters and digits
  std::string_view must;  // what one of them is
};
constexpr std::array<TokenForm, 17> kTokens = {{{"ghp_", "", ""},
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
                                                {"nvapi-", "_-", ""},
                                                {"sk-", "", ""},
                                                {"sk-proj-", "_-", ""},
                                                {"sk-ant-", "_-", ""},
                                                {"eyJ", "_-.", "."}}};
constexpr size_t kShortestToken = 20;

// What signs a link: whoever has it may use it.
constexpr std::array<std::string_view, 3> kSignatures = {"sig", "Signature", "X-Amz-Signature"};
constexpr size_t kShortestUserToken = 20;  // https://<token>@host; a plain name of a user is shorter

bool IsWordCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsNameCharacter(char c) { return IsWordCharacter(c) || c == '-' || c == '.'; }

struct Place {
  size_t at = std::string_view::npos, size = 0;
  bool found() const { return at != std::string_view::npos; }
};

// The password of the first URL from `from` on that has one.
Place FindPassword(std::string_view text, size_t from) {
  for (size_t scheme; (scheme = text.find("://", from)) != std::string_view::npos; from = scheme + 3) {
    const size_t begin = scheme + 3, end = std::min(text.find_first_of("/?# \t\r\n\"'", begin), text.size());
    const size_t at = text.substr(0, end).rfind('@'), colon = text.find(':', begin);
    if (at == std::string_view::npos || at < begin) continue;
    if (colon < at) return {colon + 1, at - colon - 1};
    if (at - begin >= kShortestUserToken) return {begin, at - begin};
  }
  return {};
}

// The first token of this form from `from` on.
Place FindToken(std::string_view text, const TokenForm& form, size_t from) {
  for (size_t at = from; (at = text.find(form.beginning, at)) != std::string_view::npos; ++at) {
    if (at > 0 && IsWordCharacter(text[at - 1])) continue;
    const std::string_view token = text.substr(at);
    size_t size = form.beginning.size();
    while (size < token.size() && (std::isalnum(static_cast<unsigned char>(token[size])) != 0 ||
                                   form.also.find(token[size]) != std::string_view::npos)) {
      ++size;
    }
    const bool whole = form.must.empty() || token.substr(0, size).find(form.must) != std::string_view::npos;
    if (size >= kShortestToken && whole) return {at, size};
  }
  return {};
}

// Whether a name that announces a secret does so in running text as well, before "=" or ":".
bool IsFieldOfText(std::string_view name, char separator, bool of_link) {
  const std::vector<std::string> words = WordsOf(name);
  if (of_link) return true;
  if (separator == '=') return words.size() > 1 || words[0] != "TOKEN";
  return words.size() > 1 ? !OneOf(kTroubles, words.back()) : OneOf(kAlone, words[0]);
}

// What is no secret, whatever its name, and worth reading.
bool IsNothing(std::string_view value) {
  constexpr std::array<std::string_view, 7> kNothing = {"", kMasked, "None", "null", "True", "False", "<unset>"};
  return std::find(kNothing.begin(), kNothing.end(), value) != kNothing.end();
}

// The value of a field behind the separator at `at`: of "name=value", "name: value" or "\"name\": \"value\"". Nothing
// where the name announces no secret. In running text it ends with its line.
Place SecretField(std::string_view text, size_t at, bool running = false) {
  size_t end = at;
  const bool quoted = end > 0 && (text[end - 1] == '"' || text[end - 1] == '\'');
  if (quoted) --end;
  size_t begin = end;
  while (begin > 0 && IsNameCharacter(text[begin - 1])) --begin;
  const std::string_view name = text.substr(begin, end - begin);
  const bool of_link = begin > 0 && (text[begin - 1] == '?' || text[begin - 1] == '&');
  const bool signs = of_link && std::find(kSignatures.begin(), kSignatures.end(), name) != kSignatures.end();
  if (!signs && !IsSecretName(name)) return {};
  if (running && !quoted && !IsFieldOfText(name, text[at], of_link)) return {};
  size_t first = text.find_first_not_of(' ', at + 1);
  if (first == std::string_view::npos || text.substr(at).starts_with("://")) return {};
  const auto is_quote = [&](size_t i) { return i < text.size() && (text[i] == '"' || text[i] == '\''); };
  if (text[first] == 'b' && is_quote(first + 1)) ++first;  // bytes, as Python shows them
  std::string stop(text[at] == '=' ? "&,;}] \"'" : ",}]\"'");
  if (is_quote(first)) stop = text[first++];
  if (running) stop += text[at] == '=' ? "\r\n\t)" : "\r\n";
  const size_t size = std::min(text.find_first_of(stop, first), text.size()) - first;
  if (running && IsNothing(text.substr(first, size))) return {};
  return size > 0 ? Place{first, size} : Place{};
}

// The value behind the flag at `at` in a line: "--api-key X". Nothing where the name announces no secret.
Place SecretFlag(std::string_view text, size_t at) {
  if (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\n') return {};
  const size_t end = std::min(text.find_first_of(" \r\n", at), text.size());
  const std::string_view name = text.substr(at, end - at);
  if (!std::all_of(name.begin(), name.end(), IsNameCharacter) || !IsSecretName(name)) return {};
  const size_t first = text.find_first_not_of(' ', end);
  if (first == std::string_view::npos || text[first] == '-') return {};
  const size_t size = std::min(text.find_first_of(" \r\n", first), text.size()) - first;
  return size > 0 ? Place{first, size} : Place{};
}

void Mask(const Place& place, std::string* text) { text->replace(place.at, place.size, kMasked); }

// What is a secret by itself, whatever stands before it.
std::string MaskKnown(std::string text, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    for (size_t at = 0; (at = text.find(value, at)) != std::string::npos; at += sizeof kMasked - 1) {
      Mask({at, value.size()}, &text);
    }
  }
  for (Place place; (place = FindPassword(text, place.found() ? place.at : 0)).found();) Mask(place, &text);
  for (const TokenForm& form : kTokens) {
    for (Place place; (place = FindToken(text, form, place.found() ? place.at : 0)).found();) Mask(place, &text);
  }
  return text;
}

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
  const Place place = FindPassword(text, 0);
  return place.found() ? text.substr(place.at, place.size) : std::string_view();
}

std::string TokenBeginningIn(std::string_view text) {
  for (const TokenForm& form : kTokens) {
    if (FindToken(text, form, 0).found()) return std::string(form.beginning);
  }
  return "";
}

std::vector<std::string> SecretValues(const Environment& env) {
  std::vector<std::string> values;
  for (const auto& [name, value] : env) {
    if (IsSecretName(name)) values.push_back(value);
    values.emplace_back(PasswordIn(value));
  }
  std::erase_if(values, [](const std::string& value) { return value.size() < kShortestSecret; });
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return values;
}

std::string MaskSecrets(std::string text, const std::vector<std::string>& values) {
  text = MaskKnown(std::move(text), values);
  for (size_t at = 0; (at = text.find_first_of("=:", at)) != std::string::npos; ++at) {
    if (const Place place = SecretField(text, at, /*running=*/true); place.found()) Mask(place, &text);
  }
  for (size_t at = 0; (at = text.find("--", at)) != std::string::npos; at += 2) {
    if (const Place place = SecretFlag(text, at); place.found()) Mask(place, &text);
  }
  return text;
}

std::vector<std::string> MaskArguments(std::vector<std::string> arguments, const std::vector<std::string>& values,
                                       std::vector<std::string>* found) {
  bool next = false;
  for (std::string& argument : arguments) {
    const auto mask = [&](const Place& place) {
      if (found != nullptr && place.size >= kShortestSecret) found->push_back(argument.substr(place.at, place.size));
      Mask(place, &argument);
    };
    argument = MaskKnown(std::move(argument), values);
    const bool flag = argument.starts_with("-");
    if (next && !flag) mask({0, argument.size()});
    const size_t equals = argument.find('=');
    const std::string_view name = std::string_view(argument).substr(0, equals);
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) { return IsNameCharacter(c) || c == '+'; });
    next = flag && equals == std::string::npos && IsSecretName(name);
    if (equals != std::string::npos && plain && IsSecretName(name)) mask({equals + 1, argument.size() - equals - 1});
    // Links with a key, headers, JSON.
    for (size_t at = 0; (at = argument.find_first_of("=:", at)) != std::string::npos; ++at) {
      if (const Place place = SecretField(argument, at); place.found()) mask(place);
    }
  }
  return arguments;
}

}  // namespace lockstep
