#include "launch/store.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/text.h"
#include "paths.h"

namespace lockstep::launch {
namespace {

constexpr std::array kNames = {"VALIDATE",  "SET",       "COMPARE_SET", "GET",        "ADD",
                               "CHECK",     "WAIT",      "GETNUMKEYS",  "DELETE_KEY", "APPEND",
                               "MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING",       "QUEUE_PUSH",
                               "QUEUE_POP", "QUEUE_LEN", "LIST_KEYS",   "BARRIER"};

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// One word of store_cases.txt.
std::string Encode(const std::string& word) {
  if (word[1] != ':') {
    for (size_t type = 0; type < kNames.size(); ++type) {
      if (word == kNames[type]) return Raw(static_cast<uint8_t>(type));
    }
    ADD_FAILURE() << "no such query: " << word;
    return "";
  }
  const std::string value = word.substr(2);
  if (word[0] == 'i') return Raw(static_cast<int64_t>(std::stoll(value)));
  if (word[0] == 'u') return Raw(static_cast<uint32_t>(std::stoul(value)));
  if (word[0] == 'b') return Raw(static_cast<uint8_t>(std::stoul(value)));
  std::string text = value;
  if (const size_t star = value.find('*'); star != std::string::npos) {
    text.clear();
    for (int i = 0; i < std::stoi(value.substr(star + 1)); ++i) text += value.substr(0, star);
  }
  return Raw(static_cast<uint64_t>(text.size())) + text;
}

// "0 b:0 ; 1 i:1" -> bytes by client.
std::map<int, std::string> EncodeReplies(const std::string& text) {
  std::map<int, std::string> replies;
  for (const std::string& part : Split(text, ';')) {
    std::istringstream words(part);
    int client = 0;
    std::string word;
    words >> client;
    while (words >> word) replies[client] += Encode(word);
  }
  return replies;
}

const std::string kHello = Raw(uint8_t{0}) + Raw(uint32_t{0x3C85F7CE});

// Every client's bytes as they come back, or "refused".
class Clients {
 public:
  explicit Clients(size_t step, StoreLimits limits = {}) : step_(step), store_(limits) {}

  std::string Send(int client, std::string bytes) {
    if (known_.insert(client).second) bytes = kHello + bytes;
    return SendRaw(client, bytes);
  }
  std::string SendRaw(int client, std::string_view bytes) {
    std::vector<Store::Reply> replies;
    while (!bytes.empty()) {
      store_.Feed(client, bytes.substr(0, step_));
      bytes.remove_prefix(std::min(step_, bytes.size()));
      while (true) {
        const Result<bool> answered = store_.Answer(client, &replies);
        if (!answered.ok()) {
          Leave(client);
          return answered.status().message();
        }
        if (!*answered) break;
      }
    }
    for (const auto& reply : replies) got_[static_cast<int>(reply.to)] += reply.bytes;
    return "";
  }
  void Leave(int client) { store_.Disconnect(client); }
  std::map<int, std::string> Take() { return std::exchange(got_, {}); }
  Store& store() { return store_; }

