// Reading small files of /proc and /sys below a root: absent, unreadable and empty look alike, because to a reader of
// hardware they mean the same. Plain value, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::hardware {

class SysTree {
 public:
  explicit SysTree(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }
  bool real() const { return root_.empty(); }
  std::string Path(std::string_view path) const { return root_ + std::string(path); }

  // The content without surrounding blanks; of a long file the first megabyte.
  std::string Text(const std::string& path) const;
  // Decimal, or hexadecimal after 0x; nothing for any other text, also for a number with something behind it.
  std::optional<int64_t> Number(const std::string& path) const;
  // Entries of a folder, sorted so that mlx5_2 comes before mlx5_10.
  std::vector<std::string> Names(const std::string& folder) const;
  bool Exists(const std::string& path) const;
  bool IsFolder(const std::string& path) const;
  // The path with all links followed, as if the root were "/"; empty when it does not exist.
  std::string Real(const std::string& path) const;
  // What a link says, as it is written; empty: no link.
  std::string LinkTarget(const std::string& path) const;
  // The last component of a link's target: the name of a driver, a bond, a subsystem.
  std::string LinkName(const std::string& path) const;

 private:
  std::string root_;
};

std::optional<int64_t> ToNumber(std::string_view text);

// Words separated by blanks, tabs or line ends.
std::vector<std::string> Words(std::string_view text);

// The value of "name<separator>value" among lines; blanks around both are dropped.
std::string LineValue(std::string_view text, std::string_view name, char separator);

// How many numbers a list like "0-3,8" names; nothing for anything else.
std::optional<int> CountList(std::string_view list);

// Where a device sits: from the real path of its sysfs folder, else from its uevent file.
struct PciPlace {
  std::string address;  // "0000:1a:00.0"
  std::string path;     // "pci0000:15/0000:15:01.0/0000:1a:00.0"
  std::optional<int> numa;
};
PciPlace PciOf(const SysTree& tree, const std::string& device_folder);

}  // namespace lockstep::hardware
