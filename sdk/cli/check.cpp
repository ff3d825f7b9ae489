// SPDX-License-Identifier: Apache-2.0
// baton check: what is wrong with workflow files; what a run would do, the graph, a prompt; what an error code means;
// the schema of workflow files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <memory>
#include <set>

#include <baton/baton.h>
#include <baton/preview.h>
#include <baton/turns.h>
#include <baton/workflow.h>

#include "sdk/cli/plan.h"
#include "sdk/cli/verbs.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::vector<std::string> kGraphFormats = {"ascii", "mermaid", "dot", "json"};

struct CheckArguments {
  std::vector<std::string> files;  // with --explain: error codes
  PlanArguments plan;              // with the settings and inputs that the other questions share
  bool show_plan = false;
  bool show_graph = false;
  std::string graph;  // a format, or empty
  std::string agent;  // whose prompt is shown, or empty
  int round = 1;
  std::vector<std::string> values;
  bool explain = false;
  bool schema = false;
  bool markdown = false;
};

OrderedJson json_of(const Diagnostic& item) {
  return {{"file", item.file}, {"line", item.line},       {"column", item.column}, {"length", item.length},
          {"code", item.code}, {"message", item.message}, {"hint", item.hint}};
}

int validate(const CheckArguments& arguments) {
  const bool as_json = arguments.plan.json;
  WorkflowArguments one = arguments.plan.workflow;
  OrderedJson list = OrderedJson::array();
  std::set<std::string> codes;
  bool sound = true;
  for (const auto& file : arguments.files) {
    OrderedJson errors = OrderedJson::array(), host_tools = OrderedJson::array(), warnings = OrderedJson::array();
    try {
      one.file = file;
      const Workflow workflow = one.load_to_show();
      host_tools = workflow.absent_tools();
      for (const TurnInfo& turn : workflow.turns()) {
        if (turn.unread.empty()) continue;
        if (!as_json) note(warning_line(fmt::format("{}: {}", file, turn.unread)));
        warnings.push_back(turn.unread);
      }
      if (!as_json) {
        const auto counted = [](std::size_t n, const char* what) {
          return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
        };
        const std::string host = tools_of_host(workflow);
        result(fmt::format("{}: ok: {}, {}{}\n", file, counted(workflow.agents().size(), "agent"),
                           counted(workflow.turns().size(), "turn"),
                           host.empty() ? "" : "; the program that runs it must provide: " + host));
      }
    } catch (const WorkflowError& error) {
      sound = false;
      if (!as_json) codes.merge(note_mistakes(error));
      for (const auto& item : error.items) errors.push_back(json_of(item));
    }
    list.push_back({{"file", file},
                    {"ok", errors.empty()},
                    {"errors", std::move(errors)},
                    {"warnings", std::move(warnings)},
                    {"host_tools", std::move(host_tools)}});
  }
  if (as_json) result(list.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  note_explain(codes);
  return sound ? kOk : kInvalidFile;
}

int graph(const CheckArguments& arguments) {
  std::string text = arguments.plan.workflow.load_to_show().graph(arguments.graph.empty() ? "ascii" : arguments.graph);
  if (text.empty() || text.back() != '\n') text += '\n';
  result(text);
  return kOk;
}

/// Throws Failure when the agent has no such turn.
const TurnPreview& find_turn(const Preview& preview, const CheckArguments& arguments) {
  std::vector<std::string> agents;
  int rounds = 0;
  for (const auto& turn : preview.turns) {
    agents.push_back(turn.agent);
    if (turn.agent != arguments.agent) continue;
    if (turn.round == arguments.round) return turn;
    rounds = std::max(rounds, turn.round);
  }
  if (rounds > 0) {
    throw Failure(kUsage, fmt::format("agent '{}' has {} rounds; --round {} does not exist", arguments.agent, rounds,
                                      arguments.round));
  }
  const std::string close = closest(arguments.agent, agents);
  throw Failure(kUsage, fmt::format("agent '{}' takes no turn; {}", arguments.agent,
                                    close.empty() ? fmt::format("expected one of {}", fmt::join(agents, ", "))
                                                  : fmt::format("did you mean '{}'?", close)));
}

OrderedJson json_of(const TurnPreview& turn) {
  OrderedJson parts = OrderedJson::array();
  OrderedJson ids = OrderedJson::array();
  for (const auto& part : turn.prompt) {
    OrderedJson one = {{"slot", part.slot}, {"known", part.known}, {"text", part.text}, {"tokens", part.tokens}};
    parts.push_back(std::move(one));
    for (const auto id : part.tokens) ids.push_back(id);
  }
  return {{"agent", turn.agent}, {"turn", turn.turn}, {"round", turn.round},       {"complete", turn.complete},
          {"text", turn.text()}, {"tokens", ids},     {"parts", std::move(parts)}, {"model", turn.model_path}};
}

/// Ids in lines, each part on its own.
std::string ids_of(const TurnPreview& turn) {
  std::string out;
  for (const auto& part : turn.prompt) {
    out += part.slot.empty() ? std::string("text:") : part.slot + ":";
    for (const auto id : part.tokens) out += fmt::format(" {}", id);
    out += part.known ? "\n" : " ?\n";
  }
  return out;
}

int render(const CheckArguments& arguments) {
  const Workflow workflow = arguments.plan.workflow.load_to_show();
  const Engine engine = Engine::open({.model = arguments.plan.workflow.default_model()});
  PreviewOptions known{.inputs = arguments.plan.inputs.values()};
  for (const auto& value : arguments.values) {
    const auto at = value.find('=');
    if (at == std::string::npos) throw Failure(kUsage, fmt::format("--value {}: expected NAME=TEXT", value));
    known.values[value.substr(0, at)] = value.substr(at + 1);
  }
  const Preview preview = engine.preview(workflow, known);
  const TurnPreview& turn = find_turn(preview, arguments);
  if (!turn.error.empty()) throw ResourceError(ResourceError::Kind::model, turn.error);
  if (arguments.plan.json) {
    result(json_of(turn).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
    return kOk;
  }
  std::int64_t tokens = 0;
  std::string unknown;
  for (const auto& part : turn.prompt) {
    tokens += static_cast<std::int64_t>(part.tokens.size());
    if (!part.known && unknown.find(part.slot) == std::string::npos)
      unknown += (unknown.empty() ? "" : ", ") + part.slot;
  }
  result(turn.text() + "\n\n" + fmt::format("{} tokens\n", tokens) + ids_of(turn));
  if (!unknown.empty()) note(fmt::format("unknown before a run: {}; give a text with --value NAME=TEXT\n", unknown));
  return kOk;
}

std::string indented(const std::string& text) {
  std::string out = "    ";
  for (const char c : printable(text, Lines::keep)) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out + "\n";
}

std::string text_of(const Explanation& one) {
  const int columns = stdout_is_terminal() ? terminal_size().columns - 1 : 100;
  return one.code + ": " + wrapped(one.meaning, columns, 7) + "\n" + wrapped(one.causes, columns) + "\n" +
         wrapped("What to do: " + one.remedy, columns) + "\nFor example, this gets the error:\n\n" +
         indented(one.wrong) + "\nand this does not:\n\n" + indented(one.right);
}

std::string list_of_all() {
  const int columns = stdout_is_terminal() ? terminal_size().columns - 1 : 100;
  std::string out;
  for (const Explanation& one : explanations()) out += one.code + "  " + wrapped(one.meaning, columns, 7);
  return out;
}

/// "e304", "304" and "E0304" are the same code.
std::string code_of(const std::string& word) {
  std::string digits = word;
  if (!digits.empty() && (digits.front() == 'e' || digits.front() == 'E')) digits.erase(0, 1);
  const bool number = !digits.empty() && digits.size() <= 4 &&
                      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return number ? "E" + std::string(4 - digits.size(), '0') + digits : word;
}

/// The codes that differ from it in one digit.
std::string near(const std::string& code) {
  std::vector<std::string> names;
  for (const Explanation& one : explanations()) {
    if (closest(code, {one.code}) == one.code) names.push_back(one.code);
  }
  if (names.empty()) return "'baton check --explain' lists all codes";
  return fmt::format("did you mean {}?", fmt::join(names, ", "));
}

int explain(const std::vector<std::string>& words) {
  if (words.empty()) result(list_of_all());
  std::string out;
  for (const std::string& word : words) {
    const std::string code = code_of(word);
    const auto& all = explanations();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Explanation& one) { return one.code == code; });
    if (found == all.end()) throw Failure(kUsage, fmt::format("unknown error code '{}'; {}", word, near(code)));
    out += (out.empty() ? "" : "\n") + text_of(*found);
  }
  result(out);
  return kOk;
}

