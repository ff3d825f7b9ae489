// SPDX-License-Identifier: Apache-2.0
// LinearCorrection: the change of a text's KV in one place of a prompt, as a linear map of the KV that was handed over.
// The map is learned from texts whose KV in that place was computed (docs/methods.md, "Learned corrections").
// Corrector: copies segments into a cache and adds the correction of their new place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/model/model.h"
#include "engine/model/rope.h"
#include "engine/reuse/prompt_part.h"

namespace baton {
/// The change of a token's KV in layers 1 to L - 1 is decoder (encoder x) + bias, where x is the token's KV in all
/// layers as handed over: for each layer the keys before RoPE, then the values. Layer 0 depends on the token alone.
struct LinearCorrection {
  KvWidth shape;
  std::int32_t rank = 0;               // r
  std::vector<std::uint16_t> encoder;  // [r, sum of all layers' 2 K D] bf16
  std::vector<std::uint16_t> decoder;  // [sum without layer 0, r] bf16
  std::vector<float> bias;             // [sum without layer 0]
  float left = 1.0f;                   // fraction of the squared change that remains on held-out texts
  std::int32_t texts = 0;              // number of training texts

  std::int64_t inputs() const { return 2 * shape.total(); }
  std::int64_t outputs() const { return 2 * (shape.total() - shape.layer(0)); }
};

class Corrector {
 public:
  Corrector(Backend& backend, const Model& model) : backend_(backend), model_(model) {}

  /// Sets the corrections that later calls use; null: none.
  void use(std::shared_ptr<const Corrections> corrections);

  /// Returns the correction of a place, or null.
  std::shared_ptr<const LinearCorrection> find(const PlaceKey& place) const;

  /// Copies tokens [first, n) of the segment to positions [position + first, position + n), corrected in all layers but
  /// the first. Throws BackendError when there is no memory.
  void insert(RopeTable& angles, KvCache& cache, std::int32_t position, const Segment& segment, std::int32_t first,
              const LinearCorrection& correction);

 private:
  struct Loaded {
    std::unique_ptr<Matrix> encoder, decoder;
  };
  const Loaded& load(const LinearCorrection& correction);
  Buffer changes(const Segment& segment, const LinearCorrection& correction);

  Backend& backend_;
  const Model& model_;
  std::shared_ptr<const Corrections> corrections_;
  std::map<const LinearCorrection*, Loaded> loaded_;  // the matrices of corrections_ in backend memory
};

}  // namespace baton
