// The one copy of fmt's formatting engine that pch.h promises to every file. Part of lockstep_base.
#include "pch.h"

#if defined(FMT_HEADER_ONLY) && FMT_VERSION / 10000 == 9
template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                            fmt::basic_format_args<fmt::buffer_context<char>>, fmt::detail::locale_ref);
#endif
