// SPDX-License-Identifier: Apache-2.0
// The tests of operations are compiled once into each executable that has backends to try: the CPU's, the emulated
// CUDA kernels, a GPU. Each executable says here which backends those are and how exact they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/ops/fixtures.h"

namespace baton::test {

/// One way to run the same backend: an instruction set, an order of threads.
struct Way {
  std::string name;
  bool fused = true;  // products are fused with sums where the reference fuses them: results are to have its bits
};

struct Subject {
  std::unique_ptr<Backend> backend;
  /// Relative rounding of what products take: 0, or that of bf16.
  std::function<float(DType weight)> matmul_rounding = [](DType) { return 0.0f; };
  std::function<float(const KvShape&)> attention_rounding = [](const KvShape&) { return 0.0f; };
  /// Calls the body once per way, after having set it up.
  std::function<void(const std::function<void(const Way&)>&)> every_way =
      [](const std::function<void(const Way&)>& body) { body({}); };
  std::int64_t most_work = INT64_MAX;  // rows times heads of a case of attention: larger ones are left out
};

/// Defined once per executable. Empty: there is no device, and the tests are to be skipped.
std::vector<Subject> subjects();

/// body(backend, subject, way) for all of them.
inline void for_each_subject(const std::function<void(Backend&, const Subject&, const Way&)>& body) {
  for (const Subject& subject : subjects()) {
    subject.every_way([&](const Way& way) {
      INFO(subject.backend->info().name << " " << way.name);
      body(*subject.backend, subject, way);
    });
  }
}
inline void for_each_backend(const std::function<void(Backend&)>& body) {
  for_each_subject([&](Backend& backend, const Subject&, const Way&) { body(backend); });
}

inline constexpr float kBf16Rounding = 1.0f / 256;  // to nearest, relative

}  // namespace baton::test
