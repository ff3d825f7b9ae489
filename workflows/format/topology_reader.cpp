// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "workflows/format/placeholder.h"

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
      if (const auto placeholder = parse_placeholder(until.expression->names()[i].name))
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

}  // namespace baton
