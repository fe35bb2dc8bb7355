// Where the tokens of a batch stand when rows hold several documents: positions restart with each document, attention
// stays inside it. And the labels that belong to tokens. Pure functions of tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace lockstep::models {

struct Packing {
  at::Tensor positions;  // [B, T] int64; undefined: 0 to T - 1 in every row, or from `documents` where those are given
  at::Tensor documents;  // [B, T] int64, changes where a document ends; undefined: one document per row
  // The most documents that the batch may hold, all rows together. On a GPU, 0 means they are counted, which waits for
  // the device once per batch; a bound avoids this and lets the step be captured as a CUDA graph.
  int64_t document_limit = 0;
};

// True at the first token of each document of each row.
at::Tensor DocumentBegins(const at::Tensor& documents);

// 0, 1, 2, ... from the start of each document of each row.
at::Tensor PositionsOf(const at::Tensor& documents);

// The token that follows each token of [B, T], or -100 at the end of a row or document (documents may be undefined).
at::Tensor ShiftedLabels(const at::Tensor& tokens, const at::Tensor& documents);

}  // namespace lockstep::models
