// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/format_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "engine/reuse/methods.h"
#include "workflows/format/spec.h"

namespace baton {
namespace {

using Kind = FormatType::Kind;

constexpr double kNoLimit = std::numeric_limits<std::int32_t>::max();

FormatType of_kind(Kind kind) {
  FormatType type;
  type.kind = kind;
  return type;
}
FormatType any() { return of_kind(Kind::any); }
FormatType string() { return of_kind(Kind::string); }
FormatType prompt() { return of_kind(Kind::prompt); }
FormatType scalar() { return of_kind(Kind::scalar); }
FormatType id() { return of_kind(Kind::id); }
FormatType boolean() { return of_kind(Kind::boolean); }
FormatType duration() { return of_kind(Kind::duration); }
FormatType time_limit() {
  FormatType type = duration();
  type.above_low = true;
  return type;
}
FormatType size() { return of_kind(Kind::size); }
FormatType integer(double low, double high = kNoLimit) {
  FormatType type = of_kind(Kind::integer);
  type.low = low;
  type.high = high;
  return type;
}
FormatType number(double low, double high) {
  FormatType type = integer(low, high);
  type.kind = Kind::number;
  return type;
}
FormatType number_above(double low, double high) {
  FormatType type = number(low, high);
  type.above_low = true;
  return type;
}
FormatType choice(std::vector<std::string> words) {
  FormatType type = of_kind(Kind::choice);
  type.words = std::move(words);
  return type;
}
FormatType object(std::string name) {
  FormatType type = of_kind(Kind::object);
  type.name = std::move(name);
  return type;
}
FormatType list(FormatType element) {
  FormatType type = of_kind(Kind::list);
  type.of.push_back(std::move(element));
  return type;
}
FormatType map(FormatType element) {
  FormatType type = list(std::move(element));
  type.kind = Kind::map;
  return type;
}
FormatType either(std::vector<FormatType> alternatives) {
  FormatType type = of_kind(Kind::either);
  type.of = std::move(alternatives);
  return type;
}

/// An object, or a scalar that is short for it with one key.
FormatType object_or(FormatType scalar_type, std::string name, std::string key) {
  FormatType type = either({std::move(scalar_type), object(std::move(name))});
  type.short_for = std::move(key);
  return type;
}

FormatType text() { return either({prompt(), object("text"), list(either({prompt(), object("text")}))}); }
FormatType dtype() { return choice({"bf16", "f32"}); }
FormatType on_error() { return choice({"fail", "skip", "fallback"}); }
FormatType condition() { return object_or(string(), "condition", "holds"); }
FormatType retry() { return object_or(integer(1, 100), "retry", "attempts"); }
FormatType relay_method() {
  std::vector<std::string> names = {"auto", "exact"};
  for (const Method& method : methods()) {
    if (method.id != MethodId::automatic) names.emplace_back(method.name);
  }
  return choice(std::move(names));
}

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
  keys.push_back({owner, "seed", integer(0, 9e15), false, fallback("that of the run"), "Seed of sampling."});
  keys.push_back({owner, "stop", either({string(), list(string())}), false, fallback("none"),
                  "Texts that end an output; they are not part of it."});
  keys.push_back({owner, "timeout", time_limit(), false, fallback("none"), "Time limit of one attempt at a turn."});
}

std::vector<FormatKey> make_keys() {
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
      {"", "defaults", object("defaults"), false, "", "Settings of all agents that do not set them."},
      {"", "agents", map(object("agent")), true, "", "Agents by id."},
      {"", "workflow", object("workflow"), false, "one agent, one turn", "Who runs when, and who sees whom."},
      {"", "relay", object_or(relay_method(), "relay", "method"), false, "auto",
       "How outputs are handed to prompts downstream; the short form is the method."},
      {"", "outputs", map(prompt()), false, "`answer`, the output of the last agent",
       "Results of a run: texts with placeholders over the inputs and each agent's last output."},

      {"input", "type", choice({"string"}), false, "string", "Type of the value."},
      {"input", "required", boolean(), false, "true without a default", "Whether every run must provide the input."},
      {"input", "default", scalar(), false, "", "The value in a run that provides none."},
      {"input", "description", string(), false, "", "What the input is."},

      {"model", "path", string(), true, "",
       "A GGUF file, a folder with a Hugging Face model, the name of a model in a folder of the model search path, or "
       "`hf:ORG/NAME` that `baton pull` downloaded."},
      {"model", "dtype", dtype(), false, "bf16", "Type of the weights in memory."},
      {"model", "kv_dtype", dtype(), false, "that of the weights", "Type of the KV cache."},
      {"model", "activations", dtype(), false, "f32",
       "Type of the inputs of products with bf16 weights, on the CPU: `bf16` rounds them, which is about twice as fast "
       "where the processor has AVX512_BF16, and less exact."},
      {"model", "context", integer(1), false, "the model's own",
       "Maximum length of prompt and output together, in tokens."},
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
          {"agent", "prompt", object_or(prompt(), "prompt", "user"), true, "",
           "The prompt; the short form is the user message. Without it, what the tools return is the output.", "tools"},
          {"agent", "tools", list(either({id(), map(map(scalar()))})), false, "none",
           "Run before the prompt is built: `name` or `{name: {option: value}}`. Option `from` names the text that "
           "a tool works on, others may hold placeholders; `condition_<agent>_current` is the result."},
          {"agent", "output", object("output"), false, "any text", "Constraints on the output."},
          {"agent", "exact", boolean(), false, "false",
           "`auto`: nothing is handed over approximately to this agent, a judge for example."},
          {"agent", "on_error", on_error(), false, "fail",
           "What happens when a turn fails: the run ends (`fail`), the output is empty (`skip`), or the text "
           "of `fallback` replaces the output."},
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
           "that what is known first comes first; `baton plan` shows the gain. Items without placeholders keep their "
           "places."},

