// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>

#include <baton/baton.h>
#include <baton/reuse_method.h>

#include "engine/base/json/json_reader.h"
#include "engine/base/units/numbers.h"
#include "sdk/console/command_line.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

namespace baton::cli {
namespace fs = std::filesystem;
namespace {

/// Splits at the first '='. Throws Failure without a '=' or a name before it.
std::pair<std::string, std::string> split(const std::string& text, const std::string& option, const std::string& form) {
  const auto at = text.find('=');
  if (at == std::string::npos || at == 0) {
    throw Failure(kUsage, fmt::format("{} {}: expected {}", option, text, form));
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

/// A text as a YAML scalar, whatever is in it.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

/// Whether --model is "NAME=PATH", and not a path or a URL with a '=' in it.
bool names_a_model(const std::string& model) {
  const auto at = model.find('=');
  return at != std::string::npos && model.find_first_of(":/") > at;
}

/// On the command line a path starts where the user stands, in a workflow at the file; a bare name stays one.
std::string model_from_here(const std::string& model) {
  std::error_code error;
  return fs::is_directory(model, error) || fs::is_regular_file(model, error)
             ? fs::absolute(model).lexically_normal().string()
             : model;
}

/// Empty if workflow files know the method, else what is wrong.
std::string mistake_in_method(const std::string& name) {
  std::vector<std::string> known;
  for (const ReuseMethod& method : reuse_methods()) {
    known.push_back(method.name);
    if (!method.alias.empty()) known.push_back(method.alias);
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  const std::string near = closest(name, known);
  return fmt::format("{}: expected one of {}{}", name, fmt::join(known, ", "),
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

JsonDocument read_input_file(const std::string& file) {
  JsonDocument json;
  try {
    json = read_json(read_file(file));
  } catch (const JsonError& error) {
    throw Failure(kUsage, fmt::format("--input-file {}: expected a JSON object: {}", file, error.what()));
  }
  if (!json->is_object()) throw Failure(kUsage, fmt::format("--input-file {}: expected a JSON object", file));
  return json;
}

}  // namespace

void WorkflowArguments::add_to(Verb& verb) {
  verb.add_option("file", file, "Workflow file (YAML)")->required()->type_name("FILE");
  add_settings_to(verb);
}

void WorkflowArguments::add_settings_to(Verb& verb) {
  verb.add_option("--set", set, "Change a setting of the file, for example --set defaults.max_tokens=64")
      ->type_name("A.B=VALUE")
      ->allow_extra_args(false);
  verb.add_option(
          "--model", models,
          "Use another model: a folder, a .gguf file, a name, or hf:ORG/NAME that 'baton pull' downloaded; NAME= "
          "selects which of the file's models it replaces")
      ->type_name("[NAME=]PATH")
      ->allow_extra_args(false);
  verb.add_option("--relay", relay, "How KV is handed over, in place of relay.method of the file")
      ->check(mistake_in_method)
      ->type_name("METHOD");
}

Workflow WorkflowArguments::load(WorkflowOptions options) const {
  for (const auto& model : models) {
    if (!names_a_model(model)) continue;
    const auto [name, path] = split(model, "--model", "NAME=PATH");
    options.models.emplace_back(name, model_from_here(path));
  }
  if (!relay.empty()) options.set.emplace_back("relay.method", quoted(relay));
  for (const auto& setting : set) options.set.push_back(split_setting(setting));
  return Workflow::load(file, options);
}

std::string tools_of_host(const Workflow& workflow) {
  return fmt::format("{}", fmt::join(workflow.absent_tools(), ", "));
}

std::string WorkflowArguments::default_model() const {
  for (const auto& model : models) {
    if (!names_a_model(model)) return model;
  }
  return {};
}

void EngineArguments::add_to(Verb& verb) {
  verb.add_option("--device", device, "auto, cpu, cuda or cuda:N")->type_name("DEVICE")->capture_default_str();
  verb.add_option("--threads", threads, "CPU threads; 0: one per core")->type_name("N")->range(0, 4096);
  verb.add_option(
          "--slowdown", slowdown,
          "By how much prompts may lengthen decode steps, as a fraction of a step; 0: 0.67 on the CPU, 0.1 on a GPU")
      ->type_name("FRACTION")
      ->range(0.0, 10.0);
  verb.add_flag("--no-drafts", no_drafts, "Decode token by token also where an answer repeats earlier text");
  verb.add_option("--anchors-dir", learned, "Folder in which method anchors keeps its anchors between processes")
      ->type_name("DIR");
  verb.add_flag("--allow-servers", allow_servers,
                "Start the programs and open the addresses that the file names under mcp; they are not in a sandbox");
}

EngineOptions EngineArguments::options(const std::string& model, bool quiet) const {
  EngineOptions options;
  options.model = model;
  options.device = device;
  options.threads = threads;
  options.slowdown = slowdown;
  options.drafts = !no_drafts;
  options.learned_folder = learned;
  options.allow_servers = allow_servers;
  options.on_warning = [](const std::string& message) { note(warning_line(message)); };
  if (!quiet) {
    options.on_load = progress_line("loading");
    options.on_profile = progress_line("profiling");
  }
  return options;
}

void add_answers(Verb& verb, std::vector<std::string>& answers) {
  verb.add_option("--answer", answers, "The answer to a step that asks; 'approval#2' is the step in the second round")
      ->type_name("STEP=TEXT")
      ->allow_extra_args(false);
}

std::map<std::string, std::string> answers_of(const std::vector<std::string>& answers) {
  std::map<std::string, std::string> out;
  for (const std::string& answer : answers) {
    auto [step, text] = split(answer, "--answer", "STEP=TEXT");
    out.insert_or_assign(std::move(step), std::move(text));
  }
  return out;
}

void InputArguments::add_to(Verb& verb) {
  verb.add_option("-i,--input", pairs,
                  "An input; @FILE reads the value from a file, @- from standard input, @@ stands for a leading @")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb.add_option("--input-file", file, "Inputs as a JSON object")->type_name("FILE.json");
}

namespace {

/// Once: nothing is left for a second input.
std::string read_stdin() {
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), stdin)) text.append(part.data(), count);
  if (std::ferror(stdin) != 0)
    throw Failure(kUsage, fmt::format("cannot read standard input: {}", std::strerror(errno)));
  if (text.empty()) throw Failure(kUsage, "standard input is empty, or was read; expected the value of an input (@-)");
  return text;
}

}  // namespace

std::map<std::string, std::string> InputArguments::values() const {
  std::map<std::string, std::string> values;
  if (!file.empty()) {
    const JsonDocument json = read_input_file(file);
    for (const auto& [name, value] : json->items()) {
      values[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  for (const auto& pair : pairs) {
    auto [name, value] = split(pair, "--input", "name=value");
    if (value.rfind("@@", 0) == 0) {
      value.erase(0, 1);
    } else if (value.rfind('@', 0) == 0) {
      value = value == "@-" ? read_stdin() : read_file(value.substr(1));
      if (!value.empty() && value.back() == '\n') value.pop_back();  // the end of the file's last line
    }
    values[name] = value;
  }
  return values;
}

std::pair<std::string, std::string> split_setting(const std::string& setting) {
  return split(setting, "--set", "a.b=value");
}

std::chrono::milliseconds duration_of_option(const std::string& text, const std::string& option) {
  constexpr std::chrono::milliseconds kMaxDuration{1'000'000'000'000};
  const std::optional<std::chrono::milliseconds> duration = parse_duration(text, "s");
  if (!duration || duration->count() < 1 || *duration > kMaxDuration)
    throw Failure(kUsage, fmt::format("{} {}: expected a duration such as 90s, 500ms, 2m or 1h", option, text));
  return *duration;
}

std::string read_file(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    throw Failure(kUsage, fmt::format("{} is a folder; expected a file", path.string()));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) throw Failure(kUsage, fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  return std::move(text).str();
}

std::string how_to_give(const Workflow& workflow, const std::vector<std::string>& missing, const std::string& command) {
  std::string names, how;
  for (const auto& input : workflow.inputs()) {
    if (std::find(missing.begin(), missing.end(), input.name) == missing.end()) continue;
    names +=
        fmt::format("missing input '{}'{}{}\n", input.name, input.description.empty() ? "" : ": ", input.description);
    how += fmt::format(" --input {}=\"...\"", input.name);
  }
  return fmt::format("{}  run: {}{}\n  or from a file: --input NAME=@FILE, or --input-file FILE.json", names, command,
                     how);
}

namespace {

int fail(const std::string& program, ExitCode code, std::string_view text) {
  note(styled(Style::red, program + ": ") + printable(text, Lines::keep) + "\n");
  return code;
}

std::string hint(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string close = closest(word, candidates);
  return close.empty() ? std::string() : fmt::format("; did you mean '{}'?", close);
}

/// "The options are: --device, --json, ..." in lines that fit, in the order of the alphabet.
std::string listed(const std::string& what, std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  const int columns = stderr_is_terminal() ? std::min(terminal_size().columns - 1, 100) : 100;
  std::string text = wrapped(fmt::format("{}{}.", what, fmt::join(words, ", ")), columns);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<std::string> option_names(const Verb* verb) {
  std::vector<std::string> names = {"--help"};
  if (verb == nullptr) return {"--help", "--version"};
  for (const auto& option : verb->options()) {
    for (const std::string& name : option->long_names()) names.push_back("--" + name);
  }
  return names;
}

/// A usage error, with the nearest right word and where to read on.
int usage_error(const CommandLine& line, const CommandLine::Parsed& parsed) {
  const std::string& program = line.program();
  std::string text = parsed.mistake;
  if (!parsed.unexpected.empty()) {
    const std::string word = parsed.unexpected.substr(0, parsed.unexpected.find('='));
    if (parsed.verb != nullptr) {
      const auto& moved = parsed.verb->moved_options();
      if (const auto now = moved.find(word); now != moved.end()) {
        return fail(program, kUsage,
                    fmt::format("option '{}' of '{} {}' is now '{}'", word, program, parsed.verb->name(), now->second));
      }
    }
    const auto options = option_names(parsed.verb);
    text = word.rfind('-', 0) == 0 ? fmt::format("unknown option '{}'{}\n{}", word, hint(word, options),
                                                 listed("The options are: ", options))
                                   : fmt::format("unexpected argument '{}'", word);
  }
  const std::string help = program + (parsed.verb == nullptr ? "" : " " + parsed.verb->name()) + " --help";
  return fail(program, kUsage, fmt::format("{}\nSee '{}'.", text, help));
}

int run_verb(const std::string& program, const std::function<int()>& action) {
  try {
    const int code = action();
    check_stdout();
    return code;
  } catch (const Failure& failure) {
    return *failure.what() == '\0' ? failure.code : fail(program, failure.code, failure.what());
  } catch (const WorkflowError& error) {
    note_explain(note_mistakes(error));
    return kInvalidFile;
  } catch (const InputError& error) {
    return fail(program, kUsage, error.what());
  } catch (const ResourceError& error) {
    return fail(program, kResources, error.what());
  } catch (const std::bad_alloc&) {
    return fail(program, kResources, "out of memory");
  } catch (const std::exception& error) {
    return fail(program, kRunFailed, error.what());
  }
}

}  // namespace

int exit_code_of(const RunRecord& record) {
  switch (record.state) {
    case RunState::ok:
      return kOk;
    case RunState::timeout:
      return kTimeout;
    case RunState::cancelled:
      return kInterrupted;
    case RunState::suspended:
      return kSuspended;
    case RunState::failed:
      break;
  }
  if (record.error_kind == ErrorKind::input) return kUsage;
  return record.error_kind == ErrorKind::resources ? kResources : kRunFailed;
}

int run_program(CommandLine& line, const std::map<std::string, std::string>& moved, int argc, char** argv) {
  const std::string& program = line.program();
  if (argc < 2) {
    note(line.help());
    return kUsage;
  }
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const std::string& word = words[0]; word.rfind('-', 0) != 0 && line.find(word) == nullptr) {
    if (const auto now = moved.find(word); now != moved.end())
      return fail(program, kUsage, fmt::format("'{} {}' is now '{}'", program, word, now->second));
    std::vector<std::string> verbs;
    for (const auto& verb : line.verbs()) verbs.push_back(verb->name());
    return fail(program, kUsage,
                fmt::format("unknown verb '{}'{}\n{}\nSee '{} --help'.", word, hint(word, verbs),
                            listed("The verbs are: ", verbs), program));
  }
  // Before the words are read as options of `completion` itself.
  if (words.size() > 2 && words[0] == "completion" && words[1] == "words" && words[2] == "--") {
    return run_verb(program, [&] {
      result(candidate_lines(line, {words.begin() + 3, words.end()}));
      return kOk;
    });
  }
  CommandLine::Parsed parsed = line.parse(argc, argv);
  if (!parsed.shown.empty()) {
    return run_verb(program, [&] {
      result(parsed.shown);
      return kOk;
    });
  }
  if (parsed.mistake.empty() && parsed.verb == nullptr) parsed.mistake = "a verb is required";
  if (!parsed.mistake.empty()) return usage_error(line, parsed);
  watch_interrupts();
  return run_verb(program, parsed.verb->action());
}

}  // namespace baton::cli
