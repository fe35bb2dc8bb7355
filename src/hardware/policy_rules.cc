// Whether this machine routes by more than the destination (`ip rule`), asked of the kernel by netlink. Such rules are
// not followed when a route is chosen, so a person must be told.
#include <fmt/format.h>
#include <linux/fib_rules.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

struct Request {
  nlmsghdr header;
  fib_rule_hdr rule;
};

// The three every machine has: local, main, default.
bool IsDefault(const fib_rule_hdr& rule, uint32_t priority) {
  const bool plain = rule.src_len == 0 && rule.dst_len == 0 && rule.tos == 0 && !(rule.flags & FIB_RULE_INVERT);
  return plain &&
         ((priority == 0 && rule.table == RT_TABLE_LOCAL) || (priority == 32766 && rule.table == RT_TABLE_MAIN) ||
          (priority == 32767 && rule.table == RT_TABLE_DEFAULT));
}

uint32_t PriorityOf(const nlmsghdr* message) {
  const auto* rule = static_cast<const fib_rule_hdr*>(NLMSG_DATA(message));
  int left = static_cast<int>(message->nlmsg_len - NLMSG_LENGTH(sizeof *rule));
  const auto* attribute =
      reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(rule) + NLMSG_ALIGN(sizeof *rule));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type != FRA_PRIORITY || RTA_PAYLOAD(attribute) < sizeof(uint32_t)) continue;
    uint32_t priority = 0;
    std::memcpy(&priority, RTA_DATA(attribute), sizeof priority);
    return priority;
  }
  return 0;
}

int CountRules(unsigned char family) {
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd.valid()) return 0;
  const timeval limit{0, 200000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETRULE;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.rule.family = family;
  if (::send(fd.get(), &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request)) return 0;
  int rules = 0;
  alignas(nlmsghdr) char buffer[16384];
  while (true) {
    const ssize_t size = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (size <= 0) return rules;
    unsigned left = static_cast<unsigned>(size);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR) return rules;
      if (message->nlmsg_type != RTM_NEWRULE || message->nlmsg_len < NLMSG_LENGTH(sizeof(fib_rule_hdr))) continue;
      rules += !IsDefault(*static_cast<const fib_rule_hdr*>(NLMSG_DATA(message)), PriorityOf(message));
    }
  }
}

}  // namespace

void ScanPolicyRules(const SysTree& tree, Hardware* here) {
  if (!tree.real()) return;
  const int rules = CountRules(AF_INET) + CountRules(AF_INET6);
  if (rules > 0)
    here->notes.push_back(
        fmt::format("{} policy routing rule{} (`ip rule`): packets may leave by other interfaces than the routes shown "
                    "here say",
                    rules, rules == 1 ? "" : "s"));
}

}  // namespace lockstep::hardware
