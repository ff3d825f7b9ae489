// SPDX-License-Identifier: Apache-2.0
// Memory or threads run out, at every point of opening an engine and of runs: no signal and no hang; the run, or the
// opening, fails with an error that names the cause; the next run in the same process gives the right answer.
//   BATON_TEST_NIGHTLY=1   every point; else a sample
//   BATON_FAULT_POINT=N    one point, with the stack where it dies
#include <baton/baton.h>

#include <catch2/catch.hpp>

#include "engine/model/model.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/exhaustion/points.h"
#include "tests/support/folders.h"
#include "tests/support/thread_time.h"

namespace exhaustion_test {

namespace {

using namespace baton::test;

/// A golden checkpoint of three layers with a tokenizer of bytes.
class ModelFolder : public TempFolder {
 public:
  ModelFolder() {
    copy_from(test_folder() / "golden/models/qwen2");
    write("tokenizer.json", baton::byte_tokenizer_json());
    write("chat_template.jinja", "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}");
  }
};

constexpr const char* kLockstep = "lockstep";
constexpr const char* kRectify = "{method: rectify, min_tokens: 1, prefix: false}";
constexpr const char* kAnchors = "{method: anchors, min_tokens: 1, prefix: false}";

/// Two agents at once, and one that reads both.
baton::Workflow team(const std::string& relay) {
  return baton::Workflow::parse(R"(
version: 1
name: team
inputs: {question: {type: string, required: true}}
models: {main: {path: model}}
defaults: {max_tokens: 6, seed: 7}
relay: )" + relay + R"(
agents:
  one: {role: One, prompt: {user: "A question for one:\n{{ question }}"}}
  two: {role: Two, prompt: {user: "A question for two:\n{{ question }}"}}
  judge: {role: Judge, prompt: {user: "Question:\n{{ question }}\nOne:\n{{ agent_one_current }}\nTwo:\n{{ agent_two_current }}"}}
workflow: {topology: graph, steps: [{agent: one, needs: []}, {agent: two, needs: []}, {agent: judge, needs: [one, two]}]}
outputs:
  answer: "{{ agent_one_current }}|{{ agent_two_current }}|{{ agent_judge_current }}"
  exact: "{{ agent_one_current }}|{{ agent_two_current }}"
)");
}

std::string answer_of(const baton::Engine& engine, const baton::Workflow& workflow, const std::string& question,
                      const std::string& output = "answer") {
  const baton::RunRecord record = engine.run(workflow, {.inputs = {{"question", question}}});
  if (record.state != baton::RunState::ok) throw baton::Error(record.error);
  return record.outputs.at(output);
}

baton::EngineOptions options_of(const ModelFolder& folder) {
  baton::EngineOptions options;
  options.model = folder.path().string();
  options.device = "cpu";
  options.threads = 2;
  options.kv_budget = 64 << 20;
  return options;
}

/// Opening, a run and closing.
class Open : public Scenario {
 public:
  explicit Open(const ModelFolder& folder) : options_(options_of(folder)), workflow_(team("full")) {}
  std::string run() override { return answer_of(baton::Engine::open(options_), workflow_, "why?"); }

 private:
  baton::EngineOptions options_;
  baton::Workflow workflow_;
};

/// A run of an engine that is open.
class Answer : public Scenario {
 public:
  Answer(const ModelFolder& folder, const std::string& relay, bool is_exact)
      : engine_(baton::Engine::open(options_of(folder))), workflow_(team(relay)), exact_(is_exact) {}
  std::string run() override { return answer_of(engine_, workflow_, "why?"); }
  bool exact() const override { return exact_; }

 private:
  baton::Engine engine_;
  baton::Workflow workflow_;
  bool exact_;
};

/// An engine that learns anchors, uses them, writes them to a file and reads it. What the judge says depends on which
/// anchors were ready in time, also without faults; the others read no answer.
class Anchors : public Scenario {
 public:
  explicit Anchors(const ModelFolder& folder) : options_(options_of(folder)), workflow_(team(kAnchors)) {
    options_.learned_folder = (folder.path() / "anchors").string();
  }
  std::string run() override {
    options_.learned_folder += 'x';  // a new one: to empty it, libstdc++ allocates where it must not throw
    std::string answers;
    for (const char* question : {"why?", "why so?"}) {
      const baton::Engine engine = baton::Engine::open(options_);
      for (int i = 0; i < 2; ++i) answers += answer_of(engine, workflow_, question, "exact");
    }
    return answers;
  }

 private:
  baton::EngineOptions options_;
  baton::Workflow workflow_;
};

constexpr std::int64_t kAll = std::int64_t{1} << 40;  // faults from a point on, until the run has ended

struct Case {
  const char* name;
  std::function<std::unique_ptr<Scenario>(const ModelFolder&)> make;
  std::int64_t step;  // of the sample
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"open", [](const ModelFolder& f) { return std::make_unique<Open>(f); }, 23},
      {"full", [](const ModelFolder& f) { return std::make_unique<Answer>(f, "full", true); }, 7},
      {"lockstep", [](const ModelFolder& f) { return std::make_unique<Answer>(f, kLockstep, true); }, 7},
      {"rectify", [](const ModelFolder& f) { return std::make_unique<Answer>(f, kRectify, false); }, 11},
      {"anchors", [](const ModelFolder& f) { return std::make_unique<Anchors>(f); }, 97}};
  return all;
}

void check(const Case& one, Points points) {
  const ModelFolder folder;
  const PointsResult result = try_points([&] { return one.make(folder); }, points);
  WARN(one.name << ": " << result.points << " points, " << result.failed << " runs failed");
  for (const std::string& problem : result.problems) FAIL_CHECK(one.name << ": " << problem);
  CHECK(result.points > 0);
}

}  // namespace

TEST_CASE("an allocation fails", "[exhaustion]") {
  for (const Case& one : cases()) check(one, {.step = nightly() ? 1 : one.step});
}

TEST_CASE("no allocation succeeds any more", "[exhaustion]") {
  for (const Case& one : cases()) check(one, {.faults = kAll, .step = nightly() ? 1 : 3 * one.step});
}

TEST_CASE("a thread cannot start", "[exhaustion]") {
  for (const Case& one : cases()) check(one, {.fault = Fault::thread});
}

TEST_CASE("no thread starts any more", "[exhaustion]") {
  for (const Case& one : cases()) check(one, {.fault = Fault::thread, .faults = kAll});
}

TEST_CASE("the runs under faults do what they are about", "[exhaustion]") {
  const ModelFolder folder;
  // On a busy machine the judge's prompt may be noticed only after both answers have ended, and anchors may be ready
  // too late: one run of several has to show the method.
  const auto shows = [&](const std::string& relay, std::int64_t baton::KvRecord::*count) {
    const baton::Engine engine = baton::Engine::open(options_of(folder));
    for (int i = 0; i < 50; ++i) {
      const baton::RunRecord record = engine.run(team(relay), {.inputs = {{"question", "why?"}}});
      REQUIRE(record.state == baton::RunState::ok);
      if (record.agents.at(2).kv.*count > 0) return true;
    }
    return false;
  };
  CHECK_FALSE(shows("full", &baton::KvRecord::reused));
  CHECK(shows(kLockstep, &baton::KvRecord::ahead));
  CHECK(shows(kRectify, &baton::KvRecord::reused));
  CHECK(shows(kAnchors, &baton::KvRecord::reused));
}

}  // namespace exhaustion_test
