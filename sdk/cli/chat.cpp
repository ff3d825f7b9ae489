// SPDX-License-Identifier: Apache-2.0
// baton chat: a session in the terminal, or one message per line of a pipe. Answers go to stdout, everything else to
// stderr.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <baton/baton.h>
#include <baton/session.h>
#include <baton/turns.h>

#include "sdk/cli/verbs.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"

namespace baton::cli {
namespace {

constexpr const char* kCommands =
    "  /back [N]     forget the last message and its answers, or the last N\n"
    "  /again        ask the last message again, with another seed\n"
    "  /history      show what each agent remembers\n"
    "  /save FILE    write the session, for --session\n"
    "  /quit         end; Ctrl-D and Ctrl-C do the same, while an answer is written Ctrl-C stops the answer\n"
    "  //TEXT        say /TEXT\n"
    "A line that ends with \\ goes on in the next.\n";

struct ChatArguments {
  WorkflowArguments workflow;
  InputArguments inputs;
  EngineArguments engine;
  std::string message;  // name of the input
  std::string session;  // file
  std::optional<std::uint64_t> seed;
  bool json = false;
  bool quiet = false;
};

/// The input that messages fill.
std::string input_of_messages(const Workflow& workflow, const ChatArguments& arguments,
                              const std::map<std::string, std::string>& given) {
  std::vector<std::string> names, open;
  for (const InputInfo& input : workflow.inputs()) {
    names.push_back(input.name);
    if (input.required && given.count(input.name) == 0) open.push_back(input.name);
  }
  if (!arguments.message.empty()) {
    if (std::find(names.begin(), names.end(), arguments.message) == names.end())
      throw Failure(kUsage, fmt::format("--message: the workflow has no input '{}'; its inputs are: {}",
                                        arguments.message, fmt::join(names, ", ")));
    return arguments.message;
  }
  if (open.size() == 1) return open.front();
  if (open.empty() && names.size() == 1) return names.front();
  throw Failure(kUsage, fmt::format("which input is what you type? Name it with --message{}",
                                    names.empty() ? ": the workflow has no inputs, so it cannot be talked with"
                                                  : fmt::format(" NAME, one of: {}; the others are given with --input",
                                                                fmt::join(names, ", "))));
}

/// Writes the answer of the last agent as it comes, and a line for each of the others.
class ChatView {
 public:
  ChatView(const Workflow& workflow, const ChatArguments& arguments)
      : speaker_(workflow.turns().back().agent),
        streams_(stdout_is_terminal() && !arguments.json),
        warns_(!arguments.quiet),
        quiet_(arguments.quiet || !stderr_is_terminal()) {}

  void on_event(const Event& event) {
    if (const auto* token = std::get_if<Token>(&event); token != nullptr && token->agent == speaker_) {
      if (std::exchange(thinking_, false)) note("\n\n");
      streamed_ += token->text;
      if (streams_) result(token->text);
    } else if (const auto* thought = std::get_if<ThinkingToken>(&event);
               thought != nullptr && thought->agent == speaker_ && streams_ && !quiet_) {
      thinking_ = true;
      note(styled(Style::dim, printable(thought->text, Lines::keep)));
    } else if (const auto* finished = std::get_if<AgentFinished>(&event)) {
      finish(finished->record);
    } else if (const auto* tool = std::get_if<ToolCalled>(&event); tool != nullptr && !quiet_) {
      tell(styled(Style::dim, fmt::format("{}: tool {} {}\n", turn_name(tool->agent, tool->round),
                                          printable(tool->tool, Lines::fold), tool->ok ? "ran" : "failed")));
    } else if (const auto* warning = std::get_if<Warning>(&event); warning != nullptr && warns_) {
      tell(warning_line(warning->message));
    }
  }

  const std::string& streamed() const { return streamed_; }
  /// The messages that were held back while the answer was written.
  const std::string& notes() const { return notes_; }

 private:
  void tell(const std::string& line) {
    if (streams_ && !streamed_.empty())
      notes_ += line;
    else
      note(line);
  }

  void finish(const AgentRecord& record) {
    if (record.agent == speaker_ || quiet_ || record.state == TurnState::skipped) return;
    const std::string line = turn_name(record.agent, record.round) + ": " + printable(record.output, Lines::fold);
    tell(styled(Style::dim, head(line, std::max(20, terminal_size().columns - 1)) + "\n"));
  }

