// SPDX-License-Identifier: Apache-2.0
// An engine on the CPU with a tiny model.
#pragma once

#include <memory>
#include <utility>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "tests/support/tiny_model.h"

namespace baton::test {

inline std::shared_ptr<StepEngine> tiny_engine(LocalEngineOptions options = {}, const TinyOptions& model = {}) {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), options);
}

}  // namespace baton::test
