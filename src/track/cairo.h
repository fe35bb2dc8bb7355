// Cairo and FreeType as tables of functions, found with dlopen: the program starts and trains on a machine without
// them. Private to track/: canvas.h is what the drawing code includes. Never unloaded; immutable once loaded, any
// thread (Cairo locks the one font face that all canvases share).
#pragma once

#include <cairo/cairo-ft.h>

namespace lockstep::track {

#define LOCKSTEP_CAIRO_FUNCTIONS(F)  \
  F(arc)                             \
  F(clip)                            \
  F(close_path)                      \
  F(create)                          \
  F(destroy)                         \
  F(fill)                            \
  F(fill_preserve)                   \
  F(font_face_status)                \
  F(font_options_create)             \
  F(font_options_destroy)            \
  F(font_options_set_antialias)      \
  F(font_options_set_hint_metrics)   \
  F(font_options_set_hint_style)     \
  F(ft_font_face_create_for_ft_face) \
  F(get_source)                      \
  F(image_surface_create)            \
  F(image_surface_get_data)          \
  F(image_surface_get_stride)        \
  F(line_to)                         \
  F(move_to)                         \
  F(paint)                           \
  F(pattern_set_extend)              \
  F(pattern_set_filter)              \
  F(rectangle)                       \
  F(restore)                         \
  F(rotate)                          \
  F(save)                            \
  F(scale)                           \
  F(set_dash)                        \
  F(set_font_face)                   \
  F(set_font_options)                \
  F(set_font_size)                   \
  F(set_line_cap)                    \
  F(set_line_join)                   \
  F(set_line_width)                  \
  F(set_source_rgba)                 \
  F(set_source_surface)              \
  F(show_text)                       \
  F(status)                          \
  F(status_to_string)                \
  F(stroke)                          \
  F(surface_destroy)                 \
  F(surface_flush)                   \
  F(surface_mark_dirty)              \
  F(surface_status)                  \
  F(text_extents)                    \
  F(translate)

struct Cairo {
#define LOCKSTEP_MEMBER(name) decltype(&cairo_##name) name = nullptr;
  LOCKSTEP_CAIRO_FUNCTIONS(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
  cairo_font_face_t* font = nullptr;  // DejaVu Sans
};

}  // namespace lockstep::track
