// SPDX-License-Identifier: Apache-2.0
// A stress test of the API: many threads share two engines. They start, watch, stop, cancel, time out and drop runs of
// all methods, open and close engines of their own, pass invalid workflows, and throw from callbacks.
//
//     baton_chaos_host MODEL [SEED]    exit code 0
//
// What must hold: no crash; no hang (a watchdog checks it). Each run ends in one documented state, the same in its
// events and its record. An exact run that was not stopped gives the outputs of method full. Afterwards the engines
// still give right answers, and no thread and no memory is leaked. BATON_TEST_NIGHTLY=1 runs many rounds.
#include <baton/baton.h>
#include <baton/reuse_method.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_memory.h"
#include "tests/support/process_threads.h"
#include "tests/support/thread_time.h"

namespace {

using namespace std::chrono_literals;
using baton::RunState;
using baton::test::ProcessMemory;

constexpr int kThreads = 32;
constexpr int kActions = 5;  // per thread and round
constexpr std::chrono::seconds kHang{static_cast<int>(60 * baton::test::kSlowdown)};

/// Thrown only by this program's callbacks and tools, so its origin is known where it is caught.
struct HostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The library did not do what it promises. The message says what went wrong.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `what`: what went wrong if `holds` is false.
void require(bool holds, const std::string& what) {
  if (!holds) throw Broken(what);
}

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  bool one_in(int count) { return below(count) == 0; }
  template <typename List>
  const auto& of(const List& list) {
    return list[static_cast<std::size_t>(below(static_cast<int>(std::size(list))))];
  }
  void wait() { std::this_thread::sleep_for(std::chrono::microseconds(below(one_in(2) ? 2'000 : 150'000))); }

 private:
  std::mt19937 random_;
};

constexpr const char* kTopologies[] = {
    "{topology: chain, agents: [one, two, three]}",
    "{topology: parallel, agents: [one, alone, four], then: judge}",
    "{topology: layered, layers: [[one, alone], [two, four], [judge]]}",
    "{topology: debate, agents: [debater, rival], rounds: 2, then: judge}",
    "{topology: graph, steps: [{agent: one, needs: []}, {agent: two, needs: [one]}, {agent: tooled, needs: [one]}]}",
    "{topology: graph, steps: [{agent: one, needs: []}, {agent: failing, needs: [one]}]}",
};
constexpr const char* kAgents[] = {
    R"(  one: {prompt: {system: You are a math expert., user: "Question:\n{{ question }}"}})",
    R"(  alone: {prompt: {user: "Question:\n{{ question }}"}, temperature: 1})",
    R"(  four: {prompt: {user: "{{ question }}\n\nAnswer with one number."}})",
    R"(  two: {prompt: {user: "{{ question }}\n\nOne:\n{{ agent_one_current }}"}})",
    R"(  three: {prompt: {user: "Two:\n{{ agent_two_current }}\nOne:\n{{ agent_one_current }}\n{{ question }}"}})",
    R"(  debater: &debater {prompt: {user: ["{{ question }}", {for: previous, text: "\n{{ it.name }}:\n{{ it.output }}"}]}})",
    R"(  rival: *debater)",
    R"(  judge: {prompt: {user: ["{{ question }}", {for: peers, text: "\n\n{{ it.name }}:\n{{ it.output }}"}]}, exact: true})",
    R"(  tooled: {tools: [{measure: {from: agent_one_current}}], prompt: {user: "{{ agent_one_current }}\n{{ condition_tooled_current }}"}})",
    R"(  failing: {tools: [{broken: {from: agent_one_current}}], calls: {on_error: tell}, prompt: {user: "{{ question }} {{ condition_failing_current }}"}})",
};

/// Returns a workflow with the agents that the topology names: an unused agent would be an error.
std::string team(const std::string& topology) {
  std::string text = R"(
version: 1
name: chaos
inputs: {question: {type: string, required: true}}
models: {main: {path: nano}}
defaults: {max_tokens: 14, seed: 3}
relay: {method: full, min_tokens: 1}
agents:
)";
  const bool has_debaters = topology.find("debater") != topology.npos;
  for (const std::string agent : kAgents) {
    const std::string id = agent.substr(2, agent.find(':') - 2);
    if (topology.find(id) != topology.npos || (id == "rival" && has_debaters)) text += agent + "\n";
  }
  return text + "workflow: " + topology + "\n";
}

