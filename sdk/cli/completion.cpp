// SPDX-License-Identifier: Apache-2.0
// baton completion: scripts for shells, made from the verbs and options themselves.
#include <fmt/format.h>

#include <memory>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

std::string options_of(const CLI::App& verb) {
  std::string words;
  for (const auto* option : verb.get_options()) {
    for (const auto& name : option->get_lnames()) words += (words.empty() ? "--" : " --") + name;
  }
  return words;
}

std::string bash(const CLI::App& app) {
  std::string verbs, cases;
  for (const auto* verb : app.get_subcommands(nullptr)) {
    verbs += (verbs.empty() ? "" : " ") + verb->get_name();
    cases += fmt::format("    {}) options=\"{}\" ;;\n", verb->get_name(), options_of(*verb));
  }
  return fmt::format(R"(_baton() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} options=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) compopt -o filenames; COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -F _baton baton
)",
                     verbs, cases);
}

int print(const CLI::App& app, const std::string& shell) {
  // zsh runs bash's script.
  result((shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + bash(app));
  return kOk;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  verb->footer("Example, in ~/.bashrc:\n  source <(baton completion bash)");
  verb->callback([shell, &app, &action] { action = [shell, &app] { return print(app, *shell); }; });
}

}  // namespace baton::cli
