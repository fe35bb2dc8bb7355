#include "preflight/interfaces.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::preflight {

std::vector<const hardware::Interface*> NamedInterfaces(const hardware::Hardware& here, const std::string& list) {
  std::string rest = list;
  bool exclude = false, exact = false;
  if (rest.starts_with("^")) {
    exclude = true;
    rest.erase(0, 1);
  }
  if (rest.starts_with("=")) {
    exact = true;
    rest.erase(0, 1);
  }
  std::vector<std::string> words;
  for (const std::string& word : Split(rest, ',')) {
    if (const std::string name(Trim(word)); !name.empty()) words.push_back(name);
  }
  std::vector<const hardware::Interface*> found;
  for (const hardware::Interface& interface : here.interfaces) {
    const bool named = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return exact ? interface.name == word : interface.name.starts_with(word);
    });
    if (exclude ? !named && interface.up && !interface.loopback : named) found.push_back(&interface);
  }
  return found;
}

std::string AddressOf(const hardware::Interface& interface) {
  std::string v6;
  for (const std::string& text : interface.addresses) {
    const std::string address = text.substr(0, text.find('/'));
    if (address.find(':') == std::string::npos) return address;
    if (v6.empty() && !address.starts_with("fe80")) v6 = address;
  }
  return v6;
}

const hardware::Interface* InterfaceWith(const hardware::Hardware& here, const std::string& address) {
  for (const hardware::Interface& interface : here.interfaces) {
    for (const std::string& text : interface.addresses) {
      if (text.substr(0, text.find('/')) == address) return &interface;
    }
  }
  return nullptr;
}

}  // namespace lockstep::preflight
