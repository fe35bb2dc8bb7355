// A frozen encoder of clips or pictures that is no part of a recipe, as `lockstep cache build` without a recipe uses
// it: pictures as a source gives them in, named features out. What is wrong with it is found by calling it with made-up
// clips before any work begins: values that are not finite, random numbers of its own, features that depend on more
// than the context it was declared with. Owned and called by one thread; nothing is collective.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/description.h"
#include "recipes/frozen_script.h"

namespace lockstep::recipes {

struct ClipEncoderConfig {
  ScriptFile file;
  std::array<double, 2> range = {0, 1};    // what black and white become
  std::array<double, 3> mean = {0, 0, 0};  // then, for each colour: minus mean, divided by deviation
  std::array<double, 3> deviation = {1, 1, 1};
  std::string layout = "NTCHW";  // of its input: LayoutsOf
  cache::Context context = cache::Context::kOrdered;
  std::vector<std::string> fields;  // of what it gives: names of a tuple's tensors, or those to take of a dict's
  // With reference+set: fields whose first axis counts frames.
  std::vector<std::string> per_item;
  cache::Storage stored = cache::Storage::kSame;  // of floating-point fields
};

// Orders of axes for a context, the usual one first.
std::vector<std::string> LayoutsOf(cache::Context context);

// The namespace of an encoder's features for frames of this shape, [T, 3, H, W], without the fields, which are known
// once it was called.
Result<cache::Description> DescribeEncoder(const ClipEncoderConfig& config, std::vector<int64_t> frames);

class ClipEncoder {
 public:
  // Loads the file onto the device and calls it with clips of `shape`: [T, 3, H, W].
  static Result<std::unique_ptr<ClipEncoder>> Load(const ClipEncoderConfig& config, at::Device device,
                                                   const std::vector<int64_t>& shape);

  // What one record has, in the order of Features.
  const std::vector<cache::FieldSpec>& fields() const { return fields_; }
  // The namespace of its features.
  Result<cache::Description> Describe() const;

  // U8 [n, T, 3, H, W], or [n, 3, H, W] where features are independent, to one tensor [n, ...] for each field.
  Result<std::vector<at::Tensor>> Features(const at::Tensor& frames);

 private:
  ClipEncoder(ClipEncoderConfig config, at::Device device, std::vector<int64_t> shape);
  Status Probe();
  // Frames of one record, made up: smooth and not constant, another one for each number.
  at::Tensor MadeUp(int number) const;
  std::vector<at::Tensor> Named(const c10::IValue& given);
  Status CheckFields(const std::vector<at::Tensor>& features) const;
  Status Refused(const std::string& what, const std::string& hint) const;

  ClipEncoderConfig config_;
  at::Device device_;
  std::vector<int64_t> shape_;  // of one record's frames
  std::unique_ptr<FrozenScript> script_;
  std::vector<std::string> names_;  // from the first call on
  std::vector<cache::FieldSpec> fields_;
};

}  // namespace lockstep::recipes
