#include "cli/selftest_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "tune/settings.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::json;

double Get(const Json& object, const char* key) {
  auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

const Json& List(const Json& object, const char* key) {
  static const Json none = Json::array();
  if (!object.is_object()) return none;
  auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : none;
}

std::string Text(const Json& object, const char* key) {
  auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string SizeText(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit) bytes /= 1024;
  return fmt::format("{:g} {}", bytes, units[unit]);
}

double BestBus(const Json& result) {
  double best = 0;
  for (const Json& size : List(result, "sizes")) best = std::max(best, Get(size, "busbw"));
  return best;
}

// One direction of all NVLinks of a GPU: 25 GB/s each from Volta to Hopper, 50 since Blackwell.
double NvlinkGbytes(const hardware::GpuState& gpu) {
  const bool blackwell = gpu.compute_capability.starts_with("10.") || gpu.compute_capability.starts_with("12.");
  return gpu.nvlinks_active.value_or(0) * (blackwell ? 50.0 : 25.0);
}

double PcieGbytes(const hardware::GpuState& gpu) {
  const double per_lane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  const int gen = std::min(gpu.pcie_gen_max.value_or(gpu.pcie_gen.value_or(0)), 6);
  return gen > 0 ? per_lane[gen] * gpu.pcie_width.value_or(gpu.pcie_width_max.value_or(0)) : 0;
}

}  // namespace

std::optional<LinkLimit> LimitOf(const hardware::Hardware& here, const Stage& stage, const std::string& master) {
  if (stage.ranks < 2) return std::nullopt;
  const bool nccl = Text(stage.result, "backend") == "nccl";
  if (stage.nnodes == 1) {
    if (!nccl || here.gpus.empty()) return std::nullopt;  // memory of the host: nobody says how fast
    const hardware::GpuState& gpu = here.gpus[0];
    if (const double speed = NvlinkGbytes(gpu); speed > 0) {
      return LinkLimit{speed, fmt::format("{} NVLinks of {}", *gpu.nvlinks_active, gpu.name)};
    }
    const double speed = PcieGbytes(gpu);
    if (speed <= 0) return std::nullopt;
    return LinkLimit{speed, fmt::format("PCIe {} x{}", gpu.pcie_gen_max.value_or(gpu.pcie_gen.value_or(0)),
                                        gpu.pcie_width.value_or(gpu.pcie_width_max.value_or(0)))};
  }
  // A ring crosses the border of a node once in each direction, so its bus bandwidth is the node's.
  double gbit = 0;
  int ports = 0;
  if (nccl) {
    for (const hardware::IbPort* port : tune::DataPorts(here)) {
      gbit += port->gbit.value_or(0);
      ++ports;
    }
  }
  if (gbit > 0)
    return LinkLimit{gbit / 8, fmt::format("{} RDMA port{}, {:g} Gb/s", ports, ports == 1 ? "" : "s", gbit)};
  const hardware::Interface* route = master.empty() ? nullptr : hardware::RouteTo(here, master);
  if (route == nullptr || route->loopback || !route->gbit) return std::nullopt;
  return LinkLimit{*route->gbit / 8, fmt::format("{}, {:g} Gb/s", route->name, *route->gbit)};
}

Json ReadVerdict(const std::string& folder) {
  Json best;
  int best_rank = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
    auto text = ReadFile(entry.path().string(), 64 << 20);
    if (!text.ok()) continue;
    Json json = Json::parse(*text, nullptr, false);
    if (!json.is_object()) continue;
    const int rank = static_cast<int>(Get(json, "rank"));
    if (best_rank < 0 || rank < best_rank) {
      best_rank = rank;
      best = std::move(json);
    }
  }
  return best;
}

std::string StageLine(const Stage& stage, const std::optional<LinkLimit>& limit, bool colour) {
  const auto paint = [&](const char* code, const std::string& text) {
    return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  };
  std::string line = fmt::format("  {:<13}{:>5} rank{} {:>7.1f}s  ", stage.name, stage.ranks,
                                 stage.ranks == 1 ? " " : "s", stage.seconds);
  if (!stage.ok) return line + paint("31", "FAILED") + "\n      " + stage.error + "\n";
  line += paint("32", "ok");
  if (const double bus = BestBus(stage.result); bus > 0) {
    line += fmt::format("      all-reduce {:.3g} GB/s", bus);
    if (limit) line += fmt::format(", {:.0f} % of what {} could give", 100 * bus / limit->gbytes, limit->what);
    const Json& sizes = List(stage.result, "sizes");
    if (!sizes.empty()) line += fmt::format("; {:.0f} us at {}", Get(sizes[0], "us"), SizeText(Get(sizes[0], "bytes")));
  }
  return line + "\n";
}