          {"message", "role", choice({"system", "user", "assistant"}), true, "", "Role of the message's author."},
          {"message", "content", text(), true, "", "Text of the message."},

          {"text", "text", prompt(), false, "", "Text with placeholders."},
          {"text", "file", string(), false, "", "A file with the text, relative to this one, but its last newline."},
          {"text", "for", choice({"peers", "previous"}), false, "once",
           "Repeat the text for each agent that this one sees in this round (`peers`), or for each agent of the last "
           "round (`previous`). The text names it as `{{ it.name }}`, `{{ it.role }}` and `{{ it.output }}`."},

          {"output", "pattern", string(), false, "",
           "A regular expression (PCRE2); the first group of its last match is the answer, and an output without a "
           "match fails."},
          {"output", "schema", any(), false, "", "A JSON Schema (draft-07 subset) that the output obeys."},
          {"output", "enum", list(string()), false, "", "Texts of which the output is one."},
          {"output", "choose", list(string()), false, "", "Texts of which the output is the most probable."},
          {"output", "regex", string(), false, "", "A regular expression that the whole output matches."},
          {"output", "grammar", string(), false, "", "A grammar in GBNF notation; its rule `root` is the output."},
          {"output", "enforce", boolean(), false, "true", "Decodes what is allowed only; `false`: checks afterwards."},
          {"output", "required", boolean(), false, "true",
           "With `false`, an output that still does not match after the last attempt is kept, with a warning and "
           "without an answer."},

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

          {"relay", "method", relay_method(), false, "auto",
           "The method; `auto` chooses per placeholder; `exact` is another name of `lockstep`."},
          {"relay", "tolerance", number(0, 100), false, "0.02",
           "`auto`: handed-over texts are rectified only where the mean KL divergence of a turn from full prefill is "
           "expected to stay within this many nats per token, in 95 % of the turns; 0: everything is exact."},
          {"relay", "history", boolean(), false, "true",
           "`auto`: the first turns of each place, and later ones now and then, are measured on the user's own texts, "
           "and decide there ([methods](methods.md#auto)); false: the model's levels alone decide."},
          {"relay", "layers", object("layers"), false, "those of the model's profile",
           "The layers that `rectify` or `droidspeak` recompute."},
          {"relay", "select", object("select"), false, "",
           "Which tokens `rectify` recomputes in the layers after `layers.detect`."},
          {"relay", "preset", choice({"paper"}), false, "",
           "`rectify` as RelayCaching published it: its choice of tokens, the layers that its profiler finds, no "
           "learned "
           "corrections. Of `select`, `deviation`, `influence` and `suffix` may be set."},
          {"relay", "reuse", number_above(0, 1), false, "",
           "`epic`, `cacheblend`, `rectify`: the fraction of the handed-over (token, layer) entries that is not "
           "recomputed; the number of tokens follows from it, in place of `epic_tokens`, `cacheblend_share`, "
           "`select.share` and thresholds."},
          {"relay", "correct", boolean(), false, "true; false by deviation",
           "`rectify`: reused KV is corrected by the correction that `baton learn` found for the placeholder, if there "
           "is one."},
          {"relay", "epic_tokens", integer(0), false, "16", "`epic`: the first tokens of each segment are recomputed."},
          {"relay", "cacheblend_share", number(0, 1), false, "0.15",
           "`cacheblend`: the fraction of the reused tokens that is recomputed."},
          {"relay", "cacheblend_score", choice({"values", "cosine"}), false, "values",
           "`cacheblend`: ranks tokens by the squared distance of their values, over all segments of a prompt "
           "(`values`, "
           "as published), or by the cosine of their values, in each segment (`cosine`)."},
          {"relay", "anchors", object("anchors"), false, "",
           "How method `anchors` corrects KV, and when its corrections are trusted."},
          {"relay", "min_tokens", integer(1), false, "32", "Shorter segments are computed in full."},
          {"relay", "max_hops", integer(0), false, "4 with `auto` and `verified`, else 0",
           "Texts whose own KV is that many hand-overs away from exact KV are computed in full, since errors add up; "
           "0: no bound."},
          {"relay", "prefix", boolean(), false, "true",
           "Methods other than `full` also reuse the longest exact prefix in the prefix cache."},
          {"relay", "memory", object("memory"), false, "", "Limits of the memory for KV."},

