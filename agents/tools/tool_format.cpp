// SPDX-License-Identifier: Apache-2.0
// The form of calls, read off a chat template: probes with one call and with two are rendered, and the pieces around
// their names and arguments are what the model writes. The arguments are a text, a number, an object and a text with
// quotes, so that their notation shows.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "agents/tools/tool.h"
#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Form = ValueNotation::Form;

constexpr std::string_view kProbe = "probe_name", kSecondProbe = "probe_other";
constexpr std::string_view kText = "probe_a", kNumber = "probe_b", kQuoted = "probe_d";  // names of arguments
constexpr std::string_view kTextValue = "a probe", kNumberValue = "7", kQuotedValue = R"(it "is")";
constexpr const char* kArguments =
    R"({"probe_a": "a probe", "probe_b": 7, "probe_c": {"probe_e": true}, "probe_d": "it \"is\""})";
constexpr std::string_view kNoParameters = R"({"type": "object", "properties": {}})";
constexpr std::string_view kContent = "\uE0B3";  // stands in no template
constexpr std::string_view kEndOfCall = "the_last_argument";
constexpr std::string_view kResultOpen = "<tool_response>\n", kResultClose = "\n</tool_response>";
constexpr std::string_view kIdLetters = "abcdefghij";
constexpr std::string_view kTemplateBlanks = " \t\r\n";

std::string id_of(std::size_t call) {  // nine letters, which Mistral's templates insist on
  std::string id = "callaaaaa";
  for (std::size_t at = id.size(); at-- > 4 && call > 0; call /= kIdLetters.size())
    id[at] = kIdLetters[call % kIdLetters.size()];
  return id;
}

