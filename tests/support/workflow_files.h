// SPDX-License-Identifier: Apache-2.0
// Workflows as text for tests, and a folder of their own for those that need files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "agents/tools/tool.h"
#include "tests/support/folders.h"
#include "tests/support/temp_folder.h"
#include "workflows/compile.h"

namespace baton::test {

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// A "python" that runs nothing and knows the options "seconds" and "timeout". Models may call it.
inline ToolRegistry fake_tools() {
  struct Fake final : Tool {
    std::string name() const override { return "python"; }
    std::string check(const std::map<std::string, std::string>& options) const override {
      for (const auto& [name, value] : options) {
        if (name != "seconds" && name != "timeout") return "unknown option '" + name + "'";
      }
      return {};
    }
    ToolResult call(const ToolCall&) const override { return {}; }
    ToolDefinition definition() const override { return {"Runs a program.", R"({"properties": {}})"}; }
  };
  ToolRegistry registry;
  registry.add(std::make_shared<Fake>());
  return registry;
}

inline Plan plan(const std::string& yaml, const std::vector<std::pair<std::string, std::string>>& set = {},
                 const std::filesystem::path& file = "team.yaml") {
  const ToolRegistry tools = fake_tools();
  ReadOptions options;
  options.tools = &tools;
  options.set = set;
  return compile(std::string_view(yaml), file, options);
}

inline WorkflowSpec parse(const std::string& yaml, const std::vector<std::pair<std::string, std::string>>& set = {},
                          const std::filesystem::path& file = "team.yaml") {
  return *plan(yaml, set, file).spec;
}

/// All errors as text; empty: none.
inline std::string errors_of(const std::string& yaml, const std::filesystem::path& file = "team.yaml") {
  try {
    plan(yaml, {}, file);
    return {};
  } catch (const WorkflowError& error) {
    return error.what();
  }
}

/// "version: 1", a model, and what follows.
inline std::string with_header(const std::string& rest) { return "version: 1\nmodels: {main: nano}\n" + rest; }

/// A folder of files that goes away with the object.
class Folder {
 public:
  std::filesystem::path add(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

}  // namespace baton::test