std::string Details(const Stage& stage, const std::optional<LinkLimit>& limit) {
  std::string out;
  const Json& sizes = List(stage.result, "sizes");
  if (!sizes.empty()) {
    out += fmt::format("\nall-reduce on {} ({})\n  {:>9}  {:>11}  {:>11}  {:>11}\n", Count(stage.ranks, "rank"),
                       stage.name, "size", "time us", "alg GB/s", "bus GB/s");
    for (const Json& row : sizes) {
      out += fmt::format("  {:>9}  {:>11.1f}  {:>11.3f}  {:>11.3f}\n", SizeText(Get(row, "bytes")), Get(row, "us"),
                         Get(row, "algbw"), Get(row, "busbw"));
    }
    if (limit && BestBus(stage.result) < 0.5 * limit->gbytes) {
      out += fmt::format(
          "  less than half of what {} could give: `lockstep tune` and `lockstep doctor preflight` look for "
          "the reason\n",
          limit->what);
    }
  }
  struct Pair {
    int from, to;
    double speed;
  };
  std::vector<Pair> pairs;
  for (const Json& pair : List(stage.result, "pairs")) {
    if (!pair.is_array() || pair.size() != 3) continue;
    if (!std::all_of(pair.begin(), pair.end(), [](const Json& part) { return part.is_number(); })) continue;
    pairs.push_back({pair[0].get<int>(), pair[1].get<int>(), pair[2].get<double>()});
  }
  if (pairs.size() >= 6) {
    std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.speed < b.speed; });
    const double median = pairs[pairs.size() / 2].speed;
    for (size_t i = 0; i < 5 && pairs[i].speed * 4 < median; ++i) {
      out += fmt::format("  slow pair: rank {} to rank {} {:g} GB/s, where the median is {:g}\n", pairs[i].from,
                         pairs[i].to, pairs[i].speed, median);
    }
  }
  const Json& scale = List(stage.result, "scale");
  if (!scale.empty()) {
    out +=
        fmt::format("\nscaling (work plus an all-reduce of {} each step)\n  {:>5}  {:>11}  {:>12}  {:>10}  lost to\n",
                    SizeText(Get(stage.result, "gradient_bytes")), "ranks", "work ms", "exchange ms", "efficiency");
    for (const Json& row : scale) {
      std::vector<std::string> lost;
      if (Get(row, "lost_to_exchange") >= 0.02)
        lost.push_back(fmt::format("exchange {:.0f} %", 100 * Get(row, "lost_to_exchange")));
      if (Get(row, "lost_to_compute") >= 0.02) {
        lost.push_back(
            fmt::format("slower work {:.0f} % (ranks share processors or memory)", 100 * Get(row, "lost_to_compute")));
      }
      out += fmt::format("  {:>5}  {:>11.2f}  {:>12.2f}  {:>8.0f} %  {}\n", Get(row, "ranks"), Get(row, "compute_ms"),
                         Get(row, "exchange_ms"), 100 * Get(row, "efficiency"), Join(lost, ", "));
    }
  }
  for (const Json& note : List(stage.result, "notes")) {
    if (note.is_string()) out += "  note: " + note.get<std::string>() + "\n";
  }
  return out;
}

Json ToJson(const Stage& stage, const std::optional<LinkLimit>& limit) {
  return {{"stage", stage.name},
          {"ranks", stage.ranks},
          {"nnodes", stage.nnodes},
          {"ok", stage.ok},
          {"seconds", stage.seconds},
          {"error", stage.ok ? Json() : Json(stage.error)},
          {"link", limit ? Json{{"gbytes", limit->gbytes}, {"what", limit->what}} : Json()},
          {"log", stage.ok ? Json() : Json(stage.log)},
          {"result", stage.result}};
}

}  // namespace lockstep::cli
