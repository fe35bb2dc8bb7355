// What a platform makes of a job: keys that it has no use for, what it needs, names it does not allow.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>

#include "base/config_tree.h"
#include "base/digits.h"
#include "base/text.h"
#include "base/units.h"
#include "submit/render.h"

namespace lockstep::submit {
namespace {

// RFC 1123: what Kubernetes allows as the name of an object that is part of a host name.
bool IsLabel(std::string_view text) {
  if (text.empty() || text.size() > 63 || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c >= 'a' && c <= 'z') || std::isdigit(c) != 0 || c == '-'; });
}

// What other objects may be called: labels with dots between them.
bool IsSubdomain(std::string_view text) {
  if (text.size() > 253) return false;
  const std::vector<std::string> labels = Split(text, '.');
  return std::all_of(labels.begin(), labels.end(), [](const std::string& label) { return IsLabel(label); });
}

// A key of a Secret.
bool IsKey(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.');
  });
}

// A resource: "rdma/hca".
bool IsResource(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && IsSubdomain(text.substr(0, slash)) && IsKey(text.substr(slash + 1));
}

// A reference that is none may be the secret itself, and messages end in logs.
constexpr char kOtherReference[] = "found something else (not shown: it may be the secret itself)";

// The longest suffix a platform puts behind the name: pods count from 0.
size_t LongestSuffix(const Job& job, const Platform& platform) {
  const size_t digits = std::to_string(std::max(0, job.nodes - 1)).size();
  if (platform.name == "pytorchjob") return std::string("-worker-").size() + digits;
  if (platform.name == "trainjob") return std::string("-node-0-").size() + digits + std::string("-abcde").size();
  if (platform.name == "volcano") return std::string("-worker-").size() + digits;
  return std::max(1 + digits, std::string("-token").size());
}

void CheckKubernetesNames(const Job& job, const Platform& platform, Findings* out) {
  const size_t longest = 63 - LongestSuffix(job, platform);
  // What follows says more than what holds for every platform.
  std::erase_if(out->errors, [](const std::string& error) { return error.starts_with("name: "); });
  if (!IsLabel(job.name) || (platform.name != "kubernetes" && std::isdigit(static_cast<unsigned char>(job.name[0])))) {
    out->errors.push_back(fmt::format(
        "name: Kubernetes allows lower-case letters, digits and '-' (RFC 1123), and host names begin with a letter; "
        "found '{}'; write name: {}",
        Printable(job.name), DefaultName({.program = {job.name}})));
  } else if (std::isdigit(static_cast<unsigned char>(job.name[0])) != 0) {
    out->errors.push_back(
        fmt::format("name: a Service's name begins with a letter (RFC 1035), found '{}'", Printable(job.name)));
  } else if (job.name.size() > longest) {
    out->errors.push_back(
        fmt::format("name: at most {} characters, so that the names of {} pods are host names; found {}", longest,
                    job.nodes, job.name.size()));
  }
  if (!job.name_space.empty() && !IsLabel(job.name_space)) {
    out->errors.push_back(fmt::format("namespace: Kubernetes allows lower-case letters, digits and '-', found '{}'",
                                      Printable(job.name_space)));
  }
  for (const auto& [name, reference] : job.secrets) {
    const size_t slash = reference.find('/');
    if (slash == std::string::npos || !IsSubdomain(reference.substr(0, slash)) || !IsKey(reference.substr(slash + 1))) {
      out->errors.push_back(fmt::format("secrets.{}: expected SECRET/KEY, a Secret of the cluster and its key, {}",
                                        Printable(name), kOtherReference));
    }
  }
  for (const auto& [name, count] : job.rdma) {
    if (!IsResource(name)) {
      out->errors.push_back(fmt::format(
          "rdma: a resource of Kubernetes is named domain/name, found '{}'; for example rdma/hca", Printable(name)));
    } else if (name == "nvidia.com/gpu" && job.gpus) {
      out->errors.push_back("rdma: nvidia.com/gpu is the resource of gpus; remove it");
    }
  }
  const std::pair<const char*, const std::string*> names[] = {
      {"service_account", &job.service_account}, {"queue", &job.queue}, {"runtime", &job.runtime}};
  for (const auto& [key, name] : names) {
    if (name->empty() || IsSubdomain(*name)) continue;
    out->errors.push_back(fmt::format("{}: Kubernetes allows lower-case letters, digits, '-' and '.', found '{}'", key,
                                      Printable(*name)));
  }
  for (size_t i = 0; i < job.mounts.size(); ++i) {
    const Mount& mount = job.mounts[i];
    if (mount.from.starts_with("pvc/") && !IsSubdomain(mount.from.substr(4))) {
      out->errors.push_back(
          fmt::format("mounts[{}].from: '{}' is no name of a claim: lower-case letters, digits, '-' "
                      "and '.'",
                      i, Printable(mount.from.substr(4))));
    }
    if (mount.from.starts_with('/') && (mount.from + "/").find("/../") != std::string::npos) {
      out->errors.push_back(
          fmt::format("mounts[{}].from: Kubernetes takes no '..' in a path, found '{}'", i, Printable(mount.from)));
    }
    if (mount.to == "/dev/shm" || mount.to == "/dev/shm/") {
      out->errors.push_back(fmt::format("mounts[{}].to: /dev/shm is memory of the pod already; shm sets its limit", i));
    }
  }
}

