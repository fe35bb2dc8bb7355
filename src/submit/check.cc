// What a platform makes of a job: keys that it has no use for, what it needs, names it does not allow.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/digits.h"
#include "base/text.h"
#include "submit/render.h"

namespace lockstep::submit {
namespace {

// RFC 1123: what Kubernetes allows as the name of an object that is part of a host name.
bool IsLabel(std::string_view text) {
  if (text.empty() || text.size() > 63 || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c >= 'a' && c <= 'z') || std::isdigit(c) != 0 || c == '-'; });
}

// The longest suffix a platform puts behind the name: pods count from 0.
size_t LongestSuffix(const Job& job, const Platform& platform) {
  const size_t digits = std::to_string(std::max(0, job.nodes - 1)).size();
  if (platform.name == "pytorchjob") return std::string("-worker-").size() + digits;
  if (platform.name == "trainjob") return std::string("-node-0-").size() + digits;
  if (platform.name == "volcano") return std::string("-worker-").size() + digits;
  return std::max(1 + digits, std::string("-token").size());
}

void CheckKubernetesNames(const Job& job, const Platform& platform, Findings* out) {
  const size_t longest = 63 - LongestSuffix(job, platform);
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
    if (slash == 0 || slash == std::string::npos || slash + 1 == reference.size() ||
        !IsLabel(reference.substr(0, slash))) {
      out->errors.push_back(
          fmt::format("secrets.{}: expected SECRET/KEY, a Secret of the cluster and its key, found '{}'", name,
                      Printable(reference)));
    }
  }
  for (const auto& [name, count] : job.rdma) {
    if (name.find('/') == std::string::npos) {
      out->errors.push_back(
          fmt::format("rdma: a resource of Kubernetes is named domain/name, found '{}'; for example rdma/hca", name));
    }
  }
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
  } else {
    for (const auto& [name, reference] : job.secrets) {
      if (!reference.starts_with('/')) {
        out.errors.push_back(
            fmt::format("secrets.{}: {} reads secrets from a file of the nodes: expected an absolute "
                        "path, found '{}'",
                        name, platform.what, Printable(reference)));
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
  if (platform.name == "ssh" && !job.native.empty()) {
    out.errors.push_back("native: ssh has no directives; remove it");
  }
  if (kubernetes && job.workdir.empty() && job.mounts.empty()) {
    out.warnings.push_back(
        "nothing is mounted: runs/ with logs and checkpoints is lost with the pods; mount a volume "
        "and make it the workdir");
  } else if (kubernetes && std::none_of(job.mounts.begin(), job.mounts.end(), [&](const Mount& mount) {
               return !mount.read_only && (job.workdir == mount.to || job.workdir.starts_with(mount.to + "/"));
             })) {
    out.warnings.push_back("workdir is on no writable mount: runs/ with logs and checkpoints is lost with the pods");
  }
  if (platform.name == "slurm" && job.gpus && !job.cpus) {
    out.warnings.push_back("cpus: not given, and SLURM gives one CPU a node unless the site says otherwise");
  }
  return out;
}

Status ToStatus(const std::vector<std::string>& errors, const std::string& source) {
  if (errors.empty()) return Status::Ok();
  if (errors.size() == 1) return Status(Code::kUsage, fmt::format("{}: {}", source, errors[0]));
  return Status(Code::kUsage, fmt::format("{}: {} mistakes\n  {}", source, errors.size(), Join(errors, "\n  ")));
}

}  // namespace lockstep::submit
