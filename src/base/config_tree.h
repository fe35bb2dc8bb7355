// A configuration document as a tree that still knows where each value stands: YAML, or JSON with comments, plus
// overrides from the command line. No types yet; those come with base/config.h. Format: docs/formats/config.md.
// Plain values, any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep {

struct ConfigLocation {
  std::shared_ptr<const std::string> source;  // a path, or "command line (--set ...)"
  int line = 0;                               // 1-based; 0 where there are no lines
  int column = 0;
  std::string ToString() const;
};

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;     // of a scalar, unquoted
  bool quoted = false;  // the scalar stood in quotes: a string, whatever it looks like
  bool loose = false;   // from the command line: the key's type alone decides
  std::vector<ConfigNode> items;
  std::vector<ConfigEntry> entries;
  ConfigLocation where;

  const ConfigNode* Find(std::string_view key) const;
  bool LooksNumber() const;
  // For messages: "the number 5", "the string 'x'", "a list of 3", "null".
  std::string Describe() const;
};

struct ConfigEntry {
  std::string key;
  ConfigLocation where;
  ConfigNode value;
  std::string comment = "";  // what the key means, where its declaration says so
  bool unused = false;       // declared without a value in force; shown only with comments
};

struct ConfigError {
  ConfigLocation where;
  std::string path;  // "train.betas[1]"
  std::string message;
  std::string ToString() const;
};

class ConfigTree {
 public:
  enum class Format { kYaml, kJson };

  // An error when the text is no document at all. Duplicate keys and the like are kept in errors() and reported with
  // everything else by ConfigReader::Finish.
  static Result<ConfigTree> Parse(std::string_view text, const std::string& source, Format format);
  // By the ending of the path: .json and .jsonc, else YAML.
  static Result<ConfigTree> Load(const std::string& path);
  static ConfigTree Empty(const std::string& source);

  // "train.lr=1e-4". The value is as on a --set flag.
  Status Override(std::string_view assignment);
  // Takes a key of the outermost level out of the document; null where it is not there.
  ConfigNode Take(std::string_view key);
  // Lays the keys of `over` over those that are there, section by section; a list takes the place of a list.
  void Merge(const ConfigNode& over);

  const ConfigNode& root() const { return root_; }
  const std::vector<ConfigError>& errors() const { return errors_; }

 private:
  ConfigNode root_;
  std::vector<ConfigError> errors_;
};

// YAML text that Parse reads back to the same tree; with the comments of its entries where asked.
enum class YamlComments { kNone, kShow };
std::string WriteYaml(const ConfigNode& whole, YamlComments comments = YamlComments::kNone);

// Parts of a number's grammar shared with the typed reader: [+-] digits [. digits] [e[+-]digits].
bool IsNumberText(std::string_view text);
bool IsNullText(std::string_view text);

}  // namespace lockstep
