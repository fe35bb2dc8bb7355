#include "hang/stacks_python.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "base/digits.h"
#include "base/fd.h"

namespace lockstep::hang {
namespace {

constexpr int kMostPythonThreads = 512;
constexpr int kMostFrames = 200;
constexpr size_t kLongestName = 1024;
constexpr size_t kLongestTable = 256 << 10;

// Offsets inside CPython's structures. 0 for a member that version does not have.
struct Layout {
  uint64_t interpreters_head, main_thread;           // _PyRuntime
  uint64_t threads_head;                             // PyInterpreterState
  uint64_t ts_next, ts_frame, ts_cframe, ts_thread;  // PyThreadState
  uint64_t ts_native;                                // 0: none
  uint64_t cframe_current;                           // _PyCFrame
  uint64_t f_code, f_back, f_instr, f_owner;         // frame; f_instr: f_lasti, prev_instr or instr_ptr
  uint64_t co_filename, co_name, co_qualname, co_first, co_lines, co_code;
  uint64_t ascii;           // size of PyASCIIObject: where the letters begin
  bool object_frames;       // up to 3.10 frames are objects with f_lasti
  bool tagged = false;      // the code pointer carries tag bits
  bool next_instr = false;  // the pointer is to the instruction itself, not to the one before
};

// Measured with a debugger on 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1.
std::optional<Layout> LayoutOf(int minor) {
  switch (minor) {
    case 8:
    case 9:
      return Layout{32, 72, 8, 8, 24, 0, 176, 0, 0, 32, 24, 104, 0, 104, 112, 0, 40, 120, 0, 48, true};
    case 10:
      return Layout{32, 72, 8, 8, 24, 0, 176, 0, 0, 32, 24, 96, 0, 104, 112, 0, 40, 120, 0, 48, true};
    case 11:
      return Layout{40, 80, 16, 8, 0, 56, 152, 160, 8, 32, 48, 56, 69, 112, 120, 128, 72, 136, 184, 48, false};
    case 12:
      return Layout{40, 64, 72, 8, 0, 56, 136, 144, 0, 0, 8, 56, 70, 112, 120, 128, 68, 136, 192, 40, false};
    default:
      return std::nullopt;
  }
}

class Memory {
 public:
  explicit Memory(pid_t pid) : pid_(pid) {}

  bool Read(uint64_t address, void* to, size_t size) const {
    iovec local{to, size};
    iovec remote{reinterpret_cast<void*>(address), size};
    return address != 0 && process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
  }
  template <typename T>
  std::optional<T> Get(uint64_t address) const {
    T value{};
    if (!Read(address, &value, sizeof value)) return std::nullopt;
    return value;
  }
  uint64_t Pointer(uint64_t address) const { return Get<uint64_t>(address).value_or(0); }

 private:
  pid_t pid_;
};

struct Mapping {
  std::string path;
  uint64_t base = 0;  // address of file offset 0
};

// The file that holds the interpreter: libpython where there is one, else the program itself.
std::optional<Mapping> FindInterpreter(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::optional<Mapping> program;
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    uint64_t start = 0, offset = 0;
    char flags[8] = {};
    if (sscanf(line.c_str(), "%lx-%*x %7s %lx", &start, flags, &offset) != 3 || offset != 0) continue;
    const std::string path = line.substr(slash);
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("libpython3.")) return Mapping{path, start};
    if (!program && name.starts_with("python")) program = Mapping{path, start};
  }
  return program;
}