 private:
  size_t step_;
  Store store_;
  std::set<int> known_;
  std::map<int, std::string> got_;
};

TEST(Store, AnswersAsPyTorchsServerDoesHoweverTheBytesArrive) {
  for (const size_t step : {size_t{1}, size_t{7}, size_t{1} << 20}) {
    std::ifstream file(SourceDir() + "/tests/launch/store_cases.txt");
    ASSERT_TRUE(file);
    std::unique_ptr<Clients> clients;
    std::string line, name;
    int cases = 0;
    while (std::getline(file, line)) {
      if (line.empty() || line[0] == '#') continue;
      if (line[0] == '=') {
        name = line.substr(2);
        clients = std::make_unique<Clients>(step);
        ++cases;
        continue;
      }
      SCOPED_TRACE(name + " | " + line + " | pieces of " + std::to_string(step));
      const size_t arrow = line.find(" -> ");
      const std::string expected = arrow == std::string::npos ? "" : line.substr(arrow + 4);
      std::istringstream words(line.substr(0, arrow));
      int client = 0;
      std::string word, bytes;
      words >> client;
      bool leaves = false;
      while (words >> word) {
        leaves = word == "leaves";
        if (!leaves) bytes += Encode(word);
      }
      if (leaves) {
        clients->Leave(client);
        continue;
      }
      const std::string refused = clients->Send(client, bytes);
      EXPECT_EQ(!refused.empty(), expected == "refused") << refused;
      std::map<int, std::string> replies;
      if (!expected.empty() && refused.empty()) replies = EncodeReplies(expected);
      EXPECT_EQ(clients->Take(), replies);
    }
    EXPECT_GT(cases, 30);
  }
}

TEST(Store, AStrangerIsKnownByItsFirstBytes) {
  const struct {
    std::string bytes;
    const char* words;
  } rows[] = {
      {"GET / HTTP/1.1\r\n", "no client of a TCPStore"},
      {"\x16\x03\x01", "no client of a TCPStore"},
      {Encode("SET"), "no client of a TCPStore"},
      {Raw(uint8_t{0}) + Raw(uint32_t{0x12345678}), "VALIDATE: expected 0x3c85f7ce, found 0x12345678"},
  };
  for (const auto& row : rows) {
    Clients clients(1);
    EXPECT_NE(clients.SendRaw(0, row.bytes).find(row.words), std::string::npos) << row.words;
    EXPECT_FALSE(clients.store().Validated(0));
  }
  Clients clients(1);
  EXPECT_EQ(clients.SendRaw(0, kHello.substr(0, 4)), "");
  EXPECT_FALSE(clients.store().Validated(0));
  EXPECT_EQ(clients.SendRaw(0, kHello.substr(4)), "");
  EXPECT_TRUE(clients.store().Validated(0));
}

std::string Say(const std::string& text) {
  std::istringstream words(text);
  std::string word, bytes;
  while (words >> word) bytes += Encode(word);
  return bytes;
}

TEST(Store, HoldsNoMoreThanItsLimits) {
  StoreLimits limits;
  limits.message = 1000;
  limits.total = 3000;
  const struct {
    std::vector<const char*> before;
    const char* request;
    const char* words;
  } rows[] = {
      {{}, "SET t:a t:x*900", ""},
      {{}, "SET t:a t:x*1000", "a request of more than 1000 bytes"},
      {{}, "MULTI_SET i:2 t:a t:x*600 t:b t:x*600", "a request of more than 1000 bytes"},
      {{"APPEND t:a t:x*600"}, "APPEND t:a t:x*600", "a value of more than 1000 bytes"},
      {{"SET t:a t:x*600", "SET t:b t:x*600"}, "MULTI_GET i:2 t:a t:b", "a reply of more than 1000 bytes"},
      {{"SET t:a*600 t:", "SET t:b*600 t:"}, "LIST_KEYS", "a reply of more than 1000 bytes"},
      {{"SET t:a t:x*900", "SET t:b t:x*900", "SET t:c t:x*900"}, "SET t:d t:x*900", "the store is full"},
      {{"SET t:a t:x*900", "SET t:b t:x*900", "SET t:c t:x*900"}, "SET t:a t:y*900", ""},
      {{"SET t:a t:x*900", "SET t:b t:x*900", "SET t:c t:x*900"}, "QUEUE_PUSH t:d t:x*900", "the store is full"},
      {{"SET t:a t:x*900", "SET t:b t:x*900", "SET t:c t:x*900"}, "WAIT i:1 t:d*900", "the store is full"},
      {{"SET t:a t:x*900", "SET t:b t:x*900", "SET t:c t:x*900", "DELETE_KEY t:a"}, "SET t:d t:x*900", ""},
  };
  for (const auto& row : rows) {
    Clients clients(1 << 20, limits);
    for (const char* request : row.before) ASSERT_EQ(clients.Send(0, Say(request)), "") << request;
    const size_t used = clients.store().used();
    const std::string refused = clients.Send(0, Say(row.request));
    EXPECT_EQ(refused.empty(), row.words[0] == '\0') << row.request << ": " << refused;
    EXPECT_NE(refused.find(row.words), std::string::npos) << refused;
    if (row.words[0] != '\0') EXPECT_EQ(clients.store().used(), used) << "nothing of it was done: " << row.request;
    EXPECT_LE(clients.store().used(), limits.total);
  }
}

TEST(Store, AnEmptiedStoreHoldsNothing) {
  Clients clients(1 << 20);
  for (const char* request : {"SET t:a t:1", "APPEND t:a t:2", "ADD t:n i:100", "ADD t:n i:-95", "QUEUE_PUSH t:q t:1",
                              "QUEUE_PUSH t:q t:2", "QUEUE_POP t:q", "QUEUE_POP t:q", "WAIT i:2 t:x t:y", "CANCEL_WAIT",
                              "BARRIER t:b i:1", "COMPARE_SET t:c t: t:1", "DELETE_KEY t:a", "DELETE_KEY t:n",
                              "DELETE_KEY t:b", "DELETE_KEY t:c", "WAIT i:2 t:x t:y"}) {
    ASSERT_EQ(clients.Send(0, Say(request)), "") << request;
  }
  clients.Send(1, Say("WAIT i:1 t:x"));
  clients.Leave(0);
  clients.Send(2, Say("SET t:x t:1"));
  clients.Send(2, Say("DELETE_KEY t:x"));
  EXPECT_EQ(clients.store().used(), 0u);
  EXPECT_EQ(clients.store().size(), 0u);
}

}  // namespace
}  // namespace lockstep::launch
