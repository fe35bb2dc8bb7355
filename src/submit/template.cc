#include "submit/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace lockstep::submit {
namespace {

using Json = nlohmann::json;

using Scopes = std::vector<const Json*>;  // the innermost last

const Json kNothing = Json::object();
constexpr int kDeepest = 32;  // parts in parts, sections in sections

struct Tag {
  enum class Kind { kValue, kSection, kInverted, kEnd, kPart, kRemark } kind = Kind::kValue;
  std::string name, filter;
  size_t begin = 0, end = 0;  // in the text, with its braces
};

class Filler {
 public:
  Filler(const Schema& schema, Language language) : schema_(schema), language_(language) {}

  // `output` null: only the names are checked. `inside`: names of the items of the
  // sections around.
  Status Run(std::string_view text, const std::string& source, const std::string& indent, const Scopes& scopes,
             const std::vector<std::string>& inside, std::string* output, int depth = 0) {
    if (depth > kDeepest) return Status(Code::kUsage, fmt::format("{}: parts inside parts without end", source));
    Walk walk{text, source, indent, output, depth};
    size_t position = 0;
    LOCKSTEP_RETURN_IF_ERROR(Block(text, &position, walk, scopes, inside, nullptr));
    return Status::Ok();
  }

 private:
  struct Walk {
    std::string_view text;
    const std::string& source;
    const std::string& indent;
    std::string* output;
    int depth;
  };

  static Status At(const Walk& walk, size_t position, const std::string& message, const std::string& hint = "") {
    return Status(Code::kUsage, fmt::format("{}:{}: {}", walk.source, LineOf(walk.text, position), message), hint);
  }

