#include "lint/shell_reader.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "lint/shell_lexer.h"

namespace lockstep::lint {
namespace {

constexpr size_t kMostCommandWords = 4000;  // of a command
constexpr size_t kDeepestNesting = 200;     // deeper text is no script

class Reader {
 public:
  Reader(std::string_view text, int line, int column, int left, const std::vector<ShellPlace>& places)
      : lexer_(text, line, column, left, places) {
    lexer_.At(&branches_);
  }

  ShellScript Read() {
    for (ShellToken token = lexer_.Next(); token.kind != ShellToken::kEnd; token = lexer_.Next()) Take(token);
    Finish("");
    for (auto& [command, document] : lexer_.documents()) {
      if (command < script_.commands.size()) script_.commands[command].documents.push_back(std::move(document));
    }
    script_.comments = std::move(lexer_.comments());
    script_.broken = std::move(lexer_.broken());
    return std::move(script_);
  }

 private:
  // A construct that is still open.
  struct Open {
    int index;
    int arm = 0;
    bool condition = false;  // between if and then, while and do
    bool pattern = false;    // a case waits for the next pattern
  };

  bool Fresh() const { return command_.words.empty() && command_.assignments.empty(); }

  void Take(ShellToken& token) {
    if (token.kind == ShellToken::kNewline) return Finish(";");
    if (token.kind == ShellToken::kOperator) return TakeOperator(token);
    if (redirect_) return TakeTarget(token.word);
    if (!open_.empty() && open_.back().pattern && Fresh()) {
      if (token.word.text == "esac") Close("case");
      return;  // a pattern
    }
    if (Fresh() && !token.word.quoted && Reserved(token)) return;
    TakeWord(token);
  }

  void TakeOperator(const ShellToken& token) {
    const std::string& symbol = token.symbol;
    if (!open_.empty() && open_.back().pattern && Fresh()) {
      if (symbol == ")") {
        open_.back().pattern = false;
        ++open_.back().arm;
        SetBranches();
      }
      return;
    }
    if (symbol == ";;" || symbol == ";&" || symbol == ";;&") {
      Finish(";");
      if (Open* top = Innermost("case")) top->pattern = true;
    } else if (symbol == ";" || symbol == "&" || symbol == "&&" || symbol == "||") {
      Finish(symbol);
    } else if (symbol == "|" || symbol == "|&") {
      Finish("|");
    } else if (symbol == "(") {
      if (!Fresh() && command_.words.size() == 1 && lexer_.PeekPastBlanks() == ')') {  // name()
        function_ = command_.words[0].value;
        command_ = ShellCommand();
      } else if (Fresh() && lexer_.Peek() == '(') {
        Start(token.line, token.column);
        command_.words.push_back({"((", "((", true, false, false, token.line, token.column, {}});
        command_.words.push_back(lexer_.Until("))"));
      } else {
        Finish(before_);
        Push("group");
      }
    } else if (symbol == ")") {
      Finish(";");
      if (function_) return;  // of name()
      Close("group");
    } else {
      redirect_ = symbol;
    }
  }

  void TakeTarget(const ShellWord& word) {
    const std::string symbol = *redirect_;
    redirect_.reset();
    if (symbol == "<<" || symbol == "<<-") {
      lexer_.ExpectDocument(word.value, symbol == "<<-", script_.commands.size());
    } else if (symbol[0] == '>' || symbol[0] == '&') {
      if (word.value.find_first_not_of("0123456789-") != std::string::npos) command_.output = word.value;
    }
  }

