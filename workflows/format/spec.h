// SPDX-License-Identifier: Apache-2.0
// WorkflowSpec: a workflow file after reading and checking. Every node knows where it stands.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/mcp/connection.h"
#include "agents/prompts/prompt.h"
#include "agents/tools/tool.h"
#include "engine/model/sampler.h"
#include "engine/registry.h"
#include "engine/reuse/options.h"
#include "engine/tensor/tensor.h"
#include "engine/text/templates.h"
#include "workflows/format/diagnostics.h"

namespace baton {

class ToolRegistry;
using Milliseconds = std::chrono::milliseconds;

struct InputSpec {
  std::string name;
  bool required = true;
  std::optional<std::string> default_value;
  std::string description;
  bool messages = false;  // the value is a list of messages as JSON, else a text
  SourceLocation where;
};

struct ModelSpec {
  std::string name;
  std::string path;  // as written, ${env:...} resolved; see sdk/src/model_path.h for where it is looked for
  DType dtype = DType::bf16;
  DType kv_dtype = DType::bf16;
  DType activations = DType::f32;  // inputs of products with bf16 weights; bf16 only if dtype is
  std::int32_t context = 0;        // 0: the model's own
  std::vector<std::pair<std::string, std::string>> template_variables;  // by name, in JSON (ChatOptions::variables)
  // Of a model on a server (docs/remote.md); the types are those of the server then:
  std::string endpoint;                  // "http://host:8000"; empty: the model runs in this process
  std::string model;                     // its name there; empty: the only one
  std::string api = "auto";              // auto, llama, vllm, sglang, openai
  std::string tokenizer;                 // as `path`; empty: the server's, if it has one
  std::string key;                       // may be ${secret:NAME}, which is resolved where it is used; never shown
  std::optional<Milliseconds> patience;  // nothing: ServerModel::patience
  SourceLocation where;

  bool served() const { return !endpoint.empty(); }
};

/// Settings of a generation; defaults fill what an agent leaves open.
/// How an agent whose model thinks is to do so. What is not given is the model's own way.
struct ThinkSpec {
  enum class Keep : std::uint8_t { none, last, all };
  std::optional<bool> enabled;
  std::optional<std::string> effort;   // low, medium, high
  std::optional<std::int32_t> budget;  // tokens
  std::optional<Keep> keep;            // thinking of earlier answers that a session keeps

  ThinkSpec or_else(const ThinkSpec& other) const {
    return {enabled ? enabled : other.enabled, effort ? effort : other.effort, budget ? budget : other.budget,
            keep ? keep : other.keep};
  }
};

struct GenerationSpec {
  std::optional<std::string> model;
  std::optional<std::int32_t> max_tokens;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::int32_t> top_k;
  std::optional<std::uint64_t> seed;
  std::optional<std::vector<std::string>> stop;
  std::optional<Milliseconds> timeout;
  ThinkSpec think = {};
};

/// A piece of a prompt: a template, or a loop over what the topology lets the agent see.
struct PromptItem {
  enum class Loop : std::uint8_t { none, peers, previous };
  Loop loop = Loop::none;
  std::vector<TemplatePiece> pieces;
  SourceLocation where;                     // place of the text
  std::vector<SourceLocation> piece_where;  // place of each piece; a spec made by a program has none

  const SourceLocation& place(std::size_t piece) const {
    return piece < piece_where.size() ? piece_where[piece] : where;
  }
};

struct MessageSpec {
  std::string role;  // system, user, assistant; empty: the messages of an input, whose placeholder is the only item
  std::vector<PromptItem> items;
  SourceLocation where;
  bool free_order = false;  // items with placeholders, and the turns of a loop, may change places
};

/// The name of a ToolSpec of a step that asks the host; its option "question" is the text.
inline constexpr const char* kAskTool = "ask";

struct ToolSpec {
  std::string tool;                            // "python"; "mcp": a step of a server
  std::string from;                            // placeholder whose text it works on; empty: none
  std::map<std::string, std::string> options;  // may hold ${secret:NAME}, for the tool to resolve
  std::map<std::string, PromptItem> filled;    // those of the options that hold placeholders
  SourceLocation where;
  SourceLocation from_where;