// The address of a dynamic symbol of a mapped file, found in the file.
uint64_t FindSymbol(pid_t pid, const Mapping& mapping, const char* wanted) {
  // Through the process's own root: a container's file is not ours of the same name.
  UniqueFd fd(open(fmt::format("/proc/{}/root{}", pid, mapping.path).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0 || info.st_size < static_cast<off_t>(sizeof(Elf64_Ehdr))) return 0;
  const auto size = static_cast<size_t>(info.st_size);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) return 0;
  const char* bytes = static_cast<const char*>(mapped);
  uint64_t found = 0;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  const auto inside = [&](uint64_t at, uint64_t count) { return at <= size && count <= size - at; };
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
      inside(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) &&
      inside(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
    uint64_t first = 0;  // virtual address of file offset 0
    for (int i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, bytes + header.e_phoff + i * sizeof segment, sizeof segment);
      if (segment.p_type == PT_LOAD && segment.p_offset == 0) first = segment.p_vaddr;
    }
    const auto section = [&](uint32_t index) {
      Elf64_Shdr s{};
      if (index < header.e_shnum) std::memcpy(&s, bytes + header.e_shoff + index * sizeof s, sizeof s);
      return s;
    };
    for (uint32_t i = 0; i < header.e_shnum && found == 0; ++i) {
      const Elf64_Shdr symbols = section(i);
      if (symbols.sh_type != SHT_DYNSYM && symbols.sh_type != SHT_SYMTAB) continue;
      const Elf64_Shdr names = section(symbols.sh_link);
      if (!inside(symbols.sh_offset, symbols.sh_size) || !inside(names.sh_offset, names.sh_size)) continue;
      const size_t length = std::strlen(wanted) + 1;
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        std::memcpy(&symbol, bytes + symbols.sh_offset + at, sizeof symbol);
        if (symbol.st_value == 0 || symbol.st_name + length > names.sh_size) continue;
        if (std::memcmp(bytes + names.sh_offset + symbol.st_name, wanted, length) != 0) continue;
        found = mapping.base + symbol.st_value - first;
        break;
      }
    }
  }
  munmap(mapped, size);
  return found;
}

// The version is in the name of the interpreter; of one that is called "python" only, in those of its modules.
int MinorOf(pid_t pid, const std::string& path) {
  const auto minor = [](std::string_view text, size_t at) { return LeadingDigits(text.substr(at)).value_or(0); };
  const std::string name = path.substr(path.rfind('/') + 1);
  if (const size_t at = name.find("python3."); at != std::string::npos) return minor(name, at + 8);
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (const size_t at = line.find(".cpython-3"); at != std::string::npos) return minor(line, at + 10);
    if (const size_t at = line.find("/lib/python3."); at != std::string::npos) return minor(line, at + 13);
  }
  return -1;
}

// From 3.13 on _PyRuntime begins with a table of the offsets that debuggers need.
std::optional<Layout> PublishedLayout(const Memory& memory, uint64_t runtime) {
  uint64_t words[80] = {};
  if (!memory.Read(runtime, words, sizeof words) || std::memcmp(words, "xdebugpy", 8) != 0) return std::nullopt;
  const int minor = static_cast<int>((words[1] >> 16) & 0xff);
  if ((words[1] >> 24) != 3 || minor < 13 || minor > 14) return std::nullopt;
  // Counted in words: cookie, version, free_threaded, then one group after the other, each beginning with its size.
  const int runtime_at = 3;
  const int interpreter_at = runtime_at + 3;
  const int thread_at = interpreter_at + (minor == 13 ? 13 : 16);
  const int frame_at = thread_at + 9;
  const int code_at = frame_at + (minor == 13 ? 6 : 8);
  Layout layout{};
  layout.interpreters_head = words[runtime_at + 2];
  layout.threads_head = words[interpreter_at + 3];
  layout.ts_next = words[thread_at + 2];
  layout.ts_frame = words[thread_at + 4];
  layout.ts_thread = words[thread_at + 5];
  layout.ts_native = words[thread_at + 6];
  layout.f_back = words[frame_at + 1];
  layout.f_code = words[frame_at + 2];
  layout.f_instr = words[frame_at + 3];
  layout.f_owner = words[frame_at + 5];
  layout.co_filename = words[code_at + 1];
  layout.co_name = words[code_at + 2];
  layout.co_qualname = words[code_at + 3];
  layout.co_lines = words[code_at + 4];
  layout.co_first = words[code_at + 5];
  layout.co_code = words[code_at + 9];
  layout.ascii = 40;
  layout.tagged = true;
  layout.next_instr = true;
  return layout;
}

void AppendUtf8(uint32_t letter, std::string* text) {
  if (letter < 0x80) {
    *text += static_cast<char>(letter);
    return;
  }
  const int more = letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
  static constexpr unsigned kHeads[] = {0, 0xc0, 0xe0, 0xf0};
  *text += static_cast<char>(kHeads[more] | letter >> (6 * more));
  for (int i = more - 1; i >= 0; --i) *text += static_cast<char>(0x80u | (letter >> (6 * i) & 0x3f));
}

