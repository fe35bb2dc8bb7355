// Kubernetes manifests: the variables and commands of every container, and what a job over several nodes lacks.
#include <fmt/format.h>

#include <set>

#include "base/digits.h"
#include "base/text.h"
#include "lint/readers.h"
#include "lint/yaml_text.h"

namespace lockstep::lint {
namespace {

constexpr int kMostNodes = 50000;  // of a tree whose aliases may make it endless
constexpr int kDeepestManifest = 64;

// What one pod asks for.
struct Pod {
  YAML::Node spec;
  int gpus = 0;
  bool rdma = false, efa = false, privileged = false, ipc_lock = false, host_network = false, host_ipc = false;
  bool shm = false, shm_on_disk = false, ib_settings = false;
  std::set<std::string> variables;
  std::string text;  // of all commands
  YAML::Node first_container;
};

class ManifestReader {
 public:
  ManifestReader(const YamlText& yaml, Units& units) : yaml_(yaml), units_(units) {}

  void Read() {
    for (const YAML::Node& document : yaml_.documents()) {
      if (Scalar(Child(document, "kind")) == "Service" &&
          Scalar(Child(Child(document, "spec"), "clusterIP")) == "None") {
        headless_.insert(Scalar(Child(Child(document, "metadata"), "name")));
      }
    }
    for (const YAML::Node& document : yaml_.documents()) Object(document);
  }

 private:
  void Add(Unit& unit, const std::string& name, const YAML::Node& at, const std::string& detail = "") {
    Fact fact;
    fact.kind = "shape";
    fact.name = name;
    fact.detail = detail;
    fact.line = yaml_.Line(at);
    fact.column = yaml_.Column(at);
    unit.facts.push_back(std::move(fact));
  }

  void Object(const YAML::Node& object) {
    const std::string kind = Scalar(Child(object, "kind"));
    if (kind == "List") {
      const YAML::Node items = Child(object, "items");
      if (items.IsDefined() && items.IsSequence()) {
        for (const YAML::Node& item : items) Object(item);
      }
      return;
    }
    if (kind == "ConfigMap") return Data(Child(object, "data"));
    if (kind == "Secret") return Data(Child(object, "stringData"));
    std::vector<Pod> pods;
    int budget = kMostNodes;
    FindPods(object, pods, budget, 0);
    Unit whole;
    whole.dialect = "manifest";
    Fact fact;
    fact.kind = "object";
    fact.name = kind;
    fact.value = Scalar(Child(Child(object, "metadata"), "name"));
    fact.line = yaml_.Line(object);
    fact.column = yaml_.Column(object);
    whole.facts.push_back(fact);
    if (kind == "Job" && Scalar(Child(object, "apiVersion")).rfind("batch/", 0) == 0 && !pods.empty()) {
      Job(Child(object, "spec"), pods[0], whole);
    } else if (kind == "PyTorchJob") {
      PyTorchJob(object, pods, whole);
    }
    const bool plain = kind == "Job" || kind == "Pod" || kind == "PyTorchJob" || kind == "StatefulSet" ||
                       kind == "JobSet" || kind == "MPIJob" || kind == "LeaderWorkerSet" || kind == "Deployment";
    if (plain) {
      for (const Pod& pod : pods) Node(pod, kind, whole);
    }
    units_.push_back(std::move(whole));
    // Kinds that are not known here keep settings in places of their own.
    Unit settings;
    settings.dialect = "manifest";
    ReadSettings(yaml_, object, true, settings, units_);
    if (!settings.facts.empty()) units_.push_back(std::move(settings));
  }

  // Environment files and scripts kept in a ConfigMap.
  void Data(const YAML::Node& data) {
    if (!data.IsDefined() || !data.IsMap()) return;
    Unit unit;
    unit.dialect = "manifest";
    for (const auto& pair : data) {
      const std::string name = Scalar(pair.first), value = Scalar(pair.second);
      if (value.find('\n') != std::string::npos) {
        int line, column;
        yaml_.TextPlace(pair.second, line, column);
        if (name.find(".sh") != std::string::npos || value.rfind("#!", 0) == 0) {
          ReadScript(value, line, column, true, "manifest", units_, column);
        } else {
          ReadEmbedded(value, line, column, name, units_);
        }
      } else {
        Variable(name, pair.second, pair.first, unit);
        if (NoString(pair.second)) Add(unit, "k8s-env-no-string", pair.second, name);
      }
    }
    units_.push_back(std::move(unit));
  }

