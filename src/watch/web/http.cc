#include "watch/web/http.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::watch {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  return out;
}

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

bool ReadQuery(std::string_view text, std::map<std::string, std::string>* out) {
  for (const std::string& part : Split(text, '&')) {
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    std::optional<std::string> name = PercentDecoded(std::string_view(part).substr(0, equals), true);
    std::optional<std::string> value =
        equals == std::string::npos ? "" : PercentDecoded(std::string_view(part).substr(equals + 1), true);
    if (!name || !value) return false;
    out->insert_or_assign(*name, *value);
  }
  return true;
}

std::string Found(const std::map<std::string, std::string>& map, const std::string& name) {
  const auto found = map.find(name);
  return found == map.end() ? "" : found->second;
}

}  // namespace

std::string HttpRequest::Query(const std::string& name) const { return Found(query, name); }
std::string HttpRequest::Header(const std::string& name) const { return Found(headers, name); }

std::string HttpRequest::Cookie(const std::string& name) const {
  for (const std::string& part : Split(Header("cookie"), ';')) {
    const std::string_view pair = Trim(part);
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return std::string(pair.substr(equals + 1));
  }
  return "";
}

std::optional<std::string> PercentDecoded(std::string_view text, bool query) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && query) c = ' ';
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == 0) return std::nullopt;
    out.push_back(c);
  }
  return out;
}

int TakeRequest(std::string* buffer, HttpRequest* request) {
  const size_t end = buffer->find("\r\n\r\n");
  if (end == std::string::npos) return buffer->size() > kLongestRequest ? 431 : 0;
  if (end > kLongestRequest) return 431;
  *request = HttpRequest();
  const std::string head = buffer->substr(0, end);
  buffer->erase(0, end + 4);
  std::string_view rest = head;
  const auto line = [&] {
    const size_t stop = std::min(rest.find("\r\n"), rest.size());
    const std::string_view text = rest.substr(0, stop);
    rest.remove_prefix(std::min(rest.size(), stop + 2));
    return text;
  };
  const std::string_view first = line();
  const size_t space = first.find(' '), last = first.rfind(' ');
  if (space == std::string_view::npos || last == space) return 400;
  const std::string_view version = first.substr(last + 1);
  std::string_view target = first.substr(space + 1, last - space - 1);
  request->method = std::string(first.substr(0, space));
  if ((version != "HTTP/1.1" && version != "HTTP/1.0") || target.empty() || target[0] != '/') return 400;
  if (std::any_of(target.begin(), target.end(), [](unsigned char c) { return c <= ' ' || c == 0x7f; })) return 400;
  while (!rest.empty()) {
    const std::string_view header = line();
    const size_t colon = header.find(':');
    if (colon == std::string_view::npos || colon == 0 || header[colon - 1] == ' ' || header[0] == ' ') return 400;
    request->headers.insert_or_assign(Lower(header.substr(0, colon)), std::string(Trim(header.substr(colon + 1))));
  }
  // A body would be taken for the next request.
  const std::string length = request->Header("content-length");
  if ((!length.empty() && length != "0") || request->headers.contains("transfer-encoding")) return 400;
  const std::string connection = Lower(request->Header("connection"));
  request->keep_alive = version == "HTTP/1.1" ? connection != "close" : connection == "keep-alive";
  const size_t question = target.find('?');
  if (question != std::string_view::npos && !ReadQuery(target.substr(question + 1), &request->query)) return 400;
  const std::optional<std::string> path = PercentDecoded(target.substr(0, question), false);
  if (!path) return 400;
  request->path = *path;
  return request->method == "GET" || request->method == "HEAD" ? 200 : 405;
}

std::string ResponseHead(const HttpResponse& response, size_t length, bool keep_alive) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status, Reason(response.status), response.type);
  if (!response.events) head += fmt::format("Content-Length: {}\r\n", length);
  head += fmt::format("Connection: {}\r\n", keep_alive && !response.events ? "keep-alive" : "close");
  head +=
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n"
      "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  return head + "\r\n";
}

std::string HtmlEscaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') out.push_back(c);
    }
  }
  return out;
}

}  // namespace lockstep::watch
