// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/lab_methods.h"

#include <array>

#include "engine/registry.h"
#include "engine/reuse/lab/cacheblend/cacheblend.h"
#include "engine/reuse/lab/direct/direct.h"
#include "engine/reuse/lab/epic/epic.h"
#include "engine/reuse/lab/scores/scores.h"

namespace baton {

void register_lab_methods() {
  static const std::array kMethods = {
      &direct_method(),
      &epic_method(),
      &cacheblend_method(),
  };
  set_token_scores(lab_token_scores());
  register_laboratory(kMethods);
}

}  // namespace baton
