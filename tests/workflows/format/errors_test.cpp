// SPDX-License-Identifier: Apache-2.0
// Each file of errors/ is a workflow with mistakes; the .txt beside it is what the user sees. A first line
// "# set: a.b=v" stands for --set.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "tests/support/workflow_files.h"
#include "workflows/format/diagnostics.h"

namespace baton::test::errors_test {
namespace {

namespace fs = std::filesystem;

struct WorkingFolder {
  explicit WorkingFolder(const fs::path& folder) : before(fs::current_path()) { fs::current_path(folder); }
  ~WorkingFolder() { fs::current_path(before); }
  fs::path before;
};

std::vector<fs::path> error_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(test_folder() / "workflows" / "format" / "errors")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string errors_of_file(const fs::path& file) {
  const ToolRegistry tools = fake_tools();
  ReadOptions options;
  options.tools = &tools;
  std::istringstream text(read_text(file));
  const std::string directive = "# set: ";
  for (std::string line; std::getline(text, line) && line.starts_with(directive);) {
    const std::size_t equals = line.find('=');
    options.set.emplace_back(line.substr(directive.size(), equals - directive.size()), line.substr(equals + 1));
  }
  try {
    compile(file.filename(), options);
    return "no errors\n";
  } catch (const WorkflowError& error) {
    return std::string(error.what()) + "\n";
  }
}

TEST_CASE("every mistake is reported as its golden text says") {
  const WorkingFolder folder(test_folder() / "workflows" / "format" / "errors");
  for (const fs::path& file : error_files()) {
    INFO(file.filename().string());
    CHECK(errors_of_file(file) == read_text(fs::path(file).replace_extension(".txt")));
  }
}

TEST_CASE("every error code has a golden text, and no other code is used") {
  std::set<std::string> known, seen;
  for (const ErrorCode& code : error_codes()) known.insert(std::string(code.code));
  CHECK(known.size() == error_codes().size());
  for (const fs::path& file : error_files()) {
    const std::string text = read_text(fs::path(file).replace_extension(".txt"));
    for (std::size_t at = text.find("error["); at != std::string::npos; at = text.find("error[", at + 1)) {
      seen.insert(text.substr(at + 6, 5));
    }
  }
  CHECK(seen == known);
}

TEST_CASE("the team of the reference is read, and its misspelt placeholder is shown in place") {
  const fs::path file = test_folder() / "workflows" / "reference" / "team.yaml";
  const ToolRegistry tools = fake_tools();
  ReadOptions options;
  options.tools = &tools;
  const WorkflowSpec spec = *compile(file, options).spec;
  CHECK(spec.name == "gsm8k-team");
  CHECK(spec.agents.size() == 3);

  std::string text = read_text(file);
  const std::string right = "        {{ agent_analyst_current }}\n", wrong = "        {{ agent_analist_current }}\n";
  text.replace(text.find(right), right.size(), wrong);
  try {
    compile(std::string_view(text), file, options);
    FAIL("read without an error");
  } catch (const WorkflowError& error) {
    CHECK(error.what() == file.string() +
                              ":23:12: error[E0203]: agent 'inspector': unknown placeholder 'agent_analist_current'\n"
                              "   23 |         {{ agent_analist_current }}\n"
                              "      |            ^^^^^^^^^^^^^^^^^^^^^ did you mean 'agent_analyst_current'?");
  }
}

TEST_CASE("errors of several files are sorted, and prompt files are named") {
  const Folder folder;
  folder.add("a.md", "first\n{{ user_qestion }}\n");
  folder.add("z.md", "{{ \n");
  const auto file = folder.add("team.yaml", with_header("agents:\n  a:\n    prompt:\n      system: {file: z.md}\n"
                                                        "      user: {file: a.md}\n    colour: red\n"));
  try {
    compile(file);
    FAIL("read without an error");
  } catch (const WorkflowError& error) {
    REQUIRE(error.items.size() == 3);
    CHECK(error.items[0].file == (folder.path() / "a.md").string());
    CHECK(error.items[0].line == 2);
    CHECK(error.items[0].column == 4);
    CHECK(error.items[0].source_line == "{{ user_qestion }}");
    CHECK(error.items[1].file == file.string());
    CHECK(error.items[1].code == "E0401");
    CHECK(error.items[2].file == (folder.path() / "z.md").string());
  }
}

}  // namespace
}  // namespace baton::test::errors_test
