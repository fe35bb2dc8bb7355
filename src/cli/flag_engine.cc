#include "cli/flag_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::cli {
namespace {

std::string Fold(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool IsLong(const std::string& text) { return text.size() > 2 && text.starts_with("--"); }

// argparse lets a negative number be a value while no flag of the parser looks like one.
bool IsNegativeNumber(const std::string& text) {
  if (text.size() < 2 || text[0] != '-') return false;
  size_t digits = 0, dots = 0;
  for (char c : text.substr(1)) {
    if (c >= '0' && c <= '9') {
      ++digits;
    } else if (c == '.') {
      ++dots;
    } else {
      return false;
    }
  }
  return digits > 0 && dots <= 1;
}

class Scanner {
 public:
  Scanner(const std::vector<FlagSpec>& specs, const std::vector<std::string>& args, const std::string& hint,
          const MeantInstead& meant)
      : specs_(specs), args_(args), hint_(hint), meant_(meant) {}

  Result<Scanned> Run() {
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_];
      if (arg == "--") {
        ++next_;
        TakeProgram();
        break;
      }
      if (arg.size() < 2 || arg[0] != '-' || IsNegativeNumber(arg) || HasSpaceAndIsNoFlag(arg)) {
        TakeProgram();
        break;
      }
      ++next_;
      LOCKSTEP_RETURN_IF_ERROR(arg.starts_with("--") ? TakeLong(arg) : TakeShort(arg));
      if (stopped_) break;
    }
    return std::move(out_);
  }

 private:
  void TakeProgram() {
    if (next_ >= args_.size()) return;
    out_.program = args_[next_];
    out_.args.assign(args_.begin() + static_cast<std::ptrdiff_t>(next_) + 1, args_.end());
    next_ = args_.size();
  }

  // argparse takes "-some text" (with a space) for a positional unless it names a flag.
  bool HasSpaceAndIsNoFlag(const std::string& arg) const {
    if (arg.find(' ') == std::string::npos) return false;
    return Matches(arg.substr(0, arg.find('='))).empty() && !(arg[1] != '-' && ShortIndex(arg[1]));
  }

  std::optional<size_t> ShortIndex(char letter) const {
    for (size_t i = 0; i < specs_.size(); ++i) {
      for (const std::string& alias : specs_[i].aliases) {
        if (alias.size() == 2 && alias[1] == letter && alias[1] != '-') return i;
      }
    }
    return std::nullopt;
  }

  // Indices of the specs a long name can mean: the one it names exactly, else those it is a prefix of.
  std::vector<size_t> Matches(const std::string& spelled) const {
    const std::string name = Fold(spelled);
    if (!IsLong(name)) return {};
    std::vector<size_t> preferred, others;
    for (size_t i = 0; i < specs_.size(); ++i) {
      std::vector<std::string> names = specs_[i].aliases;
      names.push_back(specs_[i].name);
      bool prefix = false;
      for (const std::string& candidate : names) {
        if (candidate == name) return {i};
        prefix = prefix || (IsLong(candidate) && candidate.starts_with(name));
      }
      if (prefix) (specs_[i].first_class ? preferred : others).push_back(i);
    }
    return preferred.empty() ? others : preferred;
  }

  bool LooksLikeFlag(const std::string& arg) const {
    return arg.size() >= 2 && arg[0] == '-' && !IsNegativeNumber(arg) && !HasSpaceAndIsNoFlag(arg);
  }

  Status TakeLong(const std::string& arg) {
    const size_t equals = arg.find('=');
    const std::string spelled = arg.substr(0, equals);
    const std::vector<size_t> found = Matches(spelled);
    if (found.empty()) {
      const bool next = next_ < args_.size() && !LooksLikeFlag(args_[next_]);
      return Unknown(spelled, equals != std::string::npos ? arg.substr(equals + 1) : next ? args_[next_] : "");
    }
    if (found.size() > 1) {
      std::vector<std::string> names;
      for (size_t i : found) names.push_back(specs_[i].name);
      return Status(Code::kUsage,
                    fmt::format("{} is short for more than one flag: {}", spelled, fmt::join(names, ", ")),
                    "write the name out");
    }
    std::optional<std::string> value;
    if (equals != std::string::npos) value = arg.substr(equals + 1);
    return Take(found[0], spelled, std::move(value));
  }

  // "-r 3", "-r3", "-r=3", "-m", "-mr3".
  Status TakeShort(const std::string& arg) {
    for (size_t at = 1; at < arg.size(); ++at) {
      const std::string spelled = std::string("-") + arg[at];
      const std::optional<size_t> index = ShortIndex(arg[at]);
      if (!index) return Unknown(arg, "");
      if (!specs_[*index].takes_value) {
        if (at + 1 < arg.size() && arg[at + 1] == '=') return Take(*index, spelled, arg.substr(at + 2));
        LOCKSTEP_RETURN_IF_ERROR(Take(*index, spelled, std::nullopt));
        continue;
      }
      std::optional<std::string> value;
      if (at + 1 < arg.size()) value = arg.substr(at + (arg[at + 1] == '=' ? 2 : 1));
      return Take(*index, spelled, std::move(value));
    }
    return Status::Ok();
  }

  Status Take(size_t index, const std::string& spelled, std::optional<std::string> value) {
    const FlagSpec& spec = specs_[index];
    if (!spec.takes_value) {
      if (value && !spec.optional_value) {
        const std::string why = fmt::format("{} is a switch: expected no value, found '{}'", spelled, *value);
        // torchrun's --module means `python -m`; people who load environment modules write it too.
        return Status(Code::kUsage, why,
                      spec.name == "--module" ? fmt::format("to load an environment module: --module-load {}", *value)
                                              : fmt::format("write {} alone", spelled));
      }
      out_.flags.push_back({index, spelled, value.value_or("")});
      stopped_ = spec.stops;
      return Status::Ok();
    }
    if (!value) {
      if (next_ >= args_.size() || args_[next_] == "--" || LooksLikeFlag(args_[next_])) {
        const std::string found = next_ < args_.size() ? fmt::format("'{}'", args_[next_]) : "the end of the line";
        return Status(Code::kUsage, fmt::format("{}: expected a value, found {}", spelled, found),
                      fmt::format("write {}=VALUE if the value begins with a hyphen", spelled));
      }
      value = args_[next_++];
    }
    out_.flags.push_back({index, spelled, std::move(*value)});
    return Status::Ok();
  }

  Status Unknown(const std::string& spelled, const std::string& value) const {
    const std::string instead = meant_ ? meant_(spelled, value) : "";
    if (!instead.empty()) return Status(Code::kUsage, fmt::format("unknown flag {}", spelled), "write " + instead);
    std::vector<std::string> names;
    for (const FlagSpec& spec : specs_) {
      names.push_back(spec.name);
      names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
    }
    std::string hint = hint_;
    if (const auto near = Nearest(spelled, names)) hint = fmt::format("did you mean {}? ({})", *near, hint_);
    return Status(Code::kUsage, fmt::format("unknown flag {}", spelled), hint);
  }

  const std::vector<FlagSpec>& specs_;
  const std::vector<std::string>& args_;
  const std::string& hint_;
  const MeantInstead& meant_;
  size_t next_ = 0;
  bool stopped_ = false;
  Scanned out_;
};

}  // namespace

Result<Scanned> ScanFlags(const std::vector<FlagSpec>& specs, const std::vector<std::string>& args,
                          const std::string& hint, const MeantInstead& meant) {
  return Scanner(specs, args, hint, meant).Run();
}

}  // namespace lockstep::cli
