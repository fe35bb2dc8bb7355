#include "lint/variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/digits.h"
#include "base/text.h"

namespace lockstep::lint {
namespace {

constexpr const char* kVariableTable =
#include "lint/variables.inc"
    ;

// Beginnings of names whose owners are known so completely that another name is a mistake.
constexpr std::string_view kComplete[] = {"NCCL_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_GLOO_", "GLOO_"};

// Variables of launchers and of the system that people misspell; names like them are looked at although no beginning
// of theirs is complete.
constexpr std::string_view kOften[] = {"MASTER_ADDR",
                                       "MASTER_PORT",
                                       "WORLD_SIZE",
                                       "LOCAL_RANK",
                                       "CUDA_VISIBLE_DEVICES",
                                       "CUDA_DEVICE_MAX_CONNECTIONS",
                                       "CUDA_LAUNCH_BLOCKING",
                                       "CUDA_DEVICE_ORDER",
                                       "OMP_NUM_THREADS",
                                       "MKL_NUM_THREADS",
                                       "PYTORCH_CUDA_ALLOC_CONF",
                                       "PYTORCH_ALLOC_CONF",
                                       "TORCH_DISTRIBUTED_DEBUG",
                                       "TORCH_CPP_LOG_LEVEL",
                                       "DEEPSPEED_TIMEOUT",
                                       "TOKENIZERS_PARALLELISM",
                                       "FI_PROVIDER",
                                       "NVIDIA_VISIBLE_DEVICES",
                                       "NVIDIA_DRIVER_CAPABILITIES",
                                       "LD_LIBRARY_PATH"};

// One letter wrong, missing, too many or in the wrong place. A number or an S behind a name, or another letter before
// it, makes a name of its own.
bool Slip(std::string_view name, std::string_view meant) {
  if (std::abs(static_cast<int>(meant.size()) - static_cast<int>(name.size())) > 1 || name[0] != meant[0]) return false;
  if (std::isdigit(static_cast<unsigned char>(name.back())) != 0 || name.back() == '_') return false;
  if (name.size() > meant.size() && name.back() == 'S' && name.substr(0, meant.size()) == meant) return false;
  return EditDistance(name, meant) == 1;
}

}  // namespace

const Variables& Variables::Table() {
  static const Variables* table = [] {
    Result<Variables> parsed = Parse(kVariableTable);
    return new Variables(parsed.ok() ? std::move(*parsed) : Variables());  // a test reads the table too
  }();
  return *table;
}

Result<Variables> Variables::Parse(std::string_view text) {
  Variables table;
  int number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> fields = Split(line, '\t');
    if (fields[0] == "name") continue;
    if (fields.size() > 9) {
      return Status(Code::kUsage, fmt::format("line {}: {} fields where 9 are expected", number, fields.size()));
    }
    fields.resize(9);
    Variable row{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6], fields[7], fields[8]};
    if (row.owner.empty()) return Status(Code::kUsage, fmt::format("line {}: '{}' has no owner", number, row.name));
    if (row.type.empty()) row.type = "string";
    if (row.status.empty()) row.status = "current";
    table.rows_.push_back(std::move(row));
  }
  std::sort(table.rows_.begin(), table.rows_.end(),
            [](const Variable& a, const Variable& b) { return a.name < b.name; });
  return table;
}

const Variable* Variables::Find(std::string_view name) const {
  auto at = std::lower_bound(rows_.begin(), rows_.end(), name,
                             [](const Variable& row, std::string_view wanted) { return row.name < wanted; });
  if (at != rows_.end() && at->name == name) return &*at;
  const Variable* best = nullptr;
  for (const Variable& row : rows_) {
    if (row.name.back() != '*') continue;
    std::string_view beginning(row.name.data(), row.name.size() - 1);
    if (name.substr(0, beginning.size()) == beginning && (best == nullptr || best->name.size() < row.name.size())) {
      best = &row;
    }
  }
  return best;
}

bool Variables::Complete(std::string_view name) {
  return std::any_of(std::begin(kComplete), std::end(kComplete), [&](std::string_view beginning) {
    return name.size() > beginning.size() && name.substr(0, beginning.size()) == beginning;
  });
}

