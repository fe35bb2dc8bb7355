// Settings anywhere in a tree of YAML or JSON: env of docker-compose, of workflows and charts, literals of kustomize,
// scripts under run and command. Used by the readers of manifests and configurations.
#include <set>

#include "base/text.h"
#include "lint/readers.h"
#include "lint/shell_lexer.h"
#include "lint/variables.h"
#include "lint/yaml_text.h"

namespace lockstep::lint {
namespace {

constexpr int kDeepestSetting = 64;

bool SettingName(const std::string& name) {
  if (name.size() < 4 || name.size() > 80 || name.find('_') == std::string::npos) return false;
  if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != std::string::npos) return false;
  if (Variables::Complete(name)) return true;
  const Variable* row = Variables::Table().Find(name);
  return (row != nullptr && row->name.back() != '*') || Variables::Table().Meant(name).has_value();
}

class Walker {
 public:
  Walker(const YamlText& yaml, bool containers, Unit& unit, Units& others)
      : yaml_(yaml), containers_(containers), unit_(unit), others_(others) {}

  void Walk(const YAML::Node& node, const std::string& key, int depth) {
    if (!node.IsDefined() || depth > kDeepestSetting || --budget_ < 0) return;
    if (node.IsMap()) {
      Map(node, depth);
    } else if (node.IsSequence()) {
      List(node, key, depth);
    }
  }

 private:
  void Map(const YAML::Node& map, int depth) {
    const YAML::Node name = Child(map, "name"), value = Child(map, "value");
    const bool pair = name.IsDefined() && value.IsDefined() && SettingName(Scalar(name));
    if (pair) Add(Scalar(name), yaml_.Line(name), yaml_.Column(name), value);
    for (const auto& entry : map) {
      const std::string key = Scalar(entry.first);
      if (containers_ && (key == "containers" || key == "initContainers" || key == "ephemeralContainers")) continue;
      if (!entry.second.IsScalar()) {
        Walk(entry.second, key, depth + 1);
      } else if (SettingName(key)) {
        Add(key, yaml_.Line(entry.first), yaml_.Column(entry.first), entry.second);
      } else if (key == "runtimeEnvYAML") {
        int line, column;
        yaml_.TextPlace(entry.second, line, column);
        ReadEmbedded(Scalar(entry.second), line, column, "runtime.yaml", others_);
      } else if (ScriptKey(key)) {
        Script(entry.second);
      } else if (Scalar(entry.second).find('\n') != std::string::npos) {
        File(map, entry.second);
      }
    }
  }

  // A file that is written, or a script: its name may stand beside its text.
  void File(const YAML::Node& map, const YAML::Node& text) {
    std::string name;
    for (const char* key : {"destination", "path", "filename", "name"}) {
      if (name.empty()) name = Scalar(Child(map, key));
    }
    int line, column;
    yaml_.TextPlace(text, line, column);
    ReadEmbedded(Scalar(text), line, column, name, others_);
  }

  void List(const YAML::Node& list, const std::string& key, int depth) {
    std::vector<ShellWord> words;
    for (const YAML::Node& item : list) {
      if (!item.IsScalar()) {
        Walk(item, key, depth + 1);
        continue;
      }
      const std::string text = Scalar(item);
      if (text.find('\n') != std::string::npos && !ScriptKey(key)) {
        File(YAML::Node(), item);
        continue;
      }
      const size_t equals = text.find('=');
      if (equals != std::string::npos && SettingName(text.substr(0, equals))) {
        int line, column;
        yaml_.TextPlace(item, line, column);
        Fact fact = Make(text.substr(0, equals), line, column);
        fact.value = text.substr(equals + 1);
        fact.known = fact.value.find('$') == std::string::npos && fact.value.find("{{") == std::string::npos;
        unit_.facts.push_back(std::move(fact));
      } else if (key == "script" || key == "run" || key == "before_script") {
        Script(item);
      } else {
        words.push_back(yaml_.Word(item));
        if (words.size() > 1 && words[words.size() - 2].value.rfind("-", 0) == 0 &&
            words[words.size() - 2].value.back() == 'c' && ScriptKey(key)) {
          Script(item);
          words.clear();
        }
      }
    }
    if (!words.empty() && ScriptKey(key)) ReadWords(words, unit_);
  }

  static bool ScriptKey(const std::string& key) {
    static const std::set<std::string> kKeys = {"run",  "script", "command", "cmd",     "setup",   "entrypoint",
                                                "args", "source", "inline",  "runArgs", "commands"};
    return kKeys.count(key) != 0;
  }

  void Script(const YAML::Node& node) {
    int line, column, left;
    const std::string text = yaml_.ShellText(node, line, column, left);
    Units inside;
    ReadScript(text, line, column, true, "config", inside, left);
    for (Unit& one : inside) {
      for (Fact& fact : one.facts) {
        if (&one == &inside[0]) unit_.facts.push_back(std::move(fact));
      }
      unit_.used.insert(one.used.begin(), one.used.end());
      if (&one != &inside[0]) others_.push_back(std::move(one));
    }
  }

  static Fact Make(const std::string& name, int line, int column) {
    Fact fact;
    fact.kind = "variable";
    fact.name = name;
    fact.line = line;
    fact.column = column;
    return fact;
  }

  void Add(const std::string& name, int line, int column, const YAML::Node& value) {
    const std::string text = Scalar(value);
    const bool nothing = !value.IsScalar() || (value.Tag() == "?" && (text == "null" || text == "~" || text == "Null"));
    if (nothing && !value.IsMap()) return;
    Fact fact = Make(name, line, column);
    const ShellWord word = yaml_.Word(value);
    fact.value = word.value;
    fact.known = value.IsScalar() && word.known;
    unit_.facts.push_back(std::move(fact));
  }

  const YamlText& yaml_;
  bool containers_;
  Unit& unit_;
  Units& others_;
  int budget_ = 50000;  // aliases may make a tree endless
};

}  // namespace

void ReadSettings(const YamlText& yaml, const YAML::Node& node, bool containers_apart, Unit& unit, Units& others) {
  Walker(yaml, containers_apart, unit, others).Walk(node, "", 0);
}

}  // namespace lockstep::lint