std::size_t common_beginning(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}
std::size_t common_end(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

bool splits_token(std::string_view piece) { return std::count(piece.begin(), piece.end(), kSpecialMark) % 2 != 0; }

/// The longest beginning, and the longest end, that both have, without a part of a special token.
std::string shared_beginning(const std::string& a, const std::string& b) {
  std::string out = a.substr(0, common_beginning(a, b));
  if (splits_token(out)) out.resize(out.rfind(kSpecialMark));
  return out;
}
std::string shared_end(const std::string& a, const std::string& b) {
  std::string out = a.substr(a.size() - common_end(a, b));
  if (splits_token(out)) out.erase(0, out.find(kSpecialMark) + 1);
  return out;
}

/// Finds where the parts of a call that a template wrote begin and end.
class WrittenCall {
 public:
  explicit WrittenCall(std::string text) : text_(std::move(text)) {}

  /// Returns what one call shows of the syntax; `first` and `close` hold what stands in front and behind. Nothing: it
  /// is no form that is known.
  std::optional<CallSyntax> read() {
    name_ = text_.find(kProbe);
    const std::size_t argument = text_.find(kText);
    if (name_ == std::string::npos || argument == std::string::npos) return std::nullopt;
    if (read_json_call(argument)) return syntax_;
    if (argument < name_ || text_.find(kNumber) == std::string::npos) return std::nullopt;
    if (!read_notation(argument)) return std::nullopt;
    return syntax_;
  }

  /// Splits `first` and `close` by a text of two calls.
  static void split(CallSyntax& syntax, const std::string& one, const std::string& two) {
    WrittenCall call(one);
    if (!call.read() || !two.starts_with(one.substr(0, call.end_))) return;
    const std::size_t name = two.find(kSecondProbe, call.end_);
    if (name == std::string::npos || name < call.end_ + (call.name_ - call.begin_)) return;
    const std::size_t begin = name - (call.name_ - call.begin_);
    if (!two.ends_with(syntax.close)) return;
    std::string middle = two.substr(call.end_, begin - call.end_);
    syntax.open = shared_end(syntax.first, middle);
    middle.resize(middle.size() - syntax.open.size());
    const std::string close = shared_beginning(syntax.close, middle);
    syntax.between = middle.substr(close.size());
    syntax.first.resize(syntax.first.size() - syntax.open.size());
    syntax.last = syntax.close.substr(close.size());
    syntax.close = close;
    syntax.several = true;
  }

 private:
  /// Takes what stands in front of `begin`, and behind `end`.
  bool take(std::size_t begin, std::size_t end) {
    begin_ = begin;
    end_ = end;
    syntax_.first = text_.substr(0, begin);
    syntax_.close = text_.substr(end);
    syntax_.open = syntax_.between = syntax_.last = "";
    syntax_.several = false;
    return true;
  }
  /// Takes what stands between the name and `end`.
  void take_named(std::size_t end) {
    const std::size_t begin = name_ + kProbe.size();
    syntax_.named = text_.substr(begin, end - begin);
    const std::string id = id_of(0);
    if (const std::size_t at = syntax_.named.find(id); at != std::string::npos)
      syntax_.named.replace(at, id.size(), std::string(1, kCallId));
  }

  static std::optional<OrderedJson> json(std::string_view text) {
    try {
      read_json(text);  // within limits
      return OrderedJson::parse(text);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  bool read_json_call(std::size_t argument) {
    const std::size_t begin = text_.rfind('{', argument);
    if (begin == std::string::npos) return false;
    const std::size_t end = value_end(text_, begin).value_or(text_.size());
    const std::optional<OrderedJson> arguments = json(std::string_view(text_).substr(begin, end - begin));
    if (!arguments || *arguments != OrderedJson::parse(kArguments)) return false;
    const std::size_t object = begin == 0 ? std::string::npos : text_.rfind('{', begin - 1);
    if (object != std::string::npos && object < name_ + kProbe.size()) {
      const std::size_t object_end = value_end(text_, object).value_or(text_.size());
      if (const auto call = json(std::string_view(text_).substr(object, object_end - object));
          call && object_end > end && read_object(*call))
        return take(object, object_end);
    }
    if (name_ > begin) return false;
    syntax_.object = false;
    syntax_.arguments = {};
    take_named(begin);
    return take(name_, end);
  }

  bool read_object(const OrderedJson& call) {
    if (!call.is_object()) return false;
    syntax_.name_key = syntax_.arguments_key = "";
    for (const auto& [key, value] : call.items()) {
      if (value.is_string() && value.get_ref<const std::string&>() == kProbe) syntax_.name_key = key;
      if (value.is_object() && value.contains(kText)) syntax_.arguments_key = key;
      if (value.is_string() && key.ends_with("id") && syntax_.name_key.empty()) syntax_.id_key = key;
    }
    return !syntax_.name_key.empty() && !syntax_.arguments_key.empty();
  }

  bool read_notation(std::size_t argument) {
    const std::size_t key_end = argument + kText.size(), value = text_.find(kTextValue, key_end);
    const std::size_t next = text_.find(kNumber, key_end), last = text_.find(kQuoted, next);
    if (value == std::string::npos || last == std::string::npos || next < value) return false;
    const std::string between = text_.substr(key_end, value - key_end);  // a name and its value
    const std::size_t value_behind = value + kTextValue.size();
    const std::string behind = text_.substr(value_behind, next - value_behind);
    const std::string number = text_.substr(next + kNumber.size(), between.size() + 2);
    syntax_.object = false;
    if ((between == "=\"" || between == "='") && number.starts_with("=7") && behind.front() == between.back())
      return read_keywords(argument, last + kQuoted.size());
    if (between.size() > 1 && between.front() == ':' && number.starts_with(":7") &&
        behind.starts_with(between.substr(1)))
      return read_literals(argument, last, between.substr(1));
    if (number.starts_with(between + std::string(kNumberValue))) return read_elements(argument, last, between, behind);
    return false;
  }

  /// The text with quotes is Python's, the last argument.
  bool read_keywords(std::size_t argument, std::size_t at) {
    ++at;  // =
    const char quote = at < text_.size() ? text_[at] : '\0';
    if (quote != '"' && quote != '\'') return false;
    for (++at; at < text_.size() && text_[at] != quote; ++at) at += text_[at] == '\\' ? 1 : 0;
    if (at >= text_.size()) return false;
    syntax_.arguments.form = Form::keywords;
    take_named(argument);
    return take(name_, at + 1);
  }

  bool read_literals(std::size_t argument, std::size_t last, const std::string& quote) {
    const std::string value = ":" + quote + std::string(kQuotedValue) + quote + "}";
    if (text_[argument - 1] != '{' || text_.substr(last + kQuoted.size(), value.size()) != value) return false;
    syntax_.arguments.form = Form::literals;
    syntax_.arguments.quote = quote;
    take_named(argument - 1);
    return take(name_, last + kQuoted.size() + value.size());
  }

  bool read_elements(std::size_t argument, std::size_t last, const std::string& between, const std::string& behind) {
    const std::string value = between + std::string(kQuotedValue);
    if (text_.substr(last + kQuoted.size(), value.size()) != value) return false;
    take_named(argument);
    ValueNotation& notation = syntax_.arguments;
    notation.form = Form::elements;
    notation.key_open = shared_end(syntax_.named, behind);
    notation.key_close = between;
    notation.value_close = behind.substr(0, behind.size() - notation.key_open.size());
    syntax_.named.resize(syntax_.named.size() - notation.key_open.size());
    const std::size_t end = last + kQuoted.size() + value.size();
    const bool ends = notation.value_close.find_first_not_of(kTemplateBlanks) != std::string::npos &&
                      std::string_view(text_).substr(end).starts_with(notation.value_close);
    return ends && take(name_, end + notation.value_close.size());
  }

  std::string text_;
  CallSyntax syntax_;
  std::size_t name_ = 0, begin_ = 0, end_ = 0;  // of the name; of the object, or of the name up to the arguments
};

/// The probes: a user's message, and then an answer in plain text, or calls.
std::vector<ChatMessage> probe(ChatMessage answer) { return {{"user", "probe"}, std::move(answer)}; }

bool has_special(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.encode(text, SpecialTokens::recognise);
  return std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer.is_special(id); });
}

/// A JSON text in which the tokenizer finds no special token any more.
std::string without_markers(const Tokenizer& tokenizer, std::string text, const std::string& tool) {
  constexpr int kMaxRounds = 8;  // taking one away may make another
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::vector<TokenId> ids = tokenizer.encode(text, SpecialTokens::recognise);
    if (ids == tokenizer.encode(text, SpecialTokens::as_text)) return text;
    for (const TokenId id : std::set(ids.begin(), ids.end())) {
      const std::string marker = tokenizer.decode(std::span(&id, 1), false);
      if (marker.size() < 2 || tokenizer.encode(marker, SpecialTokens::as_text) == std::vector{id}) continue;
      std::size_t first = 1;
      while (first < marker.size() && utf8::continues(marker[first])) ++first;
      const std::string broken = marker.substr(0, first) + " " + marker.substr(first);
      for (std::size_t at = text.find(marker); at != std::string::npos; at = text.find(marker, at + broken.size()))
        text.replace(at, marker.size(), broken);
    }
  }
  throw ModelError(fmt::format("the texts of tool '{}' hold special tokens of the model", tool));
}

