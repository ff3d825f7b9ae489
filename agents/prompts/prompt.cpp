// SPDX-License-Identifier: Apache-2.0
#include "agents/prompts/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "agents/tools/tool.h"
#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kTemplateBlanks = " \t\r\n";
constexpr std::size_t kShownBytes = 40;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_name_char(char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; }

bool is_member_char(char c) { return is_name_char(c) || (c >= 'A' && c <= 'Z') || c == '-'; }

/// True for [a-z][a-z0-9_]* and members of it, .[A-Za-z0-9_-]+.
bool is_name(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('.'));
  if (name.empty() || !is_lower(name.front()) || !std::all_of(name.begin(), name.end(), is_name_char)) return false;
  for (text.remove_prefix(name.size()); !text.empty();) {
    text.remove_prefix(1);
    const std::string_view member = text.substr(0, text.find('.'));
    if (member.empty() || !std::all_of(member.begin(), member.end(), is_member_char)) return false;
    text.remove_prefix(member.size());
  }
  return true;
}

std::string shown(std::string_view text) { return beginning(text, kShownBytes); }

void add_text(std::vector<TemplatePiece>& pieces, std::string_view text, std::size_t offset) {
  if (text.empty()) return;
  if (!pieces.empty() && pieces.back().placeholder.empty()) {
    pieces.back().text += text;
  } else {
    pieces.push_back({std::string(text), {}, offset});
  }
}

}  // namespace

std::vector<TemplatePiece> parse_template(std::string_view source, std::vector<TemplateError>& errors) {
  std::vector<TemplatePiece> pieces;
  std::size_t at = 0;
  while (at < source.size()) {
    const std::size_t open = source.find("{{", at);
    add_text(pieces, source.substr(at, open - at), at);
    if (open == std::string_view::npos) break;
    if (source.substr(open, 4) == "{{{{") {
      add_text(pieces, "{{", open);
      at = open + 4;
      continue;
    }

    const std::size_t inside = open + 2;
    const std::size_t close = source.substr(0, source.find("{{", inside)).find("}}", inside);
    if (close == std::string_view::npos) {
      errors.push_back({open, "'{{' is not closed with '}}' (write '{{{{' for a literal '{{')"});
      at = inside;
      continue;
    }
    const std::size_t begin = std::min(source.find_first_not_of(kTemplateBlanks, inside), close);
    const std::size_t end = begin == close ? close : source.find_last_not_of(kTemplateBlanks, close - 1) + 1;
    const std::string_view name = source.substr(begin, end - begin);
    if (name.empty()) {
      errors.push_back({open, "the placeholder has no name"});
    } else if (!is_name(name)) {
      errors.push_back(
          {begin, "'" + shown(name) + "' is not the name of a placeholder (write '{{{{' for a literal '{{')"});
    } else {
      pieces.push_back({{}, std::string(name), begin});
    }
    at = close + 2;
  }
  return pieces;
}

namespace {

/// A slot or data at its position in the rendered text.
struct Mark {
  std::size_t begin = 0;
  std::size_t end = 0;
  const PromptPiece* piece = nullptr;

  std::string name() const { return piece->data ? "inserted data" : piece->slot; }
};

constexpr std::size_t kMaxTokens = 1u << 24;  // more than any context: a value may stand in a prompt many times
constexpr std::string_view kMarkBegin = "\uE0B1", kMarkEnd = "\uE0B2";

/// Reads the digits at the start of `text`; nothing when there are none, or too many for a number.
std::optional<std::size_t> leading_number(std::string_view text, std::size_t& digits) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  digits = static_cast<std::size_t>(end - text.data());
  return error == std::errc() && digits > 0 ? std::optional(number) : std::nullopt;
}

