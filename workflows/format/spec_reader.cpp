// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>

#include "agents/prompts/conversation.h"
#include "workflows/format/format_table.h"
#include "workflows/format/placeholder.h"
#include "workflows/format/readers.h"

namespace baton {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

class TopologyReader {
 public:
  TopologyReader(const Fields& fields, SourceLocation where, WorkflowSpec& spec, AgentReader& reader,
                 Diagnostics& diagnostics)
      : fields_(fields), spec_(spec), out_(spec.topology), reader_(reader), diagnostics_(diagnostics) {
    out_.where = std::move(where);
  }

  void read() {
    kind_name_ = fields_.text("topology").value_or("single");
    const auto named = std::find(kTopologyNames.begin(), kTopologyNames.end(), kind_name_);
    if (named != kTopologyNames.end()) out_.kind = static_cast<Topology>(named - kTopologyNames.begin());
    if (const YamlNode* node = fields_.get("topology")) out_.where = node->where();
    out_.rounds = static_cast<int>(fields_.integer("rounds").value_or(1));
    out_.max_parallel = static_cast<int>(fields_.integer("max_parallel").value_or(0));
    if (const YamlNode* then = fields_.get("then")) {
      if (known_agent(*then, "then")) out_.then = then->text;
    }
    const bool known_kind = !fields_.has("topology") || fields_.get("topology") != nullptr;
    if (known_kind) {
      check_keys();
      read_members();
    }
    if (const YamlNode* until = fields_.get("until")) out_.until = condition(*until, "until");
    if (out_.until && known_kind && !out_.agents.empty()) check_members(*out_.until);
  }

 private:
  /// Only who takes part in the rounds has an output when they may end.
  void check_members(const ConditionSpec& until) {
    const auto check = [&](const std::string& agent, const SourceLocation& where) {
      if (spec_.agent(agent) != nullptr && !contains(out_.agents, agent))
        error(where, "E0310", fmt::format("until: agent '{}' takes no part in the rounds", agent));
    };
    if (!until.expression) return check(until.agent, until.where);
    for (std::size_t i = 0; i < until.name_where.size(); ++i) {
      if (const auto placeholder = find_placeholder(spec_, until.expression->names()[i].name))
        check(placeholder->id, until.name_where[i]);
    }
  }

  void error(const SourceLocation& where, const char* code, std::string message, std::string hint = {}) {
    diagnostics_.error(where, code, std::move(message), std::move(hint));
  }

  void check_keys() {
    const auto only_for = [&](const char* key, bool fits, const char* owner) {
      if (fields_.has(key) && !fits) {
        error(fields_.where(key), "E0302",
              fmt::format("'{}' requires 'topology: {}', found '{}'", key, owner, kind_name_));
      }
      if (!fields_.has(key) && fits)
        error(out_.where, "E0301", fmt::format("'topology: {}' needs the key '{}'", owner, key));
    };
    only_for("layers", out_.kind == Topology::layered, "layered");
    only_for("center", out_.kind == Topology::star, "star");
    only_for("steps", out_.kind == Topology::graph, "graph");
    const bool lists_itself = out_.kind == Topology::layered || out_.kind == Topology::graph;
    if (lists_itself && fields_.has("agents")) {
      error(fields_.where("agents"), "E0302",
            fmt::format("'agents' does not go with 'topology: {0}', which names them in '{1}'", kind_name_,
                        out_.kind == Topology::graph ? "steps" : "layers"));
    }
  }

  void read_members() {
    if (out_.kind == Topology::layered) return read_layers();
    if (out_.kind == Topology::graph) return read_nodes();
    if (const YamlNode* list = fields_.get("agents")) {
      for (const YamlNode& item : list->items) add_member(item, out_.agents);
    } else if (!fields_.has("agents")) {
      for (const AgentSpec& agent : spec_.agents) {
        if (agent.id != out_.then) out_.agents.push_back(agent.id);
      }
      any_broken_ = spec_.agents.empty();  // reported already: `agents` is empty or has no ids
    } else {
      return;
    }
    if (out_.kind == Topology::star) return read_center();
    const std::size_t count = out_.agents.size();
    if (count == 0 && !any_broken_) error(out_.where, "E0301", fmt::format("'topology: {}' has no agents", kind_name_));
    if (out_.kind == Topology::single && count > 1) {
      error(out_.where, "E0301", fmt::format("'topology: single' takes one agent, found {}", count),
            "set 'topology', for example to chain");
    }
  }