int check(CheckArguments arguments) {
  if (arguments.explain) return explain(arguments.files);
  if (arguments.schema) {
    result(arguments.markdown ? workflow_reference() : workflow_schema());
    return kOk;
  }
  // A word behind --graph that is no format is a file: the format may be left out.
  if (!arguments.graph.empty() &&
      std::find(kGraphFormats.begin(), kGraphFormats.end(), arguments.graph) == kGraphFormats.end()) {
    if (arguments.graph != "true" && !arguments.files.empty())
      throw Failure(kUsage,
                    fmt::format("--graph {}: expected one of {}", arguments.graph, fmt::join(kGraphFormats, ", ")));
    if (arguments.graph != "true") arguments.files.push_back(arguments.graph);
    arguments.graph.clear();
  }
  if (arguments.files.empty()) throw Failure(kUsage, "FILE is required: a workflow to check");
  if (!arguments.show_plan && !arguments.show_graph && arguments.agent.empty()) return validate(arguments);
  if (arguments.files.size() > 1) throw Failure(kUsage, "--plan, --graph and --render take one workflow");
  arguments.plan.workflow.file = arguments.files.front();
  return arguments.show_plan ? plan(arguments.plan) : arguments.show_graph ? graph(arguments) : render(arguments);
}

void add_plan_options(Verb& verb, CheckArguments& arguments, const Option* plan) {
  PlanArguments& options = arguments.plan;
  verb.add_flag("--ids", options.ids, "With --plan: also print the token ids of each segment")->needs(plan);
  const Option* estimate =
      verb.add_flag("--estimate", options.estimate,
                    "With --plan: also say how long the run takes at most on this machine; opens the models, measures")
          ->needs(plan);
  verb.add_option("--device", options.device, "With --estimate: auto, cpu, cuda or cuda:N")
      ->type_name("DEVICE")
      ->needs(estimate);
  verb.add_option("--threads", options.threads, "With --estimate: CPU threads; 0: one per core")
      ->type_name("N")
      ->range(0, 4096)
      ->needs(estimate);
}

}  // namespace

