// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/spec_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "workflows/format/agent_reader.h"
#include "workflows/format/format_table.h"
#include "workflows/format/placeholder.h"
#include "workflows/format/prompt_reader.h"
#include "workflows/format/topology_reader.h"

namespace baton {
namespace {

constexpr std::size_t kMaxNames = 1000;  // of agents, inputs and models each

DType dtype_of(const std::string& word) { return word == "f32" ? DType::f32 : DType::bf16; }

class SpecReader {
 public:
  SpecReader(const ToolRegistry& tools, Diagnostics& diagnostics)
      : agents_(tools, diagnostics), diagnostics_(diagnostics) {}

  WorkflowSpec read(const YamlNode& root) {
    const Fields file(root);
    spec_.file = root.source->name();
    spec_.name = file.text("name").value_or(spec_.file.stem().string());
    spec_.description = file.text("description").value_or("");
    read_inputs(file);
    for_each(file, "models", [&](const YamlEntry& entry) { spec_.models.push_back(model(entry)); });
    if (const YamlNode* defaults = file.get("defaults")) spec_.defaults = agents_.generation(Fields(*defaults));
    for_each(file, "agents", [&](const YamlEntry& entry) { spec_.agents.push_back(agents_.agent(entry)); });
    if (spec_.agents.empty() && file.get("agents") != nullptr && file.get("agents")->entries.empty()) {
      diagnostics_.error(file.where("agents"), "E0402", "no agent is declared");
    }
    if (std::max({spec_.agents.size(), spec_.inputs.size(), spec_.models.size()}) > kMaxNames) {
      diagnostics_.error({spec_.file.string(), 0, 0, 1}, "E0308",
                         fmt::format("more than {} agents, inputs or models", kMaxNames));
      diagnostics_.fail();
    }
    check_models(file);
    read_topology(file, spec_, agents_, diagnostics_);
    read_relay(file);
    for_each(file, "outputs", [&](const YamlEntry& entry) { read_output(entry); });
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
    model.context = static_cast<std::int32_t>(fields.integer("context").value_or(0));
    if (fields.get("path") != nullptr && model.path.empty()) {
      diagnostics_.error(fields.get("path")->where(), "E0404",
                         fmt::format("model '{}': the path is empty", model.name));
    }
    return model;
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
      if (!fields.has("model") && !any_default) {
        diagnostics_.error(
            entry.key.where(), "E0202",
            fmt::format("agent '{}' names no model; expected one of the {} models", entry.key.text, names.size()));
      }
    });
  }

  void read_relay(const Fields& file) {
    const YamlNode* relay = file.get("relay");
    if (relay == nullptr) return;
    const Fields fields(*relay);
    spec_.relay.where = fields.get("method") != nullptr ? fields.get("method")->where() : file.where("relay");
    spec_.relay.method = find_method(fields.text("method").value_or(""));
    read_reuse(fields, spec_.relay.options);
    if (const YamlNode* memory = fields.get("memory")) {
      spec_.relay.device_bytes = Fields(*memory).size("device");
      spec_.relay.host_bytes = Fields(*memory).size("host");
    }
  }

