// Which token of one text plays the part of which token of another: the cheapest way to edit one into the other, where
// replacing a token costs its distance (token_sketch.h) and leaving one out costs 1.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/reuse/token_sketch.h"

namespace baton {

struct Alignment {
  float distance = 0.0f;         // cost per token: 0 for equal texts, about 1 for unrelated ones
  std::vector<std::int32_t> to;  // [n] the counterpart of each token; of one that was added, that before it
  std::vector<float> mismatch;   // [n] what each token cost
};

/// Takes the tokens of a text one by one, as they are decoded. What the other text has behind the last counterpart
/// costs nothing. One thread at a time.
class Aligner {
 public:
  explicit Aligner(std::shared_ptr<const SketchedText> other);
  void push(const float* sketch);
  Alignment result() const;
  std::int64_t size() const { return rows_; }

 private:
  enum Move : std::uint8_t { kReplace, kAdd, kSkip };
  struct Band {
    std::int64_t begin = 0, end = 0;  // columns, of 0 .. m
  };
  Band band(std::int64_t row) const;

  std::shared_ptr<const SketchedText> other_;
  std::int64_t rows_ = 0;
  std::vector<float> cost_;  // [m + 1] of the newest row
  std::vector<float> next_;
  std::vector<Move> moves_;          // one row of the band for each token
  std::vector<std::size_t> begins_;  // of the rows in moves_
  std::vector<float> replaced_;      // what replacing costs, beside moves_
};

/// All at once.
Alignment align(const SketchedText& text, std::shared_ptr<const SketchedText> other);

/// Token i stands for token i, as in the paper; `other` is at least as long. The distance is the root mean square.
Alignment align_by_index(const SketchedText& text, const SketchedText& other);

}  // namespace baton
