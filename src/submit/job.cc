#include "submit/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/config.h"
#include "base/digits.h"
#include "base/secrets.h"
#include "base/text.h"
#include "base/units.h"

namespace lockstep::submit {
namespace {

constexpr char kWordCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

bool Only(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

bool IsVariableName(std::string_view name) {
  return !name.empty() && Only(name, kWordCharacters) && !std::isdigit(static_cast<unsigned char>(name[0]));
}

// Text that can stand in any file: no NUL, valid UTF-8.
bool IsText(std::string_view text) { return text.find('\0') == std::string_view::npos && IsUtf8(text); }

// Names of queues, accounts and the like stand in directives, where nothing can be quoted.
bool IsPlainWord(std::string_view text) {
  return Only(text, std::string(kWordCharacters) + ".@+,:/%[]-") && !text.starts_with('-');
}

Status NeedsShell(char c) {
  return Status(Code::kUsage,
                fmt::format("'{}' needs a shell, and the program is started without one: put it into single quotes, or "
                            "the command into a script",
                            c));
}

// What a shell does itself, typed as the program. Empty: it is none of that.
std::string ShellWord(const std::string& word) {
  if (const size_t equals = word.find('='); equals != std::string::npos && IsVariableName(word.substr(0, equals))) {
    // Without the value, which may be a secret.
    return fmt::format("program: '{0}=...' sets a variable, which needs a shell; write env: {{{0}: ...}}",
                       word.substr(0, equals));
  }
  static const std::set<std::string> words = {"cd",   "source", ".",  "export", "module", "ulimit", "unset",
                                              "eval", "set",    "if", "for",    "while",  "exec"};
  if (words.count(word) == 0) return "";
  return fmt::format("program: '{}' is a command of the shell, and the program is started without one; write {}", word,
                     word == "cd" ? "workdir" : "setup (lines before the program), or put it into a script");
}

// A switch, a small number, the path of a file and a token of a vocabulary hide nothing:
// HF_HUB_DISABLE_IMPLICIT_TOKEN=1.
bool IsHarmless(std::string_view value) {
  std::string lower(value);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return value.empty() || value.starts_with('/') || lower == "true" || lower == "false" || lower == "yes" ||
         lower == "no" || lower == "none" || (value.size() <= 6 && ParseDigits(value)) ||
         (value.starts_with('<') && value.ends_with('>'));
}

// What a shell puts there when the job runs.
bool IsReference(std::string_view value) { return value.starts_with('$') || value.starts_with('`'); }

constexpr auto kLongestJob = std::chrono::hours(24 * 3650);

// What a number may be, in a description and on the command line.
struct Range {
  double least, most;
};
constexpr Range kNodes{1, 65536}, kGpus{1, 1024}, kRanks{1, 4096}, kCpus{1, 4096}, kRestarts{0, 1000000};
constexpr std::chrono::seconds kShortestJob{60}, kShortestGrace{1};

// What the schedulers have in common: "0-9", "0-9%2", "0-8:4", "1,3,5-7". Each range rises.
bool IsArray(std::string_view text) {
  if (const size_t at_once = text.find('%'); at_once != std::string_view::npos) {
    if (ParseDigits(text.substr(at_once + 1)).value_or(0) < 1) return false;
    text = text.substr(0, at_once);
  }
  for (const std::string& range : Split(text, ',')) {
    std::string_view rest = range;
    const std::optional<int> first = TakeDigits(&rest);
    if (!first) return false;
    if (rest.empty()) continue;
    if (!rest.starts_with('-')) return false;
    rest.remove_prefix(1);
    const std::optional<int> last = TakeDigits(&rest);
    if (!last || *last < *first) return false;
    if (!rest.empty() && (!rest.starts_with(':') || ParseDigits(rest.substr(1)).value_or(0) < 1)) return false;
  }
  return true;
}

void Declare(ConfigReader& reader, const ConfigTree& tree, Job* job, std::string* line) {
  reader.Field("name", &job->name, {.help = "name of the job, and of its run"});
  reader.Field("platform", &job->platform, {.help = "slurm, kubernetes, ...; without it: detected"});
  const ConfigNode* program = tree.root().Find("program");
  if (program != nullptr && program->kind == ConfigNode::Kind::kList) {
    reader.Field("program", &job->program, {.min_items = 1, .help = "what to start, as a list of words"});
  } else {
    reader.Field("program", line, {.help = "what to start: train.py --lr 1e-4, or lockstep train taehv"});
  }
  reader.Field("flags", &job->flags, {.help = "further flags of lockstep run"});
  reader.Field("nodes", &job->nodes, {.min = kNodes.least, .max = kNodes.most});
  job->nodes_given = tree.root().Find("nodes") != nullptr;
  reader.Field("gpus", &job->gpus,
               {.min = kGpus.least, .max = kGpus.most, .help = "per node; leave it out to train on CPUs"});
  reader.Field("ranks", &job->ranks,
               {.min = kRanks.least, .max = kRanks.most, .help = "per node; without it one per GPU"});
  reader.Field("cpus", &job->cpus, {.min = kCpus.least, .max = kCpus.most, .help = "per node"});
  uint64_t memory = 0, shm = 0;
  reader.Size("memory", &memory, {.min = 0, .help = "per node"});
  reader.Size("shm", &shm, {.min = 0, .help = "limit of /dev/shm in a pod"});
  if (tree.root().Find("memory") != nullptr) job->memory = memory;
  if (tree.root().Find("shm") != nullptr) job->shm = shm;
  reader.Field("time", &job->time, {.min = static_cast<double>(kShortestJob.count()), .help = "limit: 30m, 24h, 2d"});
  reader.Field(
      "grace", &job->grace,
      {.min = static_cast<double>(kShortestGrace.count()), .help = "time to save the state when the job is stopped"});
  reader.Section("restart", [&](ConfigReader& r) {
    r.Field("failures", &job->failures,
            {.min = kRestarts.least, .max = kRestarts.most, .help = "restarts of a failed job"});
    r.Field("resumes", &job->resumes,
            {.min = kRestarts.least, .max = kRestarts.most, .help = "times a saved job is queued again"});
  });
  reader.Field("env", &job->env, {.help = "variables of the ranks"});
  reader.Field("secrets", &job->secrets, {.help = "variables whose values stand elsewhere: SECRET/KEY, or a file"});
  reader.List<Mount>("mounts", &job->mounts, [](ConfigReader& r, Mount* mount) {
    r.Field("from", &mount->from, {.required = true, .help = "path of the node, or pvc/NAME"});
    r.Field("to", &mount->to, {.required = true, .help = "path in the container"});
    r.Field("read_only", &mount->read_only);
  });
  reader.Field("rdma", &job->rdma, {.min = 1, .max = 64, .help = "RDMA resources of a pod: rdma/hca: 8"});
  reader.Field("image", &job->image);
  reader.Field("container", &job->container, {.help = "pyxis or apptainer"});
  reader.Field("workdir", &job->workdir);
  reader.Field("lockstep", &job->lockstep, {.help = "path of lockstep on the nodes"});
  reader.Field("queue", &job->queue);
  reader.Field("partition", &job->partition, {.help = "of SLURM"});
  reader.Field("account", &job->account);
  reader.Field("namespace", &job->name_space, {.help = "of Kubernetes"});
  reader.Field("service_account", &job->service_account, {.help = "of Kubernetes"});
  reader.Field("runtime", &job->runtime, {.help = "of a TrainJob"});
  reader.Field("array", &job->array, {.help = "indices of a job array: 0-9 or 0-9%2"});
  reader.Field("output", &job->output, {.help = "file of the job's output"});
  reader.Field("hosts", &job->hosts, {.help = "of ssh, one per node"});
  reader.Field("native", &job->native, {.help = "further lines of the platform"});
  reader.Field("setup", &job->setup, {.help = "lines of bash before the launcher: module load cuda"});
}

}  // namespace

Result<Job> ReadJob(const ConfigTree& tree) {
  Job job;
  ConfigReader reader(tree);
  std::string line;
  Declare(reader, tree, &job, &line);
  if (!line.empty()) {
    Result<std::vector<std::string>> words = SplitWords(line);
    if (words.ok()) {
      job.program = *words;
    } else {
      reader.Fail("program", words.status().message());
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(reader.Finish());
  return job;
}

Result<std::vector<std::string>> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view rest = text.substr(i + 1);
    const char next = rest.empty() ? '\0' : rest[0];
    const bool expands = c == '`' || (c == '$' && (next == '{' || next == '(' || next == '_' ||
                                                   std::isalpha(static_cast<unsigned char>(next)) != 0));
    const bool controls =
        std::string_view("|&;<>()").find(c) != std::string_view::npos ||
        (c == '~' && !in_word && (rest.empty() || std::string_view("/ \t\n").find(next) != rest.npos));
    if (quote == '\'') {
      c == '\'' ? void(quote = 0) : word.push_back(c);
    } else if (c == '\\' && next == '\n') {
      ++i;  // the command goes on in the next line
    } else if (c == '\\' && (quote == 0 || (next != '\0' && std::string_view("\"\\$`").find(next) != rest.npos))) {
      if (rest.empty()) return Status(Code::kUsage, "ends in a backslash");
      word.push_back(text[++i]);
      in_word = true;
    } else if (expands || (quote == 0 && controls)) {
      return NeedsShell(c);
    } else if (quote == '"') {
      c == '"' ? void(quote = 0) : word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
      // A command never begins with a flag, so a line of flags goes on; any other line may be a second command.
      const std::string_view more = c == '\n' && !words.empty() ? Trim(rest) : "";
      if (!more.empty() && !more.starts_with('-') && !more.starts_with("\\\n")) {
        return Status(Code::kUsage,
                      fmt::format("a second line that begins with '{}', and the program is one command: end the line "
                                  "before it in a backslash, or put several commands into setup or a script",
                                  Printable(more.substr(0, more.find_first_of(" \t\n=")))));
      }
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) return Status(Code::kUsage, fmt::format("a quote ({}) is not closed", quote));
  if (in_word) words.push_back(std::move(word));
  return words;
}

Command CommandOf(const Job& job) {
  Command command{.lockstep = "", .subcommand = "run", .words = job.program};
  if (job.program.size() < 2) return command;
  const std::string& first = job.program[0];
  const bool ours = first.substr(first.rfind('/') + 1) == "lockstep";
  if (!ours || (job.program[1] != "run" && job.program[1] != "train")) return command;
  if (first.find('/') != std::string::npos) command.lockstep = first;
  command.subcommand = job.program[1];
  command.words.erase(command.words.begin(), command.words.begin() + 2);
  return command;
}

std::string DefaultName(const Job& job) {
  const Command command = CommandOf(job);
  std::string stem = "job";
  for (const std::string& word : command.words) {
    if (word.starts_with('-')) continue;
    const std::string file = word.substr(word.rfind('/') + 1);
    const bool interpreter = file.starts_with("python") || file == "bash" || file == "sh";
    if (interpreter && &word != &command.words.back()) continue;
    stem = file.substr(0, file.rfind('.') == 0 ? std::string::npos : file.rfind('.'));
    break;
  }
  std::string name;
  for (const char c : stem) {
    const auto letter = static_cast<unsigned char>(c);
    name.push_back(std::isalnum(letter) != 0 && letter < 128 ? static_cast<char>(std::tolower(letter)) : '-');
  }
  const size_t begin = name.find_first_of("abcdefghijklmnopqrstuvwxyz");
  name = begin == std::string::npos ? "" : name.substr(begin, 40);
  name.erase(name.find_last_not_of('-') + 1);
  return name.empty() ? "job" : name;
}

std::string SecretReason(std::string_view name, std::string_view value) {
  if (IsSecretName(name) && !IsHarmless(value)) return "its name says that it is a secret";
  if (const std::string beginning = TokenBeginningIn(value); !beginning.empty()) {
    return fmt::format("its value begins like a token ({}...)", beginning);
  }
  if (!PasswordIn(value).empty()) return "its value holds a password";
  return value.find("-----BEGIN ") != std::string_view::npos ? "its value is a key" : "";
}

std::string SecretIn(const std::vector<std::string>& words) {
  constexpr char kBetween[] = " \t\n;&|(){},";
  std::vector<std::string> parts;
  for (const std::string& word : words) {
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find_first_of(kBetween, begin), word.size());
      std::string part = word.substr(begin, end - begin);
      std::erase_if(part, [](char c) { return c == '"' || c == '\'' || c == '\\'; });
      if (!part.empty()) parts.push_back(std::move(part));
      begin = end + 1;
    }
  }
  std::string flag;  // whose value may be the next word
  for (const std::string& word : parts) {
    const auto reason = [&](const std::string& name, std::string_view value) {
      if (const std::string_view password = PasswordIn(value); IsReference(password)) return std::string();
      const std::string why = SecretReason(IsReference(value) ? "" : name, value);
      return why.empty() ? why : fmt::format("{}: {}", Printable(name), why);
    };
    if (!flag.empty() && !word.starts_with('-')) {
      if (std::string found = reason(flag, word); !found.empty()) return found;
    }
    flag = word.starts_with('-') && word.find('=') == std::string::npos ? word : "";
    // "--env=NAME=VALUE" holds two names.
    size_t begin = 0;
    for (size_t equals; (equals = word.find('=', begin)) != std::string::npos; begin = equals + 1) {
      if (std::string found = reason(word.substr(begin, equals - begin), word.substr(equals + 1)); !found.empty()) {
        return found;
      }
    }
    if (begin > 0) continue;
    if (std::string found = reason("a word", word); !found.empty()) return found;
  }
  // A private key has blanks inside.
  for (const std::string& word : words) {
    if (word.find("-----BEGIN ") != std::string::npos) return "a word: its value is a key";
  }
  return "";
}

std::vector<std::string> Problems(const Job& job) {
  std::vector<std::string> found;
  const auto bad = [&](std::string message) { found.push_back(std::move(message)); };
  const Command command = CommandOf(job);
  if (command.words.empty()) {
    bad("program: nothing to start; write program: train.py --lr 1e-4");
  } else if (const std::string& first = job.program[0];
             command.words.size() == job.program.size() && first.substr(first.rfind('/') + 1) == "lockstep") {
    bad(fmt::format(
        "program: a job is lockstep run or lockstep train, found '{}'",
        Printable(Join({job.program.begin(), job.program.begin() + std::min<ptrdiff_t>(2, ssize(job.program))}, " "))));
  } else if (std::string word = ShellWord(command.words[0]); !word.empty() && command.subcommand == "run") {
    bad(std::move(word));
  }
  for (const std::vector<std::string>* words : {&job.program, &job.flags, &job.native, &job.hosts, &job.setup}) {
    for (const std::string& word : *words) {
      if (!IsText(word)) bad(fmt::format("'{}' is no text (NUL or invalid UTF-8)", Printable(word)));
    }
  }
  if (!job.name.empty() && (!Only(job.name, std::string(kWordCharacters) + ".-") || job.name.size() > 63 ||
                            job.name[0] == '.' || job.name[0] == '-')) {
    bad(fmt::format("name: expected at most 63 letters, digits, '.', '_' or '-', found '{}'", Printable(job.name)));
  }
  struct Number {
    const char* key;
    std::optional<int> value;
    Range range;
  };
  for (const Number& one :
       {Number{"nodes", job.nodes, kNodes}, Number{"gpus", job.gpus, kGpus}, Number{"ranks", job.ranks, kRanks},
        Number{"cpus", job.cpus, kCpus}, Number{"restart.failures", job.failures, kRestarts},
        Number{"restart.resumes", job.resumes, kRestarts}}) {
    if (!one.value || (*one.value >= one.range.least && *one.value <= one.range.most)) continue;
    bad(fmt::format("{}: expected {} to {}, found {}", one.key, one.range.least, one.range.most, *one.value));
  }
  if (job.time && *job.time < kShortestJob) {
    bad(fmt::format("time: expected at least {}, found {}", FormatDuration(kShortestJob), FormatDuration(*job.time)));
  }
  if (job.grace < kShortestGrace) {
    bad(fmt::format("grace: expected at least {}, found {}", FormatDuration(kShortestGrace),
                    FormatDuration(job.grace)));
  }
  for (const auto& [key, size] : {std::pair{"memory", job.memory}, std::pair{"shm", job.shm}}) {
    if (size && *size < kMiB) {
      bad(fmt::format("{}: expected at least 1MiB, found {} bytes; write a unit, for example 64GiB, or leave it out",
                      key, *size));
    }
  }
  if (job.grace > kLongestJob) {
    bad(fmt::format("grace: expected at most {}, found {}", FormatDuration(kLongestJob), FormatDuration(job.grace)));
  }
  if (job.time && *job.time > kLongestJob) {
    bad(fmt::format("time: expected at most {}, found {}", FormatDuration(kLongestJob), FormatDuration(*job.time)));
  }
  if (!job.array.empty() && !IsArray(job.array)) {
    bad(fmt::format("array: expected indices such as 0-9, 0-9%2 (two at a time), 0-8:4 or 1,3,5, found '{}'",
                    Printable(job.array)));
  }
  if (job.time && *job.time <= job.grace + std::chrono::seconds(15)) {
    bad(fmt::format("time: {} leaves nothing to train: the job is stopped {} before its limit, so that it can save",
                    FormatDuration(*job.time), FormatDuration(job.grace + std::chrono::seconds(15))));
  }
  std::set<std::string> places;
  for (size_t i = 0; i < job.mounts.size(); ++i) {
    const Mount& mount = job.mounts[i];
    const bool claim = mount.from.starts_with("pvc/") && mount.from.size() > 4;
    if (!claim && !mount.from.starts_with('/')) {
      bad(fmt::format("mounts[{}].from: expected an absolute path or pvc/NAME, found '{}'", i, Printable(mount.from)));
    }
    if (!mount.to.starts_with('/')) {
      bad(fmt::format("mounts[{}].to: expected an absolute path, found '{}'", i, Printable(mount.to)));
    } else if (!places.insert(mount.to.substr(0, mount.to.find_last_not_of('/') + 1)).second) {  // "/a/" is "/a"
      bad(fmt::format("mounts[{}].to: '{}' is mounted twice", i, Printable(mount.to)));
    }
    for (const std::string& path : {mount.from, mount.to}) {
      if (!IsText(path) || path.find_first_of(":,\n") != std::string::npos) {
        bad(fmt::format("mounts[{}]: '{}' holds ':', ',' or a line end, which no runtime can mount", i,
                        Printable(path)));
      }
    }
  }
  for (const auto& [name, value] : job.env) {
    if (!IsVariableName(name)) bad(fmt::format("env: '{}' is no name of a variable", Printable(name)));
    if (!IsText(value)) bad(fmt::format("env.{}: its value is no text (NUL or invalid UTF-8)", Printable(name)));
    if (const std::string reason = SecretReason(name, value); !reason.empty()) {
      bad(
          fmt::format("env.{}: {}; job files are readable: write secrets: {{{}: SECRET/KEY}} (Kubernetes) or a path of "
                      "a file on the nodes",
                      Printable(name), reason, Printable(name)));
    }
    if (job.secrets.count(name) > 0) bad(fmt::format("secrets.{}: also in env", name));
  }
  const std::pair<const char*, const std::vector<std::string>*> lines[] = {{"setup", &job.setup},
                                                                           {"native", &job.native}};
  std::vector<std::pair<std::string, std::vector<std::string>>> commands = {{"program", job.program},
                                                                            {"flags", job.flags}};
  for (const auto& [key, list] : lines) {
    for (size_t i = 0; i < list->size(); ++i) commands.push_back({fmt::format("{}[{}]", key, i), {(*list)[i]}});
  }
  for (const auto& [key, words] : commands) {
    if (const std::string reason = SecretIn(words); !reason.empty()) {
      bad(fmt::format("{}: {}; job files are readable: write secrets, whose variables the program finds", key, reason));
    }
  }
  for (const auto& [name, value] : job.secrets) {
    if (!IsVariableName(name)) bad(fmt::format("secrets: '{}' is no name of a variable", Printable(name)));
  }
  if (!job.workdir.empty() && !job.workdir.starts_with('/')) {
    bad(fmt::format("workdir: expected an absolute path, found '{}'", Printable(job.workdir)));
  }
  const std::pair<const char*, const std::string*> plain[] = {
      {"image", &job.image},          {"queue", &job.queue},     {"partition", &job.partition},
      {"account", &job.account},      {"array", &job.array},     {"output", &job.output},
      {"namespace", &job.name_space}, {"runtime", &job.runtime}, {"service_account", &job.service_account}};
  for (const auto& [key, value] : plain) {
    std::string word = *value;
    // pyxis writes registry#image.
    if (value == &job.image && job.container == "pyxis") std::erase(word, '#');
    if (!IsPlainWord(word)) {
      bad(fmt::format("{}: expected letters, digits and . _ - / : @ %, found '{}'", key, Printable(*value)));
    }
  }
  std::set<std::string> hosts;
  for (const std::string& host : job.hosts) {
    if (host.empty() || !IsPlainWord(host)) {
      bad(fmt::format("hosts: '{}' is no name of a host", Printable(host)));
    } else if (const size_t colon = host.find(':');
               colon != std::string::npos && IsDigits(std::string_view(host).substr(colon + 1))) {
      bad(fmt::format("hosts: '{}' names a port, which ssh reads in ~/.ssh/config (Host, Port); write {}", host,
                      host.substr(0, colon)));
    }
    if (!hosts.insert(host.substr(host.rfind('@') + 1)).second) {
      bad(fmt::format("hosts: '{}' is named twice, and each node is a host of its own", Printable(host)));
    }
  }
  for (const std::string& line : job.native) {
    if (line.find('\n') != std::string::npos) bad("native: one line each, found a line end inside");
  }
  return found;
}

}  // namespace lockstep::submit
