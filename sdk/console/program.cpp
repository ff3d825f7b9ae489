// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include <baton/baton.h>

#include "sdk/console/interrupt.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

namespace baton::cli {
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