  // Words that are grammar where a command may begin.
  bool Reserved(const ShellToken& token) {
    const std::string& word = token.word.text;
    if (word == "!") {
      negated_ = true;
    } else if (word == "time" || word == "coproc") {
    } else if (word == "if" || word == "while" || word == "until") {
      Push(word == "if" ? "if" : "loop");
      open_.back().condition = true;
      Constructed().conditions.push_back(static_cast<int>(script_.commands.size()));
    } else if (word == "then" || word == "do") {
      if (Open* top = Innermost(word == "then" ? "if" : "loop")) {
        top->condition = false;
        previous_ = -1;
        SetBranches();
      }
    } else if (word == "elif" || word == "else") {
      if (Open* top = Innermost("if")) {
        ++top->arm;
        top->condition = word == "elif";
        script_.constructs[top->index].conditions.push_back(word == "elif" ? static_cast<int>(script_.commands.size())
                                                                           : -1);
        previous_ = -1;
        SetBranches();
      }
    } else if (word == "fi") {
      Close("if");
    } else if (word == "done") {
      Close("loop");
    } else if (word == "esac") {
      Close("case");
    } else if (word == "for" || word == "select") {
      Push("loop");
      ReadForHead();
    } else if (word == "case") {
      Push("case");
      for (ShellToken next = lexer_.Next(); next.kind == ShellToken::kWord; next = lexer_.Next()) {
        if (next.word.text == "in") break;
      }
      open_.back().pattern = true;
    } else if (word == "{") {
      Push(function_ ? "function" : "group");
    } else if (word == "}") {
      Close("group");
    } else if (word == "function") {
      ShellToken name = lexer_.Next();
      if (name.kind == ShellToken::kWord) function_ = name.word.value;
    } else if (word == "[[") {
      Start(token.line, token.column);
      command_.words.push_back(token.word);
      ReadConditionalWords();
    } else {
      return false;
    }
    return true;
  }

  void ReadForHead() {
    ShellToken name = lexer_.Next();
    if (name.kind == ShellToken::kWord) {
      lexer_.values().Forget(name.word.value);
    } else if (name.kind == ShellToken::kOperator && name.symbol == "(") {
      lexer_.Until("))");
    }
    // The words of the list are of no interest, and `do` ends it at a line end or semicolon.
    for (ShellToken token = lexer_.Next(); token.kind != ShellToken::kEnd; token = lexer_.Next()) {
      if (token.kind == ShellToken::kNewline || (token.kind == ShellToken::kOperator && token.symbol == ";")) return;
    }
  }

  // [[ ... ]] has operators of its own: they are words here.
  void ReadConditionalWords() {
    for (int i = 0; i < 1000; ++i) {
      ShellToken token = lexer_.Next();
      if (token.kind == ShellToken::kEnd) return;
      if (token.kind == ShellToken::kWord) {
        const bool end = token.word.text == "]]";
        command_.words.push_back(std::move(token.word));
        if (end) return;
      } else if (token.kind == ShellToken::kOperator) {
        command_.words.push_back({token.symbol, token.symbol, true, false, false, token.line, token.column, {}});
      }
    }
  }

  void TakeWord(ShellToken& token) {
    Start(token.line, token.column);
    ShellWord& word = token.word;
    const size_t equals = word.text.find('=');
    std::string_view name = std::string_view(word.text).substr(0, equals == std::string::npos ? 0 : equals);
    const bool append = !name.empty() && name.back() == '+';
    if (append) name.remove_suffix(1);
    if (const size_t bracket = name.find('['); bracket != std::string_view::npos) name = name.substr(0, bracket);
    if (command_.words.empty() && IsName(name)) {
      ShellAssignment assignment;
      assignment.name = name;
      assignment.line = token.line;
      assignment.column = token.column;
      assignment.value = Value(word);
      if (equals + 1 == word.text.size() && lexer_.Peek() == '(') {
        lexer_.Next();
        assignment.array = true;
        assignment.elements = lexer_.ArrayElements();
        assignment.value.known = false;
        std::vector<std::string> joined;
        for (const ShellWord& element : assignment.elements) joined.push_back(element.value);
        assignment.value.value = Join(joined, " ");
        assignment.value.known =
            std::all_of(assignment.elements.begin(), assignment.elements.end(), [](const auto& e) { return e.known; });
      }
      if (append) Append(assignment);
      command_.assignments.push_back(std::move(assignment));
      return;
    }
    if (word.text.size() > 1 && word.text.find_first_not_of("0123456789") == std::string::npos &&
        (lexer_.Peek() == '<' || lexer_.Peek() == '>')) {
      return;  // the descriptor of a redirection
    }
    // $ARGS without quotes, "${ARGS[@]}" with them: several words, written elsewhere.
    const std::string list = WholeExpansion(word);
    const std::vector<ShellWord> words =
        list.empty() ? std::vector<ShellWord>() : lexer_.values().Words(list, branches_);
    if (words.size() > 1 && command_.words.size() + words.size() < kMostCommandWords) {
      command_.words.insert(command_.words.end(), words.begin(), words.end());
      return;
    }
    command_.words.push_back(std::move(word));
  }

