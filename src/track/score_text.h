// How scores are written for people: "psnr" 31.2 as "PSNR 31.20 dB". A name that is not in the table stands for itself.
// Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::track {

// "PSNR 31.20 dB".
std::string ScoreText(std::string_view name, double value);

// "PSNR (dB)", for an axis.
std::string ScoreLabel(std::string_view name);

}  // namespace lockstep::track