  std::string speaker_;
  bool streams_;
  bool warns_;  // also where no person reads along: what is lost must be in the log
  bool quiet_;
  bool thinking_ = false;  // its thinking is the last thing that was written
  std::string streamed_, notes_;
};

std::string messages_so_far(int runs) {
  return styled(Style::dim, fmt::format("{} message{} so far\n", runs, runs == 1 ? "" : "s"));
}

std::string answer_of(const RunRecord& record) {
  std::string text;
  for (const auto& [name, output] : record.outputs)
    text += (text.empty() ? "" : "\n") + (record.outputs.size() > 1 ? name + ": " + output : output);
  const AgentRecord* last = record.outputs.empty() ? last_said(record) : nullptr;
  return last == nullptr ? text : last->output;
}

/// "184 prompt tokens, of which 160 were kept; 24 tokens written in 410 ms".
std::string summary(const RunRecord& record) {
  std::int64_t prompt = 0, kept = 0, written = 0;
  for (const AgentRecord& agent : record.agents) {
    prompt += agent.prompt_tokens;
    kept += agent.history ? agent.history->continued : 0;
    written += agent.output_tokens + agent.thinking_tokens;
  }
  return fmt::format("{} prompt tokens, of which {} were kept; {} tokens written in {}", grouped(prompt), grouped(kept),
                     grouped(written), duration(record.wall_ms));
}

class Chat {
 public:
  explicit Chat(const ChatArguments& arguments)
      : arguments_(arguments),
        inputs_(arguments.inputs.values()),
        workflow_(arguments.workflow.load()),
        message_(input_of_messages(workflow_, arguments, inputs_)),
        engine_(Engine::open(arguments.engine.options(arguments.workflow.default_model(), arguments.quiet))),
        session_(open()) {}

  int talk() {
    const bool person = is_terminal(StandardStream::input);
    if (person && !arguments_.quiet) note(styled(Style::dim, "/help shows the commands\n"));
    const LastWords words([this] { keep_quietly(); });
    int code = kOk;
    try {
      code = messages(person);
    } catch (...) {
      keep_quietly();
      throw;
    }
    if (person) note("\n");
    keep();
    return code;
  }

 private:
  int messages(bool person) {
    int code = kOk;
    while (std::optional<std::string> line = read(person)) {
      if (person && line->empty()) continue;
      if (person && line->front() == '/' && !line->starts_with("//")) {
        if (!obey(*line)) break;
        continue;
      }
      if (person && line->starts_with("//")) line->erase(0, 1);
      again_ = 0;
      const int answered = ask(*line);
      if (!person && answered != kOk) code = answered;
    }
    return code;
  }

  Session open() const {
    std::error_code missing;
    const bool there = !arguments_.session.empty() && std::filesystem::exists(arguments_.session, missing);
    if (!there) {
      engine_.prepare(workflow_);
      return engine_.session(workflow_);
    }
    Session session = engine_.restore(workflow_, arguments_.session);
    if (!arguments_.quiet && stderr_is_terminal()) note(messages_so_far(session.runs()));
    return session;
  }

  static std::optional<std::string> read(bool person) {
    std::string text;
    while (true) {
      if (person) note(styled(Style::bold, text.empty() ? "> " : ". "));
      std::string line;
      if (!std::getline(std::cin, line)) return text.empty() ? std::nullopt : std::optional(text);
      if (!line.ends_with('\\')) return text + line;
      line.back() = '\n';
      text += line;
    }
  }

  int ask(const std::string& text) {
    last_ = text;
    remembered_ = false;
    ChatView view(workflow_, arguments_);
    const StopOne stop;
    RunOptions options;
    options.inputs = inputs_;
    options.inputs[message_] = text;
    options.seed = arguments_.seed;
    if (again_ > 0) options.seed = arguments_.seed.value_or(0) + static_cast<std::uint64_t>(again_);
    options.stop = stop.token();
    options.on_event = [&](const Event& event) { view.on_event(event); };
    if (can_ask()) options.on_ask = ask_person;
    RunRecord record;
    try {
      record = session_.run(options);
    } catch (const Error& error) {  // it ends this message, not the chat
      note(styled(Style::red, "baton: ") + printable(error.what(), Lines::keep) + "\n");
      return dynamic_cast<const ResourceError*>(&error) != nullptr ? kResources : kUsage;
    }
    remembered_ = record.state == RunState::ok;
    if (arguments_.json) {
      result(record.to_json(-1) + "\n");
      check_stdout();
    }
    if (record.state == RunState::cancelled) {
      note(styled(Style::dim, "\nstopped; the message is forgotten\n"));
      return kInterrupted;
    }
    if (record.state == RunState::suspended) {
      note("\n" + styled(Style::red, "baton: ") + printable(record.error, Lines::keep) +
           "; the message is forgotten\n");
      return kSuspended;
    }
    if (record.state != RunState::ok) {
      note("\n" + styled(Style::red, "baton: ") + printable(record.error, Lines::keep) + "\n");
      return exit_code_of(record);
    }
    if (arguments_.json) return kOk;
    const std::string answer = answer_of(record);
    if (!stdout_is_terminal() || view.streamed() != answer)
      result((stdout_is_terminal() && !view.streamed().empty() ? "\n" : "") + answer);
    result("\n");
    check_stdout();
    note(view.notes());
    if (!arguments_.quiet && stderr_is_terminal()) note(styled(Style::dim, summary(record) + "\n"));
    return kOk;
  }

