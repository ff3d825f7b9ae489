// SPDX-License-Identifier: Apache-2.0
// Completion in shells: the scripts of `baton completion`, which ask the program itself what may follow the words that
// were typed, and its answers: verbs, options, workflows, inputs, agents, methods and models.
#include "sdk/console/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <baton/baton.h>
#include <baton/reuse_method.h>
#include <baton/system.h>
#include <baton/turns.h>

#include "sdk/console/terminal.h"

namespace baton::cli {
namespace fs = std::filesystem;
namespace {

struct Candidate {
  std::string value;  // one line without control characters
  std::string about;  // one line, or empty
};

struct Candidates {
  std::vector<Candidate> values;  // each begins with the last word
  bool files = false;             // names of files too, which the shell knows better
};

using Json = nlohmann::json;
using List = std::vector<Candidate>;

/// The words that are values of no option.
std::vector<std::string> positionals_of(const Verb& verb, const std::vector<std::string>& words) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const Option* option = verb.find(words[i]);
    if (option != nullptr && option->takes_value() && words[i].find('=') == std::string::npos)
      ++i;  // its value
    else if (!words[i].starts_with("-"))
      found.push_back(words[i]);
  }
  return found;
}

std::optional<Workflow> workflow_of(const std::vector<std::string>& positionals) {
  if (positionals.empty()) return std::nullopt;
  try {
    return Workflow::load(positionals.front());
  } catch (const std::exception&) {
    return std::nullopt;  // not written to its end yet
  }
}

List verbs_of(const CommandLine& line) {
  List list;
  for (const auto& verb : line.verbs()) list.push_back({verb->name(), verb->description()});
  return list;
}

List options_of(const Verb& verb) {
  List list;
  for (const auto& option : verb.options()) {
    for (const std::string& name : option->long_names()) list.push_back({"--" + name, option->description()});
  }
  list.push_back({"--help", "Print this help message and exit"});
  return list;
}

/// "TEXT:{ascii,mermaid}" names the values that a check allows.
List allowed_by(const Option& option) {
  List list;
  const std::string type = option.type();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return list;
  for (std::size_t at = begin + 1; at < end;) {
    const std::size_t comma = std::min(type.find(',', at), end);
    list.push_back({type.substr(at, comma - at), ""});
    at = comma + 1;
  }
  return list;
}

List methods_list(bool aliases) {
  List list;
  for (const ReuseMethod& method : reuse_methods()) {
    list.push_back({method.name, method.summary});
    if (aliases && !method.alias.empty()) list.push_back({method.alias, "another name of " + method.name});
  }
  return list;
}

List models_list() {
  List list;
  for (const ModelInfo& model : models()) list.push_back({model.name, model.architecture});
  return list;
}

List workflows_list() {
  List list;
  for (const std::string& name : workflows()) list.push_back({name, "installed with Baton"});
  return list;
}

List inputs_list(const Workflow& workflow) {
  List list;
  for (const InputInfo& input : workflow.inputs()) list.push_back({input.name + "=", input.description});
  return list;
}

List agents_list(const Workflow& workflow) {
  List list;
  for (const AgentInfo& agent : workflow.agents()) list.push_back({agent.id, agent.role});
  return list;
}

List asking_list(const Workflow& workflow) {
  List list;
  for (const TurnInfo& turn : workflow.turns()) {
    if (turn.asks) list.push_back({turn.id + "=", turn.role});
  }
  return list;
}

List slots_list(const Workflow& workflow) {
  std::set<std::string> names;
  for (const TurnInfo& turn : workflow.turns()) {
    for (const SlotInfo& slot : turn.slots) names.insert(slot.name);
  }
  List list;
  for (const std::string& name : names) list.push_back({name + "=", ""});
  return list;
}

/// The parts of a JSON Schema that say something of one value: alternatives, references followed. All are parts of
/// `root`.
void for_each_part(const Json& root, const Json& schema, int depth, const std::function<void(const Json&)>& visit) {
  constexpr int kMaxDepth = 12;
  if (!schema.is_object() || depth > kMaxDepth) return;
  visit(schema);
  if (const auto reference = schema.find("$ref"); reference != schema.end())
    for_each_part(root, root.at(Json::json_pointer(reference->get<std::string>().substr(1))), depth + 1, visit);
  for (const char* key : {"allOf", "anyOf"}) {
    if (const auto list = schema.find(key); list != schema.end()) {
      for (const Json& one : *list) for_each_part(root, one, depth + 1, visit);
    }
  }
  for (const char* key : {"then", "else"}) {
    if (schema.contains(key)) for_each_part(root, schema[key], depth + 1, visit);
  }
}

