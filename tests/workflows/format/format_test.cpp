// SPDX-License-Identifier: Apache-2.0
// The table of the format, and what is made from it.
#include "workflows/format/format_table.h"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/text/schema/schema.h"
#include "tests/support/workflow_files.h"
#include "workflows/format/yaml_tree.h"

namespace baton::test::format_test {
namespace {

namespace fs = std::filesystem;

/// The first thing that the JSON Schema finds wrong with a YAML text.
std::string schema_errors(const std::string& yaml) {
  Diagnostics diagnostics;
  const auto root = parse_yaml(make_source("t.yaml", "", yaml, diagnostics), diagnostics);
  REQUIRE(root);
  return check_json(to_json(*root), workflow_json_schema());
}

std::vector<fs::path> workflows_of_the_repository() {
  std::vector<fs::path> files;
  for (const char* folder : {"workflows/library", "samples", "tests/workflows/reference", "tests/published/teams"}) {
    const fs::path root = source_folder() / folder;
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().extension() == ".yaml" && read_text(entry.path()).find("version: 1") != std::string::npos)
        files.push_back(entry.path());
    }
  }
  return files;
}

/// The function that the program of samples/bakery adds.
struct Bill final : Tool {
  std::string name() const override { return "bill"; }
  std::string check(const std::map<std::string, std::string>&) const override { return {}; }
  ToolResult call(const ToolCall&) const override { return {}; }
  ToolDefinition definition() const override { return {"Adds up the bill of an order.", R"({"properties": {}})"}; }
};

TEST_CASE("every workflow of the repository passes the reader, the planner and the schema") {
  const std::vector<fs::path> files = workflows_of_the_repository();
  ToolRegistry tools = ToolRegistry::with_builtins();
  tools.add(std::make_shared<Bill>());
  ReadOptions options;
  options.tools = &tools;
  CHECK(files.size() >= 8);
  for (const fs::path& file : files) {
    INFO(file.string());
    try {
      const Plan made = compile(file, options);
      CHECK_FALSE(made.turns.empty());
    } catch (const WorkflowError& error) {
      FAIL_CHECK(error.what());
    }
    CHECK(schema_errors(read_text(file)) == "");
  }
}

TEST_CASE("every role of the repository can be used") {
  const fs::path folder = source_folder() / "agents" / "roles";
  for (const auto& entry : fs::directory_iterator(folder)) {
    INFO(entry.path().string());
    const std::string yaml = with_header("agents: {a: {use: " + entry.path().stem().string() + "}}\n");
    CHECK(errors_of(yaml, folder / "team.yaml") == "");
  }
}

TEST_CASE("the schema is one, and refuses what the reader refuses") {
  CHECK(check_json_schema(workflow_json_schema()).empty());
  CHECK(schema_errors("version: 1\nmodels: {m: x}\nagents: {a: {prompt: x}}\nx-note: 1\n") == "");
  CHECK(schema_errors("extends: base.yaml\n") == "");
  CHECK(schema_errors("version: 1\nmodels: {m: x}\nagents: {a: {use: y, max_tokens: \"${env:N:-5}\"}}\n") == "");
  for (const char* bad :
       {"agents: {}", "version: 2\nmodels: {m: x}\nagents: {a: {prompt: x}}",
        "version: 1\nmodels: {m: x}\nagents: {a: {prompt: x, colour: red}}",
        "version: 1\nmodels: {m: x}\nagents: {A: {prompt: x}}", "version: 1\nmodels: {m: x}\nagents: {a: {}}",
        "version: 1\nmodels: {m: x}\nagents: {a: {prompt: x, top_p: 0}}",
        "version: 1\nmodels: {m: x}\nagents: {a: {prompt: x}}\nworkflow: {topology: ring}",
        "version: 1\nmodels: {m: x}\nagents: {a: {prompt: x, timeout: 30}}",
        "version: 1\nmodels: {m: x}\nagents: {a: {prompt: {messages: [{role: user}]}}}"}) {
    INFO(bad);
    CHECK(schema_errors(bad) != "");
    CHECK(errors_of(bad) != "");
  }
}

TEST_CASE("the table is complete") {
  std::set<std::string> objects, used = {""}, seen;
  const auto collect = [&](const auto& self, const FormatType& type) -> void {
    if (type.kind == FormatType::Kind::object) used.insert(type.name);
    for (const FormatType& inner : type.of) self(self, inner);
  };
  for (const FormatKey& key : format_keys()) {
    INFO(key.object << "." << key.key);
    objects.insert(key.object);
    collect(collect, key.type);
    CHECK(seen.insert(key.object + "." + key.key).second);
    CHECK(key.description.ends_with("."));
    CHECK(!(key.required && !key.default_text.empty()));
  }
  CHECK(objects == used);
}

TEST_CASE("the reference page has every key and code") {
  const std::string page = workflow_reference_markdown();
  for (const FormatKey& key : product_format_keys()) CHECK(page.find("| `" + key.key + "` |") != std::string::npos);
  CHECK(page.find("| E0203 | ") != std::string::npos);
  CHECK(page.find("### An agent") != std::string::npos);
}

}  // namespace
}  // namespace baton::test::format_test
