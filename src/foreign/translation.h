// Configuration files of other programs as ours. A table of keys says for each what becomes of it: honoured (it means
// the same here), mapped (the same thing in another form, with a note), ignored (with the reason) or refused (training
// does not start, with the reason). A key that the table does not have is an error with the nearest name, file and
// line; so is a value of another type. What is common to all such files is here; a program's own tables and rules are
// in files of their own (deepspeed*, accelerate*, recipes/kair_*). Plain values, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config_tree.h"
#include "base/status.h"

namespace lockstep::foreign {

// A row of a table.
struct KeyRow {
  enum class Fate { kHonoured, kMapped, kIgnored, kRefused, kSecret };
  std::string path;  // "zero_optimization.stage"; a part "*" stands for any name
  // b bool, i whole number in digits, u whole number of any notation (5e8), p the same but above 0, n number,
  // s string, l list, g whole number or list, o keys, x anything; or null
  char type = 'x';
  Fate fate = Fate::kIgnored;
  bool copied = false;               // the value goes to `to` as it is
  std::string to;                    // our key
  std::vector<std::string> allowed;  // other values are refused; empty: all are allowed
  std::string why;                   // what it means here, or why not
  std::string otherwise;             // why values that are not allowed are refused; empty: `why` says it
  std::string initial;               // the other program's default
  std::string meaning;               // what it means there
};

struct Note {
  std::string key;     // in the file: "datasets.train.gt_size"
  std::string value;   // as written there; empty for secrets
  std::string to;      // keys of ours; may be empty
  std::string reason;  // what it means here, or why not
  int line = 0;
  std::string file = {};  // that the line is of; empty: Translation::file
};

struct Derived {
  std::string name, value, reason;
};

struct Translation {
  std::string file;
  std::string kind;     // what the file is, in messages: "option file"
  std::string command;  // that lists what every key becomes
  ConfigNode settings;  // our configuration, sections and all
  std::vector<Note> honoured, mapped, ignored, refused;
  std::vector<Derived> derived;  // global batch, bytes of a bucket

  // Puts a key into the list that its row asks for. True: the value is to be copied to note.to.
  bool Take(Note note, const KeyRow& row, const ConfigNode& value);
  // Nothing is trained with such a value. `value` may be null.
  void Refuse(const std::string& key, const ConfigNode* value, const std::string& reason);
  // Sets a key of ours; an error that our own reader finds there points to `where`.
  void Set(std::string_view key, ConfigNode value, const ConfigLocation& where);

  // What was refused, as one error; Ok where nothing was.
  Status Check() const;
  // Our own form, a configuration file; with the lists as comments above it.
  std::string Yaml() const;
  // honoured[], mapped[], ignored[], refused[] and derived[], as members of `document`.
  void AddLists(nlohmann::ordered_json* document) const;
  // The lists for people.
  std::string Table(const std::string& prefix) const;
};

std::string LowerCase(std::string_view text);
// None for what is no number, and for one that no double holds.
std::optional<double> NumberOf(const ConfigNode& node);
// The same as a whole number; one beyond 2^62 is that.
std::optional<int64_t> WholeOf(const ConfigNode& node);
// A value as text, for notes: "[1, 2]".
std::string ValueText(const ConfigNode& node);
ConfigNode Scalar(std::string text, bool quoted = false);
// Sets "train.optimizer.lr" below a map.
void SetKey(ConfigNode* root, std::string_view key, ConfigNode value);
// The value at "train.optimizer.lr"; null where there is none.
const ConfigNode* FindKey(const ConfigNode& root, std::string_view key);
// The allowed value that this is, without regard to case and to the form of a number; null where it is none of them.
const std::string* AllowedSpelling(const KeyRow& row, const ConfigNode& value);
// Whether the row allows the value: it is one of them, or all are allowed.
bool IsAllowed(const KeyRow& row, const ConfigNode& value);

// Goes through a file's keys with the help of a table.
class KeyWalk {
 public:
  // The row of a path; null where the table has none.
  using Lookup = std::function<const KeyRow*(const std::string& path)>;
  using Take = std::function<void(const std::string& path, const ConfigEntry& entry, const KeyRow& row)>;
  KeyWalk(const std::vector<KeyRow>& rows, Lookup lookup, Take take)
      : rows_(rows), lookup_(std::move(lookup)), take_(std::move(take)) {}

  // Values that are fine whatever the type of the key; none unless set.
  void AlsoFits(std::function<bool(const ConfigNode&)> fits) { also_fits_ = std::move(fits); }
  // A path as the table spells it, for the search of the nearest name.
  void Spelled(std::function<std::string(std::string)> spell) { spell_ = std::move(spell); }
  void Run(const ConfigNode& map, const std::string& above = "");
  // Unknown keys and mistaken types, each with file and line.
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  void Unknown(const std::string& path, const ConfigEntry& entry);

  const std::vector<KeyRow>& rows_;
  Lookup lookup_;
  Take take_;
  std::function<bool(const ConfigNode&)> also_fits_;
  std::function<std::string(std::string)> spell_;
  std::vector<std::string> errors_;
};

}  // namespace lockstep::foreign
