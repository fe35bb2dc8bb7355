#include "diagnose/xid.h"

#include <fmt/format.h>
#include <re2/re2.h>

namespace lockstep::diagnose {
namespace {

constexpr char kReset[] = "reset the GPU (nvidia-smi -r) and keep the node out until that is done";
constexpr char kAgain[] = "start again; if the same GPU repeats it with other code, exclude the node";
constexpr char kReboot[] = "reboot or drain the node";
constexpr char kNote[] = "nothing now; the operator should know";
constexpr char kFollow[] = "look for the first event before it: this one follows from another";

constexpr XidRow kRows[] = {
    {8, "the GPU stopped processing", Policy::kOnce, 5, kAgain},
    {13, "a kernel broke a rule of the graphics engine: illegal access, or hardware", Policy::kOnce, 5, kAgain},
    {31, "a kernel touched GPU memory that is not mapped", Policy::kOnce, 5,
     "usually a bug in a kernel: run with CUDA_LAUNCH_BLOCKING=1"},
    {32, "a corrupted push buffer", Policy::kOnce, 5, kAgain},
    {43, "the GPU reset a context", Policy::kNone, 2, kFollow},
    {45, "the driver cleaned up after a process", Policy::kNone, 2, kFollow},
    {46, "the GPU timed out", Policy::kExclude, 8, kReset},
    {48, "a double-bit memory error (ECC)", Policy::kExclude, 8, kReset},
    {62, "the GPU's power controller halted", Policy::kExclude, 8, kReset},
    {63, "a memory row is marked for remapping", Policy::kNone, 0,
     "nothing now: the row is replaced at the next reset"},
    {64, "remapping a memory row failed", Policy::kExclude, 8, kReset},
    {69, "a class error of the graphics engine", Policy::kOnce, 5, kAgain},
    {74, "an NVLink error", Policy::kExclude, 6, "exclude the node if it repeats; check nvidia-smi nvlink -e"},
    {79, "the GPU has fallen off the bus", Policy::kExclude, 8, kReboot},
    {92, "many single-bit memory errors", Policy::kNone, 0, kNote},
    {94, "a contained memory error: only this process is hit", Policy::kSame, 8, "start again on the same node"},
    {95, "an uncontained memory error", Policy::kExclude, 8, kReset},
    {109, "a context switch timed out", Policy::kExclude, 8, kReset},
    {119, "the GPU's system processor does not answer", Policy::kExclude, 8, kReset},
    {120, "the GPU's system processor failed", Policy::kExclude, 8, kReset},
    {121, "an error of the chip-to-chip link", Policy::kNone, 0, kNote},
    {136, "NVLink training failed", Policy::kExclude, 8, kReset},
    {137, "an NVLink privilege error", Policy::kOnce, 5, kAgain},
    {140, "an unrecovered memory error", Policy::kExclude, 8, kReset},
    {143, "the GPU did not start", Policy::kExclude, 8, kReset},
    {144, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {145, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {146, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {147, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {148, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {149, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {150, "an NVLink 5 error", Policy::kExclude, 6, kReset},
    {154, "the driver changed its recovery action", Policy::kExclude, 6,
     "do what the line says: the driver's own verdict"},
    {155, "an NVLink error defined by software", Policy::kExclude, 8, kReset},
    {156, "a resource of the GPU was retired", Policy::kExclude, 8, kReset},
    {158, "a fatal time-out of the GPU", Policy::kExclude, 8, kReset},
};

}  // namespace

const XidRow* FindXid(int number) {
  for (const XidRow& row : kRows) {
    if (row.number == number) return &row;
  }
  return nullptr;
}

void ApplyXidTable(std::string_view text, LogFinding* finding) {
  static const RE2 pattern(R"(Xid \((?:PCI:)?([0-9a-fA-F:.]+)\).*?: (\d+),)");
  std::string device;
  int number = 0;
  if (!RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), pattern, &device, &number)) return;
  const XidRow* row = FindXid(number);
  if (row == nullptr) {
    finding->cause = fmt::format("driver event Xid {} on GPU {}", number, device);
    finding->weight = 4;
    return;
  }
  finding->cause = fmt::format("driver event Xid {} on GPU {}: {}", number, device, row->meaning);
  const bool harmless = text.find("Nonfatal") != std::string_view::npos ||
                        (number == 154 && text.find("(None)") != std::string_view::npos);
  finding->weight = harmless ? 0 : row->weight;
  finding->policy = row->policy;
  finding->remedy = row->remedy;
  if (row->weight == 2) finding->role = Role::kConsequence;
}

}  // namespace lockstep::diagnose
