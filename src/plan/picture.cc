// Stacked bars as SVG, written by hand: rectangles and text are all there is.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "plan/print.h"

namespace lockstep::plan {
namespace {

// Okabe and Ito's palette, which colour-blind readers tell apart, in two shades.
constexpr const char* kColours[kComponents] = {"#0072b2", "#56b4e9", "#004466", "#009e73", "#66c7ab", "#999999",
                                               "#cc79a7", "#e0b0cb", "#e69f00", "#f0e442", "#555555"};
constexpr double kLeft = 400, kBarWidth = 520, kRow = 26, kBar = 18, kTop = 64;

std::string Escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Text(double x, double y, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, Escape(text));
}

}  // namespace

std::string Picture(const Plan& plan) {
  int64_t most = plan.base.gpu ? plan.machine.gpu.memory : 0;
  for (const Line& line : plan.lines) most = std::max(most, line.memory.DeviceTotal());
  // A choice far beyond the device would make all others unreadable.
  if (plan.base.gpu && plan.machine.gpu.memory > 0) most = std::min(most, 3 * plan.machine.gpu.memory);
  const double scale = most > 0 ? kBarWidth / static_cast<double>(most) : 0;
  const double height = kTop + kRow * static_cast<double>(plan.lines.size()) + 92;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1080\" height=\"{0:.0f}\" viewBox=\"0 0 1080 {0:.0f}\" "
      "font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\">\n<rect width=\"1080\" height=\"{0:.0f}\" "
      "fill=\"white\"/>\n",
      height);
  svg += Text(20, 24,
              fmt::format("{} on {} {}: memory of one rank", plan.workload.name, plan.base.ranks,
                          plan.base.gpu ? plan.machine.gpu.name : "CPU ranks"),
              " font-size=\"16\"");
  svg += Text(20, 44, plan.advice.best ? "recommended: " + plan.lines[*plan.advice.best].Name() : "nothing fits");
  double y = kTop;
  for (size_t i = 0; i < plan.lines.size(); ++i, y += kRow) {
    const Line& line = plan.lines[i];
    const char* weight = plan.advice.best == i ? " font-weight=\"bold\"" : "";
    svg += Text(20, y + 13, line.Name(), weight);
    double x = kLeft;
    const auto bar = [&](int64_t bytes, const char* colour, const char* more, const std::string& name) {
      double width = static_cast<double>(bytes) * scale;
      width = std::max(0.0, std::min(width, kLeft + kBarWidth - x));
      if (width <= 0) return;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"{}><title>{} {}</title></rect>\n",
          x, y, width, kBar, colour, more, name, FormatSize(static_cast<uint64_t>(bytes)));
      x += width;
    };
    int64_t sum = 0;
    for (size_t c = 0; c < kComponents; ++c) {
      bar(line.memory.device[c], kColours[c], "", NameOf(static_cast<Component>(c)));
      sum += line.memory.device[c];
    }
    bar(line.memory.DeviceTotal() - sum, "none", " stroke=\"#555555\" stroke-dasharray=\"3 2\"",
        "before the first step");
    svg += Text(kLeft + kBarWidth + 8, y + 13,
                fmt::format("{}{}", FormatSize(static_cast<uint64_t>(line.memory.DeviceTotal())),
                            line.fits()        ? ""
                            : line.fits_device ? " (host!)"
                                               : " too much"),
                weight);
  }
  if (plan.base.gpu && plan.machine.gpu.memory > 0) {
    const double x = kLeft + static_cast<double>(plan.machine.gpu.memory) * scale;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#d00000\" stroke-width=\"2\"/>\n",
        x, kTop - 6, y);
    svg += Text(x - 4, kTop - 10, FormatSize(static_cast<uint64_t>(plan.machine.gpu.memory)),
                " text-anchor=\"end\" fill=\"#d00000\"");
  }
  double x = 20;
  y += 20;
  for (size_t c = 0; c < kComponents; ++c) {
    const char* name = NameOf(static_cast<Component>(c));
    svg += fmt::format("<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, y, kColours[c]);
    svg += Text(x + 17, y + 11, name);
    x += 140;
    if (x > 860) {
      x = 20;
      y += 20;
    }
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::plan