/// Returns a mark that no rendered text holds: a private-use character and a number. Slot values are never rendered.
std::string unused_prefix(const std::vector<PromptMessage>& messages, const std::vector<std::string>& tools) {
  std::set<std::size_t> used;
  const auto scan = [&](std::string_view text) {
    for (std::size_t at = 0; (at = text.find(kMarkBegin, at)) != std::string_view::npos;) {
      at += kMarkBegin.size();
      std::size_t digits = 0;
      if (const auto number = leading_number(text.substr(at), digits)) used.insert(*number);
    }
  };
  for (const std::string& tool : tools) scan(tool);
  for (const PromptMessage& message : messages) {
    for (const PromptPiece& piece : message.pieces) scan(piece.text);
    for (const ChatCall& call : message.calls.calls) scan(call.arguments);
  }
  std::size_t number = 0;
  while (used.contains(number)) ++number;
  return fmt::format("{}{}.", kMarkBegin, number);
}

/// Counts the marks in a text, and notes where each is, in one pass.
std::vector<std::pair<std::size_t, std::size_t>> count_marks(const std::string& text, const std::string& prefix,
                                                             std::size_t marks) {
  std::vector<std::pair<std::size_t, std::size_t>> found(marks, {0, 0});  // times, place
  for (std::size_t at = 0; (at = text.find(prefix, at)) != std::string::npos; at += prefix.size()) {
    const std::string_view rest = std::string_view(text).substr(at + prefix.size());
    std::size_t digits = 0;
    const auto index = leading_number(rest, digits);
    if (!index || *index >= marks || (digits > 1 && rest.front() == '0')) continue;
    if (!rest.substr(digits).starts_with(kMarkEnd)) continue;
    if (found[*index].first++ == 0) found[*index].second = at;
  }
  return found;
}

struct Rendered {
  std::string text;
  std::vector<Mark> marks;  // in the order of their positions
};

/// The message as a chat template gets it, without its text.
ChatMessage empty_message(const PromptMessage& message) {
  return {message.role, {}, message.calls.calls, message.tool, message.calls.answered};
}

/// The chat template sees a mark in the place of each slot, so it cannot change a value. A template that trims a
/// message finds the mark at the message's end and keeps the mark and the blanks before it.
Rendered render(const ModelText& model, const std::vector<PromptMessage>& messages,
                const std::vector<std::string>& tools, const std::stop_token& stop) {
  const std::string prefix = unused_prefix(messages, tools);
  std::vector<std::pair<std::string, const PromptPiece*>> sentinels;
  std::vector<ChatMessage> chat;
  for (const PromptMessage& message : messages) {
    ChatMessage& content = chat.emplace_back(empty_message(message));
    for (const PromptPiece& piece : message.pieces) {
      if (piece.slot.empty() && !piece.data) {
        content.content += piece.text;
      } else {
        sentinels.emplace_back(fmt::format("{}{}{}", prefix, sentinels.size(), kMarkEnd), &piece);
        content.content += sentinels.back().first;
      }
    }
  }

  Rendered rendered;
  if (model.chat_template) {
    ChatOptions options = model.chat_options;
    options.tools = tools;
    rendered.text = model.chat_template->render(chat, options, stop);
  } else {
    for (std::size_t i = 0; i < chat.size(); ++i) rendered.text += (i == 0 ? "" : "\n") + chat[i].content;
  }
  const auto found = count_marks(rendered.text, prefix, sentinels.size());
  for (std::size_t i = 0; i < sentinels.size(); ++i) {
    const auto& [sentinel, piece] = sentinels[i];
    const auto& [times, at] = found[i];
    const Mark mark{at, at + sentinel.size(), piece};
    if (times != 1) {
      throw ModelError(fmt::format("{}: the chat template shows the text of '{}' {} times; expected once",
                                   model.path.string(), mark.name(), times));
    }
    rendered.marks.push_back(mark);
  }
  std::sort(rendered.marks.begin(), rendered.marks.end(),
            [](const Mark& a, const Mark& b) { return a.begin < b.begin; });
  return rendered;
}