  /// Calls `use` with the name and the place of each placeholder whose value the tool gets.
  template <typename Use>
  void for_each_placeholder(const Use& use) const {
    if (!from.empty()) use(from, from_where);
    for (const auto& [option, text] : filled) {
      for (std::size_t i = 0; i < text.pieces.size(); ++i) {
        if (!text.pieces[i].placeholder.empty()) use(text.pieces[i].placeholder, text.place(i));
      }
    }
  }
};

/// At most one of pattern, schema, texts, regex and grammar is given.
struct OutputSpec {
  std::string pattern;             // regex; the first group of the last match is the answer
  std::string schema;              // JSON Schema as JSON text, or empty; properties are decoded in its order
  bool free_blanks = false;        // blanks and ends of lines may stand between the tokens of the schema's JSON
  std::vector<std::string> texts;  // `enum` or `choose`: the output is one of them
  bool choose = false;             // the most probable of the texts
  std::string regex;               // the whole output matches
  std::string grammar;             // GBNF
  bool enforce = true;             // all but `pattern`: obeyed while decoding, so that stop texts have no effect
  bool required = true;            // an output that does not fit fails; otherwise it is kept, without an answer
  SourceLocation where;

  /// True when the output, or a part of it, is the agent's answer.
  bool has_answer() const { return !pattern.empty() || constrains(); }
  /// True when the whole output is constrained.
  bool constrains() const { return !schema.empty() || !texts.empty() || !regex.empty() || !grammar.empty(); }
};

enum class OnError : std::uint8_t { fail, skip, fallback };

/// What an output without anything but blanks does: it counts, with a warning or without, or the attempt fails.
enum class OnEmpty : std::uint8_t { accept, warn, fail };

/// What happens to a prompt that would leave no room for the answer: nothing (the turn fails), results of tools are
/// cut, the oldest results and exchanges are left out first, or the model summarises results first.
enum class Overflow : std::uint8_t { error, cut_result, drop_oldest, summarise };

/// Who writes the summaries of Overflow::summarise; both empty: the model of the turn.
struct SummarySpec {
  std::string agent;     // with its model, its settings and its system message
  std::string model;     // a name of `models`
  SourceLocation where;  // place of the name
};

struct RetrySpec {
  int attempts = 1;  // in all
  Milliseconds backoff{0};
  std::vector<TemplatePiece> feedback = {};  // what follows an output that failed its check; empty: the default text
};

struct AgentSpec {
  std::string id;
  std::string role;
  bool role_is_data = false;  // it holds the value of a variable
  std::vector<MessageSpec> messages;
  std::vector<ToolSpec> tools;                 // run before the prompt is built
  std::shared_ptr<const CallableTools> calls;  // what the model may call; null: nothing
  std::vector<std::string> calls_unenforced;   // what calls are not held to while they are decoded
  OutputSpec output;
  GenerationSpec generation;
  OnError on_error = OnError::fail;
  OnEmpty on_empty = OnEmpty::warn;
  bool tells_errors =
      false;             // `calls.on_error: tell`: what a tool that fails says is its result, before the prompt too
  std::string fallback;  // text that stands in for the output when on_error is fallback
  RetrySpec retry;
  Overflow overflow = Overflow::cut_result;
  SummarySpec summary = {};
  std::vector<std::pair<std::string, std::string>> template_variables = {};  // as the model's, and over these
  bool exact = false;                                                        // reads exact KV only
  std::optional<int> remember = {};  // maximum earlier runs of a session; none given: what fits the context
  SourceLocation where;
};

/// Either an expression, or: the last output of `agent` matches (or does not).
struct ConditionSpec {
  std::string agent;
  std::string matches;  // regex, searched
  bool negate = false;  // not_matches
  SourceLocation where;
  std::shared_ptr<const ValueExpression> expression = nullptr;  // over placeholders and `round`
  std::vector<SourceLocation> name_where = {};                  // place of each name in the expression
};

enum class Topology : std::uint8_t { single, chain, parallel, star, layered, fully_connected, debate, graph };
/// The names of topologies in workflow files, in the order of the enumeration.
inline constexpr std::array<std::string_view, 8> kTopologyNames = {"single",  "chain",           "parallel", "star",
                                                                   "layered", "fully_connected", "debate",   "graph"};
static_assert(kTopologyNames.size() == static_cast<std::size_t>(Topology::graph) + 1);
constexpr std::string_view name_of(Topology topology) { return kTopologyNames[static_cast<std::size_t>(topology)]; }

struct NodeSpec {
  std::string id;
  std::string agent;
  std::vector<std::string> needs;
  bool infers_needs = false;  // the file gives none: they are what the prompt names
  std::optional<ConditionSpec> when;
  std::optional<OnError> on_error;
  std::optional<std::string> fallback;
  std::optional<RetrySpec> retry;
  SourceLocation where;
};

struct TopologySpec {
  Topology kind = Topology::single;
  std::vector<std::string> agents;               // all of a round in order, whatever the topology
  std::vector<std::vector<std::string>> layers;  // layered
  std::string center;                            // star: the agent that sees all others and is seen by none before
  std::vector<NodeSpec> nodes;                   // graph
  int rounds = 1;
  std::string then;  // decision agent or empty
  std::optional<ConditionSpec> until;
  int max_parallel = 0;  // 0: no limit
  SourceLocation where;
};

/// Default of RelaySpec::store_bytes.
inline constexpr std::int64_t kStoreBudget = std::int64_t{10} << 30;

struct RelaySpec {
  const Method* method = &default_method();
  ReuseOptions options;           // parameters; options.method is what `method` comes to
  SourceLocation layers_where;    // place of `layers.end`
  SourceLocation reuse_where;     // place of `reuse`
  std::int64_t device_bytes = 0;  // 0: no limit given
  std::int64_t host_bytes = 0;
  std::filesystem::path store;   // a folder for KV that outlives the process; empty: none
  std::int64_t store_bytes = 0;  // its budget; 0: kStoreBudget
  SourceLocation where;
};

struct WorkflowSpec {
  int version = 1;
  std::string name;
  std::string description;
  std::filesystem::path file;
  std::vector<InputSpec> inputs;
  std::vector<ModelSpec> models;
  std::vector<McpServerSpec> servers;
  std::vector<std::string> absent_tools;  // that the file describes and the registry lacks; a run needs them
  GenerationSpec defaults;
  std::vector<AgentSpec> agents;
  TopologySpec topology;
  RelaySpec relay;
  std::vector<std::pair<std::string, std::vector<TemplatePiece>>> outputs;
  std::vector<std::pair<std::string, std::string>> sources;  // files and their texts, for errors found later

  const AgentSpec* agent(const std::string& id) const;
};

/// How a file is read: see workflows/compile.h.
struct ReadOptions {
  const ToolRegistry* tools = nullptr;                      // null: the built-in ones
  bool absent_tools = false;                                // those that the file describes may be missing there
  std::vector<std::pair<std::string, std::string>> set;     // --set a.b=v, applied to the tree before checking
  std::vector<std::pair<std::string, std::string>> models;  // paths in place of those of the file's models, by name
  std::vector<std::filesystem::path> role_folders;          // where `use` looks last; see workflows/format/role_file.h
  std::function<std::string()> hint = {};                   // suggests another file if this one cannot be read
};

/// JSON Schema (draft-07) of the format, from the same table as the parser.
std::string workflow_json_schema();

/// The reference of all keys and error codes in Markdown, for docs/yaml.md.
std::string workflow_reference_markdown();

}  // namespace baton