  // NAME+=value
  void Append(ShellAssignment& assignment) {
    const ShellWord* before = lexer_.values().Find(assignment.name, branches_);
    ShellWord& value = assignment.value;
    if (before == nullptr || assignment.array || before->value.size() + value.value.size() > 16 * 1024) {
      value.known = false;
      return;
    }
    ShellWord whole = *before;
    while (!whole.places.empty() && whole.places.back().at >= before->value.size()) whole.places.pop_back();
    whole.places.push_back({before->value.size(), value.line, value.column});
    for (const ShellPlace& place : value.places) {
      if (place.at == 0) whole.places.pop_back();
      whole.places.push_back({place.at + before->value.size(), place.line, place.column});
    }
    whole.value += value.value;
    whole.text = value.text;
    whole.known = before->known && value.known;
    value = std::move(whole);
  }

  // NAME of a word that is nothing but $NAME, ${NAME}, ${NAME[@]} or "${NAME[@]}".
  static std::string WholeExpansion(const ShellWord& word) {
    std::string_view text = word.text;
    const bool quoted = text.size() > 2 && text.front() == '"' && text.back() == '"';
    if (quoted) text = text.substr(1, text.size() - 2);
    if (text.size() < 2 || text[0] != '$') return "";
    text.remove_prefix(1);
    bool list = false;
    if (text[0] == '{' && text.back() == '}') {
      text = text.substr(1, text.size() - 2);
      const size_t bracket = text.find('[');
      list = bracket != std::string_view::npos && (text.substr(bracket) == "[@]" || text.substr(bracket) == "[*]");
      if (list) text = text.substr(0, bracket);
    }
    return IsName(text) && (list || !quoted) ? std::string(text) : "";
  }

  // The part of NAME=value behind the '='.
  static ShellWord Value(const ShellWord& word) {
    const size_t equals = word.value.find('=');
    ShellWord value = word.From(equals == std::string::npos ? word.value.size() : equals + 1);
    value.known = word.known;
    value.text = word.text.substr(word.text.find('=') + 1);
    return value;
  }

  void Start(int line, int column) {
    if (!Fresh()) return;
    command_.line = line;
    command_.column = column;
  }

  // Ends the command that was being read; `after` is the operator behind it.
  void Finish(const std::string& after) {
    redirect_.reset();
    if (Fresh()) {
      // The end of a group, or of nothing: an operator belongs to what was closed before.
      if (closed_ >= 0 && (after == "&&" || after == "||")) MarkTested(closed_);
      if (closed_ >= 0 && after == "|") before_ = after;
      if (after == "&&" || after == "||" || after == "|") before_ = after;
      if (after == ";" || after == "&") EndList();
      closed_ = -1;
      return;
    }
    closed_ = -1;
    const int index = static_cast<int>(script_.commands.size());
    command_.before = before_;
    command_.after = after;
    command_.negated = negated_;
    if (!open_.empty()) {
      command_.construct = open_.back().index;
      command_.arm = open_.back().arm;
    }
    for (const Open& open : open_) command_.condition = command_.condition || open.condition;
    command_.tested = command_.condition || negated_ || after == "&&" || after == "||";
    if (before_ != "|") ++pipeline_;
    command_.pipeline = pipeline_;
    if (command_.tested) {
      for (int i = index - 1; i >= 0 && script_.commands[i].pipeline == pipeline_; --i)
        script_.commands[i].tested = true;
    }
    command_.branches = branches_;
    if (before_ == "&&" || before_ == "||") command_.branches.push_back({list_, before_ == "&&" ? 1 : 2});
    if (before_ != "|") negated_ = false;
    if (command_.words.empty()) {
      for (const ShellAssignment& assignment : command_.assignments) {
        Set(assignment.name, assignment.value, assignment.elements);
      }
    } else {
      Remember();
    }
    before_ = after == "&&" || after == "||" || after == "|" ? after : "";
    if (before_.empty()) EndList();
    previous_ = index;
    script_.commands.push_back(std::move(command_));
    command_ = ShellCommand();
  }