/// Renders the probes of one template.
class TemplateProbe {
 public:
  TemplateProbe(const ModelText& model, bool arguments_as_text, const std::stop_token& stop)
      : model_(model), as_text_(arguments_as_text), stop_(stop), options_(model.chat_options) {
    options_.add_generation_prompt = false;
  }

  /// Nothing: the template does not show tools, or its calls have no form that is known.
  std::optional<ToolFormat> format() {
    const std::vector<ChatMessage> text = probe({"assistant", std::string(kContent)});
    const std::string without = render(text);
    for (const std::string_view name : {kProbe, kSecondProbe})
      options_.tools.push_back(tool_json({std::string(name), "probe", std::string(kNoParameters)}, *model_.tokenizer));
    const std::string plain = render(text), called = render(calls(1));
    if (plain == without) return std::nullopt;
    const std::size_t content = plain.rfind(kContent);
    if (content == std::string::npos) return std::nullopt;

    ToolFormat format{true, {}, plain.substr(content + kContent.size()), as_text_};
    std::size_t begin = common_beginning(called, plain);
    if (const std::string channel = "<|channel|>"; std::string_view(called).substr(0, begin).ends_with(channel))
      begin -= channel.size();
    std::string written = called.substr(begin);
    if (called.size() - begin > format.turn_end.size() && written.ends_with(format.turn_end))
      written.resize(written.size() - format.turn_end.size());
    else
      format.turn_end = last_token_of(written);
    WrittenCall one(marked_text(*model_.tokenizer, written));
    const std::optional<CallSyntax> syntax = one.read();
    if (!syntax) return std::nullopt;
    format.syntax = *syntax;
    split_by_two_calls(format, begin, written);
    read_channels(format.syntax);
    after_calls(model_, format, {{std::string(kProbe), "x"}}, {}, stop_);
    return format;
  }