// Lines of the pod's spec: YAML, and nothing that the file says already.
void CheckPodLines(const Job& job, const Platform& platform, Findings* out) {
  if (job.native.empty()) return;
  const Result<ConfigTree> tree = ConfigTree::Parse(Join(job.native, "\n") + "\n", "native", ConfigTree::Format::kYaml);
  if (!tree.ok()) {
    out->errors.push_back(fmt::format("{}; expected lines of the pod's spec, for example nodeSelector: {{gpu: h100}}",
                                      tree.status().message()));
    return;
  }
  for (const ConfigError& error : tree->errors()) out->errors.push_back(error.ToString());
  if (!tree->root().entries.empty() && tree->root().entries[0].where.column != 1) {
    out->errors.push_back(fmt::format(
        "native: {} begins in column {}, and the job file indents the lines itself; expected lines of the pod's spec "
        "whose keys begin in column 1 and stand in no braces",
        Printable(tree->root().entries[0].key), tree->root().entries[0].where.column));
  }
  const std::pair<const char*, const char*> taken[] = {
      {"containers", "write the keys of the description, or use a template (docs/submit.md)"},
      {"volumes", "write mounts"},
      {"terminationGracePeriodSeconds", "write grace"},
      {"restartPolicy", platform.name == "pytorchjob" || platform.name == "trainjob" ? "" : "write restart"},
      {"subdomain", platform.name == "kubernetes" ? "it must be the Service's name" : ""},
      {"serviceAccountName", job.service_account.empty() ? "" : "it is also in service_account; keep one"}};
  for (const auto& [key, instead] : taken) {
    if (*instead == '\0' || tree->root().Find(key) == nullptr) continue;
    out->errors.push_back(fmt::format("native: the job file has a {} of its own; {}", key, instead));
  }
  for (const ConfigEntry& entry : tree->root().entries) {
    const std::vector<std::string_view>& keys = platform.pod_keys;
    if (keys.empty() || std::find(keys.begin(), keys.end(), entry.key) != keys.end()) continue;
    out->errors.push_back(fmt::format("native: {} takes no {} for its pods; it takes {}", platform.what,
                                      Printable(entry.key), fmt::join(keys, ", ")));
  }
  const ConfigNode* host_network = tree->root().Find("hostNetwork");
  if (job.nodes > 1 && host_network != nullptr && host_network->text == "true" &&
      tree->root().Find("dnsPolicy") == nullptr) {
    out->warnings.push_back(
        "native: with hostNetwork, pods find each other by name only with dnsPolicy: ClusterFirstWithHostNet; add it");
  }
}

