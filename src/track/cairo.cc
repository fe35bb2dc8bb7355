#include "track/cairo.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "track/canvas.h"

namespace lockstep {
extern const unsigned char dejavu_sans[];  // NOLINT(readability-identifier-naming)
extern const size_t dejavu_sans_size;      // NOLINT(readability-identifier-naming)
}  // namespace lockstep

namespace lockstep::track {
namespace {

Status Missing(const std::string& what) {
  return Status(Code::kEnvironment, what, "apt-get install libcairo2, or name the library's file in LOCKSTEP_CAIRO");
}

Result<void*> Open(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* reason = dlerror();
  return Missing(fmt::format("{} cannot be loaded ({})", name, reason != nullptr ? reason : "unknown reason"));
}

template <typename F>
bool Find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

// The font lies in the program. Face and library live as long as the process, as Cairo's own caches do.
Status LoadFont(Cairo* cairo) {
  const Result<void*> library = Open("libfreetype.so.6");
  if (!library.ok()) return library.status();
  decltype(&FT_Init_FreeType) init = nullptr;
  decltype(&FT_New_Memory_Face) open = nullptr;
  if (!Find(*library, "FT_Init_FreeType", &init) || !Find(*library, "FT_New_Memory_Face", &open)) {
    return Missing("libfreetype.so.6 lacks a function");
  }
  FT_Library types = nullptr;
  FT_Face face = nullptr;
  FT_Error error = init(&types);
  if (error == 0) error = open(types, dejavu_sans, static_cast<FT_Long>(dejavu_sans_size), 0, &face);
  if (error != 0) return Missing(fmt::format("FreeType does not open the embedded font: error {}", error));
  cairo->font = cairo->ft_font_face_create_for_ft_face(face, 0);
  const cairo_status_t status = cairo->font_face_status(cairo->font);
  if (status == CAIRO_STATUS_SUCCESS) return Status::Ok();
  return Missing(fmt::format("Cairo does not take the embedded font: {}", cairo->status_to_string(status)));
}

Result<const Cairo*> Load(const std::string& path) {
  const Result<void*> handle = Open(path);
  if (!handle.ok()) return handle.status();
  auto cairo = std::make_unique<Cairo>();
#define LOCKSTEP_FIND(name) \
  if (!Find(*handle, "cairo_" #name, &cairo->name)) return Missing(path + " lacks the function cairo_" #name);
  LOCKSTEP_CAIRO_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  LOCKSTEP_RETURN_IF_ERROR(LoadFont(cairo.get()));
  return cairo.release();
}

}  // namespace

Result<const Cairo*> LoadCairo(const std::string& library) {
  const char* named = std::getenv("LOCKSTEP_CAIRO");
  const std::string path = !library.empty() ? library : named != nullptr && *named != '\0' ? named : "libcairo.so.2";
  static std::mutex mutex;
  static auto& loaded = *new std::map<std::string, const Cairo*>;  // they stay loaded until the process ends
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto it = loaded.find(path); it != loaded.end()) return it->second;
  Result<const Cairo*> cairo = Load(path);
  if (cairo.ok()) loaded[path] = *cairo;
  return cairo;
}

}  // namespace lockstep::track