/// What a map whose keys are the author's names holds, such as `agents`; null: its keys are fixed.
const Json* named_by_author(const Json& part) {
  const auto patterns = part.find("patternProperties");
  if (patterns == part.end()) return nullptr;
  for (const auto& [pattern, value] : patterns->items()) {
    if (pattern != "^x-") return &value;
  }
  return nullptr;
}

/// What may follow in a path of --set: keys of the format, and where a map has names of the author's, the agents'.
List settings_list(const std::string& word, const std::optional<Workflow>& workflow) {
  const Json root = Json::parse(workflow_schema());
  const std::size_t dot = word.rfind('.');
  const std::string before = dot == std::string::npos ? "" : word.substr(0, dot + 1);
  std::vector<const Json*> here = {&root};
  for (std::size_t at = 0; at < before.size();) {
    const std::size_t end = before.find('.', at);
    std::vector<const Json*> below;
    for (const Json* schema : here) {
      for_each_part(root, *schema, 0, [&](const Json& part) {
        const auto properties = part.find("properties");
        if (properties != part.end() && properties->contains(before.substr(at, end - at)))
          below.push_back(&(*properties)[before.substr(at, end - at)]);
        else if (const Json* named = named_by_author(part))
          below.push_back(named);
      });
    }
    here = below;
    at = end + 1;
  }
  std::map<std::string, std::string> found;  // with what they mean
  for (const Json* schema : here) {
    for_each_part(root, *schema, 0, [&](const Json& part) {
      const auto properties = part.find("properties");
      if (properties == part.end()) return;
      for (const auto& [key, value] : properties->items()) {
        bool deeper = false;
        for_each_part(root, value, 0, [&](const Json& one) {
          deeper = deeper || one.contains("properties") || named_by_author(one) != nullptr;
        });
        found.try_emplace(before + key + (deeper ? "." : "="),
                          value.is_object() ? value.value("description", "") : std::string());
      }
    });
  }
  if (before == "agents." && workflow) {
    for (const AgentInfo& agent : workflow->agents()) found.try_emplace(before + agent.id + ".", agent.role);
  }
  List list;
  for (const auto& [value, about] : found) list.push_back({value, about});
  return list;
}

/// Files and folders whose path begins with a text, behind `front`.
List files_list(const std::string& front, const std::string& begun) {
  constexpr int kMaxLooked = 1000;  // entries
  const std::size_t slash = begun.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : begun.substr(0, slash + 1);
  List list;
  std::error_code error;
  int looked = 0;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end;
       !error && at != end && ++looked <= kMaxLooked; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with('.') && begun.find('.', folder.size()) != folder.size()) continue;
    list.push_back({front + folder + name + (at->is_directory(error) ? "/" : ""), ""});
  }
  return list;
}

/// The values of an option for the word that is begun.
Candidates values_of(const Option& option, const std::string& word, const std::optional<Workflow>& workflow) {
  const std::string name = option.name();
  const std::string type = option.type();
  if (name == "input") {
    if (const std::size_t file = word.find("=@"); file != std::string::npos && !word.ends_with("@-"))
      return {files_list(word.substr(0, file + 2), word.substr(file + 2)), false};
    return {workflow ? inputs_list(*workflow) : List(), false};
  }
  if (name == "set") return {settings_list(word, workflow), false};
  if (name == "answer") return {workflow ? asking_list(*workflow) : List(), false};
  if (name == "render") return {workflow ? agents_list(*workflow) : List(), false};
  if (name == "value") return {workflow ? slots_list(*workflow) : List(), false};
  if (name == "relay" || name == "methods" || name == "row-methods") return {methods_list(name == "relay"), false};
  if (name == "device") return {{{"auto", ""}, {"cpu", ""}, {"cuda", ""}}, false};
  if (name == "model" || name == "author") return {models_list(), true};
  if (List allowed = allowed_by(option); !allowed.empty()) return {std::move(allowed), false};
  const bool files = type.starts_with("FILE") || type.starts_with("DIR") || type.starts_with("PATH");
  return {{}, files};
}

