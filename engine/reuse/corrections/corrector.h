// SPDX-License-Identifier: Apache-2.0
// Corrector: copies segments into a cache and adds the learned correction of their new place
// (engine/reuse/corrections/linear_correction.h). Used by the engine's thread only.
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

  /// Sets the corrections that later calls use; null: none.
  void use(std::shared_ptr<const Corrections> corrections);

  /// Returns the correction of a place, or null.
  std::shared_ptr<const LinearCorrection> find(const AnchorKey& place) const;

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
