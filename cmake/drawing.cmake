# What pictures are made with (track/): Cairo and FreeType, whose headers alone are needed here because track/cairo.cc loads
# the libraries at run time, and DejaVu Sans, which becomes part of lockstep-train. Debian: libcairo2-dev, fonts-dejavu-core.
find_path(LOCKSTEP_CAIRO_INCLUDE cairo/cairo-ft.h REQUIRED)
find_path(LOCKSTEP_FREETYPE_INCLUDE ft2build.h PATH_SUFFIXES freetype2 REQUIRED)
find_file(LOCKSTEP_FONT DejaVuSans.ttf REQUIRED
  PATHS /usr/share/fonts /usr/local/share/fonts PATH_SUFFIXES truetype/dejavu dejavu dejavu-sans-fonts TTF)