  static int LineOf(std::string_view text, size_t position) {
    return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(position), '\n'));
  }

  // The next tag at or behind `position`; none: kind kEnd with an empty name and begin == size.
  static Result<Tag> Next(std::string_view text, size_t position, const Walk& walk) {
    Tag tag;
    tag.begin = text.find("{{", position);
    if (tag.begin == std::string_view::npos) {
      tag.begin = tag.end = text.size();
      tag.kind = Tag::Kind::kEnd;
      return tag;
    }
    const size_t close = text.find("}}", tag.begin);
    if (close == std::string_view::npos) return At(walk, tag.begin, "'{{' without '}}'");
    tag.end = close + 2;
    std::string_view inner = Trim(text.substr(tag.begin + 2, close - tag.begin - 2));
    if (inner.empty()) return At(walk, tag.begin, "'{{}}' names nothing");
    static const std::map<char, Tag::Kind> kinds = {{'#', Tag::Kind::kSection},
                                                    {'^', Tag::Kind::kInverted},
                                                    {'/', Tag::Kind::kEnd},
                                                    {'>', Tag::Kind::kPart},
                                                    {'!', Tag::Kind::kRemark}};
    if (const auto kind = kinds.find(inner[0]); kind != kinds.end()) {
      tag.kind = kind->second;
      inner = Trim(inner.substr(1));
    }
    const size_t colon = inner.find(':');
    tag.name = std::string(Trim(inner.substr(0, colon)));
    if (colon != std::string_view::npos) tag.filter = std::string(Trim(inner.substr(colon + 1)));
    return tag;
  }

  // A tag alone on its line takes the line with it.
  static bool Alone(std::string_view text, const Tag& tag, size_t* begin, size_t* end) {
    if (tag.kind == Tag::Kind::kValue) return false;
    size_t first = tag.begin, last = tag.end;
    while (first > 0 && (text[first - 1] == ' ' || text[first - 1] == '\t')) --first;
    while (last < text.size() && (text[last] == ' ' || text[last] == '\t')) ++last;
    if ((first > 0 && text[first - 1] != '\n') || (last < text.size() && text[last] != '\n')) return false;
    *begin = first;
    *end = last < text.size() ? last + 1 : last;
    return true;
  }

  // Text up to the {{/name}} of `open`, or to the end.
  Status Block(std::string_view text, size_t* position, const Walk& walk, const Scopes& scopes,
               const std::vector<std::string>& inside, const Tag* open) {
    for (;;) {
      Result<Tag> found = Next(text, *position, walk);
      if (!found.ok()) return found.status();
      const Tag& tag = *found;
      size_t begin = tag.begin, end = tag.end;
      const bool alone = tag.begin < text.size() && Alone(text, tag, &begin, &end);
      Put(walk, text.substr(*position, begin - *position));
      const std::string indent = alone ? std::string(text.substr(begin, tag.begin - begin)) : "";
      *position = end;
      switch (tag.kind) {
        case Tag::Kind::kRemark:
          break;
        case Tag::Kind::kEnd:
          if (open == nullptr && tag.name.empty()) return Status::Ok();
          if (open == nullptr) return At(walk, tag.begin, fmt::format("{{{{/{}}}}} ends nothing", Printable(tag.name)));
          if (tag.name != open->name) {
            return At(walk, open->begin, fmt::format("{{{{#{}}}}} is not ended", Printable(open->name)));
          }
          return Status::Ok();
        case Tag::Kind::kPart: {
          const auto part = schema_.parts.find(tag.name);
          if (part == schema_.parts.end()) {
            return At(walk, tag.begin, fmt::format("there is no part '{}'", Printable(tag.name)));
          }
          LOCKSTEP_RETURN_IF_ERROR(
              Run(part->second, tag.name, walk.indent + indent, scopes, inside, walk.output, walk.depth + 1));
          break;
        }
        case Tag::Kind::kValue:
          LOCKSTEP_RETURN_IF_ERROR(Value(tag, walk, scopes, inside));
          break;
        case Tag::Kind::kSection:
        case Tag::Kind::kInverted:
          LOCKSTEP_RETURN_IF_ERROR(Section(text, position, tag, walk, scopes, inside));
          break;
      }
    }
  }

  Status Section(std::string_view text, size_t* position, const Tag& tag, const Walk& walk, const Scopes& scopes,
                 const std::vector<std::string>& inside) {
    LOCKSTEP_RETURN_IF_ERROR(Known(tag, walk, inside));
    if (walk.depth >= kDeepest) return At(walk, tag.begin, "sections inside sections without end");
    const Json& value = walk.output == nullptr ? kNothing : Find(tag.name, scopes);
    std::vector<std::string> names = inside;
    if (const auto items = schema_.names.find(tag.name); items != schema_.names.end()) {
      names.insert(names.end(), items->second.begin(), items->second.end());
    }
    if (tag.kind == Tag::Kind::kSection) names.emplace_back(".");
    const bool filled = !value.is_null() && value != Json(false) && value != Json("") && value != Json(0) &&
                        !((value.is_array() || value.is_object()) && value.empty());
    const size_t begin = *position;
    std::vector<const Json*> rounds;
    if (tag.kind == Tag::Kind::kInverted) {
      if (!filled) rounds.push_back(&kNothing);
    } else if (filled) {
      if (!value.is_array()) rounds.push_back(&value);
      for (const Json& item : value.is_array() ? value : kNothing) rounds.push_back(&item);
    }
    // Once without output in any case: it finds the end, and checks the names of what is not used.
    const Walk silent{walk.text, walk.source, walk.indent, nullptr, walk.depth + 1};
    const Walk loud{walk.text, walk.source, walk.indent, walk.output, walk.depth + 1};
    LOCKSTEP_RETURN_IF_ERROR(Block(text, position, silent, scopes, names, &tag));
    if (walk.output == nullptr) return Status::Ok();
    for (const Json* round : rounds) {
      size_t again = begin;
      const Json item = round->is_object() ? Json() : Json{{".", *round}};
      Scopes deeper = scopes;
      deeper.push_back(round->is_object() ? round : &item);
      LOCKSTEP_RETURN_IF_ERROR(Block(text, &again, loud, deeper, names, &tag));
    }
    return Status::Ok();
  }

  Status Known(const Tag& tag, const Walk& walk, const std::vector<std::string>& inside) const {
    if (schema_.names.count(tag.name) > 0) return Status::Ok();
    if (std::find(inside.begin(), inside.end(), tag.name) != inside.end()) return Status::Ok();
    std::vector<std::string> names = inside;
    for (const auto& [name, items] : schema_.names) names.push_back(name);
    return At(walk, tag.begin,
              fmt::format("there is no value '{}'{}", Printable(tag.name), DidYouMean(tag.name, names)),
              "docs/submit.md lists the values of templates");
  }

  static const Json& Find(const std::string& name, const Scopes& scopes) {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      if (const auto found = (*scope)->find(name); found != (*scope)->end()) return *found;
    }
    return kNothing;
  }

  Status Value(const Tag& tag, const Walk& walk, const Scopes& scopes, const std::vector<std::string>& inside) {
    LOCKSTEP_RETURN_IF_ERROR(Known(tag, walk, inside));
    static const std::vector<std::string> filters = {"plain", "shell", "yaml", "kubernetes", "raw"};
    if (!tag.filter.empty() && std::find(filters.begin(), filters.end(), tag.filter) == filters.end()) {
      return At(walk, tag.begin,
                fmt::format("there is no filter '{}'{}", Printable(tag.filter), DidYouMean(tag.filter, filters)));
    }
    if (walk.output == nullptr) return Status::Ok();
    const Json& value = Find(tag.name, scopes);
    if (value.is_array() || value.is_object()) {
      return At(walk, tag.begin,
                fmt::format("'{}' is a list: write {{{{#{}}}}}...{{{{/{}}}}}", tag.name, tag.name, tag.name));
    }
    const std::string plain = value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
    if (value.is_number() || value.is_boolean()) return PutWord(walk, plain);
    if (tag.filter == "raw") return PutWord(walk, plain);
    if (tag.filter == "plain") {
      for (const char c : plain) {
        const auto letter = static_cast<unsigned char>(c);
        if (letter < 128 &&
            (std::isalnum(letter) != 0 || std::string_view("._/:=@%+,[]-").find(c) != std::string::npos))
          continue;
        return At(walk, tag.begin, fmt::format("'{}' cannot stand here: '{}'", tag.name, Printable(plain)),
                  "letters, digits and . _ / : = @ % + , [ ] - only");
      }
      return PutWord(walk, plain);
    }
    if (tag.filter == "kubernetes") return PutWord(walk, QuoteYaml(EscapeKubernetes(plain)));
    const bool shell = tag.filter == "shell" || (tag.filter.empty() && language_ == Language::kShell);
    return PutWord(walk, shell ? ShellQuote(plain) : QuoteYaml(plain));
  }

  static Status PutWord(const Walk& walk, const std::string& word) {
    if (!walk.output->empty() && walk.output->back() == '\n') *walk.output += walk.indent;
    *walk.output += word;
    return Status::Ok();
  }

  // Text of the template, with the indentation of the part it stands in before every line that is not empty.
  static void Put(const Walk& walk, std::string_view text) {
    if (walk.output == nullptr) return;
    for (const char c : text) {
      if (c != '\n' && (walk.output->empty() || walk.output->back() == '\n')) *walk.output += walk.indent;
      walk.output->push_back(c);
    }
  }

  const Schema& schema_;
  Language language_;
};

}  // namespace

