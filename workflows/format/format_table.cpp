// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/format_table.h"
#include "engine/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "engine/base/units/numbers.h"
#include "workflows/format/spec.h"

namespace baton {
namespace {

using namespace format_types;

FormatType text() { return either({prompt(), object("text"), list(either({prompt(), object("text")}))}); }
FormatType dtype() { return choice({"bf16", "f32"}); }
FormatType on_error() { return choice({"fail", "skip", "fallback"}); }
FormatType condition() { return object_or(string(), "condition", "holds"); }
FormatType overflow_policy() { return choice({"error", "cut_result", "drop_oldest", "summarise"}); }
FormatType retry() { return object_or(integer(1, 100), "retry", "attempts"); }

/// Settings of a generation stand in `defaults` and in each agent.
void add_generation(std::vector<FormatKey>& keys, const std::string& owner) {
  const bool of_agent = owner == "agent";
  const auto fallback = [&](const char* text) {
    return of_agent ? std::string("that of `defaults`") : std::string(text);
  };
  keys.push_back({owner, "model", id(), false, fallback("the only model"), "Name of a model of `models`."});
  keys.push_back({owner, "max_tokens", integer(1), false, fallback("256"), "Maximum number of tokens of an output."});
  keys.push_back({owner, "temperature", number(0, 100), false, fallback("0"),
                  "Sampling temperature; 0: greedy decoding, which takes the likeliest token."});
  keys.push_back(
      {owner, "top_k", integer(0), false, fallback("0"), "Samples from the k likeliest tokens; 0: from all."});
  keys.push_back({owner, "top_p", number_above(0, 1), false, fallback("1"),
                  "Samples from the likeliest tokens that together have this probability."});
  keys.push_back({owner, "min_p", number(0, 1), false, fallback("0"),
                  "Drops tokens whose probability is below this fraction of the likeliest token's."});
  keys.push_back({owner, "repetition_penalty", number_above(0, 100), false, fallback("1"),
                  "Divides the logits of tokens seen before."});
  keys.push_back({owner, "presence_penalty", number(-2, 2), false, fallback("0"),
                  "Is taken from the logits of tokens that the output has already."});
  keys.push_back({owner, "frequency_penalty", number(-2, 2), false, fallback("0"),
                  "The same for each time that the output has the token."});
  keys.push_back({owner, "seed", integer(0, 9e15), false, fallback("that of the run"), "Seed of sampling."});
  keys.push_back({owner, "stop", either({string(), list(string())}), false, fallback("none"),
                  "Texts that end an output; they are not part of it."});
  keys.push_back({owner, "think", object_or(boolean(), "think", "enabled"), false, fallback("the model's own way"),
                  "How a model that thinks before it answers does so."});
  keys.push_back({owner, "timeout", time_limit(), false, of_agent ? "that of `defaults`; with `ask` none" : "none",
                  of_agent ? "Time limit of one attempt at a turn, with its tools."
                           : "Time limit of one attempt at a turn, with its tools; not of one that asks."});
}

std::vector<FormatKey> make_keys(bool laboratory) {
  std::vector<FormatKey> keys = {
      {"", "version", integer(1, 1), true, "", "Version of the format."},
      {"", "name", string(), false, "the file's name", "Name of the workflow in records and reports."},
      {"", "description", string(), false, "", "What the workflow is for."},
      {"", "extends", string(), false, "",
       "A workflow file to start from: maps are merged key by key, and values of this file take precedence; `null` "
       "removes a key."},
      {"", "inputs", map(object_or(choice({"string"}), "input", "type")), false, "`user_question`, required",
       "What a run is given, by name; the short form is the type. Names are placeholders in prompts."},
      {"", "models", map(object_or(string(), "model", "path")), true, "",
       "Models by name; the short form is the path."},
      {"", "tools", map(object("tool")), false, "",
       "Tools that models may call, by name; a tool of the host's, or `python`, may be described anew."},
      {"", "mcp", map(object("server")), false, "",
       "Servers of the Model Context Protocol by name, whose tools, resources and prompts agents use. A run starts "
       "them "
       "and ends them, where its host allows it (`--allow-servers`)."},
      {"", "defaults", object("defaults"), false, "", "Settings of all agents that do not set them."},
      {"", "agents", map(object("agent")), true, "", "Agents by id."},
      {"", "workflow", object("workflow"), false, "one agent, one turn", "Who runs when, and who sees whom."},
      {"", "relay", object_or(relay_method(laboratory), "relay", "method"), false, "auto",
       "How outputs are handed to prompts downstream; the short form is the method."},
      {"", "outputs", map(prompt()), false, "`answer`, the output of the last agent",
       "Results of a run: texts with placeholders over the inputs and each agent's last output."},

      {"input", "type", choice({"string", "messages"}), false, "string",
       "Type of the value; `messages`: a list of `{role, content}` as JSON, for `history` in a prompt, with calls of "
       "tools and their results as in OpenAI's interface."},
      {"input", "required", boolean(), false, "true without a default", "Whether every run must provide the input."},
      {"input", "default", scalar(), false, "", "The value in a run that provides none."},
      {"input", "description", string(), false, "", "What the input is."},

      {"tool", "description", string(), false, "that of the host's tool", "What the tool does, for the model."},
      {"tool", "parameters", any(), false, "that of the host's tool; with `python`: none",
       "A JSON Schema of the arguments, an object (as `output.schema`)."},
      {"tool", "python", string(), false, "",
       "The tool as a program in Python: the arguments are in the dictionary `arguments`, and what it prints is the "
       "result. It runs in the sandbox of the tool `python`."},

      {"server",
       "command",
       list(string()),
       true,
       "",
       "The program and its arguments, which speaks over its standard input and output. It starts in the file's "
       "folder, "
       "not in a sandbox, with PATH, HOME and the like as its only variables.",
       {"url"}},
      {"server", "env", names_to(string()), false, "none", "More variables of the program, by name."},
      {"server", "url", string(), false, "", "The address of a server over HTTP, in place of `command`."},
      {"server", "headers", names_to(string()), false, "none",
       "Headers of each request to `url`, by name; `${env:NAME}` keeps a token out of the file."},
      {"server", "timeout", time_limit(), false, "30s",
       "Time limit of the start, and of each request but the calls of a model, whose limit is in `calls`."},
      {"server", "required", boolean(), false, "true",
       "Whether a run fails when the server cannot be started; otherwise it goes on without it, with a warning."},

      {"model",
       "path",
       string(),
       true,
       "",
       "A GGUF file, a folder with a Hugging Face model, the name of a model in a folder of the model search path, or "
       "`hf:ORG/NAME` that `baton pull` downloaded.",
       {"endpoint"}},
      {"model", "dtype", dtype(), false, "bf16", "Type of the weights in memory."},
      {"model", "kv_dtype", dtype(), false, "that of the weights", "Type of the KV cache."},
      {"model", "activations", dtype(), false, "f32",
       "Type of the inputs of products with bf16 weights, on the CPU: `bf16` rounds them, which is 1.3 to 1.9 times as "
       "fast on an AMD EPYC with AVX512_BF16, and less exact."},
      {"model", "context", integer(1), false, "the model's own",
       "Maximum length of prompt and output together, in tokens."},
      {"model", "template", names_to(any()), false, "none",
       "Variables of the model's chat template by name, for all its agents: `enable_thinking: false`, "
       "`reasoning_effort: low`."},
      {"model", "endpoint", string(), false, "",
       "The address of a server that runs the model, in place of `path`: `http://host:8000` (docs/remote.md)."},
      {"model", "model", string(), false, "the only one", "The model's name on the server."},
      {"model", "api", choice({"auto", "llama", "vllm", "sglang", "openai"}), false, "auto",
       "What the server is: `llama`: llama-server; `vllm` and `sglang`: these, with a `tokenizer`; `openai`: any other "
       "with OpenAI's API; `auto`: it is asked."},
      {"model", "tokenizer", string(), false, "the server's",
       "A model as in `path`, of which tokenizer and chat template are used; a server that is no llama-server then "
       "gets "
       "token ids in place of messages."},
      {"model", "key", scalar(), false, "none",
       "The server's key; `${secret:NAME}` takes it from the environment variable NAME when the server is called."},
      {"model", "patience", duration(), false, "60s",
       "How long a request is sent again, in all, to a server that cannot be reached or is overloaded."},
  };
  add_generation(keys, "defaults");
  keys.insert(
      keys.end(),
      {
          {"agent", "use", string(), false, "",
           "An agent file to start from, by name: looked for next to this file, in `roles/` next to it, and in "
           "`agents/roles`. Keys given here take precedence."},
          {"agent", "role", string(), false, "the id", "Name of the role, for people and for `{{ it.role }}`."},
          {"agent", "description", string(), false, "", "What the agent does."},
          {"agent",
           "prompt",
           object_or(prompt(), "prompt", "user"),
           true,
           "",
           "The prompt; the short form is the user message. Without it, what the tools return is the output.",
           {"tools", "ask"}},
          {"agent", "ask", prompt(), false, "",
           "A question to the host, in place of `prompt`; the answer is the output, and `output` says what it may be. "
           "A "
           "run without an answer ends in state `suspended`, to go on later."},

          {"agent", "tools",
           list(either({id(), map(either({scalar(), list(scalar()), map(either({scalar(), names_to(scalar())}))}))})),
           false, "none",
           "`name` or `{name: {option: value}}` runs before the prompt is built: option `from` names the text that "
           "a tool works on, others may hold placeholders, and `condition_<agent>_current` is the result. "
           "`{call: name}`, with options next to it, may be called by the model, and so may the tools of a server: all "
           "with `{mcp: server}`, some with `{mcp: server, only: [name, ...]}`. `{mcp: {server: ..., resource: ...}}`, "
           "or `prompt` or `tool`, with `arguments`, runs before the prompt is built."},
          {"agent", "calls", object("calls"), false, "", "Limits of the calls that the model makes."},
          {"agent", "output", object("output"), false, "any text", "Constraints on the output."},
          {"agent", "template", names_to(any()), false, "those of the model",
           "Variables of the model's chat template by name, over those of the model."},
          {"agent", "exact", boolean(), false, "false",
           "`auto`: nothing is handed over approximately to this agent, a judge for example."},
          {"agent", "remember", integer(0), false, "what fits the context",
           "Sessions: how many earlier runs the agent remembers at most; `0`: each run begins anew. Where there are "
           "more, or where they no longer fit, the older half is forgotten."},
          {"agent", "overflow", object_or(overflow_policy(), "overflow", "policy"), false, "cut_result",
           "What happens if results of tools, or what is remembered, would leave no room for the answer in the "
           "context; the short form is the `policy`. There is a warning each time; an input is never cut."},
          {"agent", "on_error", on_error(), false, "fail",
           "What happens when a turn fails: the run ends (`fail`), the output is empty (`skip`), or the text "
           "of `fallback` replaces the output."},
          {"agent", "on_empty", choice({"accept", "warn", "fail"}), false, "warn",
           "What follows if an output is blank: it counts (`accept`), it counts with a warning (`warn`), or the "
           "attempt "
           "fails (`fail`), so that `retry` and `on_error` decide."},
          {"agent", "fallback", string(), false, "",
           "The text that stands in for the output when `on_error` is `fallback`."},
          {"agent", "retry", retry(), false, "1",
           "Attempts at a turn; the short form is the number of attempts, including the first."},
      });
  add_generation(keys, "agent");
  keys.insert(
      keys.end(),
      {
          {"prompt", "system", text(), false, "", "The system message."},
          {"prompt", "user", text(), false, "", "The user message."},
          {"prompt", "messages", list(object("message")), false, "", "All messages, in place of `system` and `user`."},
          {"prompt", "order", choice({"written", "free"}), false, "written",
           "`free`: items of a message that contain placeholders, and the turns of its loops, may be reordered, so "
           "that what is known first comes first; `baton check --plan` shows the gain. Items without placeholders keep "
           "their "
           "places."},

          {"message",
           "role",
           choice({"system", "user", "assistant"}),
           true,
           "",
           "Role of the message's author.",
           {"history"}},
          {"message", "content", text(), true, "", "Text of the message.", {"history"}},
          {"message", "history", id(), false, "",
           "In place of `role` and `content`: the messages of an input of type `messages`, whose texts are data."},

          {"text", "text", prompt(), false, "", "Text with placeholders."},
          {"text", "file", string(), false, "", "A file with the text, relative to this one, but its last newline."},
          {"text", "for", choice({"peers", "previous"}), false, "once",
           "Repeat the text for each agent that this one sees in this round (`peers`), or for each agent of the last "
           "round (`previous`). The text names it as `{{ it.name }}`, `{{ it.role }}` and `{{ it.output }}`."},

          {"overflow", "policy", overflow_policy(), true, "",
           "Nothing is done, and the turn fails if the prompt does not fit at all (`error`), the "
           "newest results are cut in their middle (`cut_result`), or the oldest results of the turn are left "
           "out before that (`drop_oldest`), or a model summarises the longest results before that, each in "
           "a request of its own (`summarise`). With all but `error` the older half of what is remembered is "
           "forgotten."},
          {"overflow", "agent", id(), false, "none",
           "With `summarise`: the agent that writes the summaries, with its model, its settings and its system "
           "message, which may hold inputs. It needs no turn of its own; the topology names the agents that have one."},
          {"overflow", "model", id(), false, "the agent's own",
           "With `summarise`: the model of `models` that writes the summaries. A result that does not fit its context "
           "either is summarised without its middle, or cut."},

          {"calls", "max", integer(1, 1000), false, "8", "Maximum number of calls in one turn."},
          {"calls", "timeout", time_limit(), false, "10s", "Time limit of one call."},
          {"calls", "max_bytes", size(), false, "16KiB",
           "Of a longer result the model gets the first and the last half of this, with a note between them."},
          {"calls", "repeat", boolean(), false, "false",
           "Whether a call with the same arguments runs again. Otherwise the model gets the same result again and, "
           "after "
           "calls that were all made before, has to answer: small models go round in circles."},
          {"calls", "direct", boolean(), false, "false",
           "The results are the output, and the model is asked again only after an error: for small models, which call "
           "well and answer badly; let another agent read the output."},
          {"calls", "on_error", choice({"tell", "fail"}), false, "tell; `fail` for tools before the prompt",
           "What a tool that fails does: its error is its result, which the model reads (`tell`), or the attempt fails "
           "(`fail`), so that the agent's `retry` and `on_error` decide. What is wrong in a call itself, the model "
           "always reads."},
          {"calls", "approve", either({choice({"never", "always"}), object("approve")}), false, "never",
           "Whether a person, or the program that runs the workflow, is asked before a call is made: about all calls, "
           "or "
           "those of some tools. The answer allows the call, denies it with a text for the model, or changes its "
           "arguments. Without one the run is suspended."},
          {"calls", "tool_choice", string(), false, "auto",
           "Whether the model's first answer calls a tool: `auto`, as it likes; `required`, it does; `none`, no answer "
           "does, though the model sees the tools; or the name of the tool that it calls. Needs `enforce`, but for "
           "`auto` and `none`."},
          {"calls", "text", choice({"allowed", "forbidden", "required"}), false, "allowed",
           "Text in front of a call. Needs `enforce`, but for `allowed`."},
          {"calls", "enforce", boolean(), false, "true",
           "Decodes calls under the tools' schemas; `false`: the model writes freely, and arguments that do not fit "
           "are "
           "answered with an error."},

          {"approve", "tools", list(string()), true, "", "Tools whose calls have to be approved."},

          {"output", "pattern", string(), false, "",
           "A regular expression (PCRE2); the first group of its last match is the answer, and an output without a "
           "match fails."},
          {"output", "schema", any(), false, "", "A JSON Schema (draft 2020-12 or 7) that the output obeys."},
          {"output", "whitespace", choice({"compact", "free"}), false, "compact",
           "Blanks between the tokens of the schema's JSON: `compact`, one line with few of them; `free`, also ends of "
           "lines and indentation, for models that were trained on JSON over several lines. It takes more tokens."},
          {"output", "enum", list(string()), false, "", "Texts of which the output is one."},
          {"output", "choose", list(string()), false, "", "Texts of which the output is the most probable."},
          {"output", "regex", string(), false, "", "A regular expression that the whole output matches."},
          {"output", "grammar", string(), false, "", "A grammar in GBNF notation; its rule `root` is the output."},
          {"output", "enforce", boolean(), false, "true", "Decodes what is allowed only; `false`: checks afterwards."},
          {"output", "required", boolean(), false, "true",
           "With `false`, an output that still does not match after the last attempt is kept, with a warning and "
           "without an answer."},

          {"think", "enabled", boolean(), false, "as the chat template has it",
           "Whether the model thinks before it answers."},
          {"think", "effort", choice({"low", "medium", "high"}), false, "the template's own",
           "How much it thinks, for chat templates that have this variable (`reasoning_effort`)."},
          {"think", "budget", integer(0), false, "4096",
           "Tokens of thinking at most, in addition to `max_tokens`; then thinking is ended with the model's own "
           "marker. "
           "Thinking also leaves room for the answer in the context."},
          {"think", "keep", choice({"none", "last", "all"}), false, "none",
           "Sessions: which earlier answers keep their thinking in the agent's memory."},

          {"retry", "attempts", integer(1, 100), false, "1", "Total number of attempts."},
          {"retry", "backoff", duration(), false, "0s",
           "Pause before the second attempt; doubled before each later one."},
          {"retry", "feedback", prompt(), false, "`An earlier answer had an error: {{ error }}.`",
           "Stands behind the prompt of an attempt after a failed check; `{{ output }}` is what failed."},

          {"workflow", "topology", choice({kTopologyNames.begin(), kTopologyNames.end()}), false, "single",
           "The shape of a round."},
          {"workflow", "agents", list(id()), false, "all but `then`, in their order",
           "The agents of a round, in order."},
          {"workflow", "layers", list(list(id())), false, "",
           "`layered`: the agents of each layer; a layer sees those before it."},
          {"workflow", "center", id(), false, "", "`star`: the agent that runs last and sees all others."},
          {"workflow", "steps", list(object("step")), false, "", "`graph`: the turns of a round."},
          {"workflow", "rounds", integer(1, 1000), false, "1", "How many times all agents run."},
          {"workflow", "then", id(), false, "",
           "The decision agent: runs once after the last round and sees every agent's last output."},
          {"workflow", "until", condition(), false, "", "Ends the rounds early when it holds after a round."},
          {"workflow", "max_parallel", integer(0, 1000), false, "0", "Max number of concurrent turns; 0: no limit."},

          {"step", "id", id(), false, "the agent", "Name of the turn."},
          {"step", "agent", id(), true, "", "Whose turn it is."},
          {"step", "needs", list(id()), false, "what its prompt names",
           "Turns that must finish before this one starts. The prompt may name the agents of these turns and of all "
           "turns that these depend on."},
          {"step", "when", condition(), false, "always", "The turn is skipped where this does not hold."},
          {"step", "on_error", on_error(), false, "the agent's", "Overrides the agent's setting."},
          {"step", "fallback", string(), false, "the agent's", "Overrides the agent's setting."},
          {"step", "retry", retry(), false, "the agent's", "Overrides the agent's setting."},

          {"condition", "holds", string(), false, "", "An expression over placeholders and `round`."},
          {"condition", "agent", id(), false, "", "Without `holds`: the agent whose last output is tested."},
          {"condition", "matches", string(), false, "", "A regular expression (PCRE2) that must match in the output."},
          {"condition", "not_matches", string(), false, "",
           "A regular expression (PCRE2) that must not match in the output."},
      });
  for (FormatKey& key : relay_keys(laboratory)) keys.push_back(std::move(key));
  return keys;
}

std::string described_range(const FormatType& type) {
  const char* noun = type.kind == Kind::integer ? "an integer" : "a number";
  if (type.above_low) return fmt::format("{} above {}, at most {}", noun, type.low, type.high);
  if (type.high >= kNoLimit) return fmt::format("{} of at least {}", noun, type.low);
  if (type.low == type.high) return fmt::format("{}", type.low);
  return fmt::format("{} from {} to {}", noun, type.low, type.high);
}

}  // namespace

std::span<const FormatKey> product_format_keys() {
  static const std::vector<FormatKey> keys = make_keys(false);
  return keys;
}

std::span<const FormatKey> format_keys() {
  if (!has_laboratory()) return product_format_keys();
  static const std::vector<FormatKey> keys = make_keys(true);
  return keys;
}

std::string_view format_object_title(std::string_view object) {
  static constexpr std::pair<std::string_view, std::string_view> kTitles[] = {
      {"", "The file"},
      {"input", "An input"},
      {"model", "A model"},
      {"tool", "A tool that models may call"},
      {"server", "A server (`mcp`)"},
      {"defaults", "`defaults`"},
      {"agent", "An agent"},
      {"calls", "`calls`"},
      {"prompt", "A prompt"},
      {"message", "A message"},
      {"text", "A text"},
      {"output", "`output`"},
      {"approve", "`calls.approve`"},
      {"think", "`think`"},
      {"retry", "`retry`"},
      {"workflow", "`workflow`"},
      {"step", "A step of a graph"},
      {"condition", "A condition (`when`, `until`)"},
      {"relay", "`relay`"},
      {"layers", "`layers`"},
      {"lab", "`relay.lab`"},
      {"select", "`select`"},
      {"memory", "`memory`"},
  };
  for (const auto& [name, title] : kTitles) {
    if (name == object) return title;
  }
  return object;
}

std::string described(const FormatType& type) {
  switch (type.kind) {
    case Kind::any:
      return "anything";
    case Kind::string:
      return "a string";
    case Kind::prompt:
      return "a text";
    case Kind::scalar:
      return "a string, number or boolean";
    case Kind::id:
      return "an id";
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
    case Kind::number:
      return described_range(type);
    case Kind::duration:
      return type.above_low ? fmt::format("{}, or none", kPositiveDurationForm) : std::string(kDurationForm);
    case Kind::size:
      return std::string(kSizeForm);
    case Kind::choice:
      if (type.words.size() == 1) return fmt::format("'{}'", type.words[0]);
      return fmt::format("one of '{}'", fmt::join(type.words, "', '"));
    case Kind::object:
      return fmt::format("a map ({})", type.name);
    case Kind::list:
      return fmt::format("a list of [{}]", described(type.of[0]));
    case Kind::map:
      return fmt::format("a map to [{}]", described(type.of[0]));
    case Kind::either: {
      std::vector<std::string> parts;
      for (const FormatType& alternative : type.of) parts.push_back(described(alternative));
      return fmt::format("{}", fmt::join(parts, ", or "));
    }
  }
  return {};
}

FormatType format_file() { return object(""); }
FormatType format_agent() { return object("agent"); }

bool is_extension_key(std::string_view key) { return key.starts_with("x-"); }

bool is_id(std::string_view text) {
  constexpr std::size_t kMaxIdBytes = 64;
  if (text.empty() || text.size() > kMaxIdBytes || text[0] < 'a' || text[0] > 'z') return false;
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

}  // namespace baton