  void read_anchors(const Fields& fields, AnchorOptions& options) {
    using Gate = AnchorOptions::Gate;
    using Offsets = AnchorOptions::Offsets;
    using Text = AnchorOptions::Text;
    const auto integer = [&](const char* key, std::int32_t value) {
      return static_cast<std::int32_t>(fields.integer(key).value_or(value));
    };
    const std::string gate = fields.text("gate").value_or("error");
    options.gate = gate == "none" ? Gate::none : gate == "entropy" ? Gate::entropy : Gate::error;
    const std::string offsets = fields.text("offsets").value_or("weighted");
    options.offsets = offsets == "none" ? Offsets::none : offsets == "nearest" ? Offsets::nearest : Offsets::weighted;
    const std::string text = fields.text("text").value_or("computed");
    options.text = text == "base" ? Text::base : text == "offset" ? Text::offset : Text::computed;
    options.size = integer("size", options.size);
    options.check = integer("check", options.check);
    options.trust = fields.number("trust").value_or(options.trust);
    options.refuse = fields.number("refuse").value_or(options.refuse);
    options.recompute = fields.number("recompute").value_or(static_cast<float>(options.recompute));
    options.gamma = fields.number("gamma").value_or(options.gamma);
    options.aligned = fields.boolean("aligned").value_or(options.aligned);
    options.rotate = fields.boolean("rotate").value_or(options.rotate);
    options.pool = fields.text("pool").value_or(options.pool);
    if (options.refuse < options.trust) {
      diagnostics_.error(
          fields.where(fields.has("refuse") ? "refuse" : "trust"), "E0412",
          fmt::format("relay: anchors.refuse {} is below anchors.trust {}", options.refuse, options.trust));
    }
  }

  void read_reuse(const Fields& fields, ReuseOptions& options) {
    if (const YamlNode* node = fields.get("layers")) {
      const Fields layers(*node);
      spec_.relay.layers_where = layers.get("end") != nullptr ? layers.get("end")->where() : fields.where("layers");
      const auto layer = [&](const char* key) { return static_cast<std::int32_t>(layers.integer(key).value_or(0)); };
      const Method* method = spec_.relay.method;
      const auto needs = [&](Method::Layers form) { return method != nullptr && method->layers == form; };
      const bool group = needs(Method::Layers::group) || layers.get("detect") == nullptr;
      options.range = {layer("start"), layer(group ? "start" : "detect"), layer("end")};
      if (group && options.range.start >= options.range.end) {
        diagnostics_.error(fields.where("layers"), "E0412",
                           fmt::format("relay: invalid layers: expected start < end, found start {}, end {}",
                                       options.range.start, options.range.end));
      } else if (group && needs(Method::Layers::detection)) {
        diagnostics_.error(fields.where("layers"), "E0412",
                           fmt::format("relay: `layers` needs `detect` for method {}", method->name),
                           "the layer, between start and end, in which tokens are chosen");
      } else if (!group && (options.range.start >= options.range.detect || options.range.detect >= options.range.end)) {
        diagnostics_.error(
            fields.where("layers"), "E0412",
            fmt::format("relay: invalid layers: expected start < detect < end, found start {}, detect {}, end {}",
                        options.range.start, options.range.detect, options.range.end));
      }
    }
    if (const YamlNode* node = fields.get("select")) {
      const Fields select(*node);
      SelectionOptions& selection = options.selection;
      const bool thresholds = select.get("deviation") != nullptr || select.get("influence") != nullptr;
      const std::string score = select.text("score").value_or(thresholds ? "deviation" : "author");
      if (score == "deviation") selection = {};
      if (score == "entropy")
        selection = {.suffix = 0, .head = 16, .share = 0.25, .score = SelectionOptions::Score::entropy};
      selection.deviation_threshold = select.number("deviation").value_or(selection.deviation_threshold);
      selection.influence_threshold = select.number("influence").value_or(selection.influence_threshold);
      selection.deviation = selection.deviation_threshold > 0.0f;
      selection.influence = selection.influence_threshold > 0.0f;
      selection.suffix = static_cast<std::int32_t>(select.integer("suffix").value_or(selection.suffix));
      selection.head = static_cast<std::int32_t>(select.integer("head").value_or(selection.head));
      selection.share = select.number("share").value_or(static_cast<float>(selection.share));
      selection.all = select.boolean("all").value_or(false);
      options.correct = selection.score != SelectionOptions::Score::deviation;
    }
    options.correct = fields.boolean("correct").value_or(options.correct);
    options.epic_tokens = static_cast<std::int32_t>(fields.integer("epic_tokens").value_or(options.epic_tokens));
    options.cacheblend_share = fields.number("cacheblend_share").value_or(static_cast<float>(options.cacheblend_share));
    if (const YamlNode* node = fields.get("anchors")) read_anchors(Fields(*node), options.anchors);
    if (spec_.relay.method == nullptr) options.tolerance = fields.number("tolerance").value_or(options.tolerance);
    options.prefix = fields.boolean("prefix").value_or(options.prefix);
    options.min_tokens = static_cast<std::int32_t>(fields.integer("min_tokens").value_or(options.min_tokens));
  }