 private:
  std::string render(const std::vector<ChatMessage>& chat) const {
    return model_.chat_template->render(chat, options_, stop_);
  }

  std::vector<ChatMessage> calls(std::size_t count) const {
    ChatMessage answer{"assistant", ""};
    for (std::size_t i = 0; i < count; ++i)
      answer.calls.push_back({id_of(i), std::string(i == 0 ? kProbe : kSecondProbe), kArguments, as_text_});
    return probe(std::move(answer));
  }

  /// Cuts off what ends the turn behind a call, if texts end otherwise: the last special token.
  std::string last_token_of(std::string& written) const {
    const std::string all = marked_text(*model_.tokenizer, written);
    if (all.find(kSpecialMark) == std::string::npos) return "";
    const std::size_t end = all.rfind(kSpecialMark), begin = all.rfind(kSpecialMark, end - 1);
    const std::size_t length = all.size() - begin - 2;  // without the two marks
    if (written.find(kProbe) > written.size() - length) return "";
    const std::string token = written.substr(written.size() - length);
    written.resize(written.size() - length);
    return token;
  }

  /// A template may refuse two calls.
  void split_by_two_calls(ToolFormat& format, std::size_t begin, const std::string& written) const {
    CallSyntax& syntax = format.syntax;
    const CallSyntax single = syntax;
    std::string two;
    try {
      two = render(calls(2));
    } catch (const ModelError&) {
    }
    if (two.size() > begin + format.turn_end.size() && two.ends_with(format.turn_end)) {
      two = two.substr(begin, two.size() - begin - format.turn_end.size());
      WrittenCall::split(syntax, marked_text(*model_.tokenizer, written), marked_text(*model_.tokenizer, two));
    }
    if (syntax.several) return;
    syntax = single;
    syntax.open = std::exchange(syntax.first, "");
  }

  /// Calls of gpt-oss name their recipient in the header, on either side of the channel.
  void read_channels(CallSyntax& syntax) const {
    const std::string all = syntax.first + syntax.open + syntax.named;
    if (syntax.object || all.find("commentary") == std::string::npos || !syntax.open.ends_with("to=functions.")) return;
    const auto piece = [&](const char* text) { return marked_text(*model_.tokenizer, text); };
    if (!has_special(*model_.tokenizer, "<|channel|>")) return;
    syntax.text_open = piece("<|channel|>final<|message|>");
    syntax.preamble_open = piece("<|channel|>commentary<|message|>");
    syntax.preamble_close = piece("<|end|><|start|>assistant");
    for (const auto& [open, named] : {std::pair("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>"),
                                      std::pair("<|channel|>commentary to=functions.", " json<|message|>"),
                                      std::pair(" to=functions.", "<|channel|>commentary <|constrain|>json<|message|>"),
                                      std::pair(" to=functions.", "<|channel|>commentary json<|message|>")}) {
      CallSyntax other = syntax;
      other.text_open = other.preamble_open = other.preamble_close = "";
      other.open = piece(open);
      other.named = piece(named);
      if (other.open != syntax.open || other.named != syntax.named) syntax.also.push_back(std::move(other));
    }
  }

