// SPDX-License-Identifier: Apache-2.0
// baton completion: scripts for shells. They ask the program itself, with the words that were typed, what may follow:
// verbs, options, workflows, the inputs and agents of the workflow that is named, methods and models.
#include <memory>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

// They call `baton completion words -- WORD...`, which main.cpp answers. No line that it prints is evaluated by a
// shell.

// Bash cuts words at '=' and ':' too, and wants to know what follows the last of these.
constexpr const char* kBash = R"(_baton() {
  local line value whole=${COMP_LINE:0:COMP_POINT} files=
  local -a words
  read -ra words <<< "$whole"
  [[ $whole == *[[:space:]] ]] && words+=("")
  local word=${words[-1]} current=${COMP_WORDS[COMP_CWORD]}
  [[ $current == [=:]* ]] && current=${current:1}
  local front=${word%"$current"}
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == :files ]]; then files=1; continue; fi
    value=${line%%$'\t'*}
    value=${value#"$front"}
    [[ $value == *[=./] ]] && compopt -o nospace
    printf -v value %q "$value"
    COMPREPLY+=("$value")
  done < <(baton completion words -- "${words[@]:1}" 2>/dev/null)
  if [[ -n $files ]]; then
    compopt -o filenames
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
  fi
}
complete -F _baton baton
)";

constexpr const char* kZsh = R"(#compdef baton
_baton() {
  local line value files=
  local -a plain begun shown_plain shown_begun
  while IFS= read -r line; do
    if [[ $line == :files ]]; then files=1; continue; fi
    value=${line%%$'\t'*}
    if [[ $value == *[=./] ]]; then
      begun+=("$value") shown_begun+=("${line//$'\t'/  -- }")
    else
      plain+=("$value") shown_plain+=("${line//$'\t'/  -- }")
    fi
  done < <(baton completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( $#plain )) && compadd -l -d shown_plain -a plain
  (( $#begun )) && compadd -l -S '' -d shown_begun -a begun
  [[ -n $files ]] && _files
}
if (( $+functions[compdef] )); then compdef _baton baton; fi
)";

constexpr const char* kFish = R"(function __baton_candidates
    set -l words (commandline -opc) (commandline -ct)
    for line in (baton completion words -- $words[2..-1] 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c baton -f -a '(__baton_candidates)'
)";

int print(const std::string& shell) {
  result(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
  return kOk;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "The scripts know the verbs and options, and of the workflow that a command line names also the values: inputs,\n"
      "agents, settings.\n\n"
      "Examples:\n"
      "  source <(baton completion bash)                                     in ~/.bashrc\n"
      "  source <(baton completion zsh)                                      in ~/.zshrc, after compinit\n"
      "  baton completion fish > ~/.config/fish/completions/baton.fish");
  verb->callback([shell, &action] { action = [shell] { return print(*shell); }; });
}

}  // namespace baton::cli
