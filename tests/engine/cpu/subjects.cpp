// SPDX-License-Identifier: Apache-2.0
// The CPU's backends: the scalar oracle, and the fast one on every instruction set that this machine has.
#include "tests/engine/ops/subjects.h"

#include "targets.h"

namespace baton::test {

std::vector<Subject> subjects() {
  std::vector<Subject> all(2);
  all[0].backend = make_reference_backend();
  all[0].most_work = 500;
  all[1].backend = make_cpu_backend(3);
  all[1].every_way = [](const std::function<void(const Way&)>& body) {
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      body({hwy::TargetName(target), is_fused(target)});
    }
  };
  return all;
}

}  // namespace baton::test