          {"layers", "start", integer(0), true, "",
           "The layer at which reused tokens enter, from their hidden states; 0: from their embeddings."},
          {"layers", "detect", integer(1), false, "",
           "`rectify`: the layer in which values are compared and tokens are chosen."},
          {"layers", "end", integer(1), true, "",
           "The last layer in which the chosen tokens (`droidspeak`: all reused tokens) are recomputed; it must be a "
           "layer of the model."},

          {"select", "deviation", number(0, 1000), false, "1.5",
           "Chooses tokens whose values deviate by more than this multiple of the mean; 0: none."},
          {"select", "influence", number(0, 1000), false, "1.45",
           "Chooses tokens that received more than this multiple of the mean attention; 0: none."},
          {"select", "suffix", integer(0), false, "0; 8 by author, 10 by deviation",
           "How many tokens at the end of each segment are chosen."},
          {"select", "head", integer(0), false, "0; 16 by author and by entropy",
           "How many tokens at the beginning of each segment are chosen."},
          {"select", "share", number(0, 1), false, "0.2; 0.32 by author, 0.25 by entropy, 0 by deviation",
           "Above 0: the fraction of each segment that is chosen, best scores first, in place of the thresholds."},
          {"select", "score", choice({"change", "author", "entropy", "deviation"}), false,
           "change; deviation where a threshold is set",
           "What the score of a token measures: how far its values move (`change`), how unsure its author was of it "
           "and "
           "how much it looked back at it (`author`), only the former (`entropy`), or how much its values turn "
           "(`deviation`, the paper's); see docs/methods.md."},
          {"select", "all", boolean(), false, "false",
           "Chooses every token; only the layer range limits what is recomputed."},

          {"anchors", "size", integer(1, 10000), false, "20",
           "Maximum number of anchors in one pool; a pool belongs to one placeholder of one prompt."},
          {"anchors", "gate", choice({"error", "entropy", "none"}), false, "error",
           "Which corrections are trusted: those with a small expected error (`error`), those whose weights have a "
           "small entropy (`entropy`, the paper's eq. 5), or all (`none`)."},
          {"anchors", "compat", choice({"paper"}), false, "",
           "Corrects and decides as KVComm published it; only `size`, `gamma` and `pool` may be set besides."},
          {"anchors", "trust", number(0, 100), false, "0.1",
           "Gate `error`: up to this expected relative error of K and V a placeholder is corrected and none of its "
           "tokens is recomputed."},
          {"anchors", "refuse", number(0, 100), false, "0.16",
           "Gate `error`: above this error a placeholder is computed in full; between `trust` and `refuse` only its "
           "uncertain tokens are recomputed."},
          {"anchors", "recompute", number(0, 1), false, "0.15",
           "The fraction of a placeholder's tokens that is recomputed between `trust` and `refuse`."},
          {"anchors", "gamma", number(0, 100), false, "0.3",
           "Gate `entropy`: weights of more than gamma log(anchors) nats make a text a new anchor."},
          {"anchors", "offsets", choice({"weighted", "nearest", "none"}), false, "weighted",
           "Corrects by all anchors, weighted by their similarity (`weighted`), by the nearest anchor alone "
           "(`nearest`), or not at all (`none`)."},
          {"anchors", "text", choice({"computed", "offset", "base"}), false, "computed",
           "What happens to fixed text behind a placeholder: it is computed (`computed`), corrected like the "
           "placeholder (`offset`), or reused as first seen (`base`)."},
          {"anchors", "aligned", boolean(), false, "true",
           "Tokens are matched to those of an anchor by edit distance; `false`: by index, as in the paper."},
          {"anchors", "rotate", boolean(), false, "true", "`false`: keys stay at their author's positions."},
          {"anchors", "check", integer(0), false, "32",
           "One turn in this many is computed in full, to measure the error; 0: none."},
          {"anchors", "pool", string(), false, "", "Name of the pools; pools of different names share no anchors."},

          {"memory", "device", size(), false, "half of what is free",
           "KV on the device, including that of running prompts."},
          {"memory", "host", size(), false, "a quarter of what is available",
           "KV of a device's segments in host memory."},
      });
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

std::span<const FormatKey> format_keys() {
  static const std::vector<FormatKey> keys = make_keys();
  return keys;
}

std::string_view format_object_title(std::string_view object) {
  static constexpr std::pair<std::string_view, std::string_view> kTitles[] = {
      {"", "The file"},
      {"input", "An input"},
      {"model", "A model"},
      {"defaults", "`defaults`"},
      {"agent", "An agent"},
      {"prompt", "A prompt"},
      {"message", "A message"},
      {"text", "A text"},
      {"output", "`output`"},
      {"retry", "`retry`"},
      {"workflow", "`workflow`"},
      {"step", "A step of a graph"},
      {"condition", "A condition (`when`, `until`)"},
      {"relay", "`relay`"},
      {"layers", "`layers`"},
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
      return type.above_low ? "a duration above 0 such as 30s, or none" : "a duration such as 30s";
    case Kind::size:
      return "a size such as 4GiB";
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
