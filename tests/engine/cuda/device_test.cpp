// SPDX-License-Identifier: Apache-2.0
// What the backend says of its device, and of one that is not there.
#include <catch2/catch.hpp>
#include <cstdio>

#include "engine/backend/make_backend.h"
#include "engine/cuda/host/cuda.h"

namespace baton::test::device_test {
namespace {

TEST_CASE("a GPU that is not there is refused by name, auto falls back") {
  REQUIRE_THROWS_AS(make_cuda_backend(99), BackendError);
  const BackendInfo found = make_backend({"auto", 1})->info();
  CHECK(found.fallback.empty());
  if (!cuda_present()) {
    REQUIRE_THROWS_WITH(make_backend({"cuda", 1}), Catch::Contains("device 'cuda'"));
    REQUIRE(found.name == "cpu");
  } else {
    REQUIRE(found.name == "cuda:0");
    REQUIRE(make_cuda_backend(0)->info().device.find("multiprocessors") != std::string::npos);
  }
}

}  // namespace
}  // namespace baton::test::device_test