  const ModelText& model_;
  bool as_text_;
  const std::stop_token& stop_;
  ChatOptions options_;
};

/// Some templates join the arguments to a text, others go through them.
std::optional<ToolFormat> format_of_template(const ModelText& model, const std::stop_token& stop) {
  for (const bool as_text : {false, true}) {
    try {
      if (std::optional<ToolFormat> format = TemplateProbe(model, as_text, stop).format()) return format;
    } catch (const ModelError&) {  // the template refuses calls
    }
  }
  return std::nullopt;
}

std::vector<ChatMessage> with_results(const ToolFormat& format, const std::vector<CallResult>& results,
                                      const std::vector<std::string>& marks) {
  ChatMessage answer{"assistant", std::string(kEndOfCall)};
  std::vector<ChatMessage> messages;
  std::string all;
  const std::string arguments = fmt::format(R"({{"probe_a": "{}"}})", kEndOfCall);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (format.of_template) {
      answer.calls.push_back({id_of(i), results[i].tool, arguments, format.arguments_as_text});
      messages.push_back({"tool", marks[i], {}, results[i].tool, id_of(i)});
    } else {
      all += fmt::format("{}{}{}{}", i == 0 ? "" : "\n", kResultOpen, marks[i], kResultClose);
    }
  }
  if (format.of_template)
    answer.content.clear();
  else
    messages.push_back({"user", all});
  std::vector<ChatMessage> chat = probe(std::move(answer));
  chat.insert(chat.end(), messages.begin(), messages.end());
  return chat;
}

/// What follows the last argument of the last call, or the text that stands for it.
std::string behind_calls(const ModelText& model, const std::string& rendered) {
  const std::size_t at = rendered.rfind(kEndOfCall);
  if (at == std::string::npos)
    throw ModelError(fmt::format("{}: the chat template does not show an earlier call", model.path.string()));
  return rendered.substr(at + kEndOfCall.size());
}

}  // namespace

std::string tool_json(const ToolSchema& tool, const Tokenizer& tokenizer) {
  OrderedJson json = {{"name", tool.name}, {"description", tool.description}};
  json["parameters"] = OrderedJson::parse(tool.shown.empty() ? tool.parameters : tool.shown);
  const std::string text = json_text(json);
  return tool.shown.empty() ? text : without_markers(tokenizer, text, tool.name);
}

bool ToolFormat::has_special_tokens() const {
  const auto has = [](const std::string& piece) { return piece.find(kSpecialMark) != std::string::npos; };
  const ValueNotation& of = syntax.arguments;
  return has(syntax.first) || has(syntax.open) || has(syntax.named) || has(syntax.close) || has(syntax.between) ||
         has(syntax.last) || has(syntax.text_open) || has(of.key_open) || has(of.key_close) || has(of.value_close) ||
         has(of.quote);
}

ToolFormat tool_format_of(const ModelText& model, const std::stop_token& stop) {
  if (model.chat_template) {
    if (std::optional<ToolFormat> own = format_of_template(model, stop)) return *std::move(own);
  }
  ToolFormat format;
  format.syntax.open = marked_text(*model.tokenizer, format.syntax.open);
  format.syntax.close = marked_text(*model.tokenizer, format.syntax.close);
  if (!model.chat_template) return format;
  ChatOptions options = model.chat_options;
  options.add_generation_prompt = false;
  const std::string text = model.chat_template->render(probe({"assistant", std::string(kContent)}), options, stop);
  if (const std::size_t at = text.find(kContent); at != std::string::npos)
    format.turn_end = text.substr(at + kContent.size());
  return format;
}