// The names of the flags in a line: "--nodes" of "--nodes=4", and with flags of one letter "-N" of "-N4". PBS has its
// resources behind one flag: "-l walltime".
std::vector<std::string> FlagNames(const std::string& line, const Platform& platform) {
  const Result<std::vector<std::string>> split = SplitWords(line);
  const std::vector<std::string> words = split.ok() ? *split : Split(line, ' ');
  std::vector<std::string> names;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with('-')) continue;
    const bool letter = platform.one_letter_flags && !word.starts_with("--");
    names.push_back(letter ? word.substr(0, 2) : word.substr(0, word.find('=')));
    if (!letter || names.back() != "-l") continue;
    const std::string resources = word.size() > 2 ? word.substr(2) : i + 1 < words.size() ? words[i + 1] : "";
    for (const std::string& one : Split(resources, ',')) names.push_back("-l " + one.substr(0, one.find('=')));
  }
  return names;
}

// Flags behind #SBATCH and the like. With the mark in front of them the client takes the whole line for a remark.
void CheckDirectives(const Job& job, const Platform& platform, Findings* out) {
  for (const std::string& line : job.native) {
    for (const std::string& name : FlagNames(line, platform)) {
      for (const auto& [flag, key] : platform.taken) {
        if (flag == name) out->errors.push_back(fmt::format("native: {} is what {} says; write {}", name, key, key));
      }
    }
    if (Trim(line).empty() || Trim(line).starts_with('-')) continue;
    out->errors.push_back(
        fmt::format("native: expected flags, for example --qos=high, found '{}'; #SBATCH, #BSUB or #PBS is written by "
                    "the job file",
                    Printable(line)));
  }
}

// What only some schedulers allow of an array.
void CheckArray(const Job& job, const Platform& platform, Findings* out) {
  const std::string indices = job.array.substr(0, job.array.find('%'));
  const std::vector<std::string> ranges = Split(indices, ',');
  if (platform.name == "lsf" &&
      std::any_of(ranges.begin(), ranges.end(), [](const std::string& range) { return LeadingDigits(range) == 0; })) {
    out->errors.push_back(fmt::format("array: indices of LSF begin at 1, found '{}'", Printable(job.array)));
  }
  if (platform.name == "pbs") {
    const size_t dash = indices.find('-');
    if (ranges.size() > 1 || dash == std::string::npos ||
        LeadingDigits(indices) == LeadingDigits(indices.substr(dash + 1))) {
      out->errors.push_back(
          fmt::format("array: PBS takes one range of at least two indices, for example 0-9 or 0-8:4, "
                      "found '{}'",
                      Printable(job.array)));
    }
  }
}

// Launchers that start ranks themselves: every rank would start all of them again.
std::string OtherLauncher(const Job& job) {
  const Command command = CommandOf(job);
  if (command.words.empty() || command.subcommand != "run" || job.ranks.value_or(job.gpus.value_or(1)) < 2) return "";
  const std::vector<std::string>& words = command.words;
  const std::string name = words[0].substr(words[0].rfind('/') + 1);
  const bool module = words.size() > 2 && name.starts_with("python") && words[1] == "-m" &&
                      (words[2] == "torch.distributed.run" || words[2] == "torch.distributed.launch");
  const bool known = name == "torchrun" || name == "deepspeed" || name == "mpirun" || name == "mpiexec" ||
                     name == "srun" || (name == "accelerate" && words.size() > 1 && words[1] == "launch");
  if (!known && !module) return "";
  return fmt::format(
      "program: each of the {} ranks of a node starts {}, which starts ranks itself; name the training "
      "script without it, or write ranks: 1",
      job.ranks.value_or(job.gpus.value_or(1)), module ? words[2] : Printable(name));
}