  // export NAME=value, declare NAME=value, read NAME.
  void Remember() {
    static const std::set<std::string> kSetters = {"export", "declare", "typeset", "readonly", "local", "setenv"};
    const std::string& program = command_.words[0].value;
    if (program == "read") {
      for (const ShellWord& word : command_.words) lexer_.values().Forget(word.value);
      return;
    }
    if (program == "unset") {
      for (const ShellWord& word : command_.words) lexer_.values().Forget(word.value);
      return;
    }
    if (kSetters.count(program) == 0) return;
    for (const ShellWord& word : command_.words) {
      const size_t equals = word.value.find('=');
      if (equals == std::string::npos || !IsName(std::string_view(word.value).substr(0, equals))) continue;
      Set(word.value.substr(0, equals), Value(word), {});
    }
  }

  // NAME=${NAME:-1}: the user or the platform decides, so the value stays open.
  void Set(const std::string& name, const ShellWord& value, const std::vector<ShellWord>& elements) {
    if (value.text.find("${" + name + ":-") != std::string::npos ||
        value.text.find("${" + name + "-") != std::string::npos) {
      lexer_.values().Forget(name);
    } else {
      lexer_.values().Set(name, value, elements, command_.branches);
    }
  }

  void EndList() {
    before_.clear();
    negated_ = false;
    list_ = --lists_;
  }

  ShellConstruct& Constructed() { return script_.constructs[open_.back().index]; }

  void Push(const std::string& kind) {
    ShellConstruct construct;
    construct.kind = kind;
    construct.before = before_;
    construct.first = static_cast<int>(script_.commands.size());
    construct.previous = previous_;
    if (kind == "function" && function_) {
      construct.name = *function_;
      function_.reset();
    }
    if (!open_.empty()) {
      construct.parent = open_.back().index;
      construct.arm_of_parent = open_.back().arm;
    }
    if (kind != "if") previous_ = -1;
    script_.constructs.push_back(construct);
    open_.push_back({static_cast<int>(script_.constructs.size()) - 1});
    if (open_.size() > kDeepestNesting) open_.erase(open_.begin());
    before_.clear();
    SetBranches();
  }

  Open* Innermost(const std::string& kind) {
    for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
      if (script_.constructs[open->index].kind == kind) return &*open;
    }
    return nullptr;
  }

  void Close(const std::string& kind) {
    Finish(";");
    for (size_t i = open_.size(); i > 0; --i) {
      const std::string& found = script_.constructs[open_[i - 1].index].kind;
      if (found == kind || (kind == "group" && found == "function")) {
        closed_ = open_[i - 1].index;
        open_.resize(i - 1);
        break;
      }
    }
    previous_ = -1;
    function_.reset();
    SetBranches();
  }

  // { ...; } || handler: nothing inside ends the script by failing.
  void MarkTested(int construct) {
    for (size_t i = script_.constructs[construct].first; i < script_.commands.size(); ++i) {
      script_.commands[i].tested = true;
    }
  }

  void SetBranches() {
    branches_.clear();
    for (const Open& open : open_) {
      const std::string& kind = script_.constructs[open.index].kind;
      if ((kind == "if" && !open.condition) || kind == "case") branches_.push_back({open.index, open.arm});
    }
  }

  ShellLexer lexer_;
  ShellScript script_;
  ShellCommand command_;
  std::vector<Open> open_;
  std::vector<Branch> branches_;
  std::string before_;
  std::optional<std::string> redirect_, function_;
  bool negated_ = false;
  int pipeline_ = 0;
  int closed_ = -1;
  int previous_ = -1;
  int lists_ = -1, list_ = -1;  // and-or lists have negative numbers as constructs
};

}  // namespace

ShellScript ReadShell(std::string_view text, int line, int column, int left, const std::vector<ShellPlace>& places) {
  return Reader(text, line, column, left, places).Read();
}

}  // namespace lockstep::lint
