// A pickle as plain data: dicts, lists, tuples, text, numbers and references to classes, nothing else. Classes are
// named, never looked up; a call is kept as a description (callable, arguments) only if `allow_call` knows its name,
// and refused otherwise with that name. So nothing in a file can run. Values lie in one array and refer to each other
// by index: deep nesting, sharing and cycles cost no stack. Pure function of the bytes, any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lockstep {

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,
    kGlobal,
    kPersistent,
    kCall
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;  // kBool, kInt
  double real = 0;     // kFloat
  std::string text;    // kText, kBytes; kGlobal: "torch._utils._rebuild_tensor_v2"; kCall: the callable's name
  std::vector<uint32_t>
      items;  // kTuple, kList; kDict: key, value, key, value; kPersistent: the id; kCall: the arguments
};

struct Pickle {
  std::vector<PickleValue> values;
  uint32_t root = 0;
  const PickleValue& at(uint32_t index) const { return values[index]; }
};

// `allow_global(name)`: may a class or function of this name be mentioned and called. collections.OrderedDict becomes a
// dict by itself, with its attributes dropped. `source` names the origin in errors.
Result<Pickle> ParsePickle(std::string_view data, const std::string& source,
                           const std::function<bool(std::string_view name)>& allow_global);

}  // namespace lockstep