  void FindPods(const YAML::Node& node, std::vector<Pod>& pods, int& budget, int depth) {
    if (!node.IsDefined() || --budget < 0 || depth > kDeepestManifest) return;
    if (node.IsMap()) {
      const YAML::Node containers = Child(node, "containers");
      if (containers.IsDefined() && containers.IsSequence()) pods.push_back(ReadPod(node, containers));
      for (const auto& pair : node) {
        const std::string key = Scalar(pair.first);
        if (key != "containers" && key != "initContainers") FindPods(pair.second, pods, budget, depth + 1);
      }
    } else if (node.IsSequence()) {
      for (const YAML::Node& item : node) FindPods(item, pods, budget, depth + 1);
    }
  }

  Pod ReadPod(const YAML::Node& spec, const YAML::Node& containers) {
    Pod pod;
    pod.spec = spec;
    pod.host_network = Scalar(Child(spec, "hostNetwork")) == "true";
    pod.host_ipc = Scalar(Child(spec, "hostIPC")) == "true";
    std::set<std::string> memory, other;
    const YAML::Node volumes = Child(spec, "volumes");
    if (volumes.IsDefined() && volumes.IsSequence()) {
      for (const YAML::Node& volume : volumes) {
        const YAML::Node empty = Child(volume, "emptyDir");
        const bool in_memory = empty.IsDefined() && Scalar(Child(empty, "medium")) == "Memory";
        const bool host = Child(volume, "hostPath").IsDefined();
        (in_memory || host ? memory : other).insert(Scalar(Child(volume, "name")));
      }
    }
    for (const YAML::Node& container : containers) {
      if (pod.first_container.IsDefined() && pod.first_container.IsNull()) pod.first_container = container;
      ReadContainer(container, memory, pod);
    }
    const YAML::Node initial = Child(spec, "initContainers");
    if (initial.IsDefined() && initial.IsSequence()) {
      Pod ignored;
      for (const YAML::Node& container : initial) ReadContainer(container, memory, ignored);
    }
    return pod;
  }

  void ReadContainer(const YAML::Node& container, const std::set<std::string>& memory, Pod& pod) {
    Unit unit;
    unit.dialect = "manifest";
    Resources(Child(container, "resources"), pod);
    const YAML::Node security = Child(container, "securityContext");
    pod.privileged = pod.privileged || Scalar(Child(security, "privileged")) == "true";
    const YAML::Node added = Child(Child(security, "capabilities"), "add");
    if (added.IsDefined() && added.IsSequence()) {
      for (const YAML::Node& capability : added) {
        pod.ipc_lock = pod.ipc_lock || Scalar(capability) == "IPC_LOCK" || Scalar(capability) == "ALL" ||
                       Scalar(capability) == "CAP_IPC_LOCK";
      }
    }
    const YAML::Node mounts = Child(container, "volumeMounts");
    if (mounts.IsDefined() && mounts.IsSequence()) {
      for (const YAML::Node& mount : mounts) {
        std::string path = Scalar(Child(mount, "mountPath"));
        while (path.size() > 1 && path.back() == '/') path.pop_back();
        if (path != "/dev/shm") continue;
        pod.shm = true;
        if (memory.count(Scalar(Child(mount, "name"))) == 0) pod.shm_on_disk = true;
      }
    }
    const YAML::Node env = Child(container, "env");
    if (env.IsDefined() && env.IsSequence()) {
      for (const YAML::Node& entry : env) {
        const YAML::Node name = Child(entry, "name"), value = Child(entry, "value");
        if (Scalar(name).empty()) continue;
        pod.variables.insert(Scalar(name));
        const bool off = Scalar(name) == "NCCL_IB_DISABLE";
        pod.ib_settings = pod.ib_settings || (Scalar(name).rfind("NCCL_IB_", 0) == 0 && !off);
        Variable(Scalar(name), value, name, unit);
        if (NoString(value)) Add(unit, "k8s-env-no-string", value, Scalar(name));
      }
    } else if (env.IsDefined() && env.IsMap()) {  // charts write it so
      for (const auto& pair : env) Variable(Scalar(pair.first), pair.second, pair.first, unit);
    }
    Commands(container, pod, unit);
    units_.push_back(std::move(unit));
  }

  void Variable(const std::string& name, const YAML::Node& value, const YAML::Node& at, Unit& unit) {
    Fact fact;
    fact.kind = "variable";
    fact.name = name;
    fact.line = yaml_.Line(at);
    fact.column = yaml_.Column(at);
    if (value.IsDefined() && value.IsScalar()) {
      const ShellWord word = yaml_.Word(value);
      fact.value = word.value;
      fact.known = word.known;
    } else {
      fact.known = false;  // valueFrom
    }
    unit.facts.push_back(std::move(fact));
  }

