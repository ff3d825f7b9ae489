// SPDX-License-Identifier: Apache-2.0
// Corrector: puts segments into a cache the way their new place was seen to change texts (engine/reuse/
// linear_correction.h). The engine's thread only.
#pragma once

#include <map>
#include <memory>

#include "engine/kv/segment.h"
#include "engine/model/model.h"
#include "engine/model/rope_table.h"
#include "engine/reuse/corrections/linear_correction.h"

namespace baton {

class Corrector {
 public:
  Corrector(Backend& backend, const Model& model) : backend_(backend), model_(model) {}

  /// From now on these; null: none.
  void use(std::shared_ptr<const Corrections> corrections);

  /// What was learned for a place, or null.
  std::shared_ptr<const LinearCorrection> find(const AnchorKey& place) const;

  /// Tokens [first, n) of the segment go to positions [position + first, ...), corrected in all layers but the first.
  /// Throws BackendError.
  void place(RopeTable& angles, KvCache& cache, std::int32_t position, const Segment& segment, std::int32_t first,
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
  std::map<const LinearCorrection*, Loaded> loaded_;  // of corrections_
};

}  // namespace baton