  /// Outputs are built when everything is over: they see inputs and the last output of each agent.
  void read_output(const YamlEntry& entry) {
    if (entry.value.broken) return;
    const std::string owner = fmt::format("output '{}'", entry.key.text);
    PromptItem item = read_template(entry.value, owner, diagnostics_);
    for (std::size_t i = 0; i < item.pieces.size(); ++i) {
      const std::string& name = item.pieces[i].placeholder;
      if (name.empty()) continue;
      const auto found = find_placeholder(spec_, name);
      if (!found) {
        report_unknown_placeholder(spec_, owner, name, item.place(i), diagnostics_);
      } else if (found->history > 0) {
        diagnostics_.error(item.place(i), "E0305", fmt::format("{}: an output sees only the last round", owner),
                           fmt::format("write '{}'", placeholder_name({found->kind, found->id, 0})));
      }
    }
    spec_.outputs.emplace_back(entry.key.text, std::move(item.pieces));
  }

  WorkflowSpec spec_;
  AgentReader agents_;
  Diagnostics& diagnostics_;
};

/// The names that one text may hold.
class PlaceholderChecker {
 public:
  PlaceholderChecker(const WorkflowSpec& spec, Diagnostics& diagnostics) : spec_(spec), diagnostics_(diagnostics) {}

  void check(const AgentSpec& agent) {
    owner_ = fmt::format("agent '{}'", agent.id);
    for (const MessageSpec& message : agent.messages) {
      for (const PromptItem& item : message.items) check(item);
    }
    for (const ToolSpec& tool : agent.tools) {
      if (!tool.from.empty()) check(tool.from, tool.from_where);
    }
  }

 private:
  void check(const PromptItem& item) {
    for (std::size_t i = 0; i < item.pieces.size(); ++i) {
      const std::string& name = item.pieces[i].placeholder;
      if (name.find('.') == std::string::npos) {
        if (!name.empty()) check(name, item.place(i));
      } else {
        check_member(name, item.place(i), item.loop != PromptItem::Loop::none);
      }
    }
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

  void check(const std::string& name, const SourceLocation& where) {
    const std::optional<Placeholder> found = find_placeholder(spec_, name);
    if (!found) return report_unknown_placeholder(spec_, owner_, name, where, diagnostics_);
    if (found->kind == Placeholder::Kind::condition && spec_.agent(found->id)->tools.empty()) {
      diagnostics_.error(
          where, "E0208",
          fmt::format("{}: '{}' is the result of a tool, and agent '{}' has none", owner_, name, found->id));
    }
  }

  const WorkflowSpec& spec_;
  Diagnostics& diagnostics_;
  std::string owner_;
};

}  // namespace

const AgentSpec* WorkflowSpec::agent(const std::string& id) const {
  const auto found = std::find_if(agents.begin(), agents.end(), [&](const AgentSpec& agent) { return agent.id == id; });
  return found == agents.end() ? nullptr : &*found;
}

WorkflowSpec read_spec(const YamlNode& root, const ToolRegistry& tools, Diagnostics& diagnostics) {
  return SpecReader(tools, diagnostics).read(root);
}

void check_placeholders(const WorkflowSpec& spec, Diagnostics& diagnostics) {
  PlaceholderChecker checker(spec, diagnostics);
  for (const AgentSpec& agent : spec.agents) checker.check(agent);
}

}  // namespace baton
