#include "launch/messages.h"

#include <fmt/format.h>

#include <type_traits>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

template <typename T>
concept Struct = requires(T& value, void (*visit)()) { T::Each(value, visit); };

template <typename T>
inline constexpr bool kList = false;
template <typename T>
inline constexpr bool kList<std::vector<T>> = true;
template <typename T>
inline constexpr bool kOptional = false;
template <typename T>
inline constexpr bool kOptional<std::optional<T>> = true;

// ---- names --------------------------------------------------------------------------------------------------------

template <typename T>
std::string NameOf();

// The names of the structs that are fields of others.
template <>
std::string NameOf<RankExit>() {
  return "rank_exit";
}
template <>
std::string NameOf<RankPulse>() {
  return "rank_pulse";
}
template <>
std::string NameOf<message::RankDetail>() {
  return "rank_detail";
}
template <>
std::string NameOf<message::LeftProcess>() {
  return "left_process";
}

template <typename T>
std::string TypeName() {
  if constexpr (std::is_same_v<T, bool>) {
    return "boolean";
  } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, Millis>) {
    return "integer";
  } else if constexpr (std::is_floating_point_v<T>) {
    return "number";
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, place::Level>) {
    return "text";
  } else if constexpr (std::is_same_v<T, Json>) {
    return "any";
  } else if constexpr (std::is_same_v<T, std::vector<Json>>) {
    return "list of object";
  } else if constexpr (std::is_same_v<T, std::map<int, std::string>>) {
    return "object of text";
  } else if constexpr (kList<T>) {
    return "list of " + TypeName<typename T::value_type>();
  } else if constexpr (kOptional<T>) {
    return TypeName<typename T::value_type>() + " or null";
  } else {
    return NameOf<T>();
  }
}

// What was found, short enough for a message: `text "abc"`, `the number 1.5`, `null`.
std::string Found(const Json& value) {
  constexpr size_t kShown = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  std::string text = Printable(ToJsonLine(value), kShown);
  if (value.is_string()) return "text " + text;
  return value.is_number() ? "the number " + text : text;
}

// ---- writing ------------------------------------------------------------------------------------------------------

template <typename T>
Json Written(const T& value) {
  if constexpr (std::is_same_v<T, Millis>) {
    return value.count();
  } else if constexpr (std::is_same_v<T, place::Level>) {
    return place::Name(value);
  } else if constexpr (std::is_same_v<T, std::map<int, std::string>>) {
    Json object = Json::object();
    for (const auto& [key, text] : value) object[std::to_string(key)] = text;
    return object;
  } else if constexpr (kOptional<T>) {
    return value ? Written(*value) : Json();
  } else if constexpr (Struct<T>) {
    return ToJson(value);
  } else if constexpr (kList<T>) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(Written(item));
    return list;
  } else {
    return value;
  }
}

struct Writer {
  Json& object;
  template <typename T>
  void operator()(const char* name, const T& value, Range /*range*/ = {}) {
    object[name] = Written(value);
  }
};

// ---- parsing ------------------------------------------------------------------------------------------------------

// Fills a struct from a JSON object; the first field that does not fit is remembered and ends the search.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  template <typename T>
  void operator()(const char* name, T& value, Range range = {}) {
    if (!wrong_.empty()) return;
    const auto found = object_.find(name);
    const std::string path = path_ + name;
    if (found != object_.end()) return Read(path, *found, value, range);
    if constexpr (!kOptional<T>) Wrong(path, TypeName<T>(), "no such field");
  }

  // "field 'ranks[1].rank': expected integer, found null"; empty: all is well.
  const std::string& wrong() const { return wrong_; }

 private:
  void Wrong(const std::string& path, const std::string& expected, const std::string& found) {
    wrong_ = fmt::format("field '{}': expected {}, found {}", path, expected, found);
  }

  template <typename T>
  void Read(const std::string& path, const Json& json, T& value, Range range) {
    const auto wrong = [&] { Wrong(path, TypeName<T>(), Found(json)); };
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) return wrong();
      value = json.get<bool>();
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      if (!json.is_number_unsigned() && !(json.is_number_integer() && json.get<int64_t>() >= 0)) return wrong();
      value = json.get<uint64_t>();
    } else if constexpr (std::is_integral_v<T>) {
      int64_t number = 0;
      const Range room{std::max<int64_t>(range.low, std::numeric_limits<T>::min()),
                       std::min<int64_t>(range.high, std::numeric_limits<T>::max())};
      if (!Integer(path, json, room, &number)) return;
      value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, Millis>) {
      int64_t number = 0;
      // What time arithmetic can add to and subtract from a time point without overflow.
      if (!Integer(path, json, {-1, int64_t{1} << 42}, &number)) return;
      value = Millis(number);
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number()) return wrong();
      value = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) return wrong();
      value = json.get<std::string>();
    } else if constexpr (std::is_same_v<T, place::Level>) {
      const bool node = json == "node";
      if (!node && json != "process") return Wrong(path, "'node' or 'process'", Found(json));
      value = node ? place::Level::kNode : place::Level::kProcess;
    } else if constexpr (std::is_same_v<T, Json>) {
      value = json;
    } else if constexpr (std::is_same_v<T, std::map<int, std::string>>) {
      if (!json.is_object()) return wrong();
      for (const auto& [key, text] : json.items()) {
        const std::string inner = path + "." + key;
        const std::optional<int> number = ParseDigits(key);
        if (!number) return Wrong(inner, "the number of a rank as its key", Found(Json(key)));
        Read(inner, text, value[*number], {});
      }
    } else if constexpr (kOptional<T>) {
      if (json.is_null()) return value.reset();
      Read(path, json, value.emplace(), range);
    } else if constexpr (kList<T>) {
      if (!json.is_array()) return wrong();
      for (size_t i = 0; i < json.size() && wrong_.empty(); ++i) {
        const std::string inner = fmt::format("{}[{}]", path, i);
        if constexpr (std::is_same_v<T, std::vector<Json>>) {
          if (!json[i].is_object()) return Wrong(inner, "object", Found(json[i]));
        }
        Read(inner, json[i], value.emplace_back(), range);
      }
    } else {
      if (!json.is_object()) return wrong();
      Reader inner(json, path + ".");
      T::Each(value, inner);
      wrong_ = inner.wrong();
    }
  }

  bool Integer(const std::string& path, const Json& json, Range range, int64_t* out) {
    const bool too_large = json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX;
    if (!json.is_number_integer() || too_large) {
      Wrong(path, "integer", Found(json));
      return false;
    }
    *out = json.get<int64_t>();
    if (*out >= range.low && *out <= range.high) return true;
    Wrong(path, fmt::format("integer from {} to {}", range.low, range.high), Found(json));
    return false;
  }

  const Json& object_;
  std::string path_;
  std::string wrong_;
};

