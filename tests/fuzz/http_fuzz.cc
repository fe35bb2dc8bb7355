// What a client sends to the page of `watch`, cut at arbitrary places: never a crash, never more kept than a request
// may have.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "watch/web/http.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = data[0] % 61 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string buffer;
  for (size_t at = 0; at < bytes.size(); at += step) {
    buffer.append(bytes.substr(at, step));
    watch::HttpRequest request;
    int status = 0;
    while ((status = watch::TakeRequest(&buffer, &request)) == 200) {
      if (request.path.empty() || request.path[0] != '/') abort();
      request.Cookie("lockstep_watch");
      if (watch::HtmlEscaped(request.path).find('<') != std::string::npos) abort();
    }
    if (status != 0) break;
    if (buffer.size() > watch::kLongestRequest + step) abort();
  }
  return 0;
}
