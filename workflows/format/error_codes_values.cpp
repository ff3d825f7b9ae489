// SPDX-License-Identifier: Apache-2.0
// The codes of values and files.
#include "workflows/format/error_codes.h"

namespace baton {

std::span<const ErrorCode> error_codes_of_values() {
  static constexpr ErrorCode kCodes[] = {
      {"E0401", "A key is unknown.",
       "The key is misspelt, stands at another level, or belongs to something else. Keys that begin with 'x-' are "
       "free.",
       "Use a key that the message suggests; 'baton schema --markdown' lists all of them.", "defaults: {max_token: 64}",
       "defaults: {max_tokens: 64}"},
      {"E0402", "A key is missing.",
       "A section that every workflow has, or a key that another one needs, is not there.",
       "Add the key that the message names.", "agents:\n  solver: {role: Solver}",
       "agents:\n  solver: {role: Solver, prompt: \"{{ user_question }}\"}"},
      {"E0403", "A value has the wrong type.",
       "YAML reads 7, 2.5 and 1e3 as numbers and [a] as a list where a text is expected; or a value is empty.",
       "Put a text that looks like a number into double quotes.", "name: 7", "name: \"7\""},
      {"E0404", "A value is not allowed.",
       "A number is outside its range, a name is none of those allowed, or the version is another.",
       "Use a value that the message lists.", "workflow: {topology: ring}", "workflow: {topology: chain}"},
      {"E0405", "`--set` names a place that does not exist.",
       "The path names an agent, a model or an element of a list that the file does not have.",
       "Write the path as in the file, with dots: agents.ID.max_tokens, workflow.rounds, models.NAME.path.",
       "--set agents.slover.max_tokens=64", "--set agents.solver.max_tokens=64"},
      {"E0406", "A name is not an id: `[a-z][a-z0-9_]*`, at most 64 characters.",
       "The id of an agent, an input or a model has capitals, a '-', a blank, or a digit at its front.",
       "Use small letters, digits and '_'; what people read goes into 'role' or 'description'.",
       "inputs: {user_question: string, Answer-Style: string}",
       "inputs: {user_question: string, answer_style: string}"},
      {"E0407", "A regular expression does not compile.",
       "A bracket or a parenthesis is not closed, or a backslash in double quotes was taken by YAML.",
       "Correct the pattern; in single quotes a backslash stays one.",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {pattern: '([0-9]+'}}",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {pattern: '([0-9]+)'}}"},
      {"E0408", "A JSON Schema is invalid or uses an unsupported keyword.",
       "A type or a keyword is misspelt, or the keyword is one that is not supported, as 'oneOf'.",
       "Correct the places that the message names.",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n    output: {schema: {properties: {n: {type: int}}}}",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n    output: {schema: {properties: {n: {type: "
       "integer}}}}"},
      {"E0409", "Keys exclude each other, or have no effect together.",
       "Two keys say the same thing in two ways, or one makes the other pointless.", "Remove one of the two.",
       "inputs: {user_question: {required: true, default: \"6 x 7?\"}}",
       "inputs: {user_question: {default: \"6 x 7?\"}}"},
      {"E0410", "A tool rejects its options.",
       "An option is misspelt, missing, or has a value that the tool does not take.",
       "Use the options that the message lists.",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", tools: [{python: {time: 5s}}]}",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", tools: [{python: {timeout: 5s}}]}"},
      {"E0412", "Settings of `relay` contradict each other, or one leaves another without an effect.",
       "A setting belongs to another method, or two decide the same thing.",
       "Keep the one that is meant; docs/methods.md says which settings each method has.",
       "relay: {method: rectify, select: {all: true, share: 0.2}}", "relay: {method: rectify, select: {share: 0.2}}"},
      {"E0413", "A grammar or a list of texts for an output is invalid or too large.",
       "A rule is missing or begins with itself, or the expression is not closed.",
       "Correct the rule that the message names.",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {grammar: 'root ::= verdict'}}",
       "agents:\n  solver: {prompt: \"{{ user_question }}\", output: {grammar: 'root ::= \"yes\" | \"no\"'}}"},
      {"E0414", "A schema for an output holds what cannot be enforced while it is decoded.",
       "No text fulfils the schema, or keywords stand together that cannot be combined token by token.",
       "Simplify the schema, or write 'enforce: false', which checks the answer when it is complete.",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n"
       "    output: {schema: {type: integer, minimum: 5, maximum: 4}}",
       "agents:\n  solver:\n    prompt: \"{{ user_question }}\"\n"
       "    output: {schema: {type: integer, minimum: 4, maximum: 5}}"},

      {"E0501", "A file does not exist.", "A path is misspelt, or starts at another folder: paths start at the file.",
       "Correct the path.", "agents:\n  solver: {prompt: {user: {file: prompt/solver.md}}}",
       "agents:\n  solver: {prompt: {user: {file: prompts/solver.md}}}"},
      {"E0502", "A file cannot be read or is larger than 1 MiB, or all that are named have more than 64 MiB.",
       "The path is a folder, or the file may not be read, or it is data and not a prompt.",
       "Name a text file; give long texts as inputs: --input NAME=@FILE.",
       "agents:\n  solver: {prompt: {user: {file: prompts}}}",
       "agents:\n  solver: {prompt: {user: {file: prompts/solver.md}}}"},
      {"E0503", "An environment variable is not set, or `${env:...}` is malformed.",
       "The variable is set in another shell, or its name is misspelt.",
       "Set it (export NAME=VALUE), or give it a default: ${env:NAME:-VALUE}.",
       "models: {main: \"${env:MODEL_OF_THE_TEAM}\"}", "models: {main: \"${env:MODEL_OF_THE_TEAM:-nano}\"}"},
      {"E0504", "A secret is used where it would be printed.",
       "'${secret:NAME}' stands in a prompt, a path or a name, which plans and records show.",
       "Use it in the options of a host's tool, or as the key of a model on a server; elsewhere '${env:NAME}' is "
       "shown.",
       "models: {main: {endpoint: \"${secret:SERVER}\"}}",
       "models: {main: {endpoint: \"http://localhost:8000\", key: \"${secret:KEY}\"}}"},
      {"E0505", "Files extend each other in a cycle, an extended file is not a map, or an agent file uses another.",
       "'extends' names the file itself, or one that extends it again.", "Let both extend a third file.",
       "extends: team.yaml", "extends: base.yaml"},
  };
  return kCodes;
}

}  // namespace baton