void add_check(CommandLine& line) {
  Verb* verb = line.add_verb("check", "Check workflow files, and show what a run would do");
  auto arguments = std::make_shared<CheckArguments>();
  verb->add_option("files", arguments->files, "Workflow files (YAML); with --explain error codes, such as E0304")
      ->type_name("FILE");
  arguments->plan.workflow.add_settings_to(*verb);
  arguments->plan.inputs.add_to(*verb);
  Option* plan =
      verb->add_flag("--plan", arguments->show_plan, "Show what a run would do: graph, prompts, hand-overs, memory");
  Option* graph =
      verb->add_option("--graph", arguments->graph, "Draw who hands what to whom: ascii, mermaid, dot or json")
          ->type_name("FORMAT:{ascii,mermaid,dot,json}")
          ->or_alone("ascii");
  Option* render =
      verb->add_option("--render", arguments->agent, "Show the final prompt of an agent, as text and as token ids")
          ->type_name("AGENT");
  Option* explain = verb->add_flag("--explain", arguments->explain,
                                   "Say what error codes mean and what to do; without a code list all");
  Option* schema = verb->add_flag("--schema", arguments->schema, "Print the JSON Schema of workflow files");
  const std::vector<Option*> questions = {plan, graph, render, explain, schema};
  for (std::size_t i = 0; i < questions.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) questions[i]->excludes(questions[k]);
  add_plan_options(*verb, *arguments, plan);
  verb->add_option("--round", arguments->round, "With --render: the round of the prompt")
      ->capture_default_str()
      ->positive()
      ->needs(render);
  verb->add_option("--value", arguments->values,
                   "With --render: the text of a placeholder, for example agent_analyst_current=\"...\"")
      ->type_name("NAME=TEXT")
      ->allow_extra_args(false)
      ->needs(render);
  verb->add_flag("--markdown", arguments->markdown,
                 "With --schema: print the reference of all keys and error codes in place of the schema")
      ->needs(schema);
  verb->add_flag("--json", arguments->plan.json,
                 "Print JSON: of a check all errors, of a plan or a prompt all that is shown");
  verb->moved("--agent", "--render AGENT");
  verb->moved("--format", "--graph FORMAT");
  verb->footer(
      "Without a question, every error is shown in one pass, with its place, a stable code and a suggestion; the exit\n"
      "code is 3 if there are errors. Tools that the file describes and a program provides are known, and named.\n"
      "No question loads weights, except --estimate. --plan and --render read the model's tokenizer; placeholders "
      "that\n"
      "only a run can fill stay as {{ name }}.\n\n"
      "Examples:\n"
      "  baton check team.yaml\n"
      "  baton check workflows/*.yaml --json\n"
      "  baton check team.yaml --plan --input user_question=@question.txt --relay full --ids\n"
      "  baton check team.yaml --plan --estimate --threads 4\n"
      "  baton check team.yaml --graph dot | dot -Tsvg > team.svg\n"
      "  baton check team.yaml --render judge --value agent_analyst_current=\"It is 42.\" --json\n"
      "  baton check --explain E0304\n"
      "  baton check --schema > baton.v1.schema.json    then, as the first line of a workflow:\n"
      "                                                 # yaml-language-server: $schema=./baton.v1.schema.json");
  verb->run([arguments, graph] {
    arguments->show_graph = graph->count() > 0;
    return check(*arguments);
  });
}

}  // namespace baton::cli
