// SPDX-License-Identifier: Apache-2.0
// The keys under `relay`, which the methods declare.
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/registry.h"
#include "tests/support/workflow_files.h"
#include "workflows/format/format_table.h"

namespace relay_keys_test {

using namespace baton;
using namespace baton::test;

namespace {

bool has(std::string_view object, std::string_view key) {
  const auto keys = format_keys();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const FormatKey& one) { return one.object == object && one.key == key; });
}

}  // namespace

TEST_CASE("relay: a product's file has at most 15 keys, nested ones counted", "[format]") {
  const auto keys = product_format_keys();
  const auto count = std::count_if(keys.begin(), keys.end(), [](const FormatKey& one) {
    return one.object == "relay" || one.object == "memory" || one.object == "store";
  });
  CHECK(count <= 15);  // 12, and the three of a store
  CHECK(has("relay", "tolerance"));
  CHECK(has("relay", "reuse"));
}

TEST_CASE("relay: research keys stand under `lab`, and old ones say where they are", "[format]") {
  CHECK(has("lab", "select"));
  CHECK(has("select", "share"));
  CHECK_FALSE(has("relay", "select"));
  CHECK(moved_key_help("relay", "select") == "`relay.select` is now `relay.lab.select`, which baton-lab accepts");
  CHECK(moved_key_help("relay", "lab") == "`relay.lab` is for research: run this file with baton-lab");
  CHECK(moved_key_help("relay", "colour").empty());
  CHECK(moved_key_help("agent", "select").empty());
}

TEST_CASE("relay: each research key of a method stands under `lab`, in its section if it has one", "[format]") {
  for (const auto& [key, of] : method_keys()) {
    const std::size_t dot = key.name.find('.');
    INFO(key.name);
    if (dot == std::string::npos) {
      CHECK(has(key.lab ? "lab" : "relay", key.name));
    } else {
      CHECK(has(key.name.substr(0, dot), key.name.substr(dot + 1)));
    }
  }
}

TEST_CASE("relay: a file that names another method, or a key of another method, is told the right ones", "[format]") {
  const auto error_of = [](const std::string& relay) {
    return errors_of(with_header("agents: {a: {prompt: hello}}\nrelay: " + relay));
  };
  using Catch::Contains;
  const std::string unknown = error_of("{method: magic}"), of_another = error_of("{method: direct, reuse: 0.8}");
  CHECK_THAT(unknown, Contains("relay.method: expected one of"));
  for (const Method* method : methods()) CHECK_THAT(unknown, Contains("'" + std::string(method->name) + "'"));
  CHECK_THAT(of_another, Contains("`reuse` has no effect on method direct; expected method"));
  for (const auto& [key, of] : method_keys()) {
    if (key.name != "reuse") continue;
    for (const Method* method : of) CHECK_THAT(of_another, Contains(std::string(method->name)));
  }
}

TEST_CASE("relay: each key is there once, with the methods that have it", "[format]") {
  for (const auto& [key, of] : method_keys()) {
    CHECK_FALSE(of.empty());
    if (key.name == "reuse") CHECK(of.size() >= 2);
    if (key.name == "tolerance") CHECK(of.size() == 1);
  }
}

}  // namespace relay_keys_test
