// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/alignment.h"

#include <cmath>
#include <stdexcept>

namespace baton {

Alignment align(const SketchedText& text, const SketchedText& other) {
  Aligner aligner(other.sketch);
  for (std::int64_t i = 0; i < text.size(); ++i) aligner.push(text.sketch.data() + i * SketchedText::kSketch);
  return aligner.result();
}

Alignment align_by_index(const SketchedText& text, const SketchedText& other) {
  if (other.size() < text.size())
    throw std::invalid_argument("align_by_index: the other text is shorter than the text");
  Alignment alignment;
  double squares = 0.0;
  for (std::int64_t i = 0; i < text.size(); ++i) {
    const std::int64_t at = i * SketchedText::kSketch;
    const float distance = token_distance(text.sketch.data() + at, other.sketch.data() + at);
    alignment.to.push_back(static_cast<std::int32_t>(i));
    alignment.mismatch.push_back(distance);
    squares += double{distance} * distance;
  }
  if (text.size() > 0) alignment.distance = static_cast<float>(std::sqrt(squares / static_cast<double>(text.size())));
  return alignment;
}

}  // namespace baton