constexpr const char* kMethods[] = {"full", "prefix", "lockstep", "verified", "exact", "auto", "rectify", "anchors"};
constexpr const char* kQuestions[] = {"Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?",
                                      "A farm has 7 hens and 3 cows. How many legs are there?", "6 x 7?"};

bool is_exact(const std::string& method) {
  const auto* found = baton::find_reuse_method(method);
  return found == nullptr ? method == "exact" : found->exact;
}

baton::Workflow workflow_of(int topology, const std::string& method) {
  baton::WorkflowOptions options;
  options.tools.add("measure", [](const baton::ToolCall& call) {
    return baton::ToolResult{true, std::to_string(call.text.size()) + " characters"};
  });
  options.tools.add("broken", [](const baton::ToolCall&) -> baton::ToolResult { throw HostError("a broken tool"); });
  options.set = {{"relay.method", method}};
  return baton::Workflow::parse(team(kTopologies[topology]), options);
}

struct Work {
  int topology = 0;
  int question = 0;
  std::string method;

  std::string name() const {
    return method + ", topology " + std::to_string(topology) + ", question " + std::to_string(question);
  }
};

/// The output of each turn, by "agent#round".
using Outputs = std::map<std::string, std::string>;

Outputs outputs_of(const baton::RunRecord& record) {
  Outputs outputs;
  for (const auto& agent : record.agents) outputs[agent.agent + "#" + std::to_string(agent.round)] = agent.output;
  return outputs;
}

class Chaos {
 public:
  Chaos(std::string model, unsigned seed) : model_(std::move(model)), seed_(seed) {
    const baton::Engine engine = open(2);
    for (int topology = 0; topology < static_cast<int>(std::size(kTopologies)); ++topology) {
      for (int question = 0; question < static_cast<int>(std::size(kQuestions)); ++question) {
        const auto record = engine.run(workflow_of(topology, "full"), options_of({topology, question, "full"}));
        require(record.state == RunState::ok, "topology " + std::to_string(topology) + ": " + record.error);
        expected_[{topology, question}] = outputs_of(record);
      }
    }
  }