Result<std::string> Fill(std::string_view text, const std::string& source, Language language, const Schema& schema,
                         const nlohmann::json& values) {
  if (!IsUtf8(text) || text.find('\0') != std::string_view::npos) {
    return Status(Code::kUsage, fmt::format("{}: no text", source), "a template is UTF-8 text");
  }
  std::string output;
  Filler filler(schema, language);
  LOCKSTEP_RETURN_IF_ERROR(filler.Run(text, source, "", {&values}, {}, &output));
  return output;
}

std::string QuoteYaml(std::string_view text) {
  static const std::vector<std::string> words = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto plain = [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/');
  };
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 && text[0] > 0 &&
      std::all_of(text.begin(), text.end(), plain) && std::find(words.begin(), words.end(), lower) == words.end()) {
    return std::string(text);
  }
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::string_view rest = text.substr(i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02X}", c);
    } else if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[++i]));  // C1 controls: not printable in YAML
    } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
      out += rest[2] == '\xA8' ? "\\u2028" : "\\u2029";  // line ends of YAML 1.1
      i += 2;
    } else if (rest.starts_with("\xEF\xBB\xBF")) {
      out += "\\uFEFF";
      i += 2;
    } else if (rest.starts_with("\xEF\xBF\xBE") || rest.starts_with("\xEF\xBF\xBF")) {
      out += rest[2] == '\xBE' ? "\\uFFFE" : "\\uFFFF";
      i += 2;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

std::string EscapeKubernetes(std::string_view text) {
  if (text.find("$(") == std::string_view::npos && text.find("$$") == std::string_view::npos) return std::string(text);
  std::string out;
  for (const char c : text) out += c == '$' ? "$$" : std::string(1, c);
  return out;
}

}  // namespace lockstep::submit
