// SPDX-License-Identifier: Apache-2.0
// TextPairs: pairs of texts that the device compares (align.cu), as many at once as there is room for.
#pragma once

#include <span>
#include <vector>

#include "engine/backend/alignment.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/kernels/kernels.h"

namespace baton::cuda {

class TextPairs {
 public:
  TextPairs(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// One for each pair; `sketches` is device memory. Throws BackendError when there is no memory.
  std::vector<Alignment> align(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs);

 private:
  void align_some(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs,
                  std::vector<Alignment>& alignments);

  Runtime& runtime_;
  Staging& staging_;
};

}  // namespace baton::cuda
