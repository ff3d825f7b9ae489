// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "agents/prompts/conversation.h"
#include "workflows/format/format_table.h"
#include "workflows/format/placeholder.h"
#include "workflows/format/readers.h"

namespace baton {
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
    const bool served = fields.has("endpoint");
    for (const char* key : {"path", "dtype", "kv_dtype", "activations", "model", "api", "tokenizer", "key"}) {
      const bool of_server = std::string_view(key) == "model" || std::string_view(key) == "api" ||
                             std::string_view(key) == "tokenizer" || std::string_view(key) == "key";
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
                           fmt::format("write '{}'", placeholder_name({found->kind, found->id, 0})));
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
  PlaceholderChecker checker(spec, diagnostics);
  for (const AgentSpec& agent : spec.agents) checker.check(agent);
  for (const NodeSpec& node : spec.topology.nodes) {
    if (node.when) checker.check(*node.when, fmt::format("step '{}': when", node.id));
  }
  if (spec.topology.until) checker.check(*spec.topology.until, "until");
}

}  // namespace baton
