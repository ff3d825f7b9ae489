// SPDX-License-Identifier: Apache-2.0
// The keys under `relay`, which the methods declare.
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/registry.h"
#include "workflows/format/format_table.h"

namespace relay_keys_test {

using namespace baton;

namespace {

bool has(std::string_view object, std::string_view key) {
  const auto keys = format_keys();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const FormatKey& one) { return one.object == object && one.key == key; });
}

}  // namespace

TEST_CASE("relay: a product's file has at most 12 keys, nested ones counted", "[format]") {
  const auto keys = product_format_keys();
  const auto count = std::count_if(
      keys.begin(), keys.end(), [](const FormatKey& one) { return one.object == "relay" || one.object == "memory"; });
  CHECK(count <= 12);
  CHECK(has("relay", "tolerance"));
  CHECK(has("relay", "reuse"));
}

TEST_CASE("relay: research keys stand under `lab`, and old ones say where they are", "[format]") {
  CHECK(has("lab", "select"));
  CHECK(has("select", "share"));
  CHECK(has("lab", "epic_tokens"));
  CHECK(has("anchors", "pool"));
  CHECK_FALSE(has("relay", "select"));
  CHECK(moved_key_help("relay", "select") == "`relay.select` is now `relay.lab.select`, which baton-lab accepts");
  CHECK(moved_key_help("relay", "lab") == "`relay.lab` is for research: run this file with baton-lab");
  CHECK(moved_key_help("relay", "colour").empty());
  CHECK(moved_key_help("agent", "select").empty());
}

TEST_CASE("relay: each key is there once, with the methods that have it", "[format]") {
  for (const auto& [key, of] : method_keys()) {
    CHECK_FALSE(of.empty());
    if (key.name == "reuse") CHECK(of.size() == 4);
    if (key.name == "tolerance") CHECK(of.size() == 1);
  }
}

}  // namespace relay_keys_test
