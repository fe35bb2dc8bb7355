#include "base/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace lockstep {
namespace {

constexpr size_t kMaxValues = 4u << 20;     // a state dict has a few tens per tensor
constexpr size_t kMaxMentions = 16u << 20;  // of values in containers: a shared one is cheap to mention, not to copy
constexpr char kOrderedDict[] = "collections.OrderedDict";

using Kind = PickleValue::Kind;

class Machine {
 public:
  Machine(std::string_view data, const std::string& source, const std::function<bool(std::string_view)>& allow_global)
      : data_(data), source_(source), allow_global_(allow_global) {}

  Result<Pickle> Run() {
    while (!stopped_ && error_.ok()) Step();
    if (!error_.ok()) return error_;
    return std::move(pickle_);
  }

 private:
  Status Damaged(const std::string& what) const {
    return Status(Code::kEnvironment, fmt::format("'{}': pickle byte {}: {}", source_, at_, what),
                  "the file is damaged, or is no state dict of torch.save");
  }
  Status Refused(const std::string& what) const {
    return Status(
        Code::kEnvironment,
        fmt::format("'{}' holds {}; only tensors, dicts, lists, tuples, text and numbers are read", source_, what),
        "nothing of it was executed. If you trust the file, save its tensors alone in Python: "
        "torch.save(torch.load(path)['state_dict'], new_path)");
  }
  void Fail(Status status) {
    if (error_.ok()) error_ = std::move(status);
  }