  static void Resources(const YAML::Node& resources, Pod& pod) {
    for (const char* list : {"limits", "requests"}) {
      const YAML::Node amounts = Child(resources, list);
      if (!amounts.IsDefined() || !amounts.IsMap()) continue;
      for (const auto& pair : amounts) {
        const std::string key = Scalar(pair.first);
        const size_t slash = key.find('/');
        const bool gpu = (slash != std::string::npos && key.find("gpu", slash) != std::string::npos) ||
                         key.rfind("nvidia.com/mig", 0) == 0;
        if (gpu) pod.gpus = std::max(pod.gpus, ParseDigits(Scalar(pair.second)).value_or(1));
        pod.efa = pod.efa || key.find("efa") != std::string::npos;
        for (const char* word :
             {"rdma", "hca", "roce", "efa", "infiniband", "hostdev", "mlnx", "sriov", "netdevice", "/ib"}) {
          pod.rdma = pod.rdma || key.find(word) != std::string::npos;
        }
      }
    }
  }

  void Commands(const YAML::Node& container, Pod& pod, Unit& unit) {
    std::vector<YAML::Node> words;
    for (const char* key : {"command", "args"}) {
      const YAML::Node list = Child(container, key);
      if (list.IsDefined() && list.IsSequence()) {
        for (const YAML::Node& word : list) words.push_back(word);
      } else if (list.IsDefined() && list.IsScalar()) {
        words.push_back(list);
      }
    }
    for (const YAML::Node& word : words) pod.text += Scalar(word) + " ";
    // ["bash", "-c", "text"]: the text is a script with lines of its own.
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string flag = Scalar(words[i]);
      if (i == 0 || flag.size() < 2 || flag[0] != '-' || flag[1] == '-' || flag.back() != 'c') continue;
      const std::string shell = Scalar(words[i - 1]);
      if (i > 1 && shell[0] != '-' && shell.find("sh") == std::string::npos) continue;
      int line, column, left;
      const std::string text = yaml_.ShellText(words[i + 1], line, column, left);
      Units inside;
      ReadScript(text, line, column, true, "manifest", inside, left);
      for (Unit& one : inside) {
        unit.used.insert(one.used.begin(), one.used.end());
        if (&one == &inside[0]) {
          for (Fact& fact : one.facts) unit.facts.push_back(std::move(fact));
        } else {
          units_.push_back(std::move(one));
        }
      }
      return;
    }
    std::vector<ShellWord> plain;
    for (const YAML::Node& word : words) {
      if (word.IsScalar()) plain.push_back(yaml_.Word(word));
    }
    if (!plain.empty()) ReadWords(plain, unit);
  }

  void Job(const YAML::Node& spec, const Pod& pod, Unit& unit) {
    const std::string policy = Scalar(Child(pod.spec, "restartPolicy"));
    if (policy != "Never" && policy != "OnFailure") {
      Add(unit, "k8s-job-restart-policy", pod.spec, policy.empty() ? "is missing" : "is " + policy);
    }
    const int parallelism = ParseDigits(Scalar(Child(spec, "parallelism"))).value_or(1);
    if (parallelism <= 1 || pod.gpus == 0) return;
    const YAML::Node at = Child(spec, "parallelism");
    const std::string nodes = fmt::format("{} pods", parallelism);
    if (Scalar(Child(spec, "completionMode")) != "Indexed") Add(unit, "k8s-job-not-indexed", at, nodes);
    const std::string completions = Scalar(Child(spec, "completions"));
    if (completions.empty()) {
      Add(unit, "k8s-job-completions", at, "completions is missing");
    } else if (ParseDigits(completions).value_or(parallelism) != parallelism) {
      Add(unit, "k8s-job-completions", Child(spec, "completions"),
          fmt::format("completions is {} and parallelism {}", completions, parallelism));
    }
    const std::string subdomain = Scalar(Child(pod.spec, "subdomain"));
    if (subdomain.empty()) {
      Add(unit, "k8s-job-no-subdomain", pod.spec, nodes);
    } else if (headless_.count(subdomain) == 0) {
      Add(unit, "k8s-job-no-service", Child(pod.spec, "subdomain"), subdomain);
    }
    const bool told = pod.variables.count("MASTER_ADDR") != 0 || pod.variables.count("PET_RDZV_ENDPOINT") != 0 ||
                      pod.text.find("MASTER_ADDR") != std::string::npos || pod.text.find("rdzv") != std::string::npos ||
                      pod.text.find("master_addr") != std::string::npos ||
                      pod.text.find("master-addr") != std::string::npos ||
                      pod.text.find("lockstep") != std::string::npos;
    if (!told) Add(unit, "k8s-job-no-variables", pod.spec, nodes);
    if (!pod.rdma && !pod.privileged && !pod.host_network && !pod.ib_settings) {
      Add(unit, "k8s-no-rdma", pod.first_container, nodes);
    }
    if (!pod.ipc_lock && !pod.privileged && !pod.ib_settings && !pod.rdma) {
      Add(unit, "k8s-no-ipc-lock", pod.first_container, nodes);
    }
    if (!pod.shm && !pod.host_ipc && pod.gpus == 1) Add(unit, "k8s-no-shm", pod.first_container, "1 GPU");
  }