std::string marked_text(const Tokenizer& tokenizer, const std::string& text) {
  std::string out;
  std::size_t at = 0;
  for (const TokenId id : tokenizer.encode(text, SpecialTokens::recognise)) {
    if (!tokenizer.is_special(id)) continue;
    const std::string spelling = tokenizer.decode(std::span(&id, 1), false);
    const std::size_t found = spelling.empty() ? std::string::npos : text.find(spelling, at);
    if (found == std::string::npos) continue;
    out += text.substr(at, found - at) + special_text(spelling);
    at = found + spelling.size();
  }
  return out + text.substr(at);
}

std::string marked_answer(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  std::string out, text;
  for (const TokenId id : tokens) {
    if (!tokenizer.is_special(id)) {
      text += tokenizer.token_bytes(id);
      continue;
    }
    out += utf8::repaired(std::exchange(text, "")) + special_text(tokenizer.decode(std::span(&id, 1), false));
  }
  return out + utf8::repaired(text);
}

std::string text_of_answer(const std::string& marked, const ToolFormat& format) {
  const std::string& header = format.syntax.text_open;
  std::string text = marked;
  if (const std::size_t at = header.empty() ? std::string::npos : text.find(header); at != std::string::npos)
    text.erase(0, at + header.size());
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = std::min(text.find(kSpecialMark, at), text.size());
    out += text.substr(at, begin - at);
    const std::size_t end = begin < text.size() ? text.find(kSpecialMark, begin + 1) : std::string::npos;
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return out;
}

namespace {

/// Behind the message's own text, in the general form.
void write_calls(const CallSyntax& syntax, PromptMessage& message) {
  const auto fixed = [](std::string text) {
    std::erase(text, kSpecialMark);
    return PromptPiece{std::move(text), ""};
  };
  bool first = message.pieces.empty();
  for (const ChatCall& call : message.calls.calls) {
    message.pieces.push_back(fixed((first ? "" : "\n") + syntax.open));
    first = false;
    OrderedJson json = {{syntax.name_key, call.name}};
    json[syntax.arguments_key] = OrderedJson::parse(call.arguments);
    message.pieces.push_back({json_text(json), "", true});
    message.pieces.push_back(fixed(syntax.close));
  }
  message.calls = {};
}

}  // namespace

std::vector<PromptMessage> with_calls(const ModelText& model, const ToolFormat& format,
                                      const std::vector<PromptMessage>& messages) {
  std::vector<PromptMessage> out;
  std::map<std::string, std::pair<std::string, std::string>> made;  // own id and name of a call, by its id
  std::size_t count = 0;
  for (const PromptMessage& message : messages) {
    PromptMessage told = message;
    for (ChatCall& call : told.calls.calls) {
      const std::string own = id_of(count++);
      made[std::exchange(call.id, own)] = {own, call.name};
      call.as_text = format.arguments_as_text;
      if (format.of_template) call.arguments = without_markers(*model.tokenizer, call.arguments, call.name);
    }
    if (!told.calls.answered.empty()) {
      const auto call = made.find(told.calls.answered);
      if (call == made.end())
        throw ModelError(fmt::format("the result of call '{}' stands behind no such call", told.calls.answered));
      std::tie(told.calls.answered, told.tool) = call->second;
    }
    if (!format.of_template && told.role == "tool") {
      const bool joins = !out.empty() && &message != &messages.front() && (&message - 1)->role == "tool";
      PromptMessage& results = joins ? out.back() : out.emplace_back(PromptMessage{"user", {}});
      results.pieces.push_back({(joins ? "\n" : "") + std::string(kResultOpen), ""});
      results.pieces.insert(results.pieces.end(), told.pieces.begin(), told.pieces.end());
      results.pieces.push_back({std::string(kResultClose), ""});
      continue;
    }
    if (!format.of_template && !told.calls.calls.empty()) write_calls(format.syntax, told);
    out.push_back(std::move(told));
  }
  return out;
}