  /// Runs one round. All engines, threads and runs that it begins have ended when it returns.
  void round(int number) {
    const std::array<baton::Engine, 2> engines = {open(2), open(1, std::int64_t{96} << 20)};
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, &engines, number, i] {
        Dice dice(seed_ + static_cast<unsigned>(1000 * number + i));
        for (int action = 0; action < kActions && broken_.empty(); ++action) act(dice, engines);
      });
    }
    threads.clear();
    for (const auto& engine : engines) {
      for (const char* method : {"lockstep", "verified", "full"})
        guarded(method, [&] {
          check(engine.run(workflow_of(0, method), options_of({0, 0, method})), {0, 0, method}, false);
        });
    }
  }

  const std::vector<std::string>& broken() const { return broken_; }

  void print() {
    for (const auto& [what, count] : counts_) std::printf("  %-34s %d\n", what.c_str(), count);
  }

  std::atomic<std::int64_t> progress = 0;

 private:
  using Engines = std::array<baton::Engine, 2>;

  baton::Engine open(int threads, std::int64_t kv_budget = std::int64_t{512} << 20) const {
    return baton::Engine::open({.model = model_, .device = "cpu", .threads = threads, .kv_budget = kv_budget});
  }

  static baton::RunOptions options_of(const Work& work) {
    baton::RunOptions options;
    options.inputs = {{"question", kQuestions[work.question]}};
    return options;
  }

  /// Checks a run's record. `ended_early`: the host may have ended the run.
  void check(const baton::RunRecord& record, const Work& work, bool ended_early) {
    const auto in = [&](const std::string& what) { return work.name() + ": " + what; };
    count("state " + std::string(name_of(record.state)));
    require(record.error_kind.has_value() == (record.state == RunState::failed),
            in("state " + std::string(name_of(record.state)) + " and error_kind do not match"));
    if (!ended_early)
      require(record.state == RunState::ok,
              in("the run did not end with ok, although the host let it run: " + record.error));
    if (record.state == RunState::failed) throw Broken(in("the run failed: " + record.error));
    if (record.state != RunState::ok || !is_exact(work.method)) return;
    count("compared with full");
    require(outputs_of(record) == expected_.at({work.topology, work.question}),
            in("the outputs differ from those of method full"));
  }

  void count(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }

  void guarded(const std::string& what, const std::function<void()>& act) {
    try {
      act();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      broken_.push_back(what + ": " + error.what());
    }
    ++progress;
  }

  void act(Dice& dice, const Engines& engines) {
    const Work work{dice.below(static_cast<int>(std::size(kTopologies))),
                    dice.below(static_cast<int>(std::size(kQuestions))), dice.of(kMethods)};
    static constexpr std::pair<const char*, void (Chaos::*)(Dice&, const baton::Engine&, const Work&)> kWays[] = {
        {"waits", &Chaos::waits},
        {"reads events", &Chaos::reads_events},
        {"ends it elsewhere", &Chaos::ends_it},
        {"short timeout", &Chaos::times_out},
        {"drops the run", &Chaos::drops},
        {"throws in a callback", &Chaos::throws},
        {"ends it in a callback", &Chaos::ends_in_callback},
        {"many wait", &Chaos::many_wait},
        {"mistakes", &Chaos::mistakes},
        {"an engine of its own", &Chaos::own_engine},
        {"waits", &Chaos::waits}};
    const auto& [name, way] = dice.of(kWays);
    count(name);
    guarded(name, [&] { (this->*way)(dice, dice.of(engines), work); });
  }

  void waits(Dice&, const baton::Engine& engine, const Work& work) {
    check(engine.run(workflow_of(work.topology, work.method), options_of(work)), work, false);
  }

  void reads_events(Dice& dice, const baton::Engine& engine, const Work& work) {
    std::atomic<int> called = 0;
    auto options = options_of(work);
    options.on_event = [&](const baton::Event&) { ++called; };
    auto run = engine.start(workflow_of(work.topology, work.method), options);
    if (dice.one_in(2)) dice.wait();  // events are kept until they are read
    int read = 0, ends = 0;
    std::map<std::string, std::string> texts;
    RunState said = RunState::failed;
    for (const auto& event : run.events()) {
      require(ends == 0, "an event came after RunFinished");
      require((read++ == 0) == std::holds_alternative<baton::RunStarted>(event),
              "the first event was not RunStarted, or RunStarted came twice");
      if (const auto* token = std::get_if<baton::Token>(&event))
        texts[token->agent + "#" + std::to_string(token->round)] += token->text;
      if (const auto* end = std::get_if<baton::RunFinished>(&event)) {
        ++ends;
        said = end->record.state;
      }
    }
    const auto record = run.get();
    require(ends == 1 && said == record.state,
            std::to_string(ends) + " RunFinished events, or a state that differs from the record's");
    require(called == read, "on_event got " + std::to_string(called) + " events, but events() " + std::to_string(read));
    for (const auto& [turn, text] : texts)
      require(text == outputs_of(record).at(turn),
              work.name() + ": the streamed text of " + turn + " differs from its output");
    check(record, work, false);
  }

  void ends_it(Dice& dice, const baton::Engine& engine, const Work& work) {
    std::stop_source source;
    auto options = options_of(work);
    options.stop = source.get_token();
    if (dice.one_in(8)) source.request_stop();  // stopped before the run starts
    auto run = engine.start(workflow_of(work.topology, work.method), options);
    const int way = dice.below(3);
    const unsigned seed = static_cast<unsigned>(dice.below(1 << 30));
    const auto end = [&, way, seed] {
      Dice own(seed);
      own.wait();
      if (way == 0) run.stop();
      if (way == 1) run.cancel();
      if (way == 2) source.request_stop();
    };
    std::jthread other(end), third(end);
    const auto record = run.get();
    other.join();
    third.join();
    require(record.state == RunState::ok || record.state == RunState::cancelled,
            "a stopped run ended with neither ok nor cancelled: " + record.error);
    if (way == 1 && record.state == RunState::cancelled)
      for (const auto& agent : record.agents)
        require(agent.output.empty(), "the record of a cancelled run has output of " + agent.agent);
    require(run.get().state == record.state, "the second get() returned another state than the first");
    check(record, work, true);
  }

  void times_out(Dice& dice, const baton::Engine& engine, const Work& work) {
    auto options = options_of(work);
    options.timeout = std::chrono::milliseconds(1 + dice.below(200));
    const auto record = engine.run(workflow_of(work.topology, work.method), options);
    require(record.state == RunState::ok || record.state == RunState::timeout,
            "a run with a time limit ended with neither ok nor timeout: " + record.error);
    check(record, work, true);
  }

  void drops(Dice& dice, const baton::Engine& engine, const Work& work) {
    std::atomic<bool> gone = false;
    auto options = options_of(work);
    options.on_event = [&](const baton::Event&) { require(!gone, "an event came after the run was destroyed"); };
    {
      auto run = engine.start(workflow_of(work.topology, work.method), options);
      if (!dice.one_in(3)) dice.wait();
      if (dice.one_in(3)) run = engine.start(workflow_of(work.topology, work.method), options);  // cancels the first
    }
    gone = true;
  }

  void throws(Dice& dice, const baton::Engine& engine, const Work& work) {
    std::atomic<int> left = dice.below(40);
    auto options = options_of(work);
    options.on_event = [&](const baton::Event&) {
      if (left-- == 0) throw HostError("a broken callback");
    };
    auto run = engine.start(workflow_of(work.topology, work.method), options);
    for (int again = 0; again < 2; ++again) {
      try {
        const auto record = run.get();
        require(left >= 0, "get() did not rethrow the callback's exception");
        check(record, work, false);
      } catch (const HostError& error) {
        require(left < 0 && std::string(error.what()) == "a broken callback",
                std::string("get() threw, but not the callback's exception: ") + error.what());
      }
    }
  }

  void ends_in_callback(Dice& dice, const baton::Engine& engine, const Work& work) {
    std::promise<baton::Run*> started;
    const auto self = started.get_future().share();
    std::atomic<int> left = dice.below(20);
    std::atomic<bool> refused = false;
    const bool drops_texts = dice.one_in(2);
    auto options = options_of(work);
    options.on_event = [&, self](const baton::Event&) {
      if (left-- != 0) return;
      baton::Run& run = *self.get();
      try {
        run.get();
      } catch (const baton::InputError&) {
        refused = true;  // get() would wait for the callback that calls it
      }
      drops_texts ? run.cancel() : run.stop();
    };
    auto run = engine.start(workflow_of(work.topology, work.method), options);
    started.set_value(&run);
    const auto record = run.get();
    require(left >= 0 || refused, "get() in the run's own callback did not throw InputError");
    require(record.state == RunState::ok || record.state == RunState::cancelled,
            "a stopped run ended with neither ok nor cancelled: " + record.error);
    check(record, work, true);
  }

  void many_wait(Dice& dice, const baton::Engine& engine, const Work& work) {
    auto run = engine.start(workflow_of(work.topology, work.method), options_of(work));
    std::atomic<int> starts = 0, ends = 0;
    std::array<RunState, 3> states{};
    {
      std::vector<std::jthread> threads;
      for (RunState& state : states) threads.emplace_back([&run, &state] { state = run.get().state; });
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
          for (const auto& event : run.events()) {
            starts += std::holds_alternative<baton::RunStarted>(event);
            ends += std::holds_alternative<baton::RunFinished>(event);
          }
        });
      }
      while (!run.wait_for(std::chrono::milliseconds(dice.below(5)))) {
      }
      run.stop();  // no effect: the run is over
    }
    require(starts == 1 && ends == 1, std::to_string(starts) + " RunStarted and " + std::to_string(ends) +
                                          " RunFinished events reached readers, not one each");
    for (const RunState state : states)
      require(state == states[0], "threads that waited for one run got different states");
    check(run.get(), work, false);
  }

  void mistakes(Dice& dice, const baton::Engine& engine, const Work& work) {
    std::string text = team(kTopologies[0]);
    const auto change = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    const auto expect = [](auto error, const std::function<void()>& call) {
      using Expected = decltype(error);
      try {
        call();
      } catch (const Expected&) {
        return;
      }
      throw Broken("an invalid call did not throw the expected exception");
    };
    const baton::WorkflowError workflow_error("", {});
    switch (dice.below(6)) {
      case 0:
        change("agent_one_current", "agent_none_current");
        return expect(workflow_error, [&] { baton::Workflow::parse(text); });
      case 1:
        text.resize(static_cast<std::size_t>(dice.below(static_cast<int>(text.find("models")))));
        return expect(workflow_error, [&] { baton::Workflow::parse(text); });
      case 2:
        return expect(baton::InputError(""), [&] { engine.start(baton::Workflow::parse(text), {}); });
      case 3: {
        change("min_tokens: 1", "reuse: 0.999");  // invalid: the layers above the rectified ones are always computed
        change("method: full", "method: rectify");
        auto run = engine.start(baton::Workflow::parse(text), options_of(work));
        return expect(workflow_error, [&] { run.get(); });
      }
      case 4: {
        const auto none = baton::Engine::open({.device = "cpu"});
        change("path: nano", "path: no-such-model");
        auto run = none.start(baton::Workflow::parse(text), options_of(work));
        return expect(baton::ResourceError(baton::ResourceError::Kind::model, ""), [&] { run.get(); });
      }
      default: {
        auto options = options_of(work);
        options.timeout = -1ms;
        return expect(baton::InputError(""), [&] { engine.start(baton::Workflow::parse(text), options); });
      }
    }
  }

  void own_engine(Dice& dice, const baton::Engine&, const Work& work) {
    room_.acquire();  // each engine holds the weights, so at most 4 at a time
    try {
      std::optional<baton::Engine> engine = open(1);
      if (dice.one_in(2)) engine->prepare(workflow_of(work.topology, work.method));
      auto run = engine->start(workflow_of(work.topology, work.method), options_of(work));
      engine.reset();  // from now on only the run keeps the engine alive
      if (dice.one_in(3)) run.stop();
      if (!dice.one_in(4)) check(run.get(), work, true);
    } catch (...) {
      room_.release();
      throw;
    }
    room_.release();
  }

  std::string model_;
  unsigned seed_;
  std::map<std::pair<int, int>, Outputs> expected_;  // outputs of method full, by topology and question
  std::counting_semaphore<4> room_{4};
  std::mutex mutex_;
  std::vector<std::string> broken_;
  std::map<std::string, int> counts_;
};

