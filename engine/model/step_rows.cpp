// SPDX-License-Identifier: Apache-2.0
#include "engine/model/step_rows.h"

#include <algorithm>

namespace baton {

void StepRows::clear() {
  caches.clear();
  unsummed.clear();
  sequence.clear();
  position.clear();
  token.clear();
  path.clear();
  detections.clear();
  logits_rows.clear();
  choices.clear();
  before_layer = nullptr;
}

std::int32_t StepRows::add_cache(KvCache* cache) {
  const auto found = std::find(caches.begin(), caches.end(), cache);
  if (found != caches.end()) return static_cast<std::int32_t>(found - caches.begin());
  caches.push_back(cache);
  return static_cast<std::int32_t>(caches.size() - 1);
}

void StepRows::add_row(std::int32_t cache, std::int32_t at, TokenId id) {
  sequence.push_back(cache);
  position.push_back(at);
  token.push_back(id);
}

}  // namespace baton