  void read_center() {
    const YamlNode* center = fields_.get("center");
    if (center == nullptr || !known_agent(*center, "center")) return;
    out_.center = center->text;
    if (out_.center == out_.then)
      error(center->where(), "E0307", fmt::format("'{}' is both 'center' and 'then'", out_.center));
    std::erase(out_.agents, out_.center);
    if (out_.agents.empty() && !any_broken_)
      error(out_.where, "E0301", "'topology: star' has no agents but the center");
    out_.agents.push_back(out_.center);  // it runs last
  }

  void read_layers() {
    const YamlNode* layers = fields_.get("layers");
    if (layers == nullptr) return;
    for (const YamlNode& layer : layers->items) {
      out_.layers.emplace_back();
      if (layer.broken) continue;
      for (const YamlNode& item : layer.items) {
        const std::size_t before = out_.agents.size();
        add_member(item, out_.agents);
        if (out_.agents.size() > before) out_.layers.back().push_back(item.text);
      }
      if (layer.items.empty()) error(layer.where(), "E0301", "a layer has no agents");
    }
    if (layers->items.empty()) error(fields_.where("layers"), "E0301", "'topology: layered' has no layers");
  }

  void add_member(const YamlNode& item, std::vector<std::string>& members) {
    if (item.broken || !known_agent(item, "agents")) {
      any_broken_ = true;
    } else if (contains(members, item.text)) {
      error(item.where(), "E0303", fmt::format("agent '{}' is listed twice", item.text));
    } else if (item.text == out_.then) {
      error(item.where(), "E0307",
            fmt::format("agent '{}' is also 'then': the decision agent runs once, after the rounds", item.text));
    } else {
      members.push_back(item.text);
    }
  }

  void read_nodes() {
    const YamlNode* steps = fields_.get("steps");
    if (steps == nullptr) return;
    if (steps->items.empty()) error(fields_.where("steps"), "E0301", "'topology: graph' has no steps");
    std::vector<std::string> ids;
    for (const YamlNode& item : steps->items) {
      const Fields fields(item);
      if (const auto id = fields.text(fields.has("id") ? "id" : "agent")) ids.push_back(*id);
    }
    std::set<std::string> seen;
    for (const YamlNode& item : steps->items) {
      if (!item.broken) read_node(item, ids, seen);
    }
  }

  void read_node(const YamlNode& item, const std::vector<std::string>& ids, std::set<std::string>& seen) {
    const Fields fields(item);
    const YamlNode* agent = fields.get("agent");
    if (agent == nullptr || !known_agent(*agent, "steps")) return;
    NodeSpec node;
    node.agent = agent->text;
    node.id = fields.text("id").value_or(node.agent);
    node.where = fields.has("id") ? fields.where("id") : agent->where();
    if (const YamlNode* id = fields.get("id")) node.where = id->where();
    if (node.agent == out_.then) {
      error(agent->where(), "E0307",
            fmt::format("agent '{}' is also 'then': the decision agent runs once, after the rounds", node.agent));
      return;
    }
    if (!seen.insert(node.id).second) {
      error(node.where, "E0303", fmt::format("step '{}' is listed twice", node.id),
            fields.has("id") ? "" : "give each step of the agent its own 'id'");
      return;
    }
    const std::string owner = fmt::format("step '{}'", node.id);
    node.infers_needs = !fields.has("needs");
    if (const YamlNode* needs = fields.get("needs")) {
      for (const YamlNode& need : needs->items) {
        if (need.broken) continue;
        if (contains(ids, need.text)) {
          node.needs.push_back(need.text);
          continue;
        }
        error(need.where(), "E0309", fmt::format("{}: unknown step '{}'", owner, need.text),
              diagnostics_.suggestion(need.text, ids));
      }
    }
    if (const YamlNode* when = fields.get("when")) node.when = condition(*when, owner + ": when");
    AgentReader::ErrorHandling handling = reader_.error_handling(fields, owner);
    node.on_error = handling.on_error;
    node.fallback = std::move(handling.fallback);
    node.retry = handling.retry;
    if (!contains(out_.agents, node.agent)) out_.agents.push_back(node.agent);
    out_.nodes.push_back(std::move(node));
  }