/// The messages and tools as the template gets them.
PromptWithTools shown_to(const ModelText& model, const std::vector<PromptMessage>& messages, const CallableTools* tools,
                         const std::stop_token& stop) {
  const bool has_calls = std::ranges::any_of(messages, [](const auto& message) { return !message.calls.empty(); });
  const bool has_tools = tools != nullptr && !tools->schemas().empty();
  if (!has_tools && !has_calls) return {messages, {}};
  const ToolFormat format = tool_format_of(model, stop);
  return with_tools(model, format, has_calls ? with_calls(model, format, messages) : messages,
                    has_tools ? tools->schemas() : std::vector<ToolSchema>());
}

std::vector<FramePart> frame_of(const ModelText& model, const Rendered& rendered, const std::stop_token& stop,
                                TextIds* texts) {
  std::vector<FramePart> frame;
  NextPiece next(*model.tokenizer);
  bool may_change = false;  // the start of what follows depends on whether a value is empty
  const auto add = [&](std::string_view text, TextIds::Kind kind) {
    FramePart part{{}, ids_of_text(texts, model.tokenizer, text, kind, next.start(), stop), next.start(), {}, kind};
    if (may_change) part.text = text;
    next.follow(part.tokens);
    if (!part.tokens.empty() || may_change) frame.push_back(std::move(part));
  };
  const auto add_fixed = [&](std::size_t begin, std::size_t end) {
    const std::string_view text = std::string_view(rendered.text).substr(begin, end - begin);
    // A chat template writes its own BOS; without a template the tokeniser's post-processor adds it to the first piece.
    const bool is_beginning = begin == 0 && !model.chat_template;
    if (text.empty() && !is_beginning) return;
    add(text, is_beginning ? TextIds::Kind::beginning : TextIds::Kind::authored);
  };
  std::size_t begin = 0;
  for (const Mark& mark : rendered.marks) {
    add_fixed(begin, mark.begin);
    begin = mark.end;
    if (!mark.piece->data) {
      frame.push_back({mark.piece->slot, {}, {}, {}});
      may_change = may_change || next.start() != model.tokenizer->start_inside();
      next.follow_unknown();
    } else {
      add(mark.piece->text, TextIds::Kind::data);
    }
  }
  add_fixed(begin, rendered.text.size());
  return frame;
}

}  // namespace

std::vector<FramePart> build_frame(const ModelText& model, const std::vector<PromptMessage>& messages,
                                   const CallableTools* tools, const std::stop_token& stop, TextIds* texts) {
  const PromptWithTools shown = shown_to(model, messages, tools, stop);
  return frame_of(model, render(model, shown.messages, shown.tools, stop), stop, texts);
}

TokenText tokens_of_part(const ModelText& model, const FramePart& part, PieceStart start, const std::stop_token& stop,
                         TextIds* texts) {
  if (part.text.empty() || start == part.start) return part.tokens;
  return ids_of_text(texts, model.tokenizer, part.text, part.kind, start, stop);
}

std::vector<PromptPart> fill_frame(const ModelText& model, const std::vector<FramePart>& frame, const SlotValue& value,
                                   const std::stop_token& stop, TextIds* texts) {
  std::vector<PromptPart> prompt;
  std::map<std::pair<std::string, PieceStart>, TokenText> values;  // the value of a repeated slot is requested once
  NextPiece next(*model.tokenizer);
  std::size_t length = 0;
  for (const FramePart& part : frame) {
    TokenText tokens;
    if (part.is_known()) {
      tokens = tokens_of_part(model, part, next.start(), stop, texts);
    } else {
      const auto [at, is_new] = values.try_emplace({part.slot, next.start()});
      if (is_new) at->second = value(part.slot, next.start());
      tokens = at->second;
    }
    next.follow(tokens);
    length += tokens.size();
    if (length > kMaxTokens) throw std::length_error(fmt::format("the prompt has more than {} tokens", kMaxTokens));
    if (!tokens.empty()) prompt.push_back({part.slot, std::move(tokens)});
  }
  return prompt;
}