// Where the key that a message begins with ("mounts[0].from: ...") stands; empty: nowhere.
std::string PlaceOf(std::string_view message, const ConfigNode& root) {
  std::string_view path = message.substr(0, message.find(": "));
  const ConfigNode* node = &root;
  while (!path.empty()) {
    const ConfigNode* next = nullptr;
    if (path.starts_with('[')) {
      const std::optional<int> index = LeadingDigits(path.substr(1));
      if (index && static_cast<size_t>(*index) < node->items.size()) next = &node->items[static_cast<size_t>(*index)];
      path.remove_prefix(std::min(path.find(']'), path.size() - 1) + 1);
    } else {
      const size_t end = std::min(path.find_first_of(".["), path.size());
      next = node->Find(path.substr(0, end));
      path.remove_prefix(end);
    }
    if (next == nullptr) break;
    node = next;
    if (path.starts_with('.')) path.remove_prefix(1);
  }
  std::string place = node == &root ? "" : node->where.ToString();
  // Of "--set KEY=VALUE", a secret is not repeated.
  if (!SecretIn({place}).empty()) place.erase(std::min(place.find(" ("), place.size()));
  return place;
}

}  // namespace

Findings Check(const Job& job, const Platform& platform) {
  Findings out{.errors = Problems(job), .warnings = {}};
  const bool kubernetes = !platform.kind.empty();
  // Keys that not every platform has a use for.
  const std::pair<const char*, bool> given[] = {{"image", !job.image.empty()},
                                                {"mounts", !job.mounts.empty()},
                                                {"secrets", !job.secrets.empty()},
                                                {"rdma", !job.rdma.empty()},
                                                {"shm", job.shm.has_value()},
                                                {"container", !job.container.empty()},
                                                {"queue", !job.queue.empty()},
                                                {"partition", !job.partition.empty()},
                                                {"account", !job.account.empty()},
                                                {"namespace", !job.name_space.empty()},
                                                {"service_account", !job.service_account.empty()},
                                                {"array", !job.array.empty()},
                                                {"output", !job.output.empty()},
                                                {"hosts", !job.hosts.empty()},
                                                {"setup", !job.setup.empty()},
                                                {"runtime", !job.runtime.empty()},
                                                {"workdir", !job.workdir.empty()}};
  for (const auto& [key, is_given] : given) {
    if (is_given && std::find(platform.keys.begin(), platform.keys.end(), key) == platform.keys.end()) {
      out.errors.push_back(fmt::format("{}: {} has no use for it; remove it", key, platform.what));
    }
  }
  if (platform.name == "slurm" && !job.queue.empty() && job.partition != job.queue) {
    out.errors.push_back("queue and partition are the same in SLURM and differ; keep one");
  }
  if (kubernetes) {
    if (job.image.empty()) {
      out.errors.push_back(
          fmt::format("image: {} starts containers, and none is named; write image: "
                      "registry/name:tag, with lockstep and the program inside",
                      platform.what));
    }
    CheckKubernetesNames(job, platform, &out);
    CheckPodLines(job, platform, &out);
  } else {
    for (const char* name : {"UID", "EUID", "PPID", "GROUPS", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO"}) {
      if (job.env.count(name) + job.secrets.count(name) == 0) continue;
      out.errors.push_back(
          fmt::format("{}.{}: bash has a variable of its own of this name, which nothing can set; take another name",
                      job.env.count(name) > 0 ? "env" : "secrets", name));
    }
    for (const auto& [name, reference] : job.secrets) {
      if (!reference.starts_with('/')) {
        out.errors.push_back(
            fmt::format("secrets.{}: {} reads secrets from a file of the nodes: expected an absolute path, {}",
                        Printable(name), platform.what, kOtherReference));
      }
    }
    if (!job.mounts.empty() && job.image.empty()) {
      out.errors.push_back("mounts: without an image nothing is mounted; name an image, or use the paths of the nodes");
    }
    for (const Mount& mount : job.mounts) {
      if (mount.from.starts_with("pvc/")) {
        out.errors.push_back(
            fmt::format("mounts: '{}' is a claim of Kubernetes; expected a path", Printable(mount.from)));
      }
    }
    const bool known = job.container == "apptainer" || (job.container == "pyxis" && platform.name == "slurm");
    if (!job.container.empty() && !known) {
      out.errors.push_back(fmt::format("container: expected apptainer{}, found '{}'",
                                       platform.name == "slurm" ? " or pyxis" : "", Printable(job.container)));
    }
  }
  if (platform.name == "ssh" && job.hosts.size() != static_cast<size_t>(job.nodes)) {
    out.errors.push_back(
        fmt::format("hosts: ssh needs one host per node: expected {}, found {}", job.nodes, job.hosts.size()));
  }
  if (!platform.taken.empty()) CheckDirectives(job, platform, &out);
  if (!job.array.empty()) CheckArray(job, platform, &out);
  if (platform.name == "lsf" && job.time) {
    const auto minutes = [](auto time) { return std::chrono::ceil<std::chrono::minutes>(time).count(); };
    const auto warned = minutes(job.grace + std::chrono::seconds(15));
    if (minutes(*job.time) <= warned) {
      out.errors.push_back(fmt::format(
          "time: LSF counts whole minutes: of {} the last {} are for saving, and none is left; write at least {}m",
          FormatDuration(*job.time), warned, warned + 1));
    }
  }
  constexpr auto kLongestWarning = std::chrono::seconds(65535 - 15);  // of sbatch --signal
  if (platform.name == "slurm" && job.time && job.grace > kLongestWarning) {
    out.errors.push_back(fmt::format("grace: SLURM sends its signal at most {} before the limit, found {}",
                                     FormatDuration(kLongestWarning), FormatDuration(job.grace)));
  }
  if (platform.name == "ssh" && !job.native.empty()) {
    out.errors.push_back("native: ssh has no directives; remove it");
  }
  if (kubernetes && job.workdir.empty() && job.mounts.empty()) {
    out.warnings.push_back(
        "nothing is mounted: runs/ with logs and checkpoints is lost with the pods; mount a volume "
        "and make it the workdir");
  } else if (kubernetes && !IsMounted(job, job.workdir)) {
    out.warnings.push_back("workdir is on no writable mount: runs/ with logs and checkpoints is lost with the pods");
  } else if (!kubernetes && !job.image.empty() && !IsMounted(job, job.workdir)) {
    out.warnings.push_back(fmt::format(
        "{}: runs/ with logs and checkpoints is lost with the container, unless the site mounts its folder; mount a "
        "folder and make it the workdir",
        job.workdir.empty() ? "workdir: not given, and this folder is not mounted"
                            : "workdir is on no writable mount"));
  }
  if (job.time && !platform.time_limit) {
    out.warnings.push_back(
        fmt::format("time: no limit of {} ends this job: it runs until its program ends, or until it "
                    "is cancelled; remove it, or set the limit with the platform's own means",
                    platform.what));
  }
  if (!job.cpus && (job.gpus || job.ranks.value_or(1) > 1)) {
    if (platform.name == "slurm") {
      out.warnings.push_back("cpus: not given, and SLURM gives one CPU a node unless the site says otherwise");
    } else if (platform.name == "lsf" || platform.name == "pbs") {
      out.warnings.push_back(fmt::format("cpus: not given: the job asks {} for one CPU a node", platform.what));
    }
  }
  if (std::string other = OtherLauncher(job); !other.empty()) out.warnings.push_back(std::move(other));
  return out;
}

Status ToStatus(const std::vector<std::string>& errors, const std::string& source, const ConfigTree* description) {
  if (errors.empty()) return Status::Ok();
  std::vector<std::string> lines;
  for (const std::string& error : errors) {
    const std::string place = description == nullptr ? "" : PlaceOf(error, description->root());
    lines.push_back(place.empty() ? error : fmt::format("{}: {}", place, error));
    if (errors.size() == 1)
      return Status(Code::kUsage, place.empty() ? fmt::format("{}: {}", source, error) : lines[0]);
  }
  return Status(Code::kUsage, fmt::format("{}: {} mistakes\n  {}", source, errors.size(), Join(lines, "\n  ")));
}

}  // namespace lockstep::submit
