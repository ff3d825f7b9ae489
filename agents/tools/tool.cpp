// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/tool.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "agents/tools/python_tool.h"
#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/schema/schema.h"

namespace baton {
namespace {

/// Returns the backticks that a line begins with (after blanks), when there are at least three.
std::size_t fence_length(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return 0;
  const std::size_t end = std::min(line.find_first_not_of('`', begin), line.size());
  return end - begin >= 3 ? end - begin : 0;
}

bool closes(std::string_view line, std::size_t opening) {
  return fence_length(line) >= opening && line.find_last_not_of(" \t\r`") == std::string_view::npos;
}

}  // namespace

std::optional<std::string> last_code_block(std::string_view text) {
  std::optional<std::string_view> last;
  std::size_t opening = 0;  // length of the open fence; 0: none
  std::size_t begin = 0;    // begin of the block inside the open fence
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (opening == 0) {
      opening = fence_length(line);
      begin = std::min(end + 1, text.size());
    } else if (closes(line, opening)) {
      last = text.substr(begin, at - begin);
      opening = 0;
    }
    at = end + 1;
  }
  if (opening != 0 && begin < text.size()) last = text.substr(begin);
  if (!last) return std::nullopt;
  if (last->ends_with('\n')) last->remove_suffix(1);
  return std::string(*last);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kProbe = "probe_name", kArgument = "probe_argument";
constexpr std::string_view kNoParameters = R"({"type": "object", "properties": {}})";
constexpr std::string_view kContent = "\uE0B3";  // stands in no template
constexpr std::string_view kResultOpen = "<tool_response>\n", kResultClose = "\n</tool_response>";
constexpr std::string_view kIdLetters = "abcdefghij";

std::string id_of(std::size_t call) {  // nine letters, which Mistral's templates insist on
  std::string id = "callaaaaa";
  for (std::size_t at = id.size(); at-- > 4 && call > 0; call /= kIdLetters.size())
    id[at] = kIdLetters[call % kIdLetters.size()];
  return id;
}

std::size_t common_beginning(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}
std::size_t common_end(const std::string& a, const std::string& b) {
  return static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

/// The syntax of a call as a template wrote it; nothing when it is not an object with the name and the arguments.
std::optional<CallSyntax> syntax_in(const std::string& written) {
  const std::size_t name = written.find(fmt::format("\"{}\"", kProbe));
  const std::size_t begin = name == std::string::npos ? name : written.rfind('{', name);
  if (begin == std::string::npos) return std::nullopt;
  const std::size_t end = value_end(written, begin).value_or(written.size());
  const std::string_view object = std::string_view(written).substr(begin, end - begin);
  CallSyntax syntax{written.substr(0, begin), written.substr(end), false, "", ""};
  try {
    const JsonDocument call = read_json(object);
    for (const auto& [key, value] : (*call).items()) {
      if (value.is_string() && value.get_ref<const std::string&>() == kProbe) syntax.name_key = key;
      if (value.is_object() && value.contains(kArgument)) syntax.arguments_key = key;
    }
  } catch (const JsonError&) {
    return std::nullopt;
  }
  if (syntax.name_key.empty() || syntax.arguments_key.empty()) return std::nullopt;
  const std::size_t last = syntax.open.find_last_not_of(" \n"), first = syntax.close.find_first_not_of(" \n");
  syntax.list =
      last != std::string::npos && syntax.open[last] == '[' && first != std::string::npos && syntax.close[first] == ']';
  return syntax;
}

/// The probes: a user's message, and then an answer in plain text, or a call.
std::vector<ChatMessage> probe(ChatMessage answer) { return {{"user", "probe"}, std::move(answer)}; }

ChatMessage probe_call() {
  return {"assistant", "", {{id_of(0), std::string(kProbe), fmt::format(R"({{"{}": "x"}})", kArgument)}}};
}

bool has_special(const Tokenizer& tokenizer, const std::string& text) {
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
  throw ModelError(fmt::format("the description of tool '{}' holds special tokens of the model", tool));
}

std::optional<ToolFormat> format_of_template(const ModelText& model, const std::stop_token& stop) {
  ChatOptions options = model.chat_options;
  options.add_generation_prompt = false;
  const ChatTemplate& chat = *model.chat_template;
  try {
    const std::string without = chat.render(probe({"assistant", std::string(kContent)}), options, stop);
    options.tools = {tool_json({std::string(kProbe), "probe", std::string(kNoParameters)}, *model.tokenizer)};
    const std::string plain = chat.render(probe({"assistant", std::string(kContent)}), options, stop);
    if (plain == without) return std::nullopt;  // it does not show the tools
    const std::string called = chat.render(probe(probe_call()), options, stop);
    const std::size_t begin = common_beginning(called, plain), end = common_end(called, plain);
    if (begin + end >= called.size()) return std::nullopt;
    std::optional<CallSyntax> syntax = syntax_in(called.substr(begin, called.size() - begin - end));
    if (!syntax) return std::nullopt;
    ToolFormat format{true, std::move(*syntax), called.substr(called.size() - end), true};
    after_calls(model, format, {{std::string(kProbe), "x"}}, {}, stop);
    return format;
  } catch (const ModelError&) {  // the template refuses calls
    return std::nullopt;
  }
}

std::vector<ChatMessage> with_results(const ToolFormat& format, const std::vector<CallResult>& results,
                                      const std::vector<std::string>& marks) {
  ChatMessage answer{"assistant", "call"};
  std::vector<ChatMessage> messages;
  std::string all;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (format.of_template) {
      answer.calls.push_back({id_of(i), results[i].tool, "{}"});
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

}  // namespace

std::string tool_json(const ToolSchema& tool, const Tokenizer& tokenizer) {
  OrderedJson json = {{"name", tool.name}, {"description", tool.description}};
  json["parameters"] = OrderedJson::parse(tool.shown.empty() ? tool.parameters : tool.shown);
  const std::string text = json_text(json);
  return tool.shown.empty() ? text : without_markers(tokenizer, text, tool.name);
}

ToolFormat tool_format_of(const ModelText& model, const std::stop_token& stop) {
  ToolFormat format;
  if (model.chat_template) {
    if (std::optional<ToolFormat> own = format_of_template(model, stop)) {
      format = std::move(*own);
    } else {
      ChatOptions options = model.chat_options;
      options.add_generation_prompt = false;
      const std::string text = model.chat_template->render(probe({"assistant", std::string(kContent)}), options, stop);
      if (const std::size_t at = text.find(kContent); at != std::string::npos)
        format.turn_end = text.substr(at + kContent.size());
    }
  }
  format.enforceable = !has_special(*model.tokenizer, format.syntax.open + format.syntax.close);
  return format;
}

PromptWithTools with_tools(const ModelText& model, const ToolFormat& format, std::vector<PromptMessage> messages,
                           const std::vector<ToolSchema>& tools) {
  PromptWithTools out;
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
  if (messages.empty() || messages.front().role != "system") messages.insert(messages.begin(), {"system", {}});
  std::vector<PromptPiece>& system = messages.front().pieces;
  if (!system.empty()) text = "\n\n" + text;
  system.push_back({std::move(text), ""});
  out.messages = std::move(messages);
  return out;
}

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
    const std::string after = model.chat_template->render(chat, options, stop);
    options.add_generation_prompt = false;
    chat.resize(2);
    const std::string before = model.chat_template->render(chat, options, stop);
    const std::size_t common = common_beginning(before, after);
    // A template may leave out the end of the turn if something follows, but never what stands before it.
    if (common + format.turn_end.size() < before.size())
      throw ModelError(fmt::format("{}: the chat template writes an earlier turn anew when a result follows it",
                                   model.path.string()));
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

ToolRegistry ToolRegistry::with_builtins() {
  ToolRegistry registry;
  registry.add(make_python_tool());
  return registry;
}

void ToolRegistry::add(std::shared_ptr<const Tool> tool) {
  std::string name = tool->name();
  const auto [at, added] = tools_.try_emplace(std::move(name), std::move(tool));
  if (!added) throw std::invalid_argument("tool '" + at->first + "' is registered already");
}

const Tool* ToolRegistry::find(const std::string& name) const {
  const auto at = tools_.find(name);
  return at == tools_.end() ? nullptr : at->second.get();
}

std::vector<std::string> ToolRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tool] : tools_) names.push_back(name);
  return names;
}

