// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/kv_cache.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"
#include "engine/kv/kv_cache.h"

namespace sequence_states_test {

using namespace baton;

TEST_CASE("a model without recurrent layers can return to every position") {
  const auto backend = make_cpu_backend(1);
  SequenceStates states(*backend, 0);
  CHECK_FALSE(states.kept());
  CHECK(states.can_return(17));
  states.want(5);
  CHECK(states.wanted(0, 100).empty());
  CHECK(states.bytes() == 0);
}

TEST_CASE("a sequence returns to the last position whose state was kept") {
  const auto backend = make_cpu_backend(1);
  SequenceStates states(*backend, 64);
  CHECK(states.last_up_to(9) == 0);
  CHECK(states.can_return(0));
  states.make(4);
  states.make(9);
  CHECK(states.last_up_to(3) == 0);
  CHECK(states.last_up_to(4) == 4);
  CHECK(states.last_up_to(8) == 4);
  CHECK(states.last_up_to(20) == 9);
  CHECK(states.at(4) != nullptr);
  CHECK(states.at(5) == nullptr);
}

TEST_CASE("states that are wanted stay, others go with the next steps") {
  const auto backend = make_cpu_backend(1);
  SequenceStates states(*backend, 64);
  states.want(4);
  states.want(30);
  states.want(4);
  CHECK(states.wanted(0, 30) == std::vector<std::int32_t>{4});
  CHECK(states.wanted(4, 31) == std::vector<std::int32_t>{30});
  for (const std::int32_t position : {4, 7, 9}) states.make(position);
  states.keep_between(7, 9);
  CHECK(states.lasting(9) == std::vector<std::int32_t>{4, 9});
  states.make(12);
  states.keep_between(9, 12);
  CHECK(states.at(7) == nullptr);
  CHECK(states.lasting(12) == std::vector<std::int32_t>{4, 12});
  states.keep_between(0, 9);  // a draft that was refused
  CHECK(states.last_up_to(12) == 9);
}

TEST_CASE("a state that is shared is not written again") {
  const auto backend = make_cpu_backend(1);
  SequenceStates states(*backend, 64);
  states.make(1);
  const std::shared_ptr<const Buffer> shared = states.at(1);
  states.keep_between(2, 2);  // dropped here, but still shared
  for (std::int32_t position = 2; position < 8; ++position) {
    CHECK(states.make(position) != shared->data());
    states.keep_between(position, position);
  }
  CHECK(states.bytes() <= 64 * 3);  // memory is used again
}

TEST_CASE("a cache with states goes back to a state") {
  const auto backend = make_cpu_backend(1);
  KvLayout layout{.shapes = {{.kv_heads = 1, .head_dim = 8, .dtype = DType::f32}}};
  layout.state_bytes = 64;
  KvCache cache(*backend, layout, 64);
  CHECK_THROWS_AS(cache.commit(3), std::logic_error);  // no step has left a state there
  for (const std::int32_t position : {3, 5}) {
    cache.states().make(position);
    cache.commit(position);
  }
  CHECK(cache.truncate(4) == 3);
  CHECK(cache.length() == 3);
  CHECK_THROWS_AS(cache.go_back(2), std::logic_error);
  CHECK(cache.length() == 0);
}

}  // namespace sequence_states_test
