// Headers that nearly every torch-free file pays for.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#if defined(FMT_HEADER_ONLY) && FMT_VERSION / 10000 == 9
// fmt as headers alone would compile its formatting engine into every file, half of all the code the compiler sees.
// cmake/fmt_once.cc holds it instead. Other versions of fmt work without this, only slower to build.
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::basic_format_args<fmt::buffer_context<char>>,
                                                   fmt::detail::locale_ref);
#endif
