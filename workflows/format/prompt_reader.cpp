// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/prompt_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "workflows/format/fields.h"
#include "workflows/format/values.h"

namespace baton {
namespace {

constexpr std::size_t kMaxPieces = 1000;  // of each text and of each prompt
constexpr std::size_t kMaxErrors = 20;    // of one text

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
  if (errors.size() > kMaxErrors) errors.resize(kMaxErrors);
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
