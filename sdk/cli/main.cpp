// SPDX-License-Identifier: Apache-2.0
// The runner `baton`: one verb per file; this one reads the command line, runs the verb and turns errors into exit
// codes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <sstream>

#include <baton/baton.h>
#include <baton/version.h>

#include "sdk/cli/candidates.h"
#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/mistakes.h"
#include "sdk/cli/console/suggest.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

int fail(ExitCode code, std::string_view text) {
  note(styled(Style::red, "baton: ") + printable(text, Lines::keep) + "\n");
  return code;
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* verb : app.get_subcommands(nullptr)) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
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

/// A usage error, with the nearest right word and where to read on.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto verbs = app.get_subcommands();
  const CLI::App& at = verbs.empty() ? app : *verbs.front();
  std::string text = error.what();
  if (const auto extras = app.remaining(true); !extras.empty()) {
    const std::string word = extras.front().substr(0, extras.front().find('='));
    const auto options = option_names(at);
    text = word.rfind('-', 0) == 0 ? fmt::format("unknown option '{}'{}\n{}", word, hint(word, options),
                                                 listed("The options are: ", options))
                                   : fmt::format("unexpected argument '{}'", word);
  }
  const std::string help = verbs.empty() ? "baton --help" : fmt::format("baton {} --help", at.get_name());
  return fail(kUsage, fmt::format("{}\nSee '{}'.", text, help));
}

int run_verb(const Action& action) {
  try {
    const int code = action();
    check_stdout();
    return code;
  } catch (const Failure& failure) {
    return *failure.what() == '\0' ? failure.code : fail(failure.code, failure.what());
  } catch (const WorkflowError& error) {
    note_explain(note_mistakes(error));
    return kInvalidFile;
  } catch (const InputError& error) {
    return fail(kUsage, error.what());
  } catch (const ResourceError& error) {
    return fail(kResources, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kResources, "out of memory");
  } catch (const std::exception& error) {
    return fail(kRunFailed, error.what());
  }
}

int main_of(int argc, char** argv) {
  CLI::App app("Runs teams of LLM agents that are described in YAML, in this process.");
  app.name("baton");
  app.set_version_flag("--version", std::string("baton ") + version());
  app.footer(
      "Start here:\n"
      "  baton init my_team                                   write a small workflow to change\n"
      "  baton run my_team/team.yaml --input question=\"...\"   run it\n"
      "  baton chat my_team/team.yaml                         talk with it; it remembers what was said\n"
      "  baton serve my_team/team.yaml                        answer HTTP requests with it, as OpenAI's interface "
      "does\n"
      "  baton pull ORG/NAME:Q4_K_M                           download a published model\n"
      "  baton doctor                                         what this machine can do\n\n"
      "Every verb has its own help: baton run --help. Exit codes: 0 ok, 1 the run failed, 2 usage, 3 invalid file,\n"
      "4 resources (memory, device, model), 5 timeout, 6 verification failed, 7 suspended: the run waits\n"
      "for an answer, 130 interrupted.");
  Action action;
  const std::vector<std::pair<const char*, std::vector<void (*)(CLI::App & app, Action & action)>>> groups = {
      {"Run workflows", {add_run, add_chat, add_serve}},
      {"Check and show workflows", {add_init, add_validate, add_explain, add_plan, add_graph, add_render, add_schema}},
      {"Recorded runs", {add_resume, add_replay, add_report, add_trace, add_diff}},
      {"Models and measuring", {add_pull, add_models, add_profile, add_learn, add_eval, add_load, add_bench}},
      {"Baton itself", {add_doctor, add_completion, add_version}},
  };
  for (const auto& [group, adders] : groups) {
    for (const auto add : adders) add(app, action);
    for (auto* verb : app.get_subcommands(nullptr)) {
      if (verb->get_group() == "Subcommands") verb->group(group);
    }
  }
  if (argc < 2) {
    note(app.help());
    return kUsage;
  }
  const auto verbs = verb_names(app);
  if (const std::string word = argv[1];
      word.rfind('-', 0) != 0 && std::find(verbs.begin(), verbs.end(), word) == verbs.end()) {
    return fail(kUsage, fmt::format("unknown verb '{}'{}\n{}\nSee 'baton --help'.", word, hint(word, verbs),
                                    listed("The verbs are: ", verbs)));
  }
  // Before the words are read as options of `completion` itself.
  if (const std::vector<std::string> words(argv + 1, argv + argc);
      words.size() > 2 && words[0] == "completion" && words[1] == "words" && words[2] == "--") {
    return run_verb([&] {
      result(candidate_lines(app, {words.begin() + 3, words.end()}));
      return kOk;
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text;
    app.exit(asked, text);
    return run_verb([&] {
      result(text.str());
      return kOk;
    });
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  if (!action) return usage_error(app, CLI::RequiredError("a verb"));
  watch_interrupts();
  return run_verb(action);
}

}  // namespace
}  // namespace baton::cli

int main(int argc, char** argv) {
  baton::open_standard_files();
  return baton::cli::main_of(argc, argv);
}
