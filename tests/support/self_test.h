// SPDX-License-Identifier: Apache-2.0
// What a device's self-test says.
#pragma once

#include <string>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/cpu/cpu.h"

namespace baton::test {

inline constexpr std::size_t kSelfTestParts = 22;

/// The parts that found something, with what they say; `parts` counts all.
inline std::vector<std::string> self_test_problems(Backend& device, std::size_t& parts) {
  std::vector<std::string> problems;
  const auto cpu = make_cpu_backend(1);
  run_self_test(device, *cpu, [&](const SelfTestPart& part) {
    ++parts;
    if (!part.problem.empty()) problems.push_back(part.name + ": " + part.problem);
  });
  return problems;
}

}  // namespace baton::test