/// Aborts the process, so that it may leave a core dump, if no action has ended for a long time.
void watch(const std::stop_token& stop, const std::atomic<std::int64_t>& progress) {
  auto since = std::chrono::steady_clock::now();
  for (std::int64_t seen = 0; !stop.stop_requested(); std::this_thread::sleep_for(100ms)) {
    const auto now = std::chrono::steady_clock::now();
    if (progress != seen) since = now;
    seen = progress;
    if (now - since < kHang) continue;
    std::fprintf(stderr, "hang: no action ended for %d seconds\n", static_cast<int>(kHang.count()));
    std::abort();
  }
}

int run(const std::string& model, unsigned seed) {
  const int rounds = baton::test::nightly() ? 100 : 3;
  const auto threads = baton::test::threads_of_process();
  Chaos chaos(model, seed);
  std::jthread watchdog([&](const std::stop_token& stop) { watch(stop, chaos.progress); });
  chaos.round(0);
  const ProcessMemory before = ProcessMemory::now();
  for (int i = 1; i < rounds && chaos.broken().empty(); ++i) chaos.round(i);
  const ProcessMemory after = ProcessMemory::now();
  watchdog.request_stop();
  watchdog.join();
  chaos.print();
  int problems = 0;
  const auto report = [&](const std::string& problem) {
    std::fprintf(stderr, "seed %u: %s\n", seed, problem.c_str());
    ++problems;
  };
  for (const auto& problem : chaos.broken()) report(problem);
  if (!baton::test::threads_end(threads))
    report("threads leaked: " + std::to_string(baton::test::threads_of_process()) + " run, expected " +
           std::to_string(threads));
  std::printf("  memory in use: %lld bytes after the first round, %lld at the end\n",
              static_cast<long long>(before.in_use), static_cast<long long>(after.in_use));
  if (!baton::test::kFreedIsKept && after.in_use - before.in_use >= baton::test::kThreadCache)
    report("memory leaked: " + std::to_string(after.in_use - before.in_use) +
           " bytes more in use than after the first round");
  return problems == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return run(argv[1], argc > 2 ? static_cast<unsigned>(std::stoul(argv[2])) : 1);
}
