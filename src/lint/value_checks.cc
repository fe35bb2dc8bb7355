// Checks of values that have a grammar of their own: lists of interfaces and adapters, the options of PyTorch's
// allocator, ranks, addresses.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/digits.h"
#include "base/text.h"
#include "lint/checks.h"

namespace lockstep::lint {
namespace {

bool Digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Four numbers with dots between, whether they make an address or not.
bool Dotted(std::string_view text) {
  const std::vector<std::string> parts = Split(text, '.');
  return parts.size() == 4 && std::all_of(parts.begin(), parts.end(), Digits);
}

// Letters and a number, as the kernel names cards: eth0, ens3, bond1, ib0. RDMA devices are called mlx5_0, ibp12s0.
bool InterfaceName(std::string_view name) {
  for (std::string_view beginning : {"eth", "ens", "eno", "bond", "ib"}) {
    if (name.substr(0, beginning.size()) == beginning && Digits(name.substr(beginning.size()))) return true;
  }
  return false;
}

// What is wrong with a list of names whose first may begin with '^' or '='.
std::string ListFault(const std::string& value) {
  if (value.find(';') != std::string::npos) return "names are divided by commas, not by ';'";
  if (value.find_first_of("*?") != std::string::npos) return "there are no wildcards: a name is a beginning already";
  if (value.rfind("!", 0) == 0) return "'^' excludes, not '!'";
  if (value.find(",^") != std::string::npos) return "'^' stands once, before the whole list";
  if (value.find(",=") != std::string::npos) return "'=' stands once, before the whole list";
  return "";
}

bool BadInterfaceList(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  std::string fault = ListFault(fact.value);
  const std::string first = fact.value.substr(std::min(fact.value.find_first_not_of("^="), fact.value.size()));
  if (Dotted(first.substr(0, first.find_first_of(",/")))) fault = "an interface has a name (ip -br link), no address";
  words["detail"] = fault;
  return !fault.empty();
}

bool BadAdapterList(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  std::string fault = ListFault(fact.value);
  const std::string names = fact.value.substr(std::min(fact.value.find_first_not_of("^="), fact.value.size()));
  for (const std::string& entry : Split(names, ',')) {
    const size_t colon = entry.find(':');
    if (InterfaceName(entry)) fault = fmt::format("{} is an interface; RDMA devices are listed by ibv_devices", entry);
    if (colon != std::string::npos && !Digits(entry.substr(colon + 1))) {
      fault = fmt::format("behind ':' stands the number of a port, not '{}'", entry.substr(colon + 1));
    }
  }
  words["detail"] = fault;
  return !fault.empty();
}

// Whether another variable of the unit that holds together with this one is a number, and which.
bool Other(const Fact& fact, const Unit& unit, const std::string& name, double& number) {
  return std::any_of(unit.facts.begin(), unit.facts.end(), [&](const Fact& one) {
    return one.kind == "variable" && one.name == name && one.known && Together(fact, one) &&
           AsNumber(one.value, number);
  });
}

// NCCL_MIN_NCHANNELS above NCCL_MAX_NCHANNELS.
bool LeastAboveMost(const Fact& fact, const Unit& unit, const LintContext&, Words& words) {
  const size_t at = fact.name.find("MIN_");
  if (at == std::string::npos) return false;
  std::string most = fact.name;
  most.replace(at, 3, "MAX");
  double own = 0, other = 0;
  if (!AsNumber(fact.value, own) || !Other(fact, unit, most, other) || own <= other) return false;
  words["detail"] = fmt::format("{}={} is more than {}={}", fact.name, own, most, other);
  return true;
}

// RANK=8 of WORLD_SIZE=8.
bool RankTooLarge(const Fact& fact, const Unit& unit, const LintContext&, Words& words) {
  const std::string size = fact.name == "RANK" ? "WORLD_SIZE" : "LOCAL_WORLD_SIZE";
  double own = 0, other = 0;
  if (!fact.exported || !AsNumber(fact.value, own) || !Other(fact, unit, size, other) || own < other) return false;
  words["detail"] = fmt::format("{}={}", size, other);
  return true;
}

bool BadAddress(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  const std::string& value = fact.value;
  const size_t colon = value.find(':');
  if (value.find("://") != std::string::npos) {
    words["detail"] = "a name or an address, without a protocol";
  } else if (colon != std::string::npos && value.find(':', colon + 1) == std::string::npos &&
             Digits(value.substr(colon + 1))) {
    words["detail"] = "the port belongs into MASTER_PORT";
  } else if (Dotted(value)) {
    for (const std::string& part : Split(value, '.')) {
      if (part.size() > 3 || ParseDigits(part).value_or(256) > 255)
        words["detail"] = fmt::format("{} is no part of an address", part);
    }
    return words.count("detail") != 0 && !words["detail"].empty();
  } else {
    return false;
  }
  return true;
}

// "max_split_size_mb:128,expandable_segments:True" with an option that the allocator refuses.
bool BadAllocatorOption(const Fact& fact, const Unit&, const LintContext&, Words& words) {
  static const std::vector<std::string> kOptions = {"max_split_size_mb",
                                                    "max_non_split_rounding_mb",
                                                    "garbage_collection_threshold",
                                                    "roundup_power2_divisions",
                                                    "expandable_segments",
                                                    "backend",
                                                    "release_lock_on_cudamalloc",
                                                    "pinned_use_cuda_host_register",
                                                    "pinned_num_register_threads",
                                                    "pinned_use_background_threads"};
  std::string text = fact.value;
  if (text.find(';') != std::string::npos) {
    words["detail"] = "options are divided by commas, not by ';'";
    return true;
  }
  for (size_t open = text.find('['); open != std::string::npos; open = text.find('[', open + 1)) {
    const size_t close = std::min(text.find(']', open), text.size());
    std::fill(text.begin() + static_cast<ptrdiff_t>(open), text.begin() + static_cast<ptrdiff_t>(close), ' ');
  }
  for (const std::string& part : Split(text, ',')) {
    const size_t colon = part.find(':');
    const std::string name(Trim(part.substr(0, colon)));
    const std::string value(colon == std::string::npos ? std::string_view() : Trim(part.substr(colon + 1)));
    if (name.empty() || name.find('=') != std::string::npos) continue;
    const bool known = std::find(kOptions.begin(), kOptions.end(), name) != kOptions.end();
    std::string& detail = words["detail"];
    detail.clear();
    if (colon == std::string::npos) {
      detail = fmt::format("'{}' has no value", name);
    } else if (const auto near = Nearest(name, kOptions); !known && near) {
      detail = fmt::format("there is no option '{}', but '{}'", name, *near);
    } else if (name == "expandable_segments" && value != "True" && value != "False") {
      detail = fmt::format("expandable_segments is True or False, not '{}'", value);
    } else if (name == "backend" && value != "native" && value != "cudaMallocAsync") {
      detail = fmt::format("backend is native or cudaMallocAsync, not '{}'", value);
    } else if (name == "max_split_size_mb" && !Digits(value)) {
      detail = fmt::format("max_split_size_mb is a number of MiB, not '{}'", value);
    } else if (double share = 0;
               name == "garbage_collection_threshold" && (!AsNumber(value, share) || share <= 0 || share >= 1)) {
      detail = fmt::format("garbage_collection_threshold lies between 0 and 1, not at {}", value);
    }
    if (!detail.empty()) return true;
  }
  return false;
}

constexpr NamedCheck kValueChecks[] = {
    {"bad-interface-list", BadInterfaceList},
    {"bad-adapter-list", BadAdapterList},
    {"least-above-most", LeastAboveMost},
    {"rank-too-large", RankTooLarge},
    {"bad-address", BadAddress},
    {"bad-allocator-option", BadAllocatorOption},
};

}  // namespace

Check FindValueCheck(const std::string& name) { return FindIn(kValueChecks, name); }

}  // namespace lockstep::lint
