// HTTP/1.1 as the page of `watch` needs it: requests without a body, parsed from what arrived so far, and the bytes of
// a response. Pure functions, any thread; what a client sends is not trusted.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::watch {

inline constexpr size_t kLongestRequest = 16u << 10;

struct HttpRequest {
  std::string method;
  std::string path;  // decoded, without the query
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case
  bool keep_alive = true;

  std::string Query(const std::string& name) const;
  std::string Header(const std::string& name) const;
  // A cookie's value, "" where there is none.
  std::string Cookie(const std::string& name) const;
};

// Takes the first request off `buffer`. Nothing yet: 0; a request: 200; else the status to answer with before closing.
int TakeRequest(std::string* buffer, HttpRequest* request);

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::map<std::string, std::string> headers;
  std::string file;     // sent instead of the body: its path
  bool events = false;  // stays open: server-sent events
};

// Status line and headers, with those that tell a browser to trust nothing but this server.
std::string ResponseHead(const HttpResponse& response, size_t length, bool keep_alive);

// %41 and, in a query, '+'. Nothing for a broken escape or a zero byte.
std::optional<std::string> PercentDecoded(std::string_view text, bool query);

// Text for HTML: no character of it is markup.
std::string HtmlEscaped(std::string_view text);

}  // namespace lockstep::watch