/// The argument that a verb takes in this place.
Candidates argument_of(const Verb& verb, std::size_t place) {
  const std::string& name = verb.name();
  if (name == "completion") return {{{"bash", ""}, {"zsh", ""}, {"fish", ""}}, false};
  for (const auto& option : verb.options()) {
    if (!option->is_argument()) continue;
    const bool several = option->takes_several();
    if (place > 0 && !several) {
      --place;
      continue;
    }
    if (option->type().starts_with("FILE")) return {workflows_list(), true};
    return {{}, option->type().starts_with("DIR") || option->type() == "TEXT"};
  }
  return {};
}

/// Only values that begin with the word, and that no terminal or shell takes for more than a word.
void sift(Candidates& candidates, const std::string& word) {
  const auto harmful = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  auto& values = candidates.values;
  values.erase(std::remove_if(values.begin(), values.end(),
                              [&](const Candidate& one) {
                                return !one.value.starts_with(word) ||
                                       std::any_of(one.value.begin(), one.value.end(), harmful);
                              }),
               values.end());
  for (Candidate& one : values) std::replace_if(one.about.begin(), one.about.end(), harmful, ' ');
  std::stable_sort(values.begin(), values.end(),
                   [](const Candidate& a, const Candidate& b) { return a.value < b.value; });
}

/// For the last of `words`, which follow the program's name; it may be empty. Reads the workflow that they name. Never
/// throws for what they are.
Candidates candidates_for(const CommandLine& line, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const std::string& word = words.back();
  Candidates found;
  const Verb* verb = line.find(words.front());
  if (words.size() == 1) {
    found.values = word.starts_with("-") ? List{{"--help", "Print this help message and exit"},
                                                {"--version", "Display program version information and exit"}}
                                         : verbs_of(line);
  } else if (verb != nullptr) {
    const std::vector<std::string> before(words.begin() + 1, words.end() - 1);
    const std::vector<std::string> positionals = positionals_of(*verb, before);
    const Option* last = before.empty() ? nullptr : verb->find(before.back());
    const Option* own = verb->find(word);
    const std::size_t equals = word.find('=');
    if (last != nullptr && last->takes_value() && before.back().find('=') == std::string::npos) {
      found = values_of(*last, word, workflow_of(positionals));
    } else if (own != nullptr && equals != std::string::npos) {  // --option=value
      found = values_of(*own, word.substr(equals + 1), workflow_of(positionals));
      for (Candidate& one : found.values) one.value.insert(0, word.substr(0, equals + 1));
      found.files = false;
    } else if (word.starts_with("-")) {
      found.values = options_of(*verb);
    } else {
      found = argument_of(*verb, positionals.size());
    }
  }
  sift(found, word);
  return found;
}

}  // namespace

std::string candidate_lines(const CommandLine& line, const std::vector<std::string>& words) {
  std::string out;
  const Candidates found = candidates_for(line, words);
  for (const Candidate& one : found.values) out += one.value + (one.about.empty() ? "" : "\t" + one.about) + "\n";
  return out + (found.files ? ":files\n" : "");
}

namespace {

// They call `baton completion words -- WORD...`, which run_program answers. No line that it prints is evaluated by a
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

/// The script of `baton` for another program: its own name wherever a word of the script is `baton`.
std::string script_for(const std::string& shell, const std::string& program) {
  std::string text = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  std::string identifier = program;
  std::replace(identifier.begin(), identifier.end(), '-', '_');
  const std::string name = "baton";
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
    const bool in_identifier = at > 0 && text[at - 1] == '_';
    const std::string& with = in_identifier ? identifier : program;
    text.replace(at, name.size(), with);
    at += with.size();
  }
  return text;
}

}  // namespace

void add_completion(CommandLine& line) {
  Verb* verb = line.add_verb("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "bash, zsh or fish")->required()->one_of({"bash", "zsh", "fish"});
  const std::string program = line.program();
  verb->footer(fmt::format(
      "The script completes verbs, options and, for the workflow that the command line names, their values: inputs,\n"
      "agents, settings.\n\n"
      "Examples:\n"
      "  source <({0} completion bash)    in ~/.bashrc\n"
      "  source <({0} completion zsh)     in ~/.zshrc, after compinit\n"
      "  {0} completion fish > ~/.config/fish/completions/{0}.fish",
      program));
  verb->run([shell, program] {
    result(script_for(*shell, program));
    return kOk;
  });
}

}  // namespace baton::cli
