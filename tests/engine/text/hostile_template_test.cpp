// SPDX-License-Identifier: Apache-2.0
// What a chat template may cost: time, memory and stack.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "engine/base/errors.h"
#include "engine/base/system/process.h"
#include "engine/text/templates.h"
#include "tests/engine/text/hostile_templates.h"
#include "tests/support/golden_files.h"
#include "tests/support/process_memory.h"
#include "tests/support/small_stack.h"
#include "tests/support/thread_time.h"

namespace baton::test::hostile_template_test {
namespace {

using Catch::Matchers::Contains;

const double kSeconds = 2.0 * slowdown();           // of processor time, for one template
constexpr std::chrono::milliseconds kTimeout{250};  // after which a stop is requested
constexpr std::int64_t kBytes = std::int64_t{512} << 20;

std::string render(const std::string& source, const std::stop_token& stop = {}) {
  const std::vector<ChatMessage> messages{{"user", std::string(20'000, 'a') + "\n b"}};
  return ChatTemplate::parse(source, "t")->render(messages, {}, stop);
}

std::string complaint(const std::string& source) {
  const double begin = thread_seconds();
  std::string error = "nothing";
  try {
    render(source);
  } catch (const ModelError& fault) {
    error = fault.what();
  }
  INFO(source.substr(0, 200));
  CHECK(thread_seconds() - begin < kSeconds);
  return error;
}

std::string repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

/// Requests a stop of what runs, a while after it began.
class Timer {
 public:
  Timer() : thread_([this](const std::stop_token& end) { run(end); }) {}

  std::stop_token start() {
    const std::lock_guard lock(mutex_);
    source_ = {};
    deadline_ = std::chrono::steady_clock::now() + kTimeout;
    changed_.notify_all();
    return source_.get_token();
  }

 private:
  void run(const std::stop_token& end) {
    std::unique_lock lock(mutex_);
    while (!end.stop_requested()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      if (std::chrono::steady_clock::now() >= deadline_) source_.request_stop();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::stop_source source_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::jthread thread_;
};

}  // namespace

TEST_CASE("values of any depth are freed without recursion") {
  with_small_stack([] {
    for (const std::string link : {"{'a': n.p}.get", "[n.p].count", "dict(a=n.p).items", "namespace(a=n.p)"}) {
      CHECK(render("{% set n = namespace(p=1) %}{% for i in range(90000) %}{% set n.p = " + link +
                   " %}{% endfor %}ok") == "ok");
    }
    CHECK(render("{% set n = namespace(p=1) %}{% for i in range(90000) %}{% for x in [n.p] %}{% set n.p = loop %}"
                 "{% endfor %}{% endfor %}ok") == "ok");
    CHECK(render("{% set n = namespace(p=1) %}{% for i in range(90000) %}{% set n.p = [[n.p, n.p]].count %}{% endfor %}"
                 "ok") == "ok");
    // Freed while it renders, too.
    CHECK(render("{% set n = namespace(p=1) %}{% for i in range(90000) %}{% set n.p = {'a': n.p}.get %}{% endfor %}"
                 "{% set n.p = 1 %}ok") == "ok");
  });
}

TEST_CASE("macros cannot use up the stack") {
  with_small_stack([] {
    for (const std::string block : {"if true", "for x in [1]", "with a = 1", "filter upper", "set z"}) {
      const std::string name = block.substr(0, block.find(' '));
      const std::string source = "{% macro f() %}" + repeated("{% " + block + " %}", 40) + "{{ f() }}" +
                                 repeated("{% end" + name + " %}", 40) + "{% endmacro %}{{ f() }}";
      CHECK_THAT(complaint(source), Contains("too deeply"));
    }
    CHECK_THAT(complaint("{% macro f(x) %}{{ [[[[f([x])]]]] ~ {'a': (f(x))} }}{% endmacro %}{{ f(1) }}"),
               Contains("too deeply"));
    CHECK_THAT(complaint("{% macro f(x) %}{{ -(-(-(1 + (2 * (f(x)|length))))) }}{% endmacro %}{{ f(1) }}"),
               Contains("too deeply"));
  });
}

TEST_CASE("every operation on texts and lists costs by what it touches") {
  const std::string big = "{% set s = 'a' * 16000000 %}{% set b = 'a' * 8000000 + 'b' %}{% for i in range(100000) %}";
  const std::string end = "{% endfor %}";
  for (const std::string operation : {"s.count(b)",
                                      "s.find(b)",
                                      "s.rfind(b)",
                                      "b in s",
                                      "s|int",
                                      "s|float",
                                      "s|length",
                                      "s == s + ''",
                                      "s < b",
                                      "s.startswith(b[:-1])",
                                      "s.split(b)|length",
                                      "s.rsplit(b)|length",
                                      "s.partition(b)|length",
                                      "s.replace(b, '')[0]",
                                      "s|upper|length",
                                      "s|title|length",
                                      "s|trim('a')",
                                      "s.strip('ab')",
                                      "s[::2]|length",
                                      "s|tojson|length",
                                      "s|e|length",
                                      "s.splitlines()|length",
                                      "s is lower",
                                      "s.isdigit()",
                                      "[s]|string|length",
                                      "[s, b]|sort|length",
                                      "[s, b]|max|length",
                                      "[s, b]|unique|list|length",
                                      "(s ~ 'a')|length",
                                      "{s: 1}[b]",
                                      "'a'[s]",
                                      "n[s]",
                                      "[1, 2]|map(attribute=s)|list",
                                      "[1, 2]|join(s)|length",
                                      "s.join(['a', 'b'])|length",
                                      "strftime_now(s)",
                                      "s|indent|length",
                                      "s|reverse|length",
                                      "s|capitalize|length",
                                      "s.removeprefix(b)|length",
                                      "s|string|safe|length",
                                      "(s|safe) + s",
                                      "('%s' % s)|length",
                                      "'{}'.format(s)|length",
                                      "s.isalpha()",
                                      "s.swapcase()|length",
                                      "s.center(16000001)|length",
                                      "s.find(b, 1)",
                                      "s|truncate(9, true)",
                                      "s[5:]|length",
                                      "s[-1]"}) {
    INFO(operation);
    CHECK(complaint(big + "{% set x = " + operation + " %}" + end) != "nothing");
  }
  const std::string lists = "{% set l = range(100000)|list %}{% set d = dict(a=l) %}{% for i in range(100000) %}";
  for (const std::string operation :
       {"l + l",      "l == l + []", "100001 in l",   "l.index(99999)",       "l.count(1)",           "l|sort|first",
        "l[::-1]",    "l|tojson",    "l|sum",         "l|map('string')|list", "l|select('odd')|list", "l|reverse|list",
        "l|max",      "l|first",     "l|unique|list", "[l]|string",           "l|batch(3)|list",      "l|slice(3)|list",
        "'%s' % [l]", "l|min(true)"}) {
    INFO(operation);
    CHECK_THAT(complaint(lists + "{% set x = " + operation + " %}" + end),
               Contains("limit of steps") || Contains("long"));
  }
  CHECK(complaint("{{ [] * 9223372036854775807 }}{{ '' * 9223372036854775807 }}") == "nothing");
  CHECK_THAT(complaint("{{ " + std::string(300, 'a') + " }}"), Contains("a name is too long"));
  CHECK_THAT(complaint("{{ f(" + repeated("a, ", 400) + "a) }}"), Contains("more than 255 arguments"));
  CHECK_THAT(complaint("{% macro f(" + repeated("a, ", 400) + "a) %}{% endmacro %}"), Contains("more than 255 param"));
  std::string names;
  for (int i = 0; i < 40'000; ++i) names += fmt::format("{{% set a{} = 1 %}}", i);
  complaint(names);  // each is compared with all before
}

TEST_CASE("what is undefined, and names, cost memory once") {
  std::string names;  // of members that a namespace keeps
  for (int i = 0; i < 250; ++i) names += fmt::format("{}{}{}=1", i == 0 ? "" : ", ", std::string(196, 'n'), i);
  const std::int64_t before = peak_resident();
  for (const std::string& source :
       {std::string("{% set u = {}['a' * 1000000] %}{% set l = [u] * 100000 %}{{ l|length }}"),
        std::string("{% set u = 1['a' * 4000000] %}{% set l = [u] * 1000000 %}{{ l|length }}"),
        std::string("{% set u = {}['a' * 4000000] %}{% set l = [u] * 10 %}{% for i in range(50000) %}"
                    "{% if 3 in l %}{% endif %}{% endfor %}"),
        "{% set l = [" + std::string(200, 'u') + "] * 1999000 %}",
        "{% set n = namespace(l=[]) %}{% for i in range(100000) %}{% set n.l = [n.l|last, namespace(" + names +
            ")] %}{% endfor %}",
        "{% set n = namespace(l=0) %}{% for i in range(100000) %}{% set n.l = namespace(l=n.l, " + names +
            ") %}{% endfor %}"}) {
    complaint(source);
    return_free_memory();
    INFO(source.substr(0, 200));
    if (!kFreedIsKept) CHECK(peak_resident() - before < kBytes / 2);
  }
  const std::string error = complaint("{{ {}['\xC3\xA9' * 1000000].x }}");
  CHECK(error.size() < 1000);
  CHECK_THAT(error, Contains("has no element"));
}

TEST_CASE("a stop ends rendering soon") {
  const auto chat = ChatTemplate::parse(
      "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set x = s.count('ab') %}{% endfor %}", "t");
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_THROWS_AS(chat->render({}, {}, stopped.get_token()), Interrupted);
  std::stop_source later;
  std::jthread timer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    later.request_stop();
  });
  const double begin = thread_seconds();
  try {
    chat->render({}, {}, later.get_token());
    FAIL_CHECK("rendered");
  } catch (const Interrupted&) {
  } catch (const ModelError&) {  // a fast machine uses up the steps before
  }
  CHECK(thread_seconds() - begin < kSeconds);
}

namespace {

/// A template of a family with a few pieces of it, or of others, repeated, moved or left out.
std::string mutated(const std::vector<std::string>& sources, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  static const std::vector<std::string> kPieces = {"{% for x in range(100000) %}",
                                                   "{% endfor %}",
                                                   "{% if true %}",
                                                   "{% endif %}",
                                                   "messages",
                                                   " * 1000000",
                                                   "[::-1]",
                                                   "|tojson",
                                                   "|list",
                                                   "|join(messages[0].content)",
                                                   " ~ messages[0].content",
                                                   ".split('a')",
                                                   ".replace('', 'aa')",
                                                   "{% macro m(x) %}{{ m(x) }}{% endmacro %}",
                                                   "{{ m(1) }}",
                                                   " recursive",
                                                   "loop(messages)",
                                                   "{% call m(1) %}",
                                                   "{% endcall %}",
                                                   "'%1000s' % 1",
                                                   "|indent(900)",
                                                   "*messages",
                                                   "**messages[0]",
                                                   ".format(messages)",
                                                   "|upper|title"};
  std::string text = sources[below(sources.size())];
  for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
    const std::size_t at = below(text.size() + 1), length = below(40);
    switch (below(4)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(below(text.size() + 1), below(400)));
        break;
      case 2:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      default: {
        const std::string& other = sources[below(sources.size())];
        text.replace(at, length, other.substr(below(other.size() + 1), below(400)));
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("mutated templates of families end within their time and memory") {
  const std::size_t templates = nightly() ? 20'000 : 400;
  std::vector<std::string> sources;
  const Json golden = golden_json("chat/manners.json");
  for (const Json& one : golden["templates"]) sources.push_back(one["source"]);
  ChatMessage question{"user", std::string(20'000, 'a') + "\n b"};
  question.values = {{0, question.content.size(), 0, 0, true}};
  const std::vector<ChatMessage> messages{
      {"system", "Be kind."}, question, {"assistant", "<think>x</think>y"}, question};
  ChatOptions options{.bos_token = "<s>", .eos_token = "</s>"};
  options.tools = {R"({"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}})"};
  const std::int64_t before = peak_resident();
  double slowest = 0;
  std::size_t rendered = 0, which = 0;
  for (std::size_t seed = 0; seed < templates; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const std::string source = mutated(sources, random);
    const double begin = thread_seconds();
    std::optional<ChatText> made;
    try {
      made = ChatTemplate::parse(source, "t")->render_values(messages, options);
      ++rendered;
    } catch (const ModelError&) {
    }
    const double seconds = thread_seconds() - begin;
    INFO("seed " << seed << ": " << source);
    CHECK(seconds < kSeconds);
    for (std::size_t i = 0; made && i < made->values.size(); ++i) {
      const ValueSpan& span = made->values[i];
      REQUIRE((span.begin < span.end && span.end <= made->text.size()));
      REQUIRE((i == 0 || made->values[i - 1].end <= span.begin));
    }
    if (seconds > slowest) which = seed;
    slowest = std::max(slowest, seconds);
    made.reset();
    return_free_memory();
    if (!kFreedIsKept) REQUIRE(peak_resident() - before < kBytes);
  }
  CHECK(rendered > templates / 40);
  if (nightly())
    WARN(fmt::format("{} templates, {} rendered; the slowest took {:.2f} s (seed {})", templates, rendered, slowest,
                     which));
}

TEST_CASE("hostile templates end within their time and memory") {
  const std::size_t templates = nightly() ? 20'000 : 300;
  const std::int64_t before = peak_resident();
  double slowest = 0;
  std::size_t which = 0, rendered = 0;
  Timer timer;
  for (std::size_t seed = 0; seed < templates; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const std::string source = hostile_template(random);
    INFO("seed " << seed << ": " << source);
    const double begin = thread_seconds();
    try {
      // Every second one has no timeout: its steps alone must end it.
      render(source, seed % 2 == 0 ? timer.start() : std::stop_token());
      ++rendered;
    } catch (const ModelError&) {
    } catch (const Interrupted&) {
    }
    const double seconds = thread_seconds() - begin;
    CHECK(seconds < kSeconds + 0.25);
    if (seconds > slowest) which = seed;
    slowest = std::max(slowest, seconds);
    return_free_memory();
    if (!kFreedIsKept) REQUIRE(peak_resident() - before < kBytes);
  }
  CHECK(rendered > templates / 20);  // the generator still makes templates that run
  if (nightly())
    WARN(fmt::format("{} templates, {} rendered; the slowest took {:.2f} s (seed {}); peak {} MiB over {} MiB",
                     templates, rendered, slowest, which, peak_resident() >> 20, before >> 20));
}

}  // namespace baton::test::hostile_template_test
