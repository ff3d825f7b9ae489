// SPDX-License-Identifier: Apache-2.0
// What a small file may cost: the processor time and the memory of reading and planning it stay near its size.
#include <catch2/catch.hpp>

#include "tests/support/process_memory.h"
#include "tests/support/thread_time.h"
#include "tests/support/workflow_files.h"
#include "workflows/format/diagnostics.h"

namespace baton::test::compile_cost_test {
namespace {

/// "a0: {...}", "a1: {...}", ...: the first has `first`, which may set anchors, and the others `other`.
std::string agents(int count, const std::string& first, const std::string& other) {
  std::string out = "agents:\n";
  for (int i = 0; i < count; ++i) out += "  a" + std::to_string(i) + ": {" + (i == 0 ? first : other) + "}\n";
  return out;
}

std::string joined(int count, const std::string& prefix, const std::string& suffix = ",") {
  std::string out;
  for (int i = 0; i < count; ++i) out += prefix + std::to_string(i) + suffix;
  return out;
}

/// Processor time of reading and planning, in seconds.
double seconds_of(const std::string& yaml, const std::string& expected_error = "") {
  const double begin = thread_seconds();
  const std::string errors = errors_of(yaml);
  const double spent = thread_seconds() - begin;
  if (expected_error.empty())
    CHECK(errors == "");
  else
    CHECK(errors.find(expected_error) != std::string::npos);
  return spent;
}

TEST_CASE("the hand-over of many results of tools is planned in one walk over the turns") {
  const std::string reads = joined(60, "{{ condition_a", "_history_1 }}");
  const std::string yaml =
      with_header(agents(64, "tools: [python], prompt: &p {user: \"" + reads + "\"}", "tools: [python], prompt: *p") +
                  "workflow: {topology: chain, rounds: 16}\nrelay: {method: rectify}\n");
  CHECK(seconds_of(yaml) < 0.8 * slowdown());  // 64,512 slots

  const Plan made = plan(
      with_header("agents:\n"
                  "  a: {tools: [python], prompt: 'x'}\n"
                  "  b: {tools: [python], prompt: '{{ condition_a_current }}'}\n"
                  "  c: {prompt: '{{ condition_b_current }} {{ condition_a_current }} {{ condition_a_current }}'}\n"
                  "workflow: {topology: chain}\nrelay: {method: rectify}\n"));
  CHECK(made.turns[1].slots[0].reason.find("computed by") == std::string::npos);  // nobody before it shows it
  CHECK(made.turns[2].slots[0].reason.find("computed by") == std::string::npos);
  CHECK(made.turns[2].slots[1].reason.starts_with("computed by b"));
}

TEST_CASE("what every turn copies counts as text of the plan") {
  const std::int64_t peak = peak_resident();
  const auto debate = [](int stops, const std::string& fallback) {
    return with_header("defaults: {stop: [" + joined(stops, "s") + "]}\n" +
                       agents(256, "prompt: hi, on_error: fallback, fallback: &f \"" + fallback + '"',
                              "prompt: hi, on_error: fallback, fallback: *f") +
                       "workflow: {topology: debate, rounds: 16}\n");
  };
  CHECK(errors_of(debate(4000, "x")).find("error[E0308]") != std::string::npos);
  CHECK(errors_of(debate(1, std::string(50'000, 'x'))).find("error[E0308]") != std::string::npos);
  CHECK(errors_of(debate(100, std::string(5'000, 'x'))) == "");
  if (!kFreedIsKept) CHECK(peak_resident() - peak < (std::int64_t{200} << 20));
}

TEST_CASE("places on a long line are found without counting from its beginning") {
  Diagnostics diagnostics;
  const std::string text = "first\n" + std::string(500'000, 'x') + "\xC3\xA9" + std::string(500'000, 'y') + "\nlast";
  const SourcePtr source = make_source("long.yaml", {}, text, diagnostics);
  const double begin = thread_seconds();
  long columns = 0;
  for (std::size_t i = 0; i < 20'000; ++i) columns += source->at(6 + 50 * i, 10).column;
  CHECK(thread_seconds() - begin < 0.3 * slowdown());
  CHECK(columns == 50L * 19'999 * 20'000 / 2 + 20'000 - 9'999);  // those behind the letter of two bytes, one less

  for (const std::size_t offset : {0u, 4u, 5u, 6u, 255u, 256u, 257u, 500'006u, 500'008u, 500'009u, 1'000'008u}) {
    const SourceLocation where = source->at(offset, 3);
    const std::size_t line = offset < 6 ? 0 : offset < 1'000'009 ? 6 : 1'000'009;
    const std::size_t less = offset >= 500'008 && line == 6 ? 1 : 0;
    CHECK(where.column == static_cast<int>(offset - line - less) + 1);
    CHECK(where.line == (line == 0 ? 1 : 2));
  }
  CHECK(source->at(500'005, 3).length == 2);
  CHECK(source->at(3, 10).length == 2);  // cut at the end of the line
  CHECK(source->at(text.size(), 1).line == 3);
  CHECK(source->at(text.size(), 1).column == 5);
}

TEST_CASE("the places of all placeholders of a text are found in one pass") {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "{ ";
  for (int i = 0; i < 450; ++i) text += "{{ user_question }} ";
  const std::string yaml = with_header(agents(4, "prompt: {user: &t \"" + text + "\"}", "prompt: {user: *t}") +
                                       "workflow: {topology: chain}\n");
  CHECK(seconds_of(yaml) < 0.8 * slowdown());
}

TEST_CASE("a text whose braces are escapes is not looked for in the rest of the file") {
  std::string yaml = "agents:\n";
  for (int i = 0; i < 500; ++i) yaml += "  a" + std::to_string(i) + ": {prompt: \"\\x7b{ nobody }} \\x7b{ none }}\"}\n";
  std::string rest;
  for (int i = 0; i < 400'000; ++i) rest += "{ ";
  CHECK(seconds_of(with_header(yaml + "workflow: {topology: chain}\ndescription: \"" + rest + "\"\n"), "E0203") <
        0.8 * slowdown());
}

TEST_CASE("openings of placeholders that are never closed cost one pass") {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "{{ } } } ";
  CHECK(seconds_of(with_header("agents: {a: {prompt: \"" + text + "\"}}\nworkflow: {agents: [a]}\n"), "E0205") <
        1.2 * slowdown());
}

TEST_CASE("agents with the same constraint share one grammar, compiled once") {
  std::string letters;
  for (char c = 'A'; c < 'Z'; c += 2) letters += c;
  const std::string regex = joined(30, "[" + letters + "]{0,1000}", "");
  const std::string yaml =
      with_header(agents(20, "prompt: hi, output: &o {regex: \"" + regex + "\"}", "prompt: hi, output: *o") +
                  "workflow: {topology: chain}\n");
  CHECK(seconds_of(yaml) < 0.8 * slowdown());

  const Plan made =
      plan(with_header("agents:\n"
                       "  a: {prompt: hi, output: {regex: 'x+'}}\n"
                       "  b: {prompt: hi, output: {regex: 'x+'}}\n"
                       "  c: {prompt: hi, output: {enum: ['x+']}}\n"
                       "  d: {prompt: hi, output: {schema: {type: string}}}\n"
                       "  e: {prompt: hi, output: {schema: {type: string}, enforce: false}}\n"
                       "workflow: {topology: chain}\n"));
  CHECK(made.turns[0].grammar == made.turns[1].grammar);
  CHECK(made.turns[0].grammar != made.turns[2].grammar);
  CHECK(made.turns[3].grammar != nullptr);
  CHECK(made.turns[4].grammar == nullptr);
}

TEST_CASE("a file that prompts name many times is read and kept once") {
  const Folder folder;
  folder.add("big.txt", std::string(900'000, 'x'));
  folder.add("twice.txt", "once");
  const auto naming = [](int count, const std::string& file) {
    std::string list;
    for (int i = 0; i < count; ++i) list += "{file: " + file + "},";
    return with_header("agents: {a: {prompt: {user: [" + list + "]}}}\nworkflow: {agents: [a]}\n");
  };
  const Plan made = plan(naming(50, "twice.txt"), {}, folder.path() / "team.yaml");
  CHECK(made.spec->sources.size() == 2);
  CHECK(errors_of(naming(60, "big.txt"), folder.path() / "team.yaml") == "");
  CHECK(errors_of(naming(200, "big.txt"), folder.path() / "team.yaml").find("error[E0502]") != std::string::npos);
}

TEST_CASE("an agent file is read once for all agents that use it") {
  const Folder folder;
  folder.add("small.yaml", "prompt: {user: hi}\n");
  folder.add("large.yaml", "prompt: {user: hi}\nx-a: [" + joined(5000, "a") + "]\n");
  const auto team = [&](int count, const std::string& role) {
    const std::string use = "use: " + role;
    return with_header(agents(count, use, use) + "workflow: {topology: chain}\n");
  };
  const std::filesystem::path file = folder.path() / "team.yaml";
  CHECK(plan(team(50, "small"), {}, file).spec->sources.size() == 2);
  CHECK(errors_of(team(10, "large"), file) == "");

  const double begin = thread_seconds();
  CHECK(errors_of(team(250, "large"), file).find("error[E0106]") != std::string::npos);
  CHECK(thread_seconds() - begin < 0.8 * slowdown());

  const std::string many = errors_of(team(1001, "nobody"), file);  // no file is looked for
  CHECK(many.find("error[E0308]") != std::string::npos);
  CHECK(many.find("error[E0501]") == std::string::npos);
}

TEST_CASE("large maps are read and merged in time near their size") {
  const Folder folder;
  folder.add("base.yaml", "x-a: {" + joined(16'000, "base", ": 1,") + "}\n");
  const std::string yaml =
      with_header("extends: base.yaml\nagents: {a: {prompt: hi}}\nworkflow: {agents: [a]}\nx-a: {" +
                  joined(16'000, "own", ": 1,") + "}\n");
  const double begin = thread_seconds();
  CHECK(errors_of(yaml, folder.path() / "team.yaml") == "");
  CHECK(thread_seconds() - begin < 1.0 * slowdown());
}

TEST_CASE("schemas that hold together are merged in time near their size, and not without end") {
  const auto team = [](const std::string& schema) {
    return with_header("agents: {a: {prompt: hi, output: {schema: " + schema + "}}}\nworkflow: {agents: [a]}\n");
  };
  std::string ways;
  for (int i = 0; i < 10; ++i) ways += "{$ref: '#/definitions/d'},";
  CHECK(seconds_of(team("{type: string, properties: {" + joined(5000, "p", ": true,") + "}, anyOf: [" + ways +
                        "], definitions: {d: {properties: {" + joined(5000, "q", ": true,") + "}}}}")) <
        0.8 * slowdown());
  CHECK(seconds_of(team("{properties: {" + joined(5000, "p", ": true,") + "}, allOf: [" + ways +
                        "], definitions: {d: {properties: {" + joined(5000, "q", ": true,") + "}}}}"),
                   "error[E0414]") < 2.0 * slowdown());

  std::string all;
  for (int i = 0; i < 3000; ++i) all += "true,";
  CHECK(seconds_of(team("{type: string, properties: {" + joined(8000, "p", ": true,") + "}, anyOf: [" + all + "]}")) <
        2.0 * slowdown());
  for (int i = 0; i < 7000; ++i) all += "{minimum: 1},";
  CHECK(seconds_of(team("{type: integer, allOf: [" + all + "]}"), "error[E0414]") < 1.0 * slowdown());
}

}  // namespace
}  // namespace baton::test::compile_cost_test
