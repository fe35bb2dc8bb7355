// Numbers as colours: "magma" of matplotlib, dark for small and bright for large values. Equal steps of the number look
// like equal steps, in grey and to people who see red and green alike. Pure functions, any thread.
#pragma once

#include "track/canvas.h"
#include "track/sheet.h"

namespace lockstep::track {

// 0 to 1; what lies outside counts as the end it is beyond.
Colour MagmaColour(double part);

// Values from 0 to `scale`; what is not finite is grey.
Picture Coloured(const NumberMap& map, double scale);

}  // namespace lockstep::track