  /// False: the user wants to leave.
  bool obey(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    try {
      if (command == "/quit" || command == "/exit") return false;
      if (command == "/help") {
        note(kCommands);
      } else if (command == "/back") {
        session_.rewind(rest.empty() ? 1 : number(rest));
        remembered_ = false;
        note(messages_so_far(session_.runs()));
      } else if (command == "/again" && !last_.empty()) {
        const Session before = session_.fork();
        const bool was_remembered = remembered_;
        if (remembered_) session_.rewind(1);
        ++again_;
        if (ask(std::string(last_)) != kOk) {
          const std::lock_guard lock(mutex_);
          session_ = before;
          remembered_ = was_remembered;
        }
      } else if (command == "/again") {
        note("nothing was said yet\n");
      } else if (command == "/history") {
        note(history());
      } else if (command == "/save" && !rest.empty()) {
        session_.save(rest);
        note(styled(Style::dim, "written to " + printable(rest, Lines::fold) + "\n"));
      } else {
        note(fmt::format("unknown command '{}'; /help shows the commands, and // begins a message with /\n",
                         printable(command, Lines::fold)));
      }
    } catch (const Error& error) {
      note(printable(error.what(), Lines::keep) + "\n");
    }
    return true;
  }

  static int number(const std::string& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw InputError(fmt::format("/back: expected a number, found '{}'", text));
    return value;
  }

  std::string history() const {
    std::string text;
    for (const AgentInfo& agent : workflow_.agents()) {
      for (const Message& message : session_.messages(agent.id)) {
        const std::string who = message.role == "assistant" ? agent.id : agent.id + " was told as " + message.role;
        text += styled(Style::bold, who + ": ") + printable(message.text, Lines::keep) + "\n";
      }
    }
    return text.empty() ? "nothing was said yet\n" : text;
  }

  void keep() const {
    if (arguments_.session.empty()) return;
    const Session session = [this] {
      const std::lock_guard lock(mutex_);  // also called when a signal ends the program
      return session_;
    }();
    if (session.runs() > 0) session.save(arguments_.session);
  }
  void keep_quietly() const {
    try {
      keep();
    } catch (const std::exception& error) {
      note("\nbaton: the session is not written: " + printable(error.what(), Lines::keep) + "\n");
    }
  }

  const ChatArguments& arguments_;
  std::map<std::string, std::string> inputs_;
  Workflow workflow_;
  std::string message_;
  Engine engine_;
  Session session_;
  mutable std::mutex mutex_;  // guards the session
  std::string last_;
  bool remembered_ = false;  // the session ends with the last message
  int again_ = 0;            // how often the last message was asked again
};

}  // namespace

void add_chat(CommandLine& line) {
  auto* verb = line.add_verb("chat", "Talk with a workflow, whose agents remember what was said");
  auto arguments = std::make_shared<ChatArguments>();
  arguments->workflow.add_to(*verb);
  arguments->inputs.add_to(*verb);
  arguments->engine.add_to(*verb);
  verb->add_option("--message", arguments->message, "The input that your messages are; by default the one that is open")
      ->type_name("NAME");
  verb->add_option("--session", arguments->session, "Go on with the session in this file, and write it at the end")
      ->type_name("FILE");
  verb->add_option("--seed", arguments->seed, "Seed of the sampling, in place of the file's")->type_name("N");
  verb->add_flag("--json", arguments->json, "Print the record of each run as one line of JSON, in place of the answer");
  verb->add_flag("-q,--quiet", arguments->quiet, "Print only answers and errors");
  verb->footer(
      std::string(
          "Each message is a run of the workflow in which every agent remembers its earlier turns; only what is\n"
          "new is computed. On a terminal the last agent's answer is shown as it is written. From a pipe each\n"
          "line is a message. Commands, on a terminal:\n") +
      kCommands +
      "\nExamples:\n"
      "  baton chat chat.yaml --model models/qwen2.5-coder-1.5b.gguf\n"
      "  baton chat team.yaml --session team.session --input language=Python\n"
      "  printf 'My name is Ada.\\nWhat is my name?\\n' | baton chat chat.yaml -q");
  verb->run([arguments] { return Chat(*arguments).talk(); });
}

}  // namespace baton::cli
