// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "engine/text/pattern.h"
#include "engine/text/schema/schema.h"
#include "workflows/format/format_table.h"
#include "workflows/format/placeholder.h"
#include "workflows/format/readers.h"
#include "workflows/format/yaml_tree.h"

namespace baton {
namespace {

constexpr std::size_t kMaxChoices = 256;

bool is_template_variable(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= 100 && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> read_template_variables(const Fields& fields, const std::string& owner,
                                                                         Diagnostics& diagnostics) {
  static constexpr std::array<std::string_view, 5> kReserved = {"messages", "tools", "add_generation_prompt",
                                                                "bos_token", "eos_token"};
  std::vector<std::pair<std::string, std::string>> variables;
  const YamlNode* node = fields.get("template");
  if (node == nullptr) return variables;
  for (const YamlEntry& entry : node->entries) {
    const std::string& name = entry.key.text;
    const auto wrong = [&](const std::string& what) {
      diagnostics.error(entry.key.where(), "E0404", fmt::format("{}: template: {}", owner, what));
    };
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      wrong(fmt::format("'{}' is set by Baton", name));
    } else if (!is_template_variable(name)) {
      wrong(fmt::format("expected the name of a variable (letters, digits and _), found '{}'", name));
    } else if (!entry.value.broken) {
      variables.emplace_back(name, to_json(entry.value));
    }
  }
  return variables;
}

AgentSpec AgentReader::agent(const YamlEntry& entry) {
  const Fields fields(entry.value);
  AgentSpec agent;
  agent.id = entry.key.text;
  agent.where = entry.key.where();
  agent.role = fields.text("role").value_or(agent.id);
  if (const YamlNode* role = fields.get("role")) agent.role_is_data = role->has_values;
  const std::string owner = fmt::format("agent '{}'", agent.id);
  if (const YamlNode* prompt = fields.get("prompt")) agent.messages = read_prompt(*prompt, agent.id, diagnostics_);
  if (const YamlNode* node = fields.get("output")) agent.output = output(*node, owner);
  tools_.read(fields, owner, agent);
  if (const YamlNode* question = fields.get("ask")) agent.tools = {ask(*question, fields, owner)};
  agent.generation = generation(fields);
  agent.template_variables = read_template_variables(fields, owner, diagnostics_);
  const bool calls = agent.calls != nullptr && agent.calls->limits().enforce;
  const bool enforced = agent.output.constrains() && agent.output.enforce;
  if ((enforced || calls) && agent.generation.stop && !agent.generation.stop->empty()) {
    diagnostics_.error(fields.where("stop"), "E0409",
                       fmt::format("{}: 'stop' could end an answer before it is what '{}' enforces", owner,
                                   enforced ? "output" : "calls"));
  }
  ErrorHandling handling = error_handling(fields, owner);
  agent.on_error = handling.on_error.value_or(OnError::fail);
  agent.fallback = handling.fallback.value_or("");
  agent.retry = handling.retry.value_or(RetrySpec{});
  const bool can_fail = fields.has("output") || fields.text("on_empty") == "fail";
  if (const bool prompts = fields.has("prompt"); !agent.retry.feedback.empty() && !(prompts && can_fail)) {
    diagnostics_.error(fields.where("retry"), "E0409",
                       fmt::format("{}: 'feedback' has no effect without {}", owner,
                                   prompts ? "'output', which can fail" : "'prompt'"));
  }
  if (const auto word = fields.text("on_empty"))
    agent.on_empty = *word == "accept" ? OnEmpty::accept : *word == "fail" ? OnEmpty::fail : OnEmpty::warn;
  if (const YamlNode* node = fields.get("overflow")) read_overflow(*node, owner, agent);
  agent.exact = fields.boolean("exact").value_or(false);
  if (const auto runs = fields.integer("remember")) agent.remember = static_cast<int>(*runs);
  if (!fields.has("prompt")) check_tools_only(fields, owner);
  return agent;
}

void AgentReader::read_overflow(const YamlNode& node, const std::string& owner, AgentSpec& agent) {
  const Fields fields(node);
  const std::string word = fields.text("policy").value_or("");
  agent.overflow = word == "error"         ? Overflow::error
                   : word == "drop_oldest" ? Overflow::drop_oldest
                   : word == "summarise"   ? Overflow::summarise
                                           : Overflow::cut_result;
  agent.summary = {fields.text("agent").value_or(""), fields.text("model").value_or(""), node.where()};
  const char* last = nullptr;
  for (const char* key : {"agent", "model"}) {
    if (!fields.has(key)) continue;
    agent.summary.where = fields.where(key);
    if (agent.overflow != Overflow::summarise && fields.get("policy") != nullptr)
      diagnostics_.error(
          fields.where(key), "E0409",
          fmt::format("{}: overflow: '{}' has no effect with policy '{}'; expected 'summarise'", owner, key, word));
    if (last != nullptr)
      diagnostics_.error(fields.where(key), "E0409",
                         fmt::format("{}: overflow: '{}' and '{}' exclude each other", owner, last, key));
    last = key;
  }
}

/// A step that asks is one with a tool that asks.
ToolSpec AgentReader::ask(const YamlNode& question, const Fields& fields, const std::string& owner) {
  for (const char* key : {"prompt", "tools"}) {
    if (fields.has(key))
      diagnostics_.error(fields.where(key), "E0409", fmt::format("{}: 'ask' and '{}' exclude each other", owner, key));
  }
  if (question.text.empty()) diagnostics_.error(question.where(), "E0404", fmt::format("{}: 'ask' is empty", owner));
  ToolSpec out;
  out.tool = kAskTool;
  out.options["question"] = question.text;
  out.filled["question"] = read_template(question, owner, diagnostics_);
  out.where = question.where();
  return out;
}

/// Without a prompt, the tools are the agent.
void AgentReader::check_tools_only(const Fields& fields, const std::string& owner) {
  for (const char* key :
       {"model", "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "seed", "stop", "template", "think", "overflow", "exact", "remember"}) {
    if (fields.has(key))
      diagnostics_.error(fields.where(key), "E0409",
                         fmt::format("{}: '{}' has no effect without 'prompt'", owner, key));
  }
  if (const YamlNode* output = fields.get("output"); output != nullptr && Fields(*output).has("choose"))
    diagnostics_.error(Fields(*output).where("choose"), "E0409",
                       fmt::format("{}: 'choose' has no effect without 'prompt'", owner));
}

GenerationSpec AgentReader::generation(const Fields& fields) {
  GenerationSpec out;
  const auto narrow = [](std::optional<std::int64_t> value) {
    return value ? std::optional(static_cast<std::int32_t>(*value)) : std::nullopt;
  };
  out.model = fields.text("model");
  out.max_tokens = narrow(fields.integer("max_tokens"));
  out.temperature = fields.number("temperature");
  out.top_k = narrow(fields.integer("top_k"));
  out.top_p = fields.number("top_p");
  out.min_p = fields.number("min_p");
  out.repetition_penalty = fields.number("repetition_penalty");
  out.presence_penalty = fields.number("presence_penalty");
  out.frequency_penalty = fields.number("frequency_penalty");
  if (const auto seed = fields.integer("seed")) out.seed = static_cast<std::uint64_t>(*seed);
  out.timeout = fields.duration("timeout");
  if (const YamlNode* node = fields.get("think")) {
    const Fields think(*node);
    out.think.enabled = think.boolean("enabled");
    out.think.effort = think.text("effort");
    out.think.budget = narrow(think.integer("budget"));
    if (const auto keep = think.text("keep"))
      out.think.keep = *keep == "all"    ? ThinkSpec::Keep::all
                       : *keep == "last" ? ThinkSpec::Keep::last
                                         : ThinkSpec::Keep::none;
  }
  if (const YamlNode* stop = fields.get("stop")) {
    out.stop.emplace();
    if (stop->is_scalar()) out.stop->push_back(stop->text);
    for (const YamlNode& item : stop->items) {
      if (!item.broken) out.stop->push_back(item.text);
    }
    for (const std::string& text : *out.stop) {
      if (text.empty()) diagnostics_.error(stop->where(), "E0404", "a stop text is empty");
    }
  }
  return out;
}

AgentReader::ErrorHandling AgentReader::error_handling(const Fields& fields, const std::string& owner) {
  ErrorHandling out;
  if (const auto word = fields.text("on_error")) {
    out.on_error = *word == "skip" ? OnError::skip : *word == "fallback" ? OnError::fallback : OnError::fail;
  }
  out.fallback = fields.text("fallback");
  const bool falls_back = out.on_error == OnError::fallback;
  if (falls_back && !fields.has("fallback")) {
    diagnostics_.error(fields.where("on_error"), "E0402",
                       fmt::format("{}: 'on_error: fallback' needs the key 'fallback'", owner));
  }
  if (!falls_back && fields.has("fallback") && (!fields.has("on_error") || out.on_error)) {
    diagnostics_.error(fields.where("fallback"), "E0409",
                       fmt::format("{}: 'fallback' has no effect without 'on_error: fallback'", owner));
  }
  if (const YamlNode* retry = fields.get("retry")) {
    const Fields settings(*retry);
    const auto attempts = static_cast<int>(settings.integer("attempts").value_or(1));
    out.retry = RetrySpec{attempts, settings.duration("backoff").value_or(Milliseconds{0})};
    if (const YamlNode* text = settings.get("feedback")) {
      out.retry->feedback = feedback(*text, owner);
      if (attempts < 2)
        diagnostics_.error(text->where(), "E0409",
                           fmt::format("{}: 'feedback' has no effect without 'attempts' of at least 2", owner));
    }
  }
  return out;
}

std::vector<TemplatePiece> AgentReader::feedback(const YamlNode& text, const std::string& owner) {
  PromptItem item = read_template(text, owner, diagnostics_);
  if (text.text.empty()) diagnostics_.error(text.where(), "E0404", fmt::format("{}: 'feedback' is empty", owner));
  for (std::size_t i = 0; i < item.pieces.size(); ++i) {
    const std::string& name = item.pieces[i].placeholder;
    if (name.empty() || name == kErrorPlaceholder || name == kOutputPlaceholder) continue;
    diagnostics_.error(item.place(i), "E0203",
                       fmt::format("{}: unknown placeholder '{}'; a feedback has '{}' and '{}'", owner, name,
                                   kErrorPlaceholder, kOutputPlaceholder));
  }
  return std::move(item.pieces);
}

std::string AgentReader::pattern(const Fields& fields, const char* key, const std::string& owner) {
  const YamlNode* node = fields.get(key);
  if (node == nullptr) return {};
  try {
    Pattern compiled(node->text);
    return node->text;
  } catch (const std::invalid_argument& error) {
    diagnostics_.error(node->where(), "E0407", fmt::format("{}: {}: {}", owner, key, error.what()));
    return {};
  }
}

OutputSpec AgentReader::output(const YamlNode& node, const std::string& owner) {
  const Fields fields(node);
  OutputSpec out;
  out.where = node.where();
  out.pattern = pattern(fields, "pattern", owner);
  out.required = fields.boolean("required").value_or(true);
  out.enforce = fields.boolean("enforce").value_or(true);
  out.regex = fields.text("regex").value_or("");
  out.grammar = fields.text("grammar").value_or("");
  out.choose = fields.has("choose") && !fields.has("enum");
  if (const char* key = out.choose ? "choose" : "enum"; const YamlNode* texts = fields.get(key)) {
    for (const YamlNode& one : texts->items) {
      if (!one.broken) out.texts.push_back(one.text);
    }
    if (texts->items.empty())
      diagnostics_.error(fields.where(key), "E0404", fmt::format("{}: {}: expected at least one text", owner, key));
  }
  if (const YamlNode* schema = fields.get("schema")) out.schema = to_json(*schema);
  out.free_blanks = fields.text("whitespace") == "free";

  const char* first = nullptr;
  for (const char* key : {"pattern", "schema", "enum", "choose", "regex", "grammar"}) {
    if (!fields.has(key)) continue;
    if (first != nullptr) {
      diagnostics_.error(fields.where(key), "E0409",
                         fmt::format("{}: '{}' and '{}' exclude each other", owner, first, key));
    } else {
      first = key;
    }
  }
  const std::string_view kind = first == nullptr ? "" : first;
  if (fields.has("enforce") && (kind.empty() || kind == "pattern" || kind == "choose")) {
    diagnostics_.error(
        fields.where("enforce"), "E0409",
        fmt::format("{}: 'enforce' has no effect without 'schema', 'enum', 'regex' or 'grammar'", owner));
  }
  if (fields.has("whitespace") && (kind != "schema" || !out.enforce)) {
    diagnostics_.error(fields.where("whitespace"), "E0409",
                       fmt::format("{}: 'whitespace' has no effect without a 'schema' that is enforced", owner));
  }
  check_output(out, kind, fields, owner);
  return out;
}

/// Each text has a probability of its own.
void AgentReader::check_choices(const OutputSpec& output, const Fields& fields, const std::string& owner) {
  const auto wrong = [&](const std::string& what) {
    diagnostics_.error(fields.where("choose"), "E0404", fmt::format("{}: choose: {}", owner, what));
  };
  if (output.texts.size() > kMaxChoices)
    wrong(fmt::format("expected at most {} texts, found {}", kMaxChoices, output.texts.size()));
  std::set<std::string_view> seen;
  for (const std::string& text : output.texts) {
    if (text.empty()) return wrong("a text is empty");
    if (!seen.insert(text).second) return wrong(fmt::format("'{}' stands there twice", text));
  }
}

/// Only the first of several constraints is checked.
void AgentReader::check_output(const OutputSpec& output, std::string_view kind, const Fields& fields,
                               const std::string& owner) {
  if (kind == "schema" && fields.get(kind) != nullptr) {
    const std::vector<SchemaMistake> mistakes = json_schema_mistakes(output.schema);
    report_schema_mistakes(*fields.get(kind), mistakes, owner + ": output schema", diagnostics_);
    if (!mistakes.empty()) return;
  }
  if (kind.empty() || kind == "pattern" || fields.get(kind) == nullptr || diagnostics_.full()) return;
  if ((kind == "regex" && output.regex.empty()) || (kind == "grammar" && output.grammar.empty()))
    return diagnostics_.error(fields.where(kind), "E0404", fmt::format("{}: output {}: it is empty", owner, kind));
  if (kind == "choose") check_choices(output, fields, owner);
  OutputSpec one = output;
  if (kind != "enum" && kind != "choose") one.texts.clear();
  if (kind == "schema") one.regex.clear();
  if (kind != "grammar") one.grammar.clear();
  try {
    grammars_.get(one);
  } catch (const ConstraintError& error) {
    const std::string message = fmt::format("{}: output {}: {}", owner, kind, error.what());
    if (kind == "schema")
      diagnostics_.error(fields.where(kind), "E0414", message,
                         "'enforce: false' checks the answer when it is complete");
    else
      diagnostics_.error(fields.get(kind)->where(), kind == "regex" ? "E0407" : "E0413", message);
  }
}

namespace {

constexpr std::size_t kMaxPieces = 1000;    // in each text and in each prompt
constexpr std::size_t kMaxTextErrors = 20;  // in one text

/// Adds fixed text, with what variables hold as data.
void add_resolved(PromptItem& item, const Resolved& resolved, std::size_t offset) {
  const auto add = [&](std::size_t begin, std::size_t end, bool data) {
    if (begin == end) return;
    item.pieces.push_back({resolved.text.substr(begin, end - begin), {}, offset, data});
    item.piece_where.push_back(item.where);
  };
  std::size_t done = 0;
  for (const auto& [begin, end] : resolved.values) {
    add(done, begin, false);
    add(begin, end, true);
    done = end;
  }
  add(done, resolved.text.size(), false);
}

class PromptReader {
 public:
  PromptReader(const std::string& agent, Diagnostics& diagnostics)
      : owner_(fmt::format("agent '{}'", agent)), diagnostics_(diagnostics) {}

  std::vector<MessageSpec> read(const YamlNode& prompt) {
    const Fields fields(prompt);
    std::vector<MessageSpec> messages;
    for (const char* role : {"system", "user"}) {
      if (!fields.has(role)) continue;
      if (fields.has("messages")) {
        error(fields.where(role), "E0409", fmt::format("'{}' and 'messages' exclude each other", role));
      } else if (const YamlNode* content = fields.get(role)) {
        messages.push_back(message(role, *content));
      }
    }
    if (const YamlNode* list = fields.get("messages")) {
      for (const YamlNode& item : list->items) {
        const Fields one(item);
        const YamlNode* content = item.broken ? nullptr : one.get("content");
        if (const YamlNode* input = item.broken ? nullptr : one.get("history")) {
          messages.push_back(history(one, *input));
          continue;
        }
        if (content != nullptr && one.text("role")) messages.push_back(message(*one.text("role"), *content));
      }
    }
    const bool free_order = fields.text("order").value_or("written") == "free";
    for (MessageSpec& message : messages) message.free_order = free_order && !message.role.empty();
    const bool none = !fields.has("system") && !fields.has("user") &&
                      (!fields.has("messages") || prompt.entry("messages")->value.items.empty());
    if (none && !prompt.broken) error(prompt.where(), "E0402", "the prompt has no message");
    return messages;
  }

 private:
  void error(const SourceLocation& where, const char* code, const std::string& message) {
    diagnostics_.error(where, code, owner_ + ": " + message);
  }

  MessageSpec history(const Fields& fields, const YamlNode& input) {
    for (const char* key : {"role", "content"}) {
      if (fields.has(key)) error(fields.where(key), "E0409", fmt::format("'history' and '{}' exclude each other", key));
    }
    PromptItem item;
    item.pieces.push_back({"", input.text, 0});
    item.where = input.where();
    return {"", {std::move(item)}, input.where()};
  }

  MessageSpec message(const std::string& role, const YamlNode& content) {
    MessageSpec message{role, {}, content.where()};
    if (content.kind != YamlNode::Kind::list) {
      add_item(message, content);
    } else {
      for (const YamlNode& item : content.items) {
        if (!item.broken) add_item(message, item);
      }
    }
    return message;
  }

  void add_item(MessageSpec& message, const YamlNode& node) {
    if (pieces_ > kMaxPieces) return;
    const std::size_t before = message.items.size();
    read_item(message, node);
    if (message.items.size() > before) pieces_ += std::max<std::size_t>(1, message.items.back().pieces.size());
    if (pieces_ > kMaxPieces)
      error(node.where(), "E0106", fmt::format("more than {} pieces in one prompt", kMaxPieces));
  }

  void read_item(MessageSpec& message, const YamlNode& node) {
    if (node.is_scalar()) {
      message.items.push_back(read_template(node, owner_, diagnostics_));
      return;
    }
    const Fields fields(node);
    if (fields.has("text") == fields.has("file")) {
      error(node.where(), "E0409", "expected one of 'text' and 'file'");
      return;
    }
    std::optional<PromptItem> item;
    if (const YamlNode* text = fields.get("text")) item = read_template(*text, owner_, diagnostics_);
    if (const YamlNode* file = fields.get("file")) item = read_file(*file);
    if (!item) return;
    const std::string loop = fields.text("for").value_or("");
    if (loop == "peers") item->loop = PromptItem::Loop::peers;
    if (loop == "previous") item->loop = PromptItem::Loop::previous;
    message.items.push_back(std::move(*item));
  }

  std::optional<PromptItem> read_file(const YamlNode& name) {
    const auto file = (name.source->folder() / name.text).lexically_normal();
    YamlNode text;
    text.kind = YamlNode::Kind::string;
    text.source = read_source(file, name.where(), diagnostics_);
    if (!text.source) return std::nullopt;
    text.text = text.source->text();
    if (text.text.ends_with('\n')) text.text.pop_back();
    if (text.text.ends_with('\r')) text.text.pop_back();
    return read_template(text, owner_, diagnostics_);
  }

  std::string owner_;
  Diagnostics& diagnostics_;
  std::size_t pieces_ = 0;
};

}  // namespace

PromptItem read_template(const YamlNode& text, const std::string& owner, Diagnostics& diagnostics) {
  PromptItem item;
  item.where = text.where();
  std::vector<TemplateError> errors;
  std::vector<TemplatePiece> pieces = parse_template(text.text, errors);
  if (pieces.size() > kMaxPieces) {
    diagnostics.error(text.where(), "E0106", fmt::format("{}: more than {} pieces in one text", owner, kMaxPieces));
    return {};
  }
  if (errors.size() > kMaxTextErrors) errors.resize(kMaxTextErrors);
  TextPlaces error_places(text), places(text);
  for (const TemplateError& error : errors) {
    diagnostics.error(error_places.at(error.offset, 2), "E0205", fmt::format("{}: {}", owner, error.message));
  }
  for (TemplatePiece& piece : pieces) {
    if (!piece.placeholder.empty()) {
      item.piece_where.push_back(places.at(piece.offset, piece.placeholder.size()));
      item.pieces.push_back(std::move(piece));
      continue;
    }
    const Resolved resolved = resolve_environment(piece.text, Secrets::refuse);
    if (!resolved.error.empty())
      diagnostics.error(item.where, resolved.code, fmt::format("{}: {}", owner, resolved.error));
    add_resolved(item, resolved, piece.offset);
  }
  return item;
}

std::vector<MessageSpec> read_prompt(const YamlNode& prompt, const std::string& agent, Diagnostics& diagnostics) {
  return PromptReader(agent, diagnostics).read(prompt);
}

}  // namespace baton
