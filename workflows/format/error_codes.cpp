// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/error_codes.h"

namespace baton {

std::span<const ErrorCode> error_codes() {
  static constexpr ErrorCode kCodes[] = {
      {"E0101", "The text is not valid YAML."},
      {"E0102", "The file is not UTF-8, or holds control characters."},
      {"E0103", "A key occurs twice in one map."},
      {"E0104", "The file holds more than one document."},
      {"E0105", "An alias occurs inside the node that it refers to."},
      {"E0106", "The file is nested too deeply or has too many nodes or too much text, with its aliases resolved."},
      {"E0107", "A tag (`!name`), which is not supported."},
      {"E0108", "A list or map is used as a key."},
      {"E0109", "`<<` merges something other than maps."},

      {"E0201", "No agent has this id."},
      {"E0202", "No model has this name, or an agent does not say which of several models it uses."},
      {"E0203", "A placeholder names neither an input nor an agent's output."},
      {"E0204", "No tool, or no server of `mcp`, has this name."},
      {"E0205", "A placeholder is not closed or its name is malformed."},
      {"E0206", "`it` is used outside a loop."},
      {"E0207", "The name of an input is reserved for outputs of agents."},
      {"E0208", "A placeholder names the tool result of an agent that has no tools."},
      {"E0209", "A placeholder names the answer of an agent that has none, or a member that it does not have."},

      {"E0301", "The agents do not fit the topology, or a key that it needs is missing."},
      {"E0302", "A key belongs to another topology."},
      {"E0303", "An agent or step is listed twice."},
      {"E0304", "A prompt names an output that cannot exist when the agent starts."},
      {"E0305", "A history placeholder reaches back further than there are rounds."},
      {"E0306", "Steps depend on each other in a cycle."},
      {"E0307", "The decision agent also takes part in the rounds."},
      {"E0308", "The plan has too many turns or too much text, or the file too many names."},
      {"E0309", "No step has this id."},
      {"E0310", "A condition tests an agent whose output it cannot see."},
      {"E0311", "A condition is no expression."},

      {"E0401", "A key is unknown."},
      {"E0402", "A key is missing."},
      {"E0403", "A value has the wrong type."},
      {"E0404", "A value is not allowed."},
      {"E0405", "`--set` names a place that does not exist."},
      {"E0406", "A name is not an id: `[a-z][a-z0-9_]*`, at most 64 characters."},
      {"E0407", "A regular expression does not compile."},
      {"E0408", "A JSON Schema is invalid or uses an unsupported keyword."},
      {"E0409", "Keys exclude each other, or have no effect together."},
      {"E0410", "A tool rejects its options."},
      {"E0412", "Settings of `relay` contradict each other, or one leaves another without an effect."},
      {"E0413", "A grammar or a list of texts for an output is invalid or too large."},
      {"E0414", "A schema for an output holds what cannot be enforced while it is decoded."},

      {"E0501", "A file does not exist."},
      {"E0502", "A file cannot be read or is larger than 1 MiB, or all that are named have more than 64 MiB."},
      {"E0503", "An environment variable is not set, or `${env:...}` is malformed."},
      {"E0504", "A secret is used where it would be printed."},
      {"E0505", "Files extend each other in a cycle, an extended file is not a map, or an agent file uses another."},
  };
  return kCodes;
}

}  // namespace baton
