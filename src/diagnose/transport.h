// Which network NCCL really uses, read from its own INIT and NET lines (NCCL 2.10 to 2.30 print them alike). Values and
// pure functions; the reader is fed lines in order, from one thread.
//
//   TransportReader reader;
//   for (line : lines) reader.Line(line);
//   if (reader.transport().complete) Report(reader.transport());
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::diagnose {

// Of one process.
struct Transport {
  int rank = -1, nranks = 0;            // in its largest communicator
  int node = -1;                        // where the caller knows it
  bool complete = false;                // a communicator is ready
  std::string version;                  // "2.27.5+cuda12.9"; only rank 0 prints it
  std::string network;                  // NCCL's name of it: "IB", "Socket", "AWS Libfabric"; empty: not said
  std::vector<std::string> hcas;        // "mlx5_0:1/IB"; only when the network is NCCL's own IB
  std::vector<std::string> interfaces;  // of NET/Socket: "eth0"
  std::string plugin;                   // an external one that was loaded
  std::set<std::string> paths;          // "P2P/CUMEM", "SHM/direct", "NET/IB", "NET/IB/GDRDMA"
  int channels = 0, nvls_channels = 0;
  bool no_ib_device = false;  // "NET/IB : No device found."
};

class TransportReader {
 public:
  void Line(std::string_view line);
  const Transport& transport() const { return transport_; }

 private:
  Transport transport_;
};

// "IB over 8 HCAs, GDRDMA", "TCP over eth0", "AWS Libfabric": the network between nodes in a few words.
std::string NetworkText(const Transport& transport);
// "0-7,12".
std::string RankRanges(std::vector<int> ranks);

// Ranks with the same transport stand together: [{"ranks": "0-7", "network": "IB", ...}].
nlohmann::json TransportGroups(const std::vector<Transport>& transports);

// One line worth a warning, or nothing: ranks that differ, or TCP on nodes with an active RDMA port.
std::string TransportWarning(const std::vector<Transport>& transports, int nnodes,
                             const std::set<int>& nodes_with_rdma);

// Between launchers.
nlohmann::json ToJson(const Transport& transport);
Transport TransportFromJson(const nlohmann::json& json);

}  // namespace lockstep::diagnose