  // Reading never goes past the end: after a failure everything reads as empty and the loop ends.
  std::string_view Take(uint64_t bytes) {
    if (bytes > data_.size() - at_) {
      Fail(Damaged(fmt::format("{} bytes wanted, {} left", bytes, data_.size() - at_)));
      return {};
    }
    std::string_view taken = data_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }
  template <typename T>
  T Number() {
    T value{};
    const std::string_view taken = Take(sizeof value);
    if (taken.size() == sizeof value) std::memcpy(&value, taken.data(), sizeof value);
    return value;
  }
  std::string_view Line() {
    const size_t end = data_.find('\n', at_);
    if (end == std::string_view::npos) {
      Fail(Damaged("a line has no end"));
      return {};
    }
    std::string_view line = data_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  uint32_t New(PickleValue value) {
    mentions_ += value.items.size();
    if (pickle_.values.size() >= kMaxValues || mentions_ > kMaxMentions) {
      Fail(Damaged("too many values for a state dict"));
      return 0;
    }
    pickle_.values.push_back(std::move(value));
    return static_cast<uint32_t>(pickle_.values.size() - 1);
  }
  void Push(PickleValue value) { stack_.push_back(New(std::move(value))); }
  void PushInt(int64_t value) { Push({.kind = Kind::kInt, .number = value, .text = {}, .items = {}}); }
  void PushText(Kind kind, std::string_view text) { Push({.kind = kind, .text = std::string(text), .items = {}}); }
  void PushItems(Kind kind, std::vector<uint32_t> items) {
    Push({.kind = kind, .text = {}, .items = std::move(items)});
  }

  // The stack above the innermost mark; everything below belongs to outer containers.
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t Pop() {
    if (stack_.size() <= Floor()) {
      Fail(Damaged("the stack is empty"));
      return 0;
    }
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<uint32_t> PopMark() {
    if (marks_.empty()) {
      Fail(Damaged("a mark is missing"));
      return {};
    }
    std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  PickleValue* Top(Kind kind, const char* what) {
    if (stack_.size() <= Floor() || !error_.ok()) {
      Fail(Damaged("the stack is empty"));
      return nullptr;
    }
    PickleValue* top = &pickle_.values[stack_.back()];
    if (top->kind == kind) return top;
    Fail(Damaged(fmt::format("{} expected", what)));
    return nullptr;
  }

  void Tuple(size_t size) {
    std::vector<uint32_t> items(size);
    for (size_t i = size; i-- > 0;) items[i] = Pop();
    PushItems(Kind::kTuple, std::move(items));
  }
  void AddItems(Kind kind, const char* what, const std::vector<uint32_t>& items) {
    if (kind == Kind::kDict && items.size() % 2 != 0) return Fail(Damaged("a key without value"));
    mentions_ += items.size();
    if (mentions_ > kMaxMentions) return Fail(Damaged("too many values for a state dict"));
    PickleValue* container = Top(kind, what);
    if (container != nullptr) container->items.insert(container->items.end(), items.begin(), items.end());
  }
  void Long(std::string_view bytes) {
    if (bytes.size() > 8) {
      const char fill = bytes.back() < 0 ? '\xFF' : '\0';
      for (char c : bytes.substr(8)) {
        if (c != fill || (bytes[7] < 0) != (fill != 0)) return Fail(Refused("an integer of more than 64 bits"));
      }
      bytes = bytes.substr(0, 8);
    }
    uint64_t value = !bytes.empty() && bytes.back() < 0 ? ~uint64_t{0} : 0;
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    PushInt(static_cast<int64_t>(value));
  }
  void Global(std::string_view module, std::string_view name) {
    const std::string full = fmt::format("{}.{}", module, name);
    if (full != kOrderedDict && !allow_global_(full))
      return Fail(Refused(fmt::format("the class or function '{}'", Shown(full))));
    PushText(Kind::kGlobal, full);
  }
  void Reduce() {
    const uint32_t arguments = Pop(), callable = Pop();
    if (!error_.ok()) return;
    const PickleValue& what = pickle_.values[callable];
    if (what.kind != Kind::kGlobal) return Fail(Refused("a call of something that is no function"));
    if (pickle_.values[arguments].kind != Kind::kTuple) return Fail(Damaged("arguments of a call must be a tuple"));
    if (what.text == kOrderedDict) return OrderedDict(arguments);
    // Copied first: New may move the values.
    PickleValue call{.kind = Kind::kCall, .text = what.text, .items = pickle_.values[arguments].items};
    Push(std::move(call));
  }
  // OrderedDict() or OrderedDict([[key, value], ...]), as Python 2 wrote it.
  void OrderedDict(uint32_t arguments) {
    std::vector<uint32_t> items;
    const std::vector<uint32_t>& given = pickle_.values[arguments].items;
    if (given.size() > 1) return Fail(Damaged("OrderedDict takes one argument"));
    if (given.size() == 1) {
      for (uint32_t pair : pickle_.values[given[0]].items) {
        if (pickle_.values[pair].items.size() != 2) return Fail(Damaged("OrderedDict takes pairs"));
        items.insert(items.end(), pickle_.values[pair].items.begin(), pickle_.values[pair].items.end());
      }
    }
    PushItems(Kind::kDict, std::move(items));
    ordered_.emplace(stack_.back(), true);
  }
  // Only OrderedDict may have attributes (modules put "_metadata" there); they are of no use here.
  void Build() {
    Pop();
    if (stack_.size() <= Floor()) return Fail(Damaged("the stack is empty"));
    if (ordered_.contains(stack_.back())) return;
    const PickleValue& top = pickle_.values[stack_.back()];
    Fail(Refused(top.text.empty() ? "an object with state"
                                  : fmt::format("an object of '{}' with state", Shown(top.text))));
  }
  void RefuseObject(uint32_t cls) {
    if (!error_.ok()) return;
    Fail(Refused(fmt::format("an object of the class '{}'", Shown(pickle_.values[cls].text))));
  }
  void Memo(uint32_t key) {
    if (stack_.size() <= Floor()) return Fail(Damaged("the stack is empty"));
    memo_[key] = stack_.back();
  }
  void Recall(uint32_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return Fail(Damaged(fmt::format("value {} was never remembered", key)));
    stack_.push_back(found->second);
  }
  static std::string Shown(std::string_view text) {
    std::string shown;
    for (char c : text.substr(0, 120)) shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    return shown;
  }

  void Step();

  std::string_view data_;
  const std::string& source_;
  const std::function<bool(std::string_view)>& allow_global_;
  size_t at_ = 0;
  bool stopped_ = false;
  Status error_;
  Pickle pickle_;
  size_t mentions_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
  std::unordered_map<uint32_t, bool> ordered_;
};

// Opcodes by their letters in Python's pickletools; the comments there define each.
void Machine::Step() {
  if (stack_.size() > 2 * kMaxValues || marks_.size() > kMaxValues) return Fail(Damaged("the stack is too large"));
  const std::string_view op = Take(1);
  if (op.empty()) return;
  switch (static_cast<unsigned char>(op[0])) {
    case 0x80:  // PROTO
      if (const uint8_t protocol = Number<uint8_t>(); protocol > 5) Fail(Damaged(fmt::format("protocol {}", protocol)));
      return;
    case 0x95:  // FRAME: a hint for readers of streams
      (void)Number<uint64_t>();
      return;
    case '.':
      pickle_.root = Pop();
      stopped_ = true;
      return;
    case '(':
      return marks_.push_back(stack_.size());
    case '0':
      (void)Pop();
      return;
    case '1':
      (void)PopMark();
      return;
    case '2':
      if (stack_.size() <= Floor()) return Fail(Damaged("the stack is empty"));
      return stack_.push_back(stack_.back());
    case 'N':
      return Push({});
    case 0x88:
      return Push({.kind = Kind::kBool, .number = 1, .text = {}, .items = {}});
    case 0x89:
      return Push({.kind = Kind::kBool, .number = 0, .text = {}, .items = {}});
    case 'J':
      return PushInt(Number<int32_t>());
    case 'K':
      return PushInt(Number<uint8_t>());
    case 'M':
      return PushInt(Number<uint16_t>());
    case 0x8a:
      return Long(Take(Number<uint8_t>()));
    case 0x8b:
      return Long(Take(Number<uint32_t>()));
    case 'G': {
      uint64_t bits = 0;
      for (char c : Take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
      return Push({.kind = Kind::kFloat, .real = std::bit_cast<double>(bits), .text = {}, .items = {}});
    }
    case 'X':
      return PushText(Kind::kText, Take(Number<uint32_t>()));
    case 0x8c:
      return PushText(Kind::kText, Take(Number<uint8_t>()));
    case 0x8d:
      return PushText(Kind::kText, Take(Number<uint64_t>()));
    case 'U':
      return PushText(Kind::kText, Take(Number<uint8_t>()));  // text of Python 2
    case 'T':
      return PushText(Kind::kText, Take(Number<uint32_t>()));  // the same, longer
    case 'C':
      return PushText(Kind::kBytes, Take(Number<uint8_t>()));
    case 'B':
      return PushText(Kind::kBytes, Take(Number<uint32_t>()));
    case 0x8e:
    case 0x96:
      return PushText(Kind::kBytes, Take(Number<uint64_t>()));
    case ')':
      return PushItems(Kind::kTuple, {});
    case 0x85:
      return Tuple(1);
    case 0x86:
      return Tuple(2);
    case 0x87:
      return Tuple(3);
    case 't':
      return PushItems(Kind::kTuple, PopMark());
    case ']':
      return PushItems(Kind::kList, {});
    case 'l':
      return PushItems(Kind::kList, PopMark());
    case 'a':
      return AddItems(Kind::kList, "a list", {Pop()});
    case 'e':
      return AddItems(Kind::kList, "a list", PopMark());
    case '}':
      return PushItems(Kind::kDict, {});
    case 'd':
      PushItems(Kind::kDict, PopMark());
      if (pickle_.values.back().items.size() % 2 != 0) Fail(Damaged("a key without value"));
      return;
    case 's': {
      const uint32_t value = Pop(), key = Pop();
      return AddItems(Kind::kDict, "a dict", {key, value});
    }
    case 'u':
      return AddItems(Kind::kDict, "a dict", PopMark());
    case 'q':
      return Memo(Number<uint8_t>());
    case 'r':
      return Memo(Number<uint32_t>());
    case 0x94:
      return Memo(static_cast<uint32_t>(memo_.size()));
    case 'h':
      return Recall(Number<uint8_t>());
    case 'j':
      return Recall(Number<uint32_t>());
    case 'c': {
      const std::string_view module = Line(), name = Line();
      return error_.ok() ? Global(module, name) : void();
    }
    case 0x93: {
      const uint32_t name = Pop(), module = Pop();
      if (!error_.ok()) return;
      if (pickle_.values[name].kind != Kind::kText || pickle_.values[module].kind != Kind::kText) {
        return Fail(Damaged("a class must be named by text"));
      }
      return Global(std::string(pickle_.values[module].text), std::string(pickle_.values[name].text));
    }
    case 'Q':
      return PushItems(Kind::kPersistent, {Pop()});
    case 'R':
      return Reduce();
    case 'b':
      return Build();
    case 0x81:  // NEWOBJ: class, arguments
      (void)Pop();
      return RefuseObject(Pop());
    case 0x92:  // NEWOBJ_EX: class, arguments, keywords
      (void)Pop();
      (void)Pop();
      return RefuseObject(Pop());
    case 'o': {
      const std::vector<uint32_t> items = PopMark();
      return items.empty() ? Fail(Damaged("an object without class")) : RefuseObject(items[0]);
    }
    case 'i': {
      const std::string_view module = Line(), name = Line();
      if (error_.ok()) Fail(Refused(fmt::format("an object of the class '{}.{}'", Shown(module), Shown(name))));
      return;
    }
    case 0x8f:
    case 0x90:
    case 0x91:
      return Fail(Refused("a set"));
    case 0x82:
    case 0x83:
    case 0x84:
      return Fail(Refused("a class named by an extension code"));
    case 0x97:
    case 0x98:
      return Fail(Refused("data outside the pickle"));
    default:
      return Fail(
          Damaged(fmt::format("opcode 0x{:02x} is not one that torch.save writes", static_cast<unsigned char>(op[0]))));
  }
}

}  // namespace

Result<Pickle> ParsePickle(std::string_view data, const std::string& source,
                           const std::function<bool(std::string_view name)>& allow_global) {
  return Machine(data, source, allow_global).Run();
}

}  // namespace lockstep