namespace {

constexpr std::size_t kMaxShownBytes = 4u << 20;  // limit of the values that a template sees

struct PromptValue {
  const PromptPiece* piece;
  std::string text;  // valid UTF-8
  TokenText tokens;
};

/// Ids of a value that are not cut.
struct KeptIds {
  std::size_t first = 0, count = 0;  // range of ids
  std::size_t begin = 0, end = 0;    // bytes that they stand for
};

TokenText ids_of(const ModelText& model, const SlotContent& content, PieceStart start, const std::stop_token& stop,
                 TextIds* texts) {
  if (!content.tokens.empty()) return content.tokens;
  if (content.text.empty()) return {};
  return ids_of_text(texts, model.tokenizer, content.text, TextIds::Kind::data, start, stop);
}

/// The messages of a prompt with its values, in the order in which they stand there.
class ValueMessages {
 public:
  /// Returns false if the values are too long to be shown to the template.
  bool read(const std::vector<PromptMessage>& messages, const SlotContents& contents) {
    std::size_t bytes = 0;
    for (const PromptMessage& message : messages) {
      ChatMessage& chat = chat_.emplace_back(empty_message(message));
      for (const PromptPiece& piece : message.pieces) {
        if (piece.slot.empty() && !piece.data) {
          chat.content += utf8::repaired(piece.text);
          continue;
        }
        const SlotContent content = piece.slot.empty() ? SlotContent{piece.text} : contents(piece.slot);
        places_[&piece] = values_.size();
        PromptValue& value = values_.emplace_back(PromptValue{&piece, utf8::repaired(content.text), content.tokens});
        if ((bytes += value.text.size()) > kMaxShownBytes) return false;
        const std::size_t begin = chat.content.size();
        chat.content += value.text;
        if (!value.text.empty()) chat.values.push_back({begin, chat.content.size(), values_.size() - 1, 0, true});
      }
    }
    return true;
  }

  /// Renders the template with the values. Returns nothing if it cannot tell where they stand.
  std::optional<ChatText> render(const ModelText& model, const std::vector<std::string>& tools,
                                 const std::stop_token& stop) const {
    ChatOptions options = model.chat_options;
    options.tools = tools;
    return model.chat_template->render_values(chat_, options, stop);
  }

  /// True if a part of each value is in the text, but of those that are blank.
  bool are_shown(const ChatText& made) const {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const bool is_blank = values_[i].text.find_first_not_of(kTemplateBlanks) == std::string::npos;
      if (!is_blank &&
          std::none_of(made.values.begin(), made.values.end(), [i](const ValueSpan& span) { return span.value == i; }))
        return false;
    }
    return true;
  }

  /// True if the template does nothing to the values: it puts each where it put its mark.
  bool is_same(const ChatText& made, const Rendered& marked) const {
    std::size_t at = 0, begin = 0;
    const auto goes_on = [&](std::string_view text) {
      const bool same = std::string_view(made.text).substr(at).starts_with(text);
      at += same ? text.size() : 0;
      return same;
    };
    for (const Mark& mark : marked.marks) {
      const PromptValue& value = values_[places_.at(mark.piece)];
      if (!goes_on(std::string_view(marked.text).substr(begin, mark.begin - begin)) || !goes_on(value.text))
        return false;
      begin = mark.end;
    }
    return goes_on(std::string_view(marked.text).substr(begin)) && at == made.text.size();
  }

  const std::vector<PromptValue>& values() const { return values_; }

 private:
  std::vector<ChatMessage> chat_;
  std::vector<PromptValue> values_;
  std::map<const PromptPiece*, std::size_t> places_;  // index of each piece's value
};

/// Makes the parts of a prompt from a text in which values stand.
class PartWriter {
 public:
  PartWriter(const ModelText& model, const std::stop_token& stop, TextIds* texts)
      : model_(model), stop_(stop), texts_(texts) {}

