// The tables of docs/deepspeed.md. Their keys are no code spans: those name keys of ours.
#include <fmt/format.h>

#include "base/text.h"
#include "foreign/deepspeed.h"

namespace lockstep::foreign {
namespace {

std::string TableOf(const std::vector<KeyRow>& rows) {
  constexpr const char* kFates[] = {"honoured", "mapped", "ignored", "refused", "secret"};
  std::string out =
      "| key | default there | what it means there | here | our key and what becomes of it |\n|---|---|---|---|---|\n";
  for (const KeyRow& row : rows) {
    if (row.type == 'o') continue;  // a section, whose keys follow
    std::vector<std::string> says;
    if (!row.to.empty()) says.push_back(fmt::format("`{}`", row.to));
    if (!row.why.empty()) says.push_back(row.why);
    if (!row.otherwise.empty()) says.push_back(row.otherwise);
    if (!row.allowed.empty() && row.fate != KeyRow::Fate::kRefused) says.push_back("one of " + Join(row.allowed, ", "));
    if (!row.allowed.empty() && row.fate == KeyRow::Fate::kRefused) {
      says.push_back("fine where it is " + Join(row.allowed, " or "));
    }
    out += fmt::format("| <code>{}</code> | {} | {} | {} | {} |\n", row.path, row.initial, row.meaning,
                       kFates[static_cast<size_t>(row.fate)], Join(says, "; "));
  }
  return out;
}

}  // namespace

std::string DeepSpeedPage() {
  return fmt::format("## Keys of DeepSpeed\n{}\n## Keys of accelerate\n{}", TableOf(DeepSpeedKeys()),
                     TableOf(AccelerateKeys()));
}

}  // namespace lockstep::foreign