  void PyTorchJob(const YAML::Node& object, const std::vector<Pod>& pods, Unit& unit) {
    const YAML::Node replicas = Child(Child(object, "spec"), "pytorchReplicaSpecs");
    const YAML::Node master = Child(Child(replicas, "Master"), "replicas");
    if (master.IsDefined() && Scalar(master) != "1") Add(unit, "k8s-pytorchjob-masters", master, Scalar(master));
    for (const Pod& pod : pods) {
      bool named = false;
      const YAML::Node containers = Child(pod.spec, "containers");
      for (const YAML::Node& container : containers) named = named || Scalar(Child(container, "name")) == "pytorch";
      if (!named) Add(unit, "k8s-pytorchjob-container", Child(pod.first_container, "name"), "");
    }
  }

  // What holds for any pod with GPUs.
  void Node(const Pod& pod, const std::string& kind, Unit& unit) {
    if (pod.gpus == 0) return;
    const std::string gpus = fmt::format("{} GPU{}", pod.gpus, pod.gpus == 1 ? "" : "s");
    if (pod.shm && pod.shm_on_disk) Add(unit, "k8s-shm-on-disk", pod.first_container, gpus);
    if (!pod.shm && !pod.host_ipc && pod.gpus > 1 && kind != "Deployment") {
      Add(unit, "k8s-no-shm", pod.first_container, gpus);
    }
    if ((pod.ib_settings || (pod.rdma && !pod.efa)) && !pod.ipc_lock && !pod.privileged) {
      Add(unit, "k8s-ib-without-ipc-lock", pod.first_container, gpus);
    }
    if (pod.ib_settings && !pod.rdma && !pod.privileged && !pod.host_network) {
      Add(unit, "k8s-ib-without-rdma", pod.first_container, gpus);
    }
  }

  const YamlText& yaml_;
  Units& units_;
  std::set<std::string> headless_;
};

// A file that is no YAML, even with its templates blanked: names and values line by line.
void ReadPairs(std::string_view text, int line, Units& units) {
  Unit unit;
  unit.dialect = "manifest";
  std::string name;
  int at = 0, column = 0;
  for (const std::string& raw : Split(text, '\n')) {
    std::string_view row = Trim(raw);
    if (row.substr(0, 2) == "- ") row = Trim(row.substr(2));
    auto unquoted = [](std::string_view value) {
      value = Trim(value);
      if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0]) {
        value = value.substr(1, value.size() - 2);
      }
      return std::string(value);
    };
    if (row.substr(0, 7) == "export " || row.substr(0, 3) == "-x ") {
      ReadScript(row, line, static_cast<int>(raw.find(row)) + 1, true, "manifest", units);
    } else if (row.substr(0, 5) == "name:") {
      name = unquoted(row.substr(5));
      at = line;
      column = static_cast<int>(raw.find("name:")) + 7;
    } else if (row.substr(0, 6) == "value:" && !name.empty()) {
      Fact fact;
      fact.kind = "variable";
      fact.name = name;
      fact.value = unquoted(row.substr(6));
      fact.known = fact.value.find("{{") == std::string::npos && fact.value.find('$') == std::string::npos;
      fact.line = at;
      fact.column = column;
      unit.facts.push_back(std::move(fact));
      name.clear();
    }
    ++line;
  }
  units.push_back(std::move(unit));
}

}  // namespace

void ReadManifest(std::string_view text, int line, Units& units) {
  Result<YamlText> yaml = YamlText::Read(text, line);
  if (!yaml.ok()) return ReadPairs(text, line, units);
  try {
    ManifestReader(*yaml, units).Read();
  } catch (const std::exception&) {  // a node of another kind than its place promises
    ReadPairs(text, line, units);
  }
}

}  // namespace lockstep::lint