  std::vector<PromptPart> write(const ChatText& made, const std::vector<PromptValue>& values) {
    std::size_t at = 0;
    for (auto span = made.values.begin(); span != made.values.end();) {
      auto last = span;  // the last of the adjacent spans
      while (last + 1 != made.values.end() && last[1].begin == last->end && last[1].value == span->value) ++last;
      add_authored(std::string_view(made.text).substr(at, span->begin - at));
      const std::string_view text = std::string_view(made.text).substr(span->begin, last->end - span->begin);
      const PromptValue& value = values[span->value];
      if (last == span && span->is_verbatim) {
        add(value.piece->slot, ids_of(value, span->offset, span->offset + text.size()));
      } else {
        add(value.piece->slot, encoded(text, TextIds::Kind::data));
      }
      at = last->end;
      span = last + 1;
    }
    add_authored(std::string_view(made.text).substr(at));
    return std::move(prompt_);
  }

 private:
  TokenText encoded(std::string_view text, TextIds::Kind kind) const {
    return ids_of_text(texts_, model_.tokenizer, text, kind, next_.start(), stop_);
  }

  void add_authored(std::string_view text) {
    if (!text.empty()) add({}, encoded(text, TextIds::Kind::authored));
  }

  void add(const std::string& slot, TokenText tokens) {
    next_.follow(tokens);
    length_ += tokens.size();
    if (length_ > kMaxTokens) throw std::length_error(fmt::format("the prompt has more than {} tokens", kMaxTokens));
    if (!tokens.empty()) prompt_.push_back({slot, std::move(tokens)});
  }

  /// The ids of the bytes [begin, end) of a value.
  TokenText ids_of(const PromptValue& value, std::size_t begin, std::size_t end) const {
    if (begin == 0 && end == value.text.size() && !value.tokens.empty()) return value.tokens;
    const std::string_view text = value.text;
    if (const auto kept = kept_ids(value, begin, end)) {
      std::vector<TokenId> ids = encoded(text.substr(begin, kept->begin - begin), TextIds::Kind::data).ids();
      const auto first = value.tokens.begin() + static_cast<std::ptrdiff_t>(kept->first);
      ids.insert(ids.end(), first, first + static_cast<std::ptrdiff_t>(kept->count));
      const PieceStart start = model_.tokenizer->start_after(ids.back());
      const TokenText rest = ids_of_text(texts_, model_.tokenizer, text.substr(kept->end, end - kept->end),
                                         TextIds::Kind::data, start, stop_);
      ids.insert(ids.end(), rest.begin(), rest.end());
      return ids;
    }
    return encoded(text.substr(begin, end - begin), TextIds::Kind::data);
  }

  /// Returns the ids of a value that lie in [begin, end), or nothing if there are none, or if it is not clear what each
  /// stands for.
  std::optional<KeptIds> kept_ids(const PromptValue& value, std::size_t begin, std::size_t end) const {
    KeptIds kept;
    std::size_t at = 0;
    for (std::size_t i = 0; i < value.tokens.size(); ++i) {
      const std::string bytes = model_.tokenizer->token_bytes(value.tokens[i]);
      if (std::string_view(value.text).substr(at, bytes.size()) != bytes) return std::nullopt;
      const std::size_t from = at;
      at += bytes.size();
      if (from < begin || at > end) continue;
      if (kept.count++ == 0) {
        kept.first = i;
        kept.begin = from;
      }
      kept.end = at;
    }
    return at == value.text.size() && kept.end > kept.begin ? std::optional(kept) : std::nullopt;
  }

  const ModelText& model_;
  std::stop_token stop_;
  TextIds* texts_;
  NextPiece next_{*model_.tokenizer};
  std::vector<PromptPart> prompt_;
  std::size_t length_ = 0;
};

}  // namespace