std::optional<std::string> Variables::Meant(std::string_view name) const {
  const Variable* found = Find(name);
  if (name.size() < 6 || name.size() > 80 || (found != nullptr && found->name.back() != '*')) return std::nullopt;
  // nccl_debug, NCCL-DEBUG: the right words in another dress.
  std::string plain(name);
  for (char& c : plain) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (plain != name) {
    const bool known = Complete(plain) && Find(plain) != nullptr && Find(plain)->name.back() != '*';
    return known ? std::optional(plain) : std::nullopt;
  }
  if (!Complete(name)) {
    // One slip away from a name everybody uses.
    for (std::string_view often : kOften) {
      if (Slip(name, often)) return std::string(often);
    }
    for (const Variable& row : rows_) {
      const bool whole = row.name.back() != '*' && row.name.size() > 11 && row.status == "current";
      if (whole && row.name.find('_') == name.find('_') && Slip(name, row.name)) return row.name;
    }
    // NCLL_DEBUG, NCCCL_DEBUG: the beginning itself is misspelt.
    const size_t end = name.find('_');
    if (end == std::string_view::npos || end < 3 || end > 6 || EditDistance(name.substr(0, end), "NCCL") != 1) {
      return std::nullopt;
    }
    // RCCL, HCCL, MCCL and their like are libraries of other makers.
    if (name[0] != 'N') return std::nullopt;
    std::string mended = "NCCL" + std::string(name.substr(end));
    return Find(mended) != nullptr ? std::optional(mended) : std::nullopt;
  }
  std::string_view owner;
  for (std::string_view beginning : kComplete) {
    if (name.substr(0, beginning.size()) == beginning && beginning.size() > owner.size()) owner = beginning;
  }
  const size_t own = name.size() - owner.size();
  std::optional<std::string> best;
  int least = own < 5 ? 1 : own < 12 ? 2 : 3;  // more slips make another word
  if (found != nullptr) least = 1;             // a plugin's name, if it is no slip
  for (const Variable& row : rows_) {
    if (row.name.back() == '*' || row.status != "current") continue;
    if (std::abs(static_cast<int>(row.name.size()) - static_cast<int>(name.size())) > least) continue;
    const int distance = EditDistance(name, row.name);
    if (distance <= least && (distance < least || !best)) {
      least = distance;
      best = row.name;
    }
  }
  if (best || found != nullptr) return best;
  // The right words in another order: NCCL_DISABLE_IB.
  auto sorted = [](std::string_view text) {
    std::vector<std::string> words = Split(text, '_');
    std::sort(words.begin(), words.end());
    return words;
  };
  const std::vector<std::string> own_words = sorted(name);
  for (const Variable& row : rows_) {
    if (row.status == "current" && row.name.size() == name.size() && sorted(row.name) == own_words) return row.name;
  }
  // A name and some letters more: NCCL_ALGORITHM, NCCL_PROTOCOL.
  for (const Variable& row : rows_) {
    if (row.status != "current" || row.name.size() < owner.size() + 4 || row.name.back() == '*') continue;
    if (name.substr(0, row.name.size()) == row.name && name.find('_', row.name.size()) == name.npos) return row.name;
  }
  // The beginning of exactly one name of several words: NCCL_IB_QPS.
  const Variable* only = nullptr;
  for (const Variable& row : rows_) {
    if (row.status != "current" || row.name.back() == '*' || own < 5) continue;
    if (row.name.rfind(std::string(name) + "_", 0) != 0) continue;
    if (only != nullptr) {
      only = nullptr;
      break;
    }
    only = &row;
  }
  if (only != nullptr) return only->name;
  // The words are right, and one too many stands before them: NCCL_NET_IB_HCA.
  for (const Variable& row : rows_) {
    if (row.status != "current" || row.name.compare(0, owner.size(), owner) != 0) continue;
    const std::string_view words = std::string_view(row.name).substr(owner.size() - 1);  // with the '_' in front
    if (words.find('_', 1) == std::string_view::npos || name.size() < row.name.size()) continue;
    if (name.substr(name.size() - words.size()) == words) return row.name;
  }
  return std::nullopt;
}

int CompareVersions(std::string_view a, std::string_view b) {
  auto parts = [](std::string_view text) {
    std::vector<int> numbers;
    for (const std::string& part : Split(text, '.')) {
      numbers.push_back(LeadingDigits(part).value_or(0));
    }
    numbers.resize(4);
    return numbers;
  };
  const std::vector<int> left = parts(a), right = parts(b);
  return left < right ? -1 : left > right ? 1 : 0;
}

}  // namespace lockstep::lint
