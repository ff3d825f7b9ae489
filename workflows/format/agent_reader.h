// SPDX-License-Identifier: Apache-2.0
// One agent of a checked tree, and the parts that agents and steps share.
#pragma once

#include <string>
#include <string_view>

#include "workflows/format/fields.h"
#include "workflows/format/output_grammar.h"
#include "workflows/format/spec.h"
#include "workflows/format/tool_reader.h"

namespace baton {

/// Reads agents. Errors go to the diagnostics; without errors the agents are complete.
class AgentReader {
 public:
  AgentReader(const ToolReader& tools, OutputGrammars& grammars, Diagnostics& diagnostics)
      : tools_(tools), grammars_(grammars), diagnostics_(diagnostics) {}

  AgentSpec agent(const YamlEntry& entry);
  GenerationSpec generation(const Fields& fields);

  struct ErrorHandling {
    std::optional<OnError> on_error;
    std::optional<std::string> fallback;
    std::optional<RetrySpec> retry;
  };
  ErrorHandling error_handling(const Fields& fields, const std::string& owner);

  /// Empty, with an error, when the pattern does not compile.
  std::string pattern(const Fields& fields, const char* key, const std::string& owner);

 private:
  ToolSpec ask(const YamlNode& question, const Fields& fields, const std::string& owner);
  void check_tools_only(const Fields& fields, const std::string& owner);
  std::vector<TemplatePiece> feedback(const YamlNode& text, const std::string& owner);
  OutputSpec output(const YamlNode& node, const std::string& owner);
  void check_choices(const OutputSpec& output, const Fields& fields, const std::string& owner);
  void check_output(const OutputSpec& output, std::string_view kind, const Fields& fields, const std::string& owner);

  const ToolReader& tools_;
  OutputGrammars& grammars_;
  Diagnostics& diagnostics_;
};

}  // namespace baton