std::vector<PromptPart> prompt_with_values(const ModelText& model, const std::vector<PromptMessage>& messages,
                                           const SlotContents& contents, const std::vector<FramePart>* frame,
                                           const CallableTools* tools, const std::stop_token& stop, TextIds* texts) {
  const SlotValue value = [&](const std::string& slot, PieceStart start) {
    return ids_of(model, contents(slot), start, stop, texts);
  };
  const bool has_values = std::any_of(messages.begin(), messages.end(), [](const PromptMessage& message) {
    return std::any_of(message.pieces.begin(), message.pieces.end(),
                       [](const PromptPiece& piece) { return piece.data || !piece.slot.empty(); });
  });
  if (!model.chat_template || !has_values) {
    return fill_frame(model, frame ? *frame : build_frame(model, messages, tools, stop, texts), value, stop, texts);
  }
  const PromptWithTools shown = shown_to(model, messages, tools, stop);
  std::optional<Rendered> marked;
  std::optional<ModelError> failed;
  try {
    marked = render(model, shown.messages, shown.tools, stop);
  } catch (const ModelError& error) {  // a template may cut a mark that is no value, and show a value twice
    failed = error;
  }
  ValueMessages values;
  if (values.read(shown.messages, contents)) {
    const std::optional<ChatText> made = values.render(model, shown.tools, stop);
    if (made && (marked ? !values.is_same(*made, *marked) : values.are_shown(*made)))
      return PartWriter(model, stop, texts).write(*made, values.values());
  }
  if (failed) throw ModelError(*failed);
  return fill_frame(model, frame ? *frame : frame_of(model, *marked, stop, texts), value, stop, texts);
}

std::vector<PromptPart> build_prompt(const ModelText& model, const std::vector<PromptMessage>& messages,
                                     const SlotValue& value, const CallableTools* tools, const std::stop_token& stop) {
  return fill_frame(model, build_frame(model, messages, tools, stop), value, stop);
}

void check_roles(const ModelText& model, const std::vector<PromptMessage>& messages, const std::stop_token& stop) {
  constexpr std::size_t kMaxTried = 100;
  if (!model.chat_template) return;
  const std::vector<PromptMessage> told = shown_to(model, messages, nullptr, stop).messages;
  std::vector<ChatMessage> chat;
  for (const PromptMessage& message : told) {
    chat.push_back(empty_message(message));
    chat.back().content = "text";
  }
  try {
    model.chat_template->render(chat, model.chat_options, stop);
  } catch (const ModelError& error) {
    for (std::size_t i = 0; i < std::min(told.size(), kMaxTried); ++i) {
      try {
        model.chat_template->render({chat.begin(), chat.begin() + static_cast<std::ptrdiff_t>(i + 1)},
                                    model.chat_options, stop);
      } catch (const ModelError& first) {
        throw ModelError(fmt::format("the {} message ({} of {}): {}", told[i].role, i + 1, told.size(), first.what()));
      }
    }
    throw;
  }
}

std::string merged_roles(const ModelText& model, const std::vector<PromptMessage>& messages,
                         const std::stop_token& stop) {
  const auto is_system = [](const PromptMessage& message) { return message.role == "system"; };
  const auto same_role = [](const PromptMessage& a, const PromptMessage& b) { return a.role == b.role; };
  const bool repeats = std::adjacent_find(messages.begin(), messages.end(), same_role) != messages.end();
  const bool has_system = std::any_of(messages.begin(), messages.end(), is_system);
  if (!model.chat_template || !model.chat_options.merges_roles || (!repeats && !has_system)) return {};
  const RoleRules rules = model.chat_template->role_rules(model.chat_options, stop);
  std::string note;
  if (has_system && rules.no_system) {
    note = "the chat template has no system message: its text stands in front of the next user message";
  } else if ((rules.no_later_system || rules.no_second_system) &&
             std::any_of(messages.begin() + 1, messages.end(), is_system)) {
    note =
        "the chat template has one system message, at the beginning: a later one stands in front of the next user "
        "message, or behind the first one";
  }
  if (repeats && rules.no_repeats)
    note += std::string(note.empty() ? "" : "; ") +
            "the chat template wants roles to alternate: messages of one role in a row are one";
  return note;
}

std::string prompt_text(const ModelText& model, const std::vector<PromptPart>& parts) {
  std::vector<TokenId> ids;
  for (const PromptPart& part : parts) ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
  return model.tokenizer->decode(ids, false);
}

}  // namespace baton
