// SPDX-License-Identifier: Apache-2.0
// TextPairs: aligns pairs of texts on the device (align.cu), in batches of bounded memory.
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

  /// Returns one alignment per pair and blocks until they are computed; `sketches` [rows, kSketchWidth] f32 is device
  /// memory. Throws BackendError when memory is short.
  std::vector<Alignment> align(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs);

 private:
  void align_some(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs,
                  std::vector<Alignment>& alignments);

  Runtime& runtime_;
  Staging& staging_;
};

}  // namespace baton::cuda