// A short text object; nothing when it is something else.
std::optional<std::string> ReadText(const Memory& memory, const Layout& layout, uint64_t object) {
  const auto length = memory.Get<int64_t>(object + 16);
  const auto state = memory.Get<uint32_t>(object + 32);
  if (!length || !state || *length <= 0 || *length > static_cast<int64_t>(kLongestName)) return std::nullopt;
  // Bits: how it is interned, then the size of a letter (3), compact (1), ascii (1).
  uint32_t bits = 0;
  for (const int shift : {2, 8, 16}) {
    bits = *state >> shift & 31;
    if (bits != 0) break;
  }
  const uint32_t width = bits & 7;
  const bool compact = (bits & 8) != 0, ascii = (bits & 16) != 0;
  if (!compact || (width != 1 && width != 2 && width != 4) || (ascii && width != 1)) return std::nullopt;
  // Letters beyond ASCII begin after two (up to 3.11: three) further members.
  const uint64_t data = object + layout.ascii + (ascii ? 0 : layout.ascii == 48 ? 24 : 16);
  std::string raw(static_cast<size_t>(*length) * width, '\0');
  if (!memory.Read(data, raw.data(), raw.size())) return std::nullopt;
  std::string text;
  for (size_t i = 0; i < raw.size(); i += width) {
    uint32_t letter = 0;
    std::memcpy(&letter, raw.data() + i, width);
    if (letter < 0x20 || letter == 0x7f || letter > 0x10ffff || (ascii && letter > 0x7e)) return std::nullopt;
    AppendUtf8(letter, &text);
  }
  return text;
}

// co_lnotab (to 3.9): pairs (bytes, lines). co_linetable (3.10): the same with line first decided by the range.
int LineFromPairs(const std::string& table, int first, int64_t offset, bool ranges) {
  int64_t address = 0;
  int line = first;
  for (size_t i = 0; i + 1 < table.size(); i += 2) {
    const auto step = static_cast<uint8_t>(table[i]);
    const auto delta = static_cast<int8_t>(table[i + 1]);
    if (ranges) {
      if (delta != -128) line += delta;
      address += step;
      if (address > offset) return line;
    } else {
      address += step;
      if (address > offset) break;
      line += delta;
    }
  }
  return line;
}

// The location table of 3.11 and later: a byte 1cccclll (code, length - 1) and then values of 6 bits each.
int LineFromLocations(const std::string& table, int first, int64_t offset) {
  int64_t address = 0;
  int line = first;
  size_t at = 0;
  const auto unsigned_value = [&] {
    uint32_t value = 0;
    for (int shift = 0; at < table.size() && shift < 30; shift += 6) {
      const auto byte = static_cast<uint8_t>(table[at++]);
      value |= uint32_t{byte & 63u} << shift;
      if ((byte & 64) == 0) break;
    }
    return value;
  };
  const auto signed_value = [&] {
    const uint32_t value = unsigned_value();
    return (value & 1) != 0 ? -static_cast<int>(value >> 1) : static_cast<int>(value >> 1);
  };
  while (at < table.size()) {
    const auto head = static_cast<uint8_t>(table[at++]);
    if ((head & 128) == 0) return line;
    const int code = (head >> 3) & 15;
    address += ((head & 7) + 1) * 2;
    if (code <= 9) {
      at += 1;
    } else if (code <= 12) {
      line += code - 10;
      at += 2;
    } else if (code == 13) {
      line += signed_value();
    } else if (code == 14) {
      line += signed_value();
      unsigned_value(), unsigned_value(), unsigned_value();
    }
    if (address > offset) return line;
  }
  return line;
}

struct Reader {
  const Memory& memory;
  const Layout& layout;
  int minor;

  std::optional<StackFrame> Frame(uint64_t code, int64_t offset) const {
    StackFrame frame;
    auto file = ReadText(memory, layout, memory.Pointer(code + layout.co_filename));
    auto name = ReadText(memory, layout, memory.Pointer(code + layout.co_name));
    if (layout.co_qualname != 0) {
      if (auto whole = ReadText(memory, layout, memory.Pointer(code + layout.co_qualname))) name = whole;
    }
    if (!file || !name) return std::nullopt;
    frame.file = *file;
    frame.function = *name;
    const uint64_t table = memory.Pointer(code + layout.co_lines);
    const auto size = memory.Get<int64_t>(table + 16);
    const auto first = memory.Get<int32_t>(code + layout.co_first);
    if (!size || !first || *size < 0 || *size > static_cast<int64_t>(kLongestTable)) return frame;
    std::string bytes(static_cast<size_t>(*size), '\0');
    if (!bytes.empty() && !memory.Read(table + 32, bytes.data(), bytes.size())) return frame;
    frame.line = minor >= 11 ? LineFromLocations(bytes, *first, offset)
                             : LineFromPairs(bytes, *first, offset, /*ranges=*/minor == 10);
    return frame;
  }