  std::optional<ConditionSpec> condition(const YamlNode& node, const std::string& owner) {
    const Fields fields(node);
    if (node.broken) return std::nullopt;
    const bool expects_match = fields.has("matches"), searches = expects_match || fields.has("not_matches");
    const bool is_search = fields.has("agent") && expects_match != fields.has("not_matches");
    if (fields.has("holds") ? fields.has("agent") || searches : !is_search) {
      error(node.where(), "E0409",
            fmt::format("{}: expected an expression, or 'agent' and one of 'matches' and 'not_matches'", owner));
      return std::nullopt;
    }
    if (const YamlNode* text = fields.get("holds")) return expression(*text, owner);
    const YamlNode* agent = fields.get("agent");
    if (agent == nullptr || !known_agent(*agent, owner)) return std::nullopt;
    ConditionSpec condition;
    condition.agent = agent->text;
    condition.where = agent->where();
    condition.negate = fields.has("not_matches");
    condition.matches = reader_.pattern(fields, condition.negate ? "not_matches" : "matches", owner);
    return condition;
  }

  std::optional<ConditionSpec> expression(const YamlNode& text, const std::string& owner) {
    try {
      ConditionSpec condition;
      condition.where = text.where();
      condition.expression = std::make_shared<const ValueExpression>(text.text);
      for (const ValueExpression::Name& name : condition.expression->names())
        condition.name_where.push_back(text.part(name.byte, name.name.size()));
      return condition;
    } catch (const ExpressionError& wrong) {
      error(text.part(wrong.byte, 1), "E0311", fmt::format("{}: {}", owner, wrong.what()));
      return std::nullopt;
    }
  }

  bool known_agent(const YamlNode& node, const std::string& owner) {
    if (spec_.agent(node.text) != nullptr) return true;
    std::vector<std::string> ids;
    for (const AgentSpec& agent : spec_.agents) ids.push_back(agent.id);
    error(node.where(), "E0201", fmt::format("{}: unknown agent '{}'", owner, node.text),
          diagnostics_.suggestion(node.text, ids));
    return false;
  }

  const Fields& fields_;
  WorkflowSpec& spec_;
  TopologySpec& out_;
  AgentReader& reader_;
  Diagnostics& diagnostics_;
  std::string kind_name_;
  bool any_broken_ = false;
};

}  // namespace

void read_topology(const Fields& file, WorkflowSpec& spec, AgentReader& reader, Diagnostics& diagnostics) {
  const YamlNode* section = file.get("workflow");
  if (section == nullptr && file.has("workflow")) return;  // it is there, and broken
  if (!file.has("agents") || file.get("agents") == nullptr) return;
  const YamlNode empty;
  const Fields fields(section != nullptr ? *section : empty);
  SourceLocation where = section != nullptr ? file.where("workflow") : file.where("agents");
  TopologyReader(fields, std::move(where), spec, reader, diagnostics).read();
}