namespace {

constexpr std::size_t kMaxCallsRead = 64;  // in one answer
constexpr std::size_t kMaxProblem = 500;   // bytes; it may quote the answer
constexpr std::string_view kBlanksAndCommas = " \t\r\n,";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanksAndCommas);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanksAndCommas) - begin + 1);
}

ModelCall read_call(const nlohmann::json& object, const CallSyntax& syntax, const CallableTools& tools) {
  ModelCall call;
  if (!object.is_object() || !object.contains(syntax.name_key) || !object[syntax.name_key].is_string()) {
    call.problem =
        fmt::format("the call is no object with the keys '{}' and '{}'", syntax.name_key, syntax.arguments_key);
    return call;
  }
  call.tool = object[syntax.name_key].get<std::string>();
  nlohmann::json arguments = nlohmann::json::object();
  if (object.contains(syntax.arguments_key)) arguments = object[syntax.arguments_key];
  if (arguments.is_string()) arguments = *read_json(arguments.get_ref<const std::string&>());  // as OpenAI writes them
  call.arguments = json_text(arguments);
  const CallableTool* tool = tools.find(call.tool);
  if (tool == nullptr) {
    call.problem = fmt::format("there is no tool '{}'; the tools are:", beginning(call.tool, 64));
    for (const ToolSchema& one : tools.schemas()) call.problem += " " + one.name;
  } else if (!arguments.is_object()) {
    call.problem = fmt::format("'{}' is no object", syntax.arguments_key);
  } else if (const std::string wrong = check_json(call.arguments, tool->schema.parameters); !wrong.empty()) {
    call.problem = "the arguments do not fit the schema: " + wrong;
  }
  return call;
}

