// SPDX-License-Identifier: Apache-2.0
// The examples of `baton explain`: each wrong one gets its code, each right one is a workflow without errors.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "tests/support/workflow_files.h"
#include "workflows/format/diagnostics.h"

namespace baton::test::error_examples_test {
namespace {

/// The keys at the left margin of an example.
std::set<std::string> keys_of(const std::string& example) {
  std::set<std::string> keys;
  std::istringstream lines(example);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.front() != ' ' && line.find(':') != std::string::npos)
      keys.insert(line.substr(0, line.find(':')));
  }
  return keys;
}

/// A whole workflow: the sections that the example does not have come before it.
std::string completed(const std::string& example) {
  const std::set<std::string> keys = keys_of(example);
  std::string text;
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"version", "1"}, {"models", "{main: nano}"}, {"agents", "{solver: {prompt: \"{{ user_question }}\"}}"}}) {
    if (keys.count(key) == 0 && keys.count("extends") == 0) text += key + ": " + value + "\n";
  }
  return text + example + "\n";
}

/// The codes of all errors of an example.
std::set<std::string> codes_of(const std::string& example, const std::filesystem::path& file) {
  const ToolRegistry tools = fake_tools();
  ReadOptions options;
  options.tools = &tools;
  std::string text = example;
  if (const std::string option = "--set "; example.starts_with(option)) {
    const std::size_t equals = example.find('=');
    options.set.emplace_back(example.substr(option.size(), equals - option.size()), example.substr(equals + 1));
    text.clear();
  }
  std::set<std::string> codes;
  try {
    compile(std::string_view(completed(text)), file, options);
  } catch (const WorkflowError& error) {
    for (const Diagnostic& item : error.items) codes.insert(item.code);
  }
  return codes;
}

TEST_CASE("the example of every error code gets that code, and its correction no error") {
  const Folder folder;
  std::filesystem::create_directory(folder.path() / "prompts");
  folder.add("prompts/solver.md", "{{ user_question }}");
  folder.add("base.yaml", completed(""));
  folder.add("team.yaml", "extends: team.yaml\n");
  for (const ErrorCode& code : error_codes()) {
    INFO(code.code);
    CHECK(codes_of(std::string(code.wrong), folder.path() / "team.yaml") ==
          std::set<std::string>{std::string(code.code)});
    CHECK(codes_of(std::string(code.right), folder.path() / "team.yaml").empty());
  }
}

TEST_CASE("every error code says what leads to it and what to do, in sentences") {
  const auto codes = error_codes();
  CHECK(std::is_sorted(codes.begin(), codes.end(),
                       [](const ErrorCode& a, const ErrorCode& b) { return a.code < b.code; }));
  for (const ErrorCode& code : codes) {
    INFO(code.code);
    for (const std::string_view text : {code.meaning, code.causes, code.remedy}) {
      REQUIRE(!text.empty());
      CHECK(text.back() == '.');
    }
  }
}

}  // namespace
}  // namespace baton::test::error_examples_test