// ---- listing ------------------------------------------------------------------------------------------------------

struct Lister {
  std::vector<std::string>& fields;
  template <typename T>
  void operator()(const char* name, const T& /*value*/, Range /*range*/ = {}) {
    fields.push_back(fmt::format("{}: {}", name, TypeName<T>()));
  }
};

template <typename M>
MessageFields ListOf(std::string name) {
  MessageFields list{std::move(name), {}};
  const M value;
  Lister lister{list.fields};
  M::Each(value, lister);
  return list;
}

}  // namespace

std::string message::Waiting::Text() const {
  return fmt::format("joined; {} of {} are here, missing: {}", joined, count, missing);
}

template <typename M>
Json ToJson(const M& value) {
  Json object = Json::object();
  if constexpr (requires { M::kType; }) object["type"] = M::kType;
  Writer writer{object};
  M::Each(value, writer);
  return object;
}

template <typename M>
Result<M> Parse(const Json& json, const std::string& peer) {
  std::string name = "introduction";
  if constexpr (requires { M::kType; }) name = fmt::format("message '{}'", M::kType);
  std::string wrong;
  M value;
  if (!json.is_object()) {
    wrong = "expected object, found " + Found(json);
  } else {
    Reader reader(json, "");
    M::Each(value, reader);
    wrong = reader.wrong();
  }
  if (wrong.empty()) return value;
  return Status(Code::kRendezvous, fmt::format("{} from {}: {}", name, peer, wrong),
                "run the same build of lockstep on every node: compare `lockstep --version`");
}

#define LOCKSTEP_MESSAGES(X) \
  X(Challenge)               \
  X(Hello)                   \
  X(Welcome)                 \
  X(Refuse)                  \
  X(Ping)                    \
  X(Waiting)                 \
  X(Go)                      \
  X(Stop)                    \
  X(StacksQuestion)          \
  X(Finish)                  \
  X(Started)                 \
  X(StartFailed)             \
  X(Progress)                \
  X(Comm)                    \
  X(Pulse)                   \
  X(Sample)                  \
  X(Stacks)                  \
  X(Exit) X(Stopped) X(StopRequest) X(Assigned) X(ClockQuestion) X(Round) X(Over) X(Document) X(ClockAnswer) X(Inspect)

#define LOCKSTEP_DEFINE(T)           \
  template Json ToJson<T>(const T&); \
  template Result<T> Parse<T>(const Json&, const std::string&);
#define LOCKSTEP_DEFINE_MESSAGE(M) LOCKSTEP_DEFINE(message::M)

LOCKSTEP_MESSAGES(LOCKSTEP_DEFINE_MESSAGE)
LOCKSTEP_DEFINE(Participant)
LOCKSTEP_DEFINE(RankExit)
LOCKSTEP_DEFINE(RankPulse)

std::vector<MessageFields> ListMessages() {
  std::vector<MessageFields> all;
#define LOCKSTEP_LIST_MESSAGE(M) all.push_back(ListOf<message::M>(message::M::kType));
  LOCKSTEP_MESSAGES(LOCKSTEP_LIST_MESSAGE)
  all.push_back(ListOf<Participant>("claims"));
  all.push_back(ListOf<RankExit>(NameOf<RankExit>()));
  all.push_back(ListOf<RankPulse>(NameOf<RankPulse>()));
  all.push_back(ListOf<message::RankDetail>(NameOf<message::RankDetail>()));
  all.push_back(ListOf<message::LeftProcess>(NameOf<message::LeftProcess>()));
  return all;
}

}  // namespace lockstep::launch
