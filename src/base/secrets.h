// What must not be written down: names that announce a secret (WANDB_API_KEY, --hf-token, db.password), and its values
// where they stand in text that goes to a file. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"

namespace lockstep {

inline constexpr char kMasked[] = "***";

// Of a variable, flag or key. Tokens of a vocabulary (eos_token, max_tokens) are none.
bool IsSecretName(std::string_view name);

// Values of variables with such names and passwords in the URLs of all others, longest first. Shorter ones than 8 bytes
// would match by chance.
std::vector<std::string> SecretValues(const Environment& env);

// Running text, such as lines of a log, without these values, issued tokens, passwords in URLs, and the values of
// flags, fields and headers whose names announce a secret.
std::string MaskSecrets(std::string text, const std::vector<std::string>& values);

// The password of "scheme://user:password@host" in the text, or a token in the place of the user; empty where there is
// none.
std::string_view PasswordIn(std::string_view text);

// How an issued token in the text begins ("hf_", "ghp_"), wherever a word begins in it; empty where there is none.
// Names that begin the same (hf_my_model) are none: what follows must look random.
std::string TokenBeginningIn(std::string_view text);

// A command line without its secrets: "--api-key X", "--api-key=X" and "TOKEN=X" lose X, so do links with a key or a
// signature, headers and JSON, and everything that MaskSecrets finds. `found` takes what stood behind such names.
std::vector<std::string> MaskArguments(std::vector<std::string> arguments, const std::vector<std::string>& values = {},
                                       std::vector<std::string>* found = nullptr);

}  // namespace lockstep
