#include "diagnose/exceptions.h"

#include "base/text.h"

namespace lockstep::diagnose {
namespace {

// A programming error repeats itself; what concerns files, memory or the network may not.
constexpr ExceptionRule kRules[] = {
    // Noticed by the one who waits, not by the one who failed.
    {"ChildFailedError", Role::kTrigger, 1, Policy::kNone, "the launcher reports a failed rank",
     "look at that rank's own output"},
    {"CalledProcessError", Role::kTrigger, 1, Policy::kNone, "a started program failed: {m}",
     "look at that program's own output"},
    {"ProcessRaisedException", Role::kTrigger, 1, Policy::kNone, "a spawned process raised an exception",
     "look at its traceback"},
    {"ProcessExitedException", Role::kTrigger, 2, Policy::kNone, "a spawned process ended: {m}",
     "look at that process's output; a signal means memory or native code"},
    {"SignalException", Role::kTrigger, 1, Policy::kSame, "the launcher was told to stop: {m}",
     "look for who sent the signal: a scheduler, a time limit, a person"},
    {"KeyboardInterrupt", Role::kTrigger, 1, Policy::kNone, "the program was interrupted (Ctrl-C or SIGINT)",
     "nothing is wrong with the program; start it again"},
    {"SystemExit", Role::kTrigger, 1, Policy::kNone, "the program ended itself: {m}", "look at what it printed before"},
    {"BrokenPipeError", Role::kConsequence, 2, Policy::kNone, "the other end of a pipe or connection is gone",
     "find who ended first"},
    {"ConnectionResetError", Role::kConsequence, 2, Policy::kNone, "the other end of a connection is gone",
     "find who ended first"},
    {"ConnectionAbortedError", Role::kConsequence, 2, Policy::kNone, "a connection was given up",
     "find who ended first"},
    {"BrokenProcessPool", Role::kConsequence, 3, Policy::kOnce, "a worker process of a pool died: {m}",
     "look for a kill for lack of memory or a crash in native code; use fewer workers"},
    {"DistBackendError", Role::kConsequence, 3, Policy::kOnce, "a collective operation failed: {m}",
     "find the rank that failed first; NCCL_DEBUG=WARN shows NCCL's own reason"},
    {"DistNetworkError", Role::kConsequence, 3, Policy::kOnce, "the connection to the other ranks failed: {m}",
     "find the rank that ended first; check that the address and port of rank 0 can be reached"},
    {"DistStoreError", Role::kConsequence, 3, Policy::kOnce, "the store of the process group failed: {m}",
     "find the rank that never came or ended first"},
    {"DistError", Role::kConsequence, 3, Policy::kOnce, "communication between ranks failed: {m}",
     "find the rank that ended first"},
    {"ExceptionGroup", Role::kTrigger, 1, Policy::kNone, "several exceptions: {m}", "look at each of them"},
    {"BaseExceptionGroup", Role::kTrigger, 1, Policy::kNone, "several exceptions: {m}", "look at each of them"},
    {"RayTaskError", Role::kTrigger, 2, Policy::kNone, "a Ray task failed: {m}", "look at the task's own traceback"},
    {"RayActorError", Role::kConsequence, 3, Policy::kOnce, "a Ray actor died: {m}",
     "look at the own log of that worker and at dmesg of its node"},
    {"ActorDiedError", Role::kConsequence, 3, Policy::kOnce, "a Ray actor died: {m}",
     "look for a kill for lack of memory on its node"},
    {"WorkerCrashedError", Role::kConsequence, 3, Policy::kOnce, "a Ray worker crashed: {m}",
     "look at the worker's own log"},
    // Code and configuration.
    {"ZeroDivisionError", Role::kRoot, 5, Policy::kStop, "the program divides by zero: {m}",
     "correct the expression at the line named; check for empty batches, counts and lengths of 0"},
    {"NameError", Role::kRoot, 5, Policy::kStop, "the program uses a name that does not exist: {m}",
     "correct the spelling or add the missing import"},
    {"UnboundLocalError", Role::kRoot, 5, Policy::kStop, "a variable is used before it has a value: {m}",
     "give it a value on every path"},
    {"AttributeError", Role::kRoot, 5, Policy::kStop, "an object has no such attribute: {m}",
     "check the type of the object, and that the installed version of the library has this name"},
    {"TypeError", Role::kRoot, 5, Policy::kStop, "a value of the wrong type was used: {m}",
     "check the arguments at the line named, and that versions of the libraries fit together"},
    {"ValueError", Role::kRoot, 5, Policy::kStop, "a value is not acceptable: {m}",
     "check the value at the line named and where it comes from (configuration, data)"},
    {"KeyError", Role::kRoot, 5, Policy::kStop, "a key is missing: {m}",
     "check the spelling in the configuration or data, and the version of what defines the key"},
    {"IndexError", Role::kRoot, 5, Policy::kStop, "an index is out of range: {m}",
     "check sizes at the line named; an empty or short list often comes from missing data"},
    {"AssertionError", Role::kRoot, 5, Policy::kStop, "a check of the program failed: {m}",
     "read the condition at the line named; it says what was expected"},
    {"NotImplementedError", Role::kRoot, 5, Policy::kStop, "the operation is not implemented: {m}",
     "use another device, type or method for it"},
    {"ImportError", Role::kRoot, 5, Policy::kStop, "a module could not be imported: {m}",
     "install versions that fit together in the interpreter this rank uses"},
    {"ModuleNotFoundError", Role::kRoot, 5, Policy::kStop, "a module is not installed here: {m}",
     "install it in the interpreter this rank uses, on every node"},
    {"SyntaxError", Role::kRoot, 5, Policy::kStop, "the program has a syntax error: {m}",
     "correct the line named; check the Python version"},
    {"IndentationError", Role::kRoot, 5, Policy::kStop, "the program has wrong indentation: {m}",
     "correct the line named"},
    {"RecursionError", Role::kRoot, 5, Policy::kStop, "endless recursion: {m}",
     "find the call that repeats itself in the traceback"},
    {"OverflowError", Role::kRoot, 5, Policy::kStop, "a number is too large: {m}",
     "check the values at the line named"},
    {"FloatingPointError", Role::kRoot, 5, Policy::kStop, "the numbers ran away: {m}",
     "lower the learning rate, check the data of that step, use bf16"},
    {"UnicodeDecodeError", Role::kRoot, 5, Policy::kFix, "a file is not text in the expected encoding: {m}",
     "find the file at the line named: it may be binary, compressed or damaged"},
    {"UnicodeEncodeError", Role::kRoot, 5, Policy::kStop, "text cannot be written in this encoding: {m}",
     "set PYTHONIOENCODING=utf-8 or LC_ALL=C.UTF-8"},
    {"JSONDecodeError", Role::kRoot, 5, Policy::kFix, "a file or answer is not JSON: {m}",
     "find the file at the line named: it may be empty, cut off or a pointer of git-lfs"},
    {"YAMLError", Role::kRoot, 5, Policy::kStop, "a configuration file is not YAML: {m}",
     "correct the file at the line and column named"},
    {"ParserError", Role::kRoot, 5, Policy::kStop, "a file cannot be parsed: {m}",
     "correct the file at the place named"},
    {"ScannerError", Role::kRoot, 5, Policy::kStop, "a configuration file is not YAML: {m}",
     "correct the file at the line and column named"},
    {"ConfigAttributeError", Role::kRoot, 5, Policy::kStop, "the configuration has no such key: {m}",
     "correct the key's name or add it"},
    {"ConfigKeyError", Role::kRoot, 5, Policy::kStop, "the configuration has no such key: {m}",
     "correct the key's name or add it"},
    {"MissingConfigException", Role::kRoot, 5, Policy::kStop, "a configuration file is missing: {m}",
     "check the configuration's path and name"},
    {"ValidationError", Role::kRoot, 5, Policy::kStop, "the configuration does not fit its description: {m}",
     "correct the fields named"},
    {"UnidentifiedImageError", Role::kRoot, 5, Policy::kFix, "an image file cannot be read: {m}",
     "remove or download again the file named; skip unreadable samples in the data loader"},
    {"DecompressionBombError", Role::kRoot, 5, Policy::kStop, "an image is larger than the reader allows: {m}",
     "remove it or raise PIL.Image.MAX_IMAGE_PIXELS"},
    {"BadZipFile", Role::kRoot, 5, Policy::kFix, "an archive is damaged or cut off: {m}",
     "download it again and check its size"},
    {"BadGzipFile", Role::kRoot, 5, Policy::kFix, "an archive is damaged or not gzip: {m}",
     "download it again and check its size"},
    {"ReadError", Role::kRoot, 5, Policy::kFix, "an archive or answer could not be read: {m}",
     "download it again and check its size"},
    {"DatasetGenerationError", Role::kRoot, 4, Policy::kFix, "the dataset could not be built: {m}",
     "read the exception before it: it names file and row"},
    {"DatasetNotFoundError", Role::kRoot, 5, Policy::kStop, "the dataset does not exist or may not be read: {m}",
     "check its name and your token"},
    {"DataFilesNotFoundError", Role::kRoot, 5, Policy::kStop, "the dataset has no data files there: {m}",
     "check the path and the file pattern"},
    // The machine.
    {"MemoryError", Role::kRoot, 6, Policy::kOnce, "the process ran out of host memory: {m}",
     "use fewer workers, smaller caches, memory-mapped data, or ask for more memory"},
    {"ArrayMemoryError", Role::kRoot, 6, Policy::kOnce, "the process ran out of host memory: {m}",
     "use smaller arrays or memory-mapped data, or ask for more memory"},
    {"_ArrayMemoryError", Role::kRoot, 6, Policy::kOnce, "the process ran out of host memory: {m}",
     "use smaller arrays or memory-mapped data, or ask for more memory"},
    {"FileNotFoundError", Role::kRoot, 5, Policy::kStop, "a file is missing: {m}",
     "check the path, and that this node mounts the same storage as the others"},
    {"NotADirectoryError", Role::kRoot, 5, Policy::kStop, "a path is not a folder: {m}", "check the path"},
    {"IsADirectoryError", Role::kRoot, 5, Policy::kStop, "a path is a folder, a file was expected: {m}",
     "check the path"},
    {"FileExistsError", Role::kRoot, 5, Policy::kStop, "a file or folder exists already: {m}",
     "remove it or choose another output folder; only one rank may create it"},
    {"PermissionError", Role::kRoot, 5, Policy::kStop, "no permission: {m}",
     "change the owner or mode of the path, or choose another"},
    {"ConnectionRefusedError", Role::kRoot, 4, Policy::kOnce, "nobody listens at the other end: {m}",
     "check that the service runs and that address and port are right"},
    {"TimeoutError", Role::kRoot, 3, Policy::kOnce, "something did not answer in time: {m}",
     "find out who should have answered"},
    {"Timeout", Role::kRoot, 3, Policy::kOnce, "something did not answer in time: {m}",
     "find out who should have answered"},
    {"ReadTimeout", Role::kRoot, 4, Policy::kOnce, "a server did not answer in time: {m}",
     "try again; download data before the run"},
    {"SSLError", Role::kRoot, 5, Policy::kStop, "the certificate of a server is not accepted: {m}",
     "install the certificates of the proxy (REQUESTS_CA_BUNDLE, SSL_CERT_FILE)"},
    {"ProxyError", Role::kRoot, 5, Policy::kStop, "the proxy refuses: {m}",
     "check HTTPS_PROXY and NO_PROXY on this node"},
    {"HTTPError", Role::kRoot, 5, Policy::kOnce, "a server refused: {m}",
     "read its status: 401 and 403 want a token, 404 another name, 5xx time"},
    {"EOFError", Role::kRoot, 4, Policy::kOnce, "a file or connection ended too early: {m}",
     "if a file is read: it is cut off, write or download it again; else find who ended first"},
    {"OSError", Role::kRoot, 5, Policy::kOnce, "the operating system refused: {m}",
     "read the error number and the path named"},
    {"error", Role::kRoot, 5, Policy::kOnce, "a library reports: {m}",
     "read the message; the line named is where it was called"},
    // torch's compiler and others wrap what a user wrote.
    {"BackendCompilerFailed", Role::kRoot, 5, Policy::kStop, "torch.compile failed: {m}",
     "run without torch.compile, or TORCHDYNAMO_VERBOSE=1 for details"},
    {"Unsupported", Role::kRoot, 5, Policy::kStop, "torch.compile cannot trace this: {m}",
     "run that part without torch.compile"},
    {"InternalTorchDynamoError", Role::kRoot, 5, Policy::kStop, "torch.compile failed inside: {m}",
     "run without torch.compile or with another version of torch"},
    {"CompilationError", Role::kRoot, 5, Policy::kStop, "a kernel does not compile: {m}",
     "check the versions of Triton, torch and the GPU's generation"},
    {"OutOfResources", Role::kRoot, 5, Policy::kStop, "a kernel needs more than the GPU has: {m}",
     "use smaller blocks or fewer stages in the kernel"},
    {"OutOfMemoryError", Role::kRoot, 6, Policy::kStop, "out of memory: {m}",
     "use a smaller batch, activation checkpointing or sharding"},
    {"MisconfigurationException", Role::kRoot, 5, Policy::kStop, "the trainer is configured wrongly: {m}",
     "read the message: it names the argument"},
    {"RuntimeError", Role::kRoot, 5, Policy::kOnce, "the program raised an error: {m}",
     "read the message and the line named"},
    {"", Role::kRoot, 5, Policy::kOnce, "the program raised {t}: {m}", "read the message and the line named"},
};

}  // namespace

std::string_view ClassName(std::string_view type) {
  // ray.exceptions.RayTaskError(ValueError)
  if (const size_t paren = type.find('('); paren != std::string_view::npos) type = type.substr(0, paren);
  const size_t dot = type.rfind('.');
  return dot == std::string_view::npos ? type : type.substr(dot + 1);
}

const ExceptionRule& RuleFor(std::string_view type, std::string_view) {
  const std::string_view name = ClassName(type);
  const size_t count = sizeof kRules / sizeof kRules[0];
  for (size_t i = 0; i + 1 < count; ++i) {
    if (name == kRules[i].type) return kRules[i];
  }
  return kRules[count - 1];
}

bool IsProgramError(std::string_view type) {
  static constexpr std::string_view kOutside[] = {"Connection",  "Timeout", "OSError",     "IOError",
                                                  "Memory",      "Socket",  "Operational", "Throttl",
                                                  "Unavailable", "Network", "EOF"};
  for (std::string_view word : kOutside) {
    if (ClassName(type).find(word) != std::string_view::npos) return false;
  }
  return true;
}

std::string ExceptionId(std::string_view type) {
  const std::string_view name = ClassName(type);
  std::string id = "py-";
  for (size_t i = 0; i < name.size() && id.size() < 60; ++i) {
    const char c = name[i];
    const bool upper = c >= 'A' && c <= 'Z';
    const bool alnum = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!alnum) {
      if (id.back() != '-') id += '-';
      continue;
    }
    const bool before_lower = i > 0 && name[i - 1] >= 'a' && name[i - 1] <= 'z';
    const bool before_upper = i > 0 && name[i - 1] >= 'A' && name[i - 1] <= 'Z';
    const bool after_lower = i + 1 < name.size() && name[i + 1] >= 'a' && name[i + 1] <= 'z';
    if (upper && (before_lower || (before_upper && after_lower)) && id.back() != '-') id += '-';
    id += upper ? static_cast<char>(c + 32) : c;
  }
  if (id.back() == '-') id += "exception";
  return id;
}

