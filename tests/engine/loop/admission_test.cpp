// SPDX-License-Identifier: Apache-2.0
// Admission without a model: who has a place, what has to go for it, and who begins on approximate KV.
#include "engine/loop/admission.h"
#include "engine/registry.h"

#include <catch2/catch.hpp>

namespace admission_test {

using namespace baton;

namespace {

/// Two of three sequences run, 60 of 100 bytes are taken, and the next request needs 20.
AdmissionSnapshot usual() {
  return {.max_sequences = 3, .running = 2, .budget_bytes = 100, .running_bytes = 60, .request_bytes = 20};
}

}  // namespace

TEST_CASE("a request begins if there is a place and its cache fits", "[admission]") {
  AdmissionSnapshot now = usual();
  CHECK(find_place(now) == Admit::begin);
  now.request_bytes = 40;  // all that is left
  CHECK(find_place(now) == Admit::begin);
  now.request_bytes = 41;
  CHECK(find_place(now) == Admit::wait);
  now = usual();
  now.running = 3;
  CHECK(find_place(now) == Admit::wait);
}

TEST_CASE("requests that follow a running prompt count as if they ran", "[admission]") {
  AdmissionSnapshot now = usual();
  now.following = 1;
  CHECK(find_place(now) == Admit::wait);
  now = usual();
  now.following_bytes = 20;
  CHECK(find_place(now) == Admit::begin);
  now.following_bytes = 21;
  CHECK(find_place(now) == Admit::wait);
}

TEST_CASE("a probe is ended before a request waits", "[admission]") {
  AdmissionSnapshot now = usual();
  now.has_probe = true;
  CHECK(find_place(now) == Admit::begin);  // both have a place
  now.running = 3;
  CHECK(find_place(now) == Admit::drop_probe);
  now = usual();
  now.has_probe = true;
  now.request_bytes = 41;
  CHECK(find_place(now) == Admit::drop_probe);
}

TEST_CASE("early prompts are evicted for a request, a probe before them", "[admission]") {
  AdmissionSnapshot now = usual();
  now.early_bytes = 20;
  CHECK(make_room(now) == Admit::begin);
  now.early_bytes = 21;
  CHECK(make_room(now) == Admit::evict_early);
  now.has_probe = true;
  CHECK(make_room(now) == Admit::drop_probe);
}

TEST_CASE("an early prompt that the request takes over is counted once, at its larger size", "[admission]") {
  AdmissionSnapshot now = usual();
  now.early_bytes = now.own_early_bytes = 40;
  CHECK(make_room(now) == Admit::begin);
  now.early_bytes = now.own_early_bytes = 41;  // larger than the request's own cache
  CHECK(make_room(now) == Admit::evict_early);
  now.early_bytes = 40;
  now.own_early_bytes = 20;
  CHECK(make_room(now) == Admit::begin);
  now.request_bytes = 21;
  CHECK(make_room(now) == Admit::evict_early);
}

TEST_CASE("a probe leaves half of the budget free", "[admission]") {
  AdmissionSnapshot now = usual();
  now.running_bytes = 20;
  now.early_bytes = 10;
  CHECK(probe_fits(now));
  now.request_bytes = 21;
  CHECK(!probe_fits(now));
  now.request_bytes = 20;
  now.early_bytes = 11;
  CHECK(!probe_fits(now));
}

TEST_CASE("a verified request begins tentatively if many rows are left and nothing needs the exact prompt first",
          "[admission]") {
  GenerationRequest request;
  request.reuse.method = find_method("verified");
  CHECK(begins_tentatively(request, as_asked(request.reuse), false, 64, 64));
  CHECK(!begins_tentatively(request, as_asked(request.reuse), false, 63, 64));
  CHECK(!begins_tentatively(request, as_asked(request.reuse), true, 64, 64));
  GenerationRequest forced = request;
  forced.forced = {1};
  CHECK(!begins_tentatively(forced, as_asked(forced.reuse), false, 64, 64));
  request.reuse.exactness = Exactness::exact;  // it was told to be exact
  CHECK(!begins_tentatively(request, as_asked(request.reuse), false, 64, 64));
  GenerationRequest other;
  other.reuse.method = find_method("rectify");
  CHECK(!begins_tentatively(other, as_asked(other.reuse), false, 64, 64));
}

}  // namespace admission_test