/// Appends the calls of a value of JSON: one, or a list of them.
void read_calls(std::string_view json, const CallSyntax& syntax, const CallableTools& tools,
                std::vector<ModelCall>& calls) {
  const auto add = [&](const nlohmann::json& object) {
    ModelCall call;
    try {
      call = read_call(object, syntax, tools);
    } catch (const std::exception& error) {
      call.problem = error.what();
    }
    call.problem = beginning(call.problem, kMaxProblem);
    if (calls.size() < kMaxCallsRead) calls.push_back(std::move(call));
  };
  try {
    const JsonDocument value = read_json(json);
    if (!value->is_array()) return add(*value);
    for (const nlohmann::json& one : *value) add(one);
  } catch (const JsonError& error) {
    calls.push_back({"", "", beginning(fmt::format("the call is not JSON: {}", error.what()), kMaxProblem)});
  }
}

/// An answer that is nothing but calls of known tools, without their marker.
std::vector<ModelCall> bare_calls(std::string_view answer, const CallSyntax& syntax, const CallableTools& tools) {
  std::string_view text = trimmed(answer);
  std::optional<std::string> block;
  if (text.starts_with("```")) {
    block = last_code_block(text);
    if (block && text.find("```", 3) == text.rfind("```")) text = trimmed(*block);
  }
  if (!text.starts_with('{') && !text.starts_with('[')) return {};
  std::vector<ModelCall> calls;
  while (!text.empty() && calls.size() < kMaxCallsRead) {
    const bool opens = text.front() == '{' || text.front() == '[';
    const std::size_t end = opens ? value_end(text).value_or(text.size()) : text.size();
    read_calls(text.substr(0, end), syntax, tools, calls);
    text = trimmed(text.substr(end));
  }
  const bool known = !calls.empty() && std::all_of(calls.begin(), calls.end(), [&](const ModelCall& call) {
    return tools.find(call.tool) != nullptr;
  });
  return known ? calls : std::vector<ModelCall>();
}

}  // namespace

CallableTools::CallableTools(std::vector<CallableTool> tools, CallLimits limits, std::shared_ptr<const Grammar> answer,
                             std::vector<ServerTools> servers)
    : tools_(std::move(tools)), limits_(limits), answer_(std::move(answer)), servers_(std::move(servers)) {
  for (const CallableTool& tool : tools_) schemas_.push_back(tool.schema);
}

std::shared_ptr<const CallableTools> CallableTools::with(std::vector<CallableTool> more) const {
  more.insert(more.begin(), tools_.begin(), tools_.end());
  return std::make_shared<const CallableTools>(std::move(more), limits_, answer_);
}

const CallableTool* CallableTools::find(const std::string& name) const {
  const auto found =
      std::find_if(tools_.begin(), tools_.end(), [&](const CallableTool& tool) { return tool.schema.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

std::shared_ptr<const Grammar> CallableTools::grammar(const ToolFormat& format, int calls_left) const {
  if (!limits_.enforce || !format.enforceable) return calls_left > 0 ? nullptr : answer_;
  const CallSyntax& syntax = format.syntax;
  const std::string key = fmt::format("{} {} {} {} {} {}", calls_left, syntax.list, syntax.name_key,
                                      syntax.arguments_key, syntax.open, syntax.close);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Grammar>& grammar = grammars_[key];
  if (grammar == nullptr) {
    grammar = answer_ ? answer_ : text_grammar(syntax, calls_left > 0);
    if (calls_left > 0)
      grammar = std::make_shared<const Grammar>(*grammar, *call_grammar(syntax, schemas_, calls_left, !answer_));
  }
  return grammar;
}

std::vector<ModelCall> calls_in(const std::string& answer, const ToolFormat& format, const CallableTools& tools) {
  const std::string marker = format.syntax.marker();
  std::vector<ModelCall> calls;
  std::size_t at = marker.empty() ? std::string::npos : answer.find(marker);
  if (at == std::string::npos) return bare_calls(answer, format.syntax, tools);
  while (at != std::string::npos && calls.size() < kMaxCallsRead) {
    at = std::min(answer.find_first_not_of(kBlanksAndCommas, at + marker.size()), answer.size());
    const std::string_view rest = std::string_view(answer).substr(at);
    const std::size_t end = value_end(rest).value_or(rest.size());
    read_calls(rest.substr(0, end), format.syntax, tools, calls);
    at = answer.find(marker, at + end);
  }
  return calls;
}

std::string shown_result(const std::string& text, std::size_t max_bytes) {
  std::string shown = utf8::repaired(text);
  for (char& c : shown) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    if (control) c = ' ';
  }
  if (shown.size() <= max_bytes) return shown;
  std::size_t first = max_bytes / 2, last = shown.size() - max_bytes / 2;
  while (first > 0 && utf8::continues(shown[first])) --first;
  while (last < shown.size() && utf8::continues(shown[last])) ++last;
  return fmt::format("{}\n[... {} bytes left out ...]\n{}", shown.substr(0, first), last - first, shown.substr(last));
}

}  // namespace baton
