// SPDX-License-Identifier: Apache-2.0
// Plans whose models are on servers, alone and together with models in this process.
#include <catch2/catch.hpp>

#include "engine/reuse/auto/auto.h"
#include "tests/support/workflow_files.h"

namespace baton::test::served_test {
namespace {

constexpr const char* kAgents = R"(
agents:
  a: {prompt: "{{ user_question }}", model: near}
  b: {prompt: "{{ user_question }} {{ agent_a_current }}", model: far}
  c: {prompt: "{{ user_question }} {{ agent_b_current }} {{ agent_a_current }}", model: far}
  d: {prompt: "{{ agent_a_current }}", model: near}
workflow: {topology: graph, steps: [{agent: a}, {agent: b}, {agent: c}, {agent: d}]}
)";

Plan planned(const std::string& near, const std::string& relay) {
  return plan("version: 1\nmodels: {near: " + near +
              ", far: {endpoint: \"http://host:8000\", key: \"${secret:KEY}\"}}\n" + kAgents + "relay: " + relay +
              "\n");
}

std::string why(const Plan& plan, std::size_t index, const std::string& slot) {
  const SlotSource& source = *plan.turns[index].slot(slot);
  return std::string(source.method->name) + ": " + source.reason;
}

}  // namespace

TEST_CASE("prompts of models on servers are sent ahead, and their plan says how exact that is") {
  const Plan made = planned("nano", "auto");
  const std::string server = "; in the server's prefix cache, exact up to its numerics";
  CHECK_FALSE(made.turns[0].served);
  CHECK(made.turns[1].served);
  CHECK(why(made, 1, "agent_a_current") == "lockstep: computed ahead once a, of another model, has ended" + server);
  CHECK(why(made, 2, "agent_b_current") == "lockstep: mirrored while b decodes" + server);
  CHECK(made.reuse_of(made.turns[0]).method == &auto_method());
  CHECK(made.reuse_of(made.turns[2]).method == &lockstep_method());
  CHECK(made.spec->models[1].key == "${secret:KEY}");
}

TEST_CASE("a method that hands KV over is replaced on servers where other agents have it") {
  const Plan made = planned("nano", "rectify");
  CHECK(why(made, 3, "agent_a_current") == "rectify: decoded by a");
  CHECK_THAT(why(made, 2, "agent_b_current"),
             Catch::Matchers::Contains("rectify needs the KV, which the server keeps"));
  CHECK(made.reuse_of(made.turns[2]).method == &lockstep_method());
  CHECK(planned("nano", "full").reuse_of(made.turns[2]).method == &full_method());
  const Plan prefix = planned("nano", "prefix");
  CHECK(prefix.reuse_of(prefix.turns[2]).method == &prefix_method());
  CHECK_THAT(why(prefix, 2, "agent_b_current"), Catch::Matchers::Contains("exact up to its numerics"));
}

}  // namespace baton::test::served_test
