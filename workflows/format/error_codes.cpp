// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/error_codes.h"

namespace baton {

std::span<const ErrorCode> error_codes() {
  static constexpr ErrorCode kCodes[] = {
      {"E0101", "The text is not YAML."},
      {"E0102", "The file is not UTF-8, or holds control characters."},
      {"E0103", "A key stands twice in one map."},
      {"E0104", "The file holds more than one document."},
      {"E0105", "An alias stands inside of what it stands for."},
      {"E0106", "Too deep, too many nodes or too much text, aliases included."},
      {"E0107", "A tag (`!name`)."},
      {"E0108", "A list or map as a key."},
      {"E0109", "`<<` with something else than maps."},

      {"E0201", "No agent has this id."},
      {"E0202", "No model has this name, or an agent names none of several."},
      {"E0203", "A placeholder that names no input and no agent."},
      {"E0204", "No tool has this name."},
      {"E0205", "A placeholder that is not closed or has no proper name."},
      {"E0206", "`it` outside of a loop."},
      {"E0207", "An input's name that is kept for agents' outputs."},
      {"E0208", "The result of a tool of an agent without tools."},

      {"E0301", "The agents do not fit the topology, or a key that it needs is missing."},
      {"E0302", "A key of another topology."},
      {"E0303", "An agent or step is listed twice."},
      {"E0304", "A prompt names an output that cannot exist when the agent starts."},
      {"E0305", "A history that reaches back further than there are rounds."},
      {"E0306", "Steps wait for each other in a circle."},
      {"E0307", "The decision agent also takes part in the rounds."},
      {"E0308", "More turns or text than a plan may have."},
      {"E0309", "No step has this id."},
      {"E0310", "A condition looks at an agent that it cannot see."},

      {"E0401", "An unknown key."},
      {"E0402", "A key is missing."},
      {"E0403", "A value of the wrong kind."},
      {"E0404", "A value that is not allowed."},
      {"E0405", "`--set` names a place that does not exist."},
      {"E0406", "A name that is not an id: `[a-z][a-z0-9_]*`, at most 64 characters."},
      {"E0407", "A regular expression that does not compile."},
      {"E0408", "A JSON Schema that is broken or uses an unsupported keyword."},
      {"E0409", "Keys that exclude each other, or have no effect together."},
      {"E0410", "A tool refuses its options."},
      {"E0412", "Settings of `relay` contradict each other: layers out of order, `refuse` below `trust`."},

      {"E0501", "A file is not there."},
      {"E0502", "A file cannot be read, or is larger than 1 MiB."},
      {"E0503", "An environment variable is not set, or `${env:...}` is malformed."},
      {"E0504", "A secret where it would be printed."},
      {"E0505", "Files that extend each other in a circle, or an agent file that uses another."},
  };
  return kCodes;
}

}  // namespace baton
