// Cuts shell text into words and operators and works out what a word would be. Used by shell_reader alone.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lint/shell_reader.h"

namespace lockstep::lint {

struct ShellToken {
  enum Kind { kEnd, kWord, kOperator, kNewline } kind = kEnd;
  ShellWord word;      // kWord
  std::string symbol;  // kOperator
  bool glued = false;  // no blank before it
  int line = 0, column = 0;
};

// Values the script itself gave to its variables, as far as they hold at this point.
class ShellValues {
 public:
  void Set(const std::string& name, const ShellWord& value, const std::vector<ShellWord>& elements,
           const std::vector<Branch>& branches);
  void Forget(const std::string& name);
  // The value if it holds for commands in these branches.
  const ShellWord* Find(const std::string& name, const std::vector<Branch>& branches) const;
  // The words an unquoted $NAME or "${NAME[@]}" becomes, at the places where they are written; empty: not known.
  std::vector<ShellWord> Words(const std::string& name, const std::vector<Branch>& branches) const;
  // The words of a value, at their places.
  static std::vector<ShellWord> Words(const ShellWord& value);

 private:
  struct Entry {
    ShellWord value;
    std::vector<ShellWord> elements;  // of an array
    std::vector<Branch> branches;
  };
  std::map<std::string, Entry> entries_;
};

class ShellLexer {
 public:
  // `left`: the column of every line's first character but the first line's.
  // `places`: where its characters stand, for text that was put together.
  ShellLexer(std::string_view text, int line, int column, int left, const std::vector<ShellPlace>& places = {})
      : text_(text), line_(line), column_(column), left_(left), places_(places) {}

  ShellToken Next();
  // The text up to and including the two characters, as one word ("((" ... "))"). At the end of text: what is left.
  ShellWord Until(std::string_view end);
  // The elements of an array whose '(' was just read.
  std::vector<ShellWord> ArrayElements();
  // The document of << is read at the next line end, into the command at `index`.
  void ExpectDocument(const std::string& delimiter, bool strip_tabs, size_t command);
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  char PeekPastBlanks() const;

  // Where expansions are looked up.
  void At(const std::vector<Branch>* branches) { branches_ = branches; }
  ShellValues& values() { return values_; }
  std::vector<ShellComment>& comments() { return comments_; }
  // Backslashes with blanks behind them at the end of a line.
  std::vector<ShellPlace>& broken() { return broken_; }
  struct ReadDocument {
    size_t command;
    HereDocument document;
  };
  std::vector<ReadDocument>& documents() { return documents_; }

 private:
  struct Expected {
    std::string delimiter;
    bool strip_tabs;
    size_t command;
  };

  void Step();
  static void Mark(ShellWord& word, int line, int column);
  void Put(ShellWord& word);
  void PutAll(ShellWord& word, std::string_view text, int line, int column);
  void SkipBlanks();
  void ReadComment();
  void ReadDocuments();
  ShellWord ReadWord();
  void ReadDoubleQuoted(ShellWord& word);
  void Expand(ShellWord& word);
  void SkipBalanced(char open, char close);
  void ExpandBraced(std::string_view inside, std::string_view whole, ShellWord& word, int depth);
  void ExpandText(std::string_view text, ShellWord& word, int depth);
  void Lookup(const std::string& name, std::string_view written, ShellWord& word);

  std::string_view text_;
  size_t at_ = 0;
  int line_, column_, left_;
  std::vector<ShellPlace> places_;
  size_t next_place_ = 0;
  int next_line_ = 0, next_column_ = 0;            // where the next character of a word stands if nothing lies between
  int expansion_line_ = 0, expansion_column_ = 0;  // of the '$' that is being read
  const std::vector<Branch>* branches_ = nullptr;
  ShellValues values_;
  std::vector<ShellComment> comments_;
  std::vector<ShellPlace> broken_;
  int last_comment_line_ = -1;
  std::vector<Expected> expected_;
  std::vector<ReadDocument> documents_;
};

bool IsName(std::string_view text);  // [A-Za-z_][A-Za-z0-9_]*

}  // namespace lockstep::lint
