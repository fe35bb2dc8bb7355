#include "preflight/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "preflight/compare.h"

namespace lockstep::preflight {
namespace {

constexpr size_t kMatrixNodes = 16;  // more are summed up
constexpr size_t kColumnNodes = 32;  // more than fit on a line
constexpr size_t kMaxNote = 72;

struct Paint {
  bool on;
  std::string operator()(State state, const std::string& text) const {
    if (!on) return text;
    const char* code = state == State::kFail      ? "\x1b[31m"
                       : state == State::kWarn    ? "\x1b[33m"
                       : state == State::kSkipped ? "\x1b[2m"
                                                  : "\x1b[32m";
    return code + text + "\x1b[0m";
  }
};

const char* Cell(State state) {
  return state == State::kFail ? "X" : state == State::kWarn ? "!" : state == State::kSkipped ? "-" : ".";
}

std::string Short(const std::string& note) {
  const std::string text = Printable(note, 400);
  return text.size() > kMaxNote ? text.substr(0, kMaxNote - 3) + "..." : text;
}

// One line of the table: a check over the nodes.
struct Row {
  std::string id;
  std::vector<State> cells;  // by node
  std::string note;
};

std::vector<Row> Rows(const PreflightReport& report) {
  std::vector<Row> rows;
  std::map<std::string, size_t> index;
  for (size_t node = 0; node < report.nodes.size(); ++node) {
    for (const CheckResult& check : report.nodes[node].checks) {
      const auto [it, fresh] = index.emplace(check.id, rows.size());
      if (fresh) rows.push_back({check.id, std::vector<State>(report.nodes.size(), State::kSkipped), ""});
      Row& row = rows[it->second];
      row.cells[node] = check.outcome.state();
      // The note of the first that has something to say; skipped ones say it only when nobody else does.
      if (row.note.empty() && check.outcome.state() == State::kOk) row.note = check.outcome.note;
    }
  }
  for (Row& row : rows) {
    if (!row.note.empty()) continue;
    for (const NodeFacts& node : report.nodes) {
      for (const CheckResult& check : node.checks) {
        if (check.id == row.id && row.note.empty() && check.outcome.skipped) row.note = check.outcome.note;
      }
    }
  }
  for (const CheckResult& check : report.all) {
    const bool skipped = check.outcome.state() == State::kSkipped;
    Row row{check.id, std::vector<State>(report.nodes.size(), skipped ? State::kSkipped : State::kOk), ""};
    for (const Problem& problem : check.outcome.problems) {
      for (size_t node = 0; node < row.cells.size(); ++node) {
        const bool concerned = problem.nodes.empty() || std::find(problem.nodes.begin(), problem.nodes.end(),
                                                                  static_cast<int>(node)) != problem.nodes.end();
        if (concerned) row.cells[node] = std::max(row.cells[node], problem.state);
      }
    }
    row.note = check.outcome.note;
    rows.push_back(std::move(row));
  }
  return rows;
}

// A problem as told: the same words on several nodes are one.
struct Told {
  std::string id;
  Problem problem;
};

std::vector<Told> Problems(const PreflightReport& report) {
  std::vector<Told> told;
  std::map<std::tuple<std::string, std::string, State>, size_t> index;
  for (size_t node = 0; node < report.nodes.size(); ++node) {
    for (const CheckResult& check : report.nodes[node].checks) {
      for (const Problem& problem : check.outcome.problems) {
        const auto [it, fresh] = index.emplace(std::tuple(check.id, problem.text, problem.state), told.size());
        if (fresh) told.push_back({check.id, problem});
        told[it->second].problem.nodes.push_back(static_cast<int>(node));
      }
    }
  }
  for (const CheckResult& check : report.all) {
    for (const Problem& problem : check.outcome.problems) {
      Problem without = problem;
      without.nodes.clear();  // its text names them
      told.push_back({check.id, without});
    }
  }
  std::vector<Told> sorted;
  for (const State state : {State::kFail, State::kWarn, State::kSkipped, State::kOk}) {
    std::copy_if(told.begin(), told.end(), std::back_inserter(sorted),
                 [&](const Told& one) { return one.problem.state == state; });
  }
  return sorted;
}

void AppendTable(const PreflightReport& report, const Paint& paint, std::string* text) {
  const std::vector<Row> rows = Rows(report);
  const size_t nodes = report.nodes.size();
  size_t width = 5;
  for (const Row& row : rows) width = std::max(width, row.id.size());
  if (nodes > 1 && nodes <= kColumnNodes) {
    *text += fmt::format("{:<{}} ", "node", width);
    for (size_t node = 0; node < nodes; ++node) *text += fmt::format("{:>3}", node);
    std::vector<std::string> hosts;
    for (size_t node = 0; node < std::min<size_t>(nodes, 8); ++node) {
      hosts.push_back(fmt::format("{} {}", node, Printable(report.nodes[node].host, 40)));
    }
    *text += fmt::format("   {}{}\n", fmt::join(hosts, ", "), nodes > 8 ? ", ..." : "");
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> skipped;  // why, and which
  for (const Row& row : rows) {
    if (std::all_of(row.cells.begin(), row.cells.end(), [](State cell) { return cell == State::kSkipped; })) {
      auto why = std::find_if(skipped.begin(), skipped.end(), [&](const auto& one) { return one.first == row.note; });
      if (why == skipped.end()) why = skipped.insert(skipped.end(), {row.note, {}});
      why->second.push_back(row.id);
      continue;
    }
    *text += fmt::format("{:<{}} ", row.id, width);
    if (nodes == 1) {
      *text += paint(row.cells[0], fmt::format(" {:<8}", Name(row.cells[0])));
    } else if (nodes <= kColumnNodes) {
      for (State cell : row.cells) *text += "  " + paint(cell, Cell(cell));
    } else {
      for (State state : {State::kOk, State::kSkipped, State::kWarn, State::kFail}) {
        std::vector<int> which;
        for (size_t node = 0; node < nodes; ++node) {
          if (row.cells[node] == state) which.push_back(static_cast<int>(node));
        }
        if (which.empty()) continue;
        const bool name = state >= State::kWarn && which.size() <= 8;
        *text += " " + paint(state, fmt::format("{} {}{}", which.size(), Name(state),
                                                name ? fmt::format(" ({})", fmt::join(which, ",")) : ""));
      }
    }
    *text += row.note.empty() ? "\n" : "   " + paint(State::kSkipped, Short(row.note)) + "\n";
  }
  if (nodes > 1 && nodes <= kColumnNodes) *text += "(. ok  - skipped  ! warning  X failed)\n";
  for (const auto& [why, ids] : skipped) {
    *text += paint(State::kSkipped, fmt::format("skipped, {}: {}", why, fmt::join(ids, ", "))) + "\n";
  }
}

// One digit behind the point, and two that count where that would be nothing.
std::string Figure(double value) { return value < 0.95 ? fmt::format("{:.2g}", value) : fmt::format("{:.1f}", value); }

void AppendNetwork(const PreflightReport& report, std::string* text) {
  const size_t nodes = report.nodes.size();
  if (nodes < 2) return;
  std::map<std::pair<int, int>, double> gbit, trip;
  for (const PairRate& rate : report.rates) {
    if (rate.bits > 0) gbit[{rate.from, rate.to}] = rate.bits / 1e9;
  }
  for (size_t i = 0; i < report.findings.size(); ++i) {
    for (const Reached& one : report.findings[i].reached) {
      if (one.round_trip > 0) trip[{static_cast<int>(i), one.node}] = one.round_trip * 1e6;
    }
  }
  if (gbit.empty() && trip.empty()) return;
  const auto matrix = [&](const char* title, const std::map<std::pair<int, int>, double>& values, bool whole) {
    if (values.empty()) return;
    *text += fmt::format("{}\n      ", title);
    for (size_t to = 0; to < nodes; ++to) *text += fmt::format("{:>8}", to);
    *text += "\n";
    for (size_t from = 0; from < nodes; ++from) {
      *text += fmt::format("{:>6}", from);
      for (size_t to = 0; to < nodes; ++to) {
        auto found = values.find({static_cast<int>(from), static_cast<int>(to)});
        *text += fmt::format("{:>8}", from == to              ? "."
                                      : found == values.end() ? "-"
                                      : whole                 ? fmt::format("{:.0f}", found->second)
                                                              : Figure(found->second));
      }
      *text += "\n";
    }
  };
  if (nodes <= kMatrixNodes) {
    matrix("Gbit/s by one TCP stream, from row to column:", gbit, /*whole=*/false);
    matrix("round trip in us:", trip, /*whole=*/true);
    return;
  }
  const auto summary = [&](const char* title, const std::map<std::pair<int, int>, double>& values, bool low_is_bad) {
    if (values.empty()) return;
    std::vector<std::pair<double, std::pair<int, int>>> sorted;
    for (const auto& [pair, value] : values) sorted.emplace_back(value, pair);
    std::sort(sorted.begin(), sorted.end());
    *text += fmt::format("{}: {} at least, {} median, {} at most; worst:", title, Figure(sorted.front().first),
                         Figure(sorted[sorted.size() / 2].first), Figure(sorted.back().first));
    if (!low_is_bad) std::reverse(sorted.begin(), sorted.end());
    for (size_t i = 0; i < std::min<size_t>(3, sorted.size()); ++i) {
      *text += fmt::format(" {}->{} {}", sorted[i].second.first, sorted[i].second.second, Figure(sorted[i].first));
    }
    *text += "\n";
  };
  summary("Gbit/s by one TCP stream", gbit, true);
  summary("round trip in us", trip, false);
}

}  // namespace

Json PreflightReport::ToJson() const {
  Json list = Json::array(), results = Json::array(), offsets = Json::array(), found = Json::array(),
       streams = Json::array();
  for (const NodeFacts& node : nodes) list.push_back(node.ToJson());
  for (const CheckResult& check : all) {
    Json entry = check.outcome.ToJson();
    entry["id"] = check.id;
    results.push_back(std::move(entry));
  }
  for (const launch::ClockReading& clock : clocks)
    offsets.push_back({{"offset", clock.offset}, {"error", clock.error}});
  for (const Findings& one : findings) found.push_back(one.ToJson());
  for (const PairRate& rate : rates) {
    streams.push_back({{"from", rate.from}, {"to", rate.to}, {"bits", rate.bits}, {"trouble", rate.trouble}});
  }
  return {{"nodes", list},     {"all", results},   {"clocks", offsets},
          {"findings", found}, {"rates", streams}, {"sampled", sampled}};
}

PreflightReport PreflightReport::FromJson(const Json& json) {
  PreflightReport report;
  const auto each = [&](const char* key, const auto& take) {
    auto list = json.find(key);
    if (list == json.end() || !list->is_array()) return;
    for (const Json& one : *list) take(one);
  };
  if (!json.is_object()) return report;
  each("nodes", [&](const Json& one) { report.nodes.push_back(NodeFacts::FromJson(one)); });
  each("all", [&](const Json& one) { report.all.push_back({GetString(one, "id"), CheckOutcome::FromJson(one)}); });
  each("clocks",
       [&](const Json& one) { report.clocks.push_back({GetNumber(one, "offset"), GetNumber(one, "error")}); });
  each("findings", [&](const Json& one) { report.findings.push_back(Findings::FromJson(one)); });
  each("rates", [&](const Json& one) {
    report.rates.push_back({static_cast<int>(GetInt(one, "from", -1)), static_cast<int>(GetInt(one, "to", -1)),
                            GetNumber(one, "bits"), GetString(one, "trouble")});
  });
  report.sampled = GetBool(json, "sampled");
  return report;
}

std::string Headline(const PreflightReport& report) {
  size_t checks = report.all.size(), warnings = 0;
  if (!report.nodes.empty()) checks += report.nodes[0].checks.size();
  std::vector<std::string> failed;
  for (const Told& told : Problems(report)) {
    if (told.problem.state == State::kWarn) ++warnings;
    if (told.problem.state != State::kFail) continue;
    const std::string where = told.problem.nodes.empty() || report.nodes.size() < 2
                                  ? ""
                                  : " on " + NodeNames(told.problem.nodes, report.nodes);
    const std::string text = told.id + where;
    if (std::find(failed.begin(), failed.end(), text) == failed.end()) failed.push_back(text);
  }
  const std::string more = warnings == 0 ? "" : fmt::format(", {} warning{}", warnings, warnings == 1 ? "" : "s");
  const std::string size =
      fmt::format("{} node{}, {} check{}{}, {:.1f} s", report.nodes.size(), report.nodes.size() == 1 ? "" : "s", checks,
                  checks == 1 ? "" : "s", more, report.seconds);
  if (!report.rendezvous.ok()) return fmt::format("failed: rendezvous: {}", report.rendezvous.message());
  if (failed.empty()) return fmt::format("ok ({})", size);
  if (failed.size() > 6) {
    const size_t rest = failed.size() - 6;
    failed.resize(6);
    failed.push_back(fmt::format("and {} more", rest));
  }
  return fmt::format("failed: {} ({})", fmt::join(failed, ", "), size);
}

std::string ReportText(const PreflightReport& report, bool table, bool colour) {
  const Paint paint{colour};
  const bool bad = report.exit_code() != 0;
  std::string text = paint(bad                              ? State::kFail
                           : report.state() == State::kWarn ? State::kWarn
                                                            : State::kOk,
                           "preflight: " + Headline(report)) +
                     "\n";
  if (!report.rendezvous.ok() && !report.rendezvous.hint().empty()) text += "  do: " + report.rendezvous.hint() + "\n";
  if (table) {
    if (!report.rendezvous.ok()) text += "this node alone:\n";
    AppendTable(report, paint, &text);
  }
  const std::vector<Told> problems = Problems(report);
  for (size_t i = 0; i < problems.size(); ++i) {
    const Told& told = problems[i];
    const std::string where = told.problem.nodes.empty() || report.nodes.size() < 2
                                  ? ""
                                  : " on " + NodeNames(told.problem.nodes, report.nodes);
    text += fmt::format("{} {}{}: {}\n", paint(told.problem.state, Name(told.problem.state)), told.id, where,
                        Printable(told.problem.text, 2000));
    // One remedy for several in a row is said after the last.
    const bool again = i + 1 < problems.size() && problems[i + 1].problem.remedy == told.problem.remedy;
    if (!told.problem.remedy.empty() && !again) text += fmt::format("     do: {}\n", told.problem.remedy);
  }
  if (table) AppendNetwork(report, &text);
  return text;
}

Json Document(const PreflightReport& report) {
  Json nodes = Json::array();
  for (size_t i = 0; i < report.nodes.size(); ++i) {
    Json node = report.nodes[i].ToJson();
    node["node"] = i;
    for (const char* own : {"secret", "port", "udp_port", "range_ports"}) node["network"].erase(own);
    if (node["env"].empty()) node.erase("env");
    if (i < report.clocks.size()) {
      node["clock_offset"] = {{"seconds", report.clocks[i].offset}, {"error", report.clocks[i].error}};
    }
    nodes.push_back(std::move(node));
  }
  std::map<std::pair<int, int>, Json> pairs;
  for (size_t i = 0; i < report.findings.size(); ++i) {
    const auto from = static_cast<int>(i);
    for (const Reached& one : report.findings[i].reached) {
      Json& pair = pairs[{from, one.node}];
      pair["reached"] = one.trouble.empty();
      if (!one.trouble.empty()) pair["trouble"] = one.trouble;
      if (one.round_trip > 0) pair["round_trip_us"] = one.round_trip * 1e6;
      if (one.mtu_sent > 0) pair["packet_sent"] = one.mtu_sent, pair["packet_through"] = one.mtu_through;
      Json closed = Json::array();
      for (const auto& [port, why] : one.closed) closed.push_back({{"port", port}, {"why", why}});
      if (!closed.empty()) pair["closed_ports"] = closed;
    }
  }
  for (const PairRate& rate : report.rates) {
    Json& pair = pairs[{rate.from, rate.to}];
    if (rate.bits > 0) pair["gbit_per_second"] = rate.bits / 1e9;
    if (!rate.trouble.empty()) pair["rate_trouble"] = rate.trouble;
  }
  Json list = Json::array();
  for (auto& [which, pair] : pairs) {
    pair["from"] = which.first;
    pair["to"] = which.second;
    list.push_back(std::move(pair));
  }
  const Json wire = report.ToJson();
  return {{"outcome", report.exit_code() == 0 ? "ok" : "failed"},
          {"exit_code", report.exit_code()},
          {"headline", Headline(report)},
          {"seconds", report.seconds},
          {"rendezvous", report.rendezvous.ok() ? Json() : Json(report.rendezvous.ToString())},
          {"nodes", nodes},
          {"all_nodes", wire["all"]},
          {"pairs", list},
          {"sampled", report.sampled}};
}

}  // namespace lockstep::preflight