// A message whose first line ends in a colon goes on in the next ones.
std::string WholeMessage(const Raised& raised) {
  std::string message = raised.message;
  if (!raised.text.ends_with(':')) return message;
  for (size_t i = 0; i < raised.after.size() && i < 4 && message.size() < 200; ++i) {
    message += (message.empty() ? "" : " ") + raised.after[i].second;
  }
  return message;
}

std::string FillException(const char* pattern, const Raised& raised) {
  std::string out;
  for (std::string_view rest = pattern; !rest.empty();) {
    if (rest.starts_with("{m}")) {
      if (WholeMessage(raised).empty()) {
        while (!out.empty() && (out.back() == ' ' || out.back() == ':')) out.pop_back();
      }
      out += Printable(WholeMessage(raised), 300);
      rest.remove_prefix(3);
    } else if (rest.starts_with("{t}")) {
      out += Printable(ClassName(raised.type), 80);
      rest.remove_prefix(3);
    } else {
      out += rest[0];
      rest.remove_prefix(1);
    }
  }
  return out;
}

bool IsInterruption(std::string_view type) {
  return ClassName(type) == "KeyboardInterrupt" || ClassName(type) == "SignalException";
}

bool IntroducesHandled(std::string_view line) {
  static constexpr std::string_view kWords[] = {
      "Exception ignored in", "retry",        "Retry",         "skipping",   "Skipping", "ignoring", "Ignoring",
      "falling back",         "Falling back", "will continue", "continuing", "skipped",  "Skipped",  "(ignored)"};
  for (std::string_view word : kWords) {
    if (line.find(word) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace lockstep::diagnose