  std::vector<StackFrame> Frames(uint64_t thread) const {
    std::vector<StackFrame> frames;
    uint64_t at = layout.ts_frame != 0
                      ? memory.Pointer(thread + layout.ts_frame)
                      : memory.Pointer(memory.Pointer(thread + layout.ts_cframe) + layout.cframe_current);
    for (int i = 0; at != 0 && i < kMostFrames; ++i) {
      uint64_t code = memory.Pointer(at + layout.f_code);
      if (layout.tagged) code &= ~uint64_t{3};
      int64_t offset = 0;
      if (layout.object_frames) {
        offset = memory.Get<int32_t>(at + layout.f_instr).value_or(0) * (minor == 10 ? 2 : 1);
      } else {
        offset = static_cast<int64_t>(memory.Pointer(at + layout.f_instr) - (code + layout.co_code));
      }
      // Frames that only join C and Python have no code of their own and are passed over.
      if (auto frame = Frame(code, offset)) {
        if (frame->file != "<shim>") frames.push_back(std::move(*frame));
      } else if (layout.object_frames) {
        break;
      }
      at = memory.Pointer(at + layout.f_back);
    }
    return frames;
  }
};

}  // namespace

bool IsPython(pid_t pid) { return FindInterpreter(pid).has_value(); }

Result<std::vector<ThreadStack>> ReadPythonStacks(pid_t pid) {
  const auto mapping = FindInterpreter(pid);
  if (!mapping) return Status(Code::kEnvironment, fmt::format("pid {} runs no CPython that can be recognised", pid));
  const uint64_t runtime = FindSymbol(pid, *mapping, "_PyRuntime");
  if (runtime == 0) {
    return Status(Code::kEnvironment, fmt::format("{}: no symbol _PyRuntime", mapping->path));
  }
  const Memory memory(pid);
  if (!memory.Get<uint64_t>(runtime)) {
    return Status(Code::kEnvironment, fmt::format("the memory of pid {} may not be read: {}", pid, ErrnoText(errno)),
                  "run as the same user (or root), and outside the container with its permissions");
  }
  int minor = MinorOf(pid, mapping->path);
  std::optional<Layout> layout = PublishedLayout(memory, runtime);
  if (layout) {
    minor = static_cast<int>((memory.Pointer(runtime + 8) >> 16) & 0xff);
  } else {
    layout = LayoutOf(minor);
  }
  if (!layout) {
    return Status(Code::kEnvironment, fmt::format("the layout of {} is not known", mapping->path), "install py-spy");
  }
  const Reader reader{memory, *layout, minor};
  std::vector<ThreadStack> threads;
  const uint64_t interpreter = memory.Pointer(runtime + layout->interpreters_head);
  const uint64_t main_thread = layout->main_thread != 0 ? memory.Pointer(runtime + layout->main_thread) : 0;
  uint64_t at = memory.Pointer(interpreter + layout->threads_head);
  std::set<uint64_t> seen;
  for (int i = 0; at != 0 && i < kMostPythonThreads && seen.insert(at).second; ++i) {
    ThreadStack thread;
    const uint64_t handle = memory.Pointer(at + layout->ts_thread);
    if (layout->ts_native != 0) thread.tid = static_cast<pid_t>(memory.Pointer(at + layout->ts_native));
    thread.main = thread.tid == pid || (thread.tid == 0 && main_thread != 0 && handle == main_thread);
    if (thread.main) thread.tid = pid;
    thread.python = reader.Frames(at);
    if (!thread.python.empty()) threads.push_back(std::move(thread));
    at = memory.Pointer(at + layout->ts_next);
  }
  if (threads.empty()) {
    return Status(Code::kEnvironment, fmt::format("no Python frames found in pid {} ({})", pid, mapping->path));
  }
  return threads;
}

}  // namespace lockstep::hang