namespace {

std::string wrong_messages(const std::optional<std::string>& text) {
  try {
    if (text) read_messages(*text);
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

DType dtype_of(const std::string& word) { return word == "f32" ? DType::f32 : DType::bf16; }

class SpecReader {
 public:
  SpecReader(const ToolRegistry& tools, bool absent_tools, OutputGrammars& grammars, Diagnostics& diagnostics)
      : tools_(tools, absent_tools, grammars, diagnostics),
        agents_(tools_, grammars, diagnostics),
        diagnostics_(diagnostics) {}

  WorkflowSpec read(const YamlNode& root) {
    const Fields file(root);
    spec_.file = root.source->name();
    spec_.name = file.text("name").value_or(spec_.file.stem().string());
    spec_.description = file.text("description").value_or("");
    read_inputs(file);
    for_each(file, "models", [&](const YamlEntry& entry) { spec_.models.push_back(model(entry)); });
    if (const YamlNode* defaults = file.get("defaults")) spec_.defaults = agents_.generation(Fields(*defaults));
    for_each(file, "tools", [&](const YamlEntry& entry) { tools_.declare(entry); });
    for_each(file, "mcp", [&](const YamlEntry& entry) { tools_.declare_server(entry); });
    spec_.servers = tools_.servers();
    spec_.absent_tools = tools_.absent();
    for_each(file, "agents", [&](const YamlEntry& entry) { spec_.agents.push_back(agents_.agent(entry)); });
    if (spec_.agents.empty() && file.get("agents") != nullptr && file.get("agents")->entries.empty()) {
      diagnostics_.error(file.where("agents"), "E0402", "no agent is declared");
    }
    check_models(file);
    read_topology(file, spec_, agents_, diagnostics_);
    read_relay(file, spec_.relay, diagnostics_);
    const PlaceholderNames names(spec_);
    AnswerChecker answers(spec_);
    for_each(file, "outputs", [&](const YamlEntry& entry) { read_output(entry, names, answers); });
    return std::move(spec_);
  }

 private:
  template <typename Function>
  static void for_each(const Fields& file, std::string_view key, Function function) {
    const YamlNode* map = file.get(key);
    if (map == nullptr) return;
    for (const YamlEntry& entry : map->entries) {
      if (!is_extension_key(entry.key.text) && is_id(entry.key.text)) function(entry);
    }
  }

  void read_inputs(const Fields& file) {
    if (!file.has("inputs")) {
      InputSpec question;
      question.name = "user_question";
      spec_.inputs.push_back(std::move(question));
    }
    for_each(file, "inputs", [&](const YamlEntry& entry) {
      InputSpec input;
      input.name = entry.key.text;
      input.where = entry.key.where();
      const bool reserved =
          input.name == "it" || input.name.starts_with("agent_") || input.name.starts_with("condition_");
      if (reserved) {
        diagnostics_.error(
            input.where, "E0207",
            fmt::format("invalid input name '{}': the name is reserved for outputs of agents", input.name));
      }
      const Fields fields(entry.value);
      input.default_value = fields.text("default");
      input.description = fields.text("description").value_or("");
      input.required = fields.boolean("required").value_or(!fields.has("default"));
      if (input.required && input.default_value) {
        diagnostics_.error(fields.where("default"), "E0409",
                           fmt::format("input '{}' is required, so that its default is never used", input.name));
      }
      input.messages = fields.text("type") == "messages";
      if (const std::string wrong = input.messages ? wrong_messages(input.default_value) : ""; !wrong.empty()) {
        diagnostics_.error(fields.where("default"), "E0404",
                           fmt::format("input '{}': the default is no list of messages: {}", input.name, wrong));
      }
      spec_.inputs.push_back(std::move(input));
    });
  }

  ModelSpec model(const YamlEntry& entry) {
    ModelSpec model;
    model.name = entry.key.text;
    model.where = entry.key.where();
    const Fields fields(entry.value);
    model.path = fields.text("path").value_or("");
    model.dtype = dtype_of(fields.text("dtype").value_or("bf16"));
    model.kv_dtype = dtype_of(fields.text("kv_dtype").value_or(std::string(name_of(model.dtype))));
    model.activations = dtype_of(fields.text("activations").value_or("f32"));
    if (model.activations == DType::bf16 && model.dtype == DType::f32) {
      diagnostics_.error(fields.where("activations"), "E0409",
                         fmt::format("model '{}': 'activations: bf16' has no effect with 'dtype: f32'", model.name));
    }
    model.context = static_cast<std::int32_t>(fields.integer("context").value_or(0));
    model.template_variables = read_template_variables(fields, fmt::format("model '{}'", model.name), diagnostics_);
    read_server(fields, model);
    if (fields.get("path") != nullptr && model.path.empty()) {
      diagnostics_.error(fields.get("path")->where(), "E0404",
                         fmt::format("model '{}': the path is empty", model.name));
    }
    return model;
  }

  void read_server(const Fields& fields, ModelSpec& model) {
    model.endpoint = fields.text("endpoint").value_or("");
    model.model = fields.text("model").value_or("");
    model.api = fields.text("api").value_or("auto");
    model.tokenizer = fields.text("tokenizer").value_or("");
    model.key = fields.text("key").value_or("");
    model.patience = fields.duration("patience");
    const bool served = fields.has("endpoint");
    for (const char* key :
         {"path", "dtype", "kv_dtype", "activations", "model", "api", "tokenizer", "key", "patience"}) {
      constexpr std::string_view kOfServers[] = {"model", "api", "tokenizer", "key", "patience"};
      const bool of_server = std::ranges::find(kOfServers, key) != std::end(kOfServers);
      if (fields.has(key) && served != of_server)
        diagnostics_.error(
            fields.where(key), "E0409",
            fmt::format("model '{}': '{}' has no effect with{} 'endpoint'", model.name, key, served ? "" : "out"));
    }
    const std::string& address = model.endpoint;
    if (fields.get("endpoint") != nullptr && !address.starts_with("http://") && !address.starts_with("https://"))
      diagnostics_.error(
          fields.get("endpoint")->where(), "E0404",
          fmt::format("model '{}': expected an address that begins with http:// or https://", model.name));
  }

  /// Every agent has one model, by name, by default, or because there is only one.
  void check_models(const Fields& file) {
    if (file.get("models") == nullptr) return;
    std::vector<std::string> names;
    for (const ModelSpec& model : spec_.models) names.push_back(model.name);
    if (names.empty()) {
      diagnostics_.error(file.where("models"), "E0402", "no model is declared");
      return;
    }
    const auto check = [&](const Fields& fields, const std::string& owner) {
      const YamlNode* name = fields.get("model");
      if (name == nullptr || std::find(names.begin(), names.end(), name->text) != names.end()) return;
      diagnostics_.error(name->where(), "E0202", fmt::format("{}: unknown model '{}'", owner, name->text),
                         diagnostics_.suggestion(name->text, names));
    };
    if (const YamlNode* defaults = file.get("defaults")) check(Fields(*defaults), "defaults");
    for_each(file, "agents", [&](const YamlEntry& entry) {
      const YamlNode* overflow = Fields(entry.value).get("overflow");
      if (overflow == nullptr) return;
      const std::string owner = fmt::format("agent '{}': overflow", entry.key.text);
      check(Fields(*overflow), owner);
      const YamlNode* writer = Fields(*overflow).get("agent");
      if (writer == nullptr || spec_.agent(writer->text) != nullptr) return;
      std::vector<std::string> ids;
      for (const AgentSpec& agent : spec_.agents) ids.push_back(agent.id);
      diagnostics_.error(writer->where(), "E0201", fmt::format("{}: unknown agent '{}'", owner, writer->text),
                         diagnostics_.suggestion(writer->text, ids));
    });
    const bool any_default =
        names.size() == 1 || (file.get("defaults") != nullptr && Fields(*file.get("defaults")).has("model"));
    for_each(file, "agents", [&](const YamlEntry& entry) {
      const Fields fields(entry.value);
      check(fields, fmt::format("agent '{}'", entry.key.text));
      if (!fields.has("model") && !any_default && fields.has("prompt")) {
        diagnostics_.error(
            entry.key.where(), "E0202",
            fmt::format("agent '{}' names no model; expected one of the {} models", entry.key.text, names.size()));
      }
    });
  }

  /// Outputs are built when everything is over: they see inputs and the last output of each agent.
  void read_output(const YamlEntry& entry, const PlaceholderNames& names, AnswerChecker& answers) {
    if (entry.value.broken) return;
    const std::string owner = fmt::format("output '{}'", entry.key.text);
    PromptItem item = read_template(entry.value, owner, diagnostics_);
    for (std::size_t i = 0; i < item.pieces.size(); ++i) {
      const std::string& name = item.pieces[i].placeholder;
      if (name.empty()) continue;
      const auto found = names.find(name);
      if (!found) {
        report_unknown_placeholder(spec_, owner, name, item.place(i), diagnostics_);
      } else if (found->history > 0) {
        diagnostics_.error(item.place(i), "E0305", fmt::format("{}: an output sees only the last round", owner),
                           fmt::format("write '{}'", placeholder_name({found->kind, found->id, 0, {}, found->step})));
      } else {
        answers.check(*found, owner, item.place(i), diagnostics_);
      }
    }
    spec_.outputs.emplace_back(entry.key.text, std::move(item.pieces));
  }

  WorkflowSpec spec_;
  ToolReader tools_;
  AgentReader agents_;
  Diagnostics& diagnostics_;
};

/// The names that texts and conditions may hold.
class PlaceholderChecker {
 public:
  PlaceholderChecker(const WorkflowSpec& spec, Diagnostics& diagnostics)
      : spec_(spec), names_(spec), answers_(spec), diagnostics_(diagnostics) {
    for (const AgentSpec& agent : spec.agents) {
      if (!agent.tools.empty()) with_tools_.insert(agent.id);
    }
  }

  void check(const AgentSpec& agent) {
    owner_ = fmt::format("agent '{}'", agent.id);
    for (const MessageSpec& message : agent.messages) {
      for (const PromptItem& item : message.items) check(item);
      if (message.role.empty()) check_history(message);
    }
    for (const ToolSpec& tool : agent.tools) {
      tool.for_each_placeholder([&](const std::string& name, const SourceLocation& where) { check(name, where); });
    }
  }

  void check(const ConditionSpec& condition, std::string owner) {
    if (!condition.expression) return;
    owner_ = std::move(owner);
    for (std::size_t i = 0; i < condition.name_where.size(); ++i) {
      const ValueExpression::Name& name = condition.expression->names()[i];
      if (name.name == kRoundName && !names_.find(name.name)) continue;
      std::optional<Placeholder> found = names_.find(name.name);
      if (found && found->has_members()) found->path = name.members;
      if (found && found->kind == Placeholder::Kind::probabilities && name.numbered && !name.members.empty()) {
        diagnostics_.error(condition.name_where[i], "E0209",
                           fmt::format("{}: '{}' has members by name; expected {}['{}']", owner_, name.name, name.name,
                                       name.members.front()));
        continue;
      }
      check(found, name.name, condition.name_where[i]);
    }
  }

 private:
  void check(const PromptItem& item) {
    for (std::size_t i = 0; i < item.pieces.size(); ++i) {
      const std::string& name = item.pieces[i].placeholder;
      if (name.starts_with("it.")) {
        check_member(name, item.place(i), item.loop != PromptItem::Loop::none);
      } else if (!name.empty()) {
        check(name, item.place(i));
      }
    }
  }

  void check_history(const MessageSpec& message) {
    const std::string& name = message.items.front().pieces.front().placeholder;
    const auto input =
        std::find_if(spec_.inputs.begin(), spec_.inputs.end(), [&](const InputSpec& one) { return one.name == name; });
    if (names_.find(name) && (input == spec_.inputs.end() || !input->messages))
      diagnostics_.error(message.where, "E0404",
                         fmt::format("{}: history: '{}' is no input of type 'messages'", owner_, name));
  }

  void check_member(const std::string& name, const SourceLocation& where, bool in_loop) {
    const std::vector<std::string> members = {"it.name", "it.role", "it.output"};
    if (std::find(members.begin(), members.end(), name) == members.end()) {
      diagnostics_.error(where, "E0203", fmt::format("{}: unknown placeholder '{}'", owner_, name),
                         diagnostics_.suggestion(name, members));
    } else if (!in_loop) {
      diagnostics_.error(where, "E0206", fmt::format("{}: '{}' is used outside a loop", owner_, name),
                         "loops are written '- for: peers' with 'text:'");
    }
  }

  void check(const std::string& name, const SourceLocation& where) { check(names_.find(name), name, where); }

  void check(const std::optional<Placeholder>& found, const std::string& name, const SourceLocation& where) {
    if (!found) return report_unknown_placeholder(spec_, owner_, name, where, diagnostics_);
    if (found->kind == Placeholder::Kind::condition && !with_tools_.contains(found->id)) {
      diagnostics_.error(
          where, "E0208",
          fmt::format("{}: '{}' is the result of a tool, and agent '{}' has none", owner_, name, found->id));
    }
    if (found->kind == Placeholder::Kind::thinking && spec_.agent(found->id)->messages.empty()) {
      diagnostics_.error(
          where, "E0208",
          fmt::format("{}: '{}' is what a model thought, and agent '{}' has no prompt", owner_, name, found->id));
    }
    answers_.check(*found, owner_, where, diagnostics_);
  }

  const WorkflowSpec& spec_;
  PlaceholderNames names_;
  AnswerChecker answers_;
  std::unordered_set<std::string> with_tools_;  // agents
  Diagnostics& diagnostics_;
  std::string owner_;
};

}  // namespace

const AgentSpec* WorkflowSpec::agent(const std::string& id) const {
  const auto found = std::find_if(agents.begin(), agents.end(), [&](const AgentSpec& agent) { return agent.id == id; });
  return found == agents.end() ? nullptr : &*found;
}

WorkflowSpec read_spec(const YamlNode& root, const ToolRegistry& tools, bool absent_tools, OutputGrammars& grammars,
                       Diagnostics& diagnostics) {
  return SpecReader(tools, absent_tools, grammars, diagnostics).read(root);
}

void check_placeholders(const WorkflowSpec& spec, Diagnostics& diagnostics) {
  for (const AgentSpec& agent : spec.agents) {
    const std::string& id = agent.id;
    if (!id.ends_with(kThinkingSuffix) || !spec.agent(id.substr(0, id.size() - kThinkingSuffix.size()))) continue;
    diagnostics.error(agent.where, "E0210",
                      fmt::format("agent '{}': '{}' would be its output and the thinking of agent '{}'", id,
                                  placeholder_name({Placeholder::Kind::agent, id}),
                                  id.substr(0, id.size() - kThinkingSuffix.size())));
  }
  PlaceholderChecker checker(spec, diagnostics);
  for (const AgentSpec& agent : spec.agents) checker.check(agent);
  for (const NodeSpec& node : spec.topology.nodes) {
    if (node.when) checker.check(*node.when, fmt::format("step '{}': when", node.id));
  }
  if (spec.topology.until) checker.check(*spec.topology.until, "until");
}

}  // namespace baton
