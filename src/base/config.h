// Typed, strict reading of a configuration tree. A struct declares its keys once; the same declaration reads, checks
// and writes the effective configuration. The member's value before the call is the default. Nothing stops at the first
// mistake: Finish() returns all of them, and the values are only to be used when it is ok.
//
//   struct Train { double lr = 1e-3; int steps = 0; uint64_t bucket = 25 << 20; };
//   void Declare(ConfigReader& r, Train* t) {
//     r.Field("lr", &t->lr, {.above = 0});
//     r.Field("steps", &t->steps, {.required = true, .min = 1});
//     r.Size("bucket", &t->bucket, {.min = 4096});
//   }
//   ConfigReader reader(tree);
//   reader.Section("train", [&](ConfigReader& r) { Declare(r, &train); });
//   LOCKSTEP_RETURN_IF_ERROR(reader.Finish());
//
// A key that other settings make meaningless is declared all the same, inside When(): giving it is an error that says
// why, unless it repeats the default, as a written-out configuration does.
//
//   r.When(kind == "sgd", "only sgd has it", [&] { r.Field("momentum", &momentum); });
//
// Field takes bool, integers, float, double, std::string, std::chrono::milliseconds (a duration), and optional, vector,
// array and map<string, .> of these. Format and rules: docs/formats/config.md. One thread; the tree must outlive the
// reader.
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config_tree.h"
#include "base/status.h"

namespace lockstep {

// Limits of a key. Durations count in seconds, sizes in bytes; for lists and maps the numbers limit each item.
struct ConfigRule {
  bool required = false;
  std::optional<double> min = std::nullopt;    // at least
  std::optional<double> above = std::nullopt;  // more than
  std::optional<double> max = std::nullopt;    // at most
  size_t min_items = 0;
  size_t max_items = std::numeric_limits<size_t>::max();
  std::string help = "";  // one line, for people who look for the key
  std::string was = "";   // the key's name in the release before, which is still read; renamed() says so
};

class ConfigReader {
 public:
  explicit ConfigReader(const ConfigTree& tree);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  template <typename T>
  void Field(std::string_view name, T* value, const ConfigRule& rule = {}) {
    if (const ConfigNode* node = Claim(name, rule)) {
      T read{};
      if (Read(*node, Path(name), rule, &read)) *value = std::move(read);
    }
    Record(name, Write(*value));
  }

  // Bytes, with or without a unit.
  void Size(std::string_view name, uint64_t* value, const ConfigRule& rule = {});

  // One of the named values.
  template <typename E>
  void Enum(std::string_view name, E* value, const std::vector<std::pair<std::string, E>>& choices,
            const ConfigRule& rule = {}) {
    std::vector<std::string> names;
    for (const auto& choice : choices) names.push_back(choice.first);
    if (const ConfigNode* node = Claim(name, rule, names)) {
      if (std::optional<size_t> index = ReadChoice(*node, Path(name), names)) *value = choices[*index].second;
    }
    for (const auto& choice : choices) {
      if (choice.second == *value) return Record(name, Write(choice.first));
    }
  }
  // A string out of a list.
  void Choice(std::string_view name, std::string* value, const std::vector<std::string>& choices,
              const ConfigRule& rule = {});

  // A nested section. It is read also when absent, so that its defaults are known and its required keys missed.
  void Section(std::string_view name, const std::function<void(ConfigReader&)>& read);

  // A list of sections.
  template <typename T>
  void List(std::string_view name, std::vector<T>* items, const std::function<void(ConfigReader&, T*)>& read,
            const ConfigRule& rule = {}) {
    const ConfigNode* node = Claim(name, rule);
    std::optional<size_t> count = node ? CheckList(*node, Path(name), rule) : std::nullopt;
    if (count) items->assign(*count, T{});
    ConfigNode list;
    list.kind = ConfigNode::Kind::kList;
    for (size_t i = 0; i < items->size(); ++i) {
      auto read_one = [&](ConfigReader& reader) { read(reader, &(*items)[i]); };
      list.items.push_back(count ? ReadItem(&node->items[i], Item(Path(name), i), read_one)
                                 : ReadDefaults(Item(Path(name), i), read_one));
    }
    Record(name, std::move(list));
  }

  // Who gave this key. A later one was written knowing the earlier ones.
  enum class Origin { kDefault, kDocument, kCommandLine };
  Origin OriginOf(std::string_view name) const;
  // Runs `declare`, whose keys have an effect only if `used`; else they keep their defaults, and `why` says the reason.
  void When(bool used, const std::string& why, const std::function<void()>& declare);
  // For rules between keys: an error at the place of this key.
  void Fail(std::string_view name, const std::string& message);
  // For rules between keys: what is in force instead of the value that Field read.
  template <typename T>
  void Amend(std::string_view name, const T& value) {
    Replace(name, Write(value));
  }

  // Every error, ordered by place; on the outermost reader, once, after all declarations. `alone` (may be null) has
  // read the same document without the command line: a key that has an effect there, and none here, is no mistake of
  // its author.
  Status Finish(const ConfigReader* alone = nullptr);
  const std::vector<ConfigError>& errors() const;
  // One line for every key that was given by the name it had before.
  const std::vector<std::string>& renamed() const;

  // The effective configuration as YAML, and "xxh64:<16 hex digits>" of that text. After Finish.
  std::string Dump() const;
  // The same with the help, limits and choices of every key as comments.
  std::string DumpWithHelp() const;
  std::string Digest() const;