PromptWithTools with_tools(const ModelText& model, const ToolFormat& format, std::vector<PromptMessage> messages,
                           const std::vector<ToolSchema>& tools) {
  PromptWithTools out;
  if (tools.empty()) return {std::move(messages), {}};
  if (format.of_template) {
    for (const ToolSchema& tool : tools) out.tools.push_back(tool_json(tool, *model.tokenizer));
    out.messages = std::move(messages);
    return out;
  }
  std::string text = "You can call these tools. Each line describes one, with the JSON Schema of its arguments:\n";
  for (const ToolSchema& tool : tools) text += tool_json(tool, *model.tokenizer) + "\n";
  text += fmt::format(
      "To call a tool, write this and nothing behind it:\n{}{{\"{}\": \"the tool\", \"{}\": {{...}}}}{}\n"
      "The result is given to you then. Answer without a call when no tool is needed.",
      format.syntax.open, format.syntax.name_key, format.syntax.arguments_key, format.syntax.close);
  std::erase(text, kSpecialMark);
  if (messages.empty() || messages.front().role != "system") messages.insert(messages.begin(), {"system", {}});
  std::vector<PromptPiece>& system = messages.front().pieces;
  if (!system.empty()) text = "\n\n" + text;
  system.push_back({std::move(text), ""});
  out.messages = std::move(messages);
  return out;
}

/// A template may write earlier turns anew when another follows, so both renderings are compared from the last call on.
std::vector<PromptPart> after_calls(const ModelText& model, const ToolFormat& format,
                                    const std::vector<CallResult>& results, PieceStart start,
                                    const std::stop_token& stop, TextIds* texts) {
  std::vector<std::string> marks;
  for (std::size_t i = 0; i < results.size(); ++i) marks.push_back(fmt::format("{}{}{}", kContent, i, kContent));
  std::vector<ChatMessage> chat = with_results(format, results, marks);
  std::string text;
  if (model.chat_template) {
    ChatOptions options = model.chat_options;
    if (format.of_template)
      options.tools = {tool_json({results[0].tool, "", std::string(kNoParameters)}, *model.tokenizer)};
    const std::string after = behind_calls(model, model.chat_template->render(chat, options, stop));
    options.add_generation_prompt = false;
    chat.resize(2);
    const std::string before = behind_calls(model, model.chat_template->render(chat, options, stop));
    const std::size_t common = common_beginning(before, after);
    // A template may leave out the end of the turn if something follows, but never what stands before it.
    if (common + format.turn_end.size() < before.size())
      throw ModelError(
          fmt::format("{}: the chat template writes a call anew when a result follows it", model.path.string()));
    text = format.turn_end.substr(0, format.turn_end.size() - (before.size() - std::min(common, before.size())));
    text += after.substr(common);
  } else {
    text = "\n" + chat.back().content + "\n";
  }

  std::vector<PromptPart> parts;
  NextPiece next(*model.tokenizer, start);
  const auto add = [&](std::string_view piece, TextIds::Kind kind) {
    if (piece.empty()) return;
    TokenText ids = ids_of_text(texts, model.tokenizer, piece, kind, next.start(), stop);
    next.follow(ids);
    if (!ids.empty()) parts.push_back({{}, std::move(ids)});
  };
  std::size_t at = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::size_t found = text.find(marks[i], at);
    if (found == std::string::npos)
      throw ModelError(fmt::format("{}: the chat template does not show the results of tools", model.path.string()));
    add(std::string_view(text).substr(at, found - at), TextIds::Kind::authored);
    add(results[i].text, TextIds::Kind::data);
    at = found + marks[i].size();
  }
  add(std::string_view(text).substr(at), TextIds::Kind::authored);
  return parts;
}

}  // namespace baton