 private:
  struct State;

  ConfigReader(State* state, const ConfigNode* node, std::string path);

  std::string Path(std::string_view name) const;
  static std::string Item(const std::string& path, size_t index);
  const ConfigNode* Claim(std::string_view name, const ConfigRule& rule, const std::vector<std::string>& choices = {});
  const ConfigNode* FindGiven(std::string_view name, const std::string& was);
  void Record(std::string_view name, ConfigNode value);
  void Replace(std::string_view name, const ConfigNode& value);
  void EndSection();
  ConfigNode ReadItem(const ConfigNode* node, const std::string& path, const std::function<void(ConfigReader&)>& read);
  // Runs the declaration only for what it says about values in force, without complaints.
  ConfigNode ReadDefaults(const std::string& path, const std::function<void(ConfigReader&)>& read);
  std::optional<size_t> CheckList(const ConfigNode& node, const std::string& path, const ConfigRule& rule);
  std::optional<size_t> ReadChoice(const ConfigNode& node, const std::string& path,
                                   const std::vector<std::string>& choices);
  bool Mistyped(const ConfigNode& node, const std::string& path, const std::string& expected,
                const std::string& advice = "");
  bool CheckRange(const ConfigNode& node, const std::string& path, const ConfigRule& rule, double value,
                  const std::string& what);

  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, bool* value);
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, double* value);
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, float* value);
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, std::string* value);
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, std::chrono::milliseconds* value);
  bool ReadInteger(const ConfigNode& node, const std::string& path, const ConfigRule& rule, int64_t low, uint64_t high,
                   uint64_t* bits);

  template <std::integral T>
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, T* value) {
    uint64_t bits = 0;
    bool ok = ReadInteger(node, path, rule, static_cast<int64_t>(std::numeric_limits<T>::min()),
                          static_cast<uint64_t>(std::numeric_limits<T>::max()), &bits);
    if (ok) *value = static_cast<T>(bits);
    return ok;
  }
  template <typename T>
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, std::optional<T>* value) {
    if (node.kind == ConfigNode::Kind::kNull || (node.loose && IsNullText(node.text))) return true;
    return Read(node, path, rule, &value->emplace());
  }
  template <typename T>
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, std::vector<T>* value) {
    std::optional<size_t> count = CheckList(node, path, rule);
    bool ok = count.has_value();
    for (size_t i = 0; count && i < *count; ++i) {
      T item{};
      ok = Read(node.items[i], Item(path, i), rule, &item) && ok;
      value->push_back(std::move(item));
    }
    return ok;
  }
  template <typename T, size_t N>
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, std::array<T, N>* value) {
    ConfigRule exact = rule;
    exact.min_items = exact.max_items = N;
    bool ok = CheckList(node, path, exact).has_value();
    for (size_t i = 0; ok && i < N; ++i) ok = Read(node.items[i], Item(path, i), rule, &(*value)[i]) && ok;
    return ok;
  }
  template <typename T>
  bool Read(const ConfigNode& node, const std::string& path, const ConfigRule& rule, std::map<std::string, T>* value) {
    if (node.kind != ConfigNode::Kind::kMap) return Mistyped(node, path, "keys with values");
    bool ok = true;
    for (const ConfigEntry& entry : node.entries) {
      ok = Read(entry.value, path + "." + entry.key, rule, &(*value)[entry.key]) && ok;
    }
    return ok;
  }

  static ConfigNode Plain(std::string text);
  static ConfigNode Write(bool value) { return Plain(value ? "true" : "false"); }
  static ConfigNode Write(double value);
  static ConfigNode Write(float value);
  static ConfigNode Write(const std::string& value);
  static ConfigNode Write(std::chrono::milliseconds value);
  template <std::integral T>
  static ConfigNode Write(T value) {
    return Plain(std::to_string(value));
  }
  template <typename T>
  static ConfigNode Write(const std::optional<T>& value) {
    return value ? Write(*value) : ConfigNode{};
  }
  template <typename T>
  static ConfigNode Write(const std::vector<T>& value) {
    return WriteList(value);
  }
  template <typename T, size_t N>
  static ConfigNode Write(const std::array<T, N>& value) {
    return WriteList(value);
  }
  template <typename C>
  static ConfigNode WriteList(const C& items) {
    ConfigNode list;
    list.kind = ConfigNode::Kind::kList;
    for (size_t i = 0; i < items.size(); ++i) {
      typename C::value_type item = items[i];
      list.items.push_back(Write(item));
    }
    return list;
  }
  template <typename T>
  static ConfigNode Write(const std::map<std::string, T>& value) {
    ConfigNode map;
    map.kind = ConfigNode::Kind::kMap;
    for (const auto& [key, item] : value) map.entries.push_back({key, {}, Write(item)});
    return map;
  }

  std::unique_ptr<State> owned_;  // on the outermost reader only
  State* state_;
  const ConfigNode* node_;  // null where the section is absent
  std::string path_;
  std::vector<std::string> claimed_;
  std::vector<std::string> settable_;  // of them, those that have an effect
  std::string off_;                    // why the keys declared now have no effect; empty: they have
  const ConfigNode* given_ = nullptr;  // of the key declared last, if it has no effect
  std::string comment_;                // of the key declared last
  ConfigNode effective_;
};

}  // namespace lockstep
