// SPDX-License-Identifier: Apache-2.0
// The calls in an answer. What a model wrote without a constraint may lack blanks and ends, so that pieces are compared
// without the blanks around them; the text of an argument is never searched for a marker.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "agents/tools/tool.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/schema/schema.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using Form = ValueNotation::Form;

constexpr std::size_t kMaxCallsRead = 64;   // in one answer
constexpr std::size_t kMaxProblem = 500;    // bytes; it may quote the answer
constexpr std::size_t kMaxName = 128;       // bytes of the name of a tool or an argument
constexpr std::size_t kMaxArguments = 256;  // in elements, each of which may cost a look at the rest of the answer
constexpr int kMaxDepth = 64;               // values within one another
constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kBlanksAndCommas = " \t\r\n,";
constexpr auto kNone = std::string::npos;

std::string_view trimmed(std::string_view text, std::string_view blanks = kBlanks) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == kNone) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string without_marks(std::string_view text) {
  std::string out(text);
  std::erase(out, kSpecialMark);
  return out;
}

std::string shown_name(std::string_view name) { return beginning(without_marks(name), 64); }

/// Goes through an answer.
class AnswerCursor {
 public:
  explicit AnswerCursor(std::string_view text, std::size_t at = 0) : text_(text), at_(std::min(at, text.size())) {}

  std::size_t at() const { return at_; }
  void move_to(std::size_t at) { at_ = std::min(at, text_.size()); }
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  std::string_view rest() const { return text_.substr(at_); }
  void skip(std::string_view characters) { at_ = std::min(text_.find_first_not_of(characters, at_), text_.size()); }
  void skip_blanks() { skip(kBlanks); }

  /// Skips the piece, with any number of blanks for its own. Stays in its place if the text does not go on so.
  bool take(std::string_view piece) {
    std::size_t at = at_;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      if (kBlanks.find(piece[i]) != kNone) continue;
      at = std::min(text_.find_first_not_of(kBlanks, at), text_.size());
      if (piece[i] == kCallId) {
        at = std::min(text_.find_first_of(std::string(kBlanks) + kSpecialMark + "{[(<", at), text_.size());
        continue;
      }
      if (at == text_.size() || text_[at] != piece[i]) return false;
      ++at;
    }
    at_ = at;
    return true;
  }
  /// The same, and then exactly the blanks that the piece ends with, if they are there.
  bool take_before_text(std::string_view piece) {
    if (!take(piece)) return false;
    const std::size_t last = piece.find_last_not_of(kBlanks);
    const std::string_view blanks = last == kNone ? std::string_view() : piece.substr(last + 1);
    if (rest().starts_with(blanks)) at_ += blanks.size();
    return true;
  }

 private:
  std::string_view text_;
  std::size_t at_;
};

/// Why a call cannot be read.
class CallError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail_expected(const std::string& what, const AnswerCursor& at) {
  if (at.done())
    throw CallError(fmt::format("the call is not complete: expected {}, found the end of the answer", what));
  throw CallError(fmt::format("expected {}, found '{}'", what, shown_name(at.rest().substr(0, 32))));
}

/// The value of JSON at the cursor.
Json take_json(AnswerCursor& at) {
  at.skip_blanks();
  const std::size_t end = value_end(at.rest()).value_or(kNone);
  if (end == kNone) {
    at.move_to(kNone);
    throw CallError("the call is not complete: it ends inside of a value of JSON");
  }
  const std::string text = without_marks(at.rest().substr(0, end));
  at.move_to(at.at() + end);
  try {
    return *read_json(text);
  } catch (const JsonError& error) {
    throw CallError(fmt::format("the call is not JSON: {}", error.what()));
  }
}

/// Values as Python or Gemma's templates write them.
class LiteralReader {
 public:
  LiteralReader(AnswerCursor& at, const ValueNotation& notation) : at_(at), notation_(notation) {}

  Json value(int depth = 0) {
    if (depth > kMaxDepth) throw CallError(fmt::format("its values are more than {} deep", kMaxDepth));
    at_.skip_blanks();
    const bool quoted = notation_.form == Form::literals && at_.rest().starts_with(notation_.quote);
    if (quoted) return quoted_text();
    const char c = at_.peek();
    if (c == '"' || c == '\'') return string();
    if (c == '[' || c == '(') return list(depth, c == '[' ? ']' : ')');
    if (c == '{') return object(depth);
    return word();
  }

  Json object(int depth) {
    Json out = Json::object();
    at_.take("{");
    for (at_.skip_blanks(); at_.peek() != '}'; at_.skip(kBlanksAndCommas)) {
      std::string key = name(":");
      if (!at_.take(":")) fail_expected("':'", at_);
      out[std::move(key)] = value(depth + 1);
      require_end("}");
    }
    at_.take("}");
    return out;
  }

  /// a=1, b=2 up to the closing bracket, which is not taken.
  Json keywords() {
    Json out = Json::object();
    for (at_.skip_blanks(); at_.peek() != ')'; at_.skip(kBlanksAndCommas)) {
      std::string key = name("=");
      if (!at_.take("=")) fail_expected("'='", at_);
      out[std::move(key)] = value();
      require_end(")");
    }
    return out;
  }

 private:
  void require_end(std::string_view end) {
    at_.skip_blanks();
    if (at_.done() || (at_.peek() != ',' && at_.peek() != end[0])) fail_expected(fmt::format("',' or '{}'", end), at_);
  }

  std::string name(std::string_view behind) {
    at_.skip_blanks();
    if (at_.peek() == '"' || at_.peek() == '\'' ||
        (notation_.form == Form::literals && at_.rest().starts_with(notation_.quote))) {
      const Json key = value(kMaxDepth);
      if (key.is_string()) return key.get<std::string>();
    }
    const std::string_view rest = at_.rest();
    const std::size_t end = rest.find_first_of(std::string(behind) + ",(){}[] \t\r\n");
    if (end == kNone || end == 0 || end > kMaxName) {
      if (end == kNone) at_.move_to(kNone);
      fail_expected("the name of an argument", at_);
    }
    at_.move_to(at_.at() + end);
    return without_marks(rest.substr(0, end));
  }

  Json quoted_text() {
    const std::size_t begin = at_.at() + notation_.quote.size();
    at_.move_to(begin);
    const std::size_t length = at_.rest().find(notation_.quote);
    if (length == kNone) {
      at_.move_to(kNone);
      fail_expected("the end of a text", at_);
    }
    Json out = utf8::repaired(without_marks(at_.rest().substr(0, length)));
    at_.move_to(begin + length + notation_.quote.size());
    return out;
  }

  /// A string of Python: its escapes are those of JSON, and a few more.
  Json string() {
    const char quote = at_.peek();
    const std::string_view rest = at_.rest();
    std::string out;
    std::size_t i = 1;
    for (; i < rest.size() && rest[i] != quote; ++i) {
      if (rest[i] != '\\' || i + 1 == rest.size()) {
        if (rest[i] != kSpecialMark) out += rest[i];
        continue;
      }
      ++i;
      static constexpr std::string_view kNames = "nrtbf0av", kValues("\n\r\t\b\f\0\a\v", 8);
      const std::size_t digits = rest[i] == 'x' ? 2 : rest[i] == 'u' ? 4 : rest[i] == 'U' ? 8 : 0;
      if (digits > 0) {
        i += append_character(rest, i + 1, digits, out);
      } else if (const std::size_t known = kNames.find(rest[i]); known != kNone) {
        out += kValues[known];
      } else {
        if (rest[i] != quote && rest[i] != '\\' && rest[i] != '"' && rest[i] != '\'' && rest[i] != '/') out += '\\';
        out += rest[i];
      }
    }
    at_.move_to(at_.at() + std::min(i + 1, rest.size()));
    if (i >= rest.size()) fail_expected("the end of a text", at_);
    return utf8::repaired(out);
  }

  /// Returns how many bytes were read.
  static std::size_t append_character(std::string_view text, std::size_t at, std::size_t digits, std::string& out) {
    const auto number = [&](std::size_t from) -> std::optional<char32_t> {
      char32_t value = 0;
      if (from + digits > text.size()) return std::nullopt;
      for (const char c : text.substr(from, digits)) {
        const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
        if (digit == kNone) return std::nullopt;
        value = value * 16 + static_cast<char32_t>(digit);
      }
      return value;
    };
    const std::optional<char32_t> first = number(at);
    if (!first) throw CallError(fmt::format("expected {} hexadecimal digits in a text", digits));
    const bool high = digits == 4 && *first >= 0xD800 && *first < 0xDC00;
    if (const auto second = high && text.substr(at + 4).starts_with("\\u") ? number(at + 6) : std::nullopt;
        second && *second >= 0xDC00 && *second < 0xE000) {
      utf8::append(out, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
      return 10;
    }
    const bool valid = *first < 0xD800 || (*first >= 0xE000 && *first <= 0x10FFFF);
    if (valid)
      utf8::append(out, *first);
    else
      out += utf8::kReplacement;
    return digits;
  }

  Json list(int depth, char end) {
    Json out = Json::array();
    at_.move_to(at_.at() + 1);
    for (at_.skip_blanks(); at_.peek() != end; at_.skip(kBlanksAndCommas)) {
      out.push_back(value(depth + 1));
      require_end(std::string_view(&end, 1));
    }
    at_.move_to(at_.at() + 1);
    return out;
  }

  Json word() {
    const std::string_view rest = at_.rest();
    const std::size_t end = rest.find_first_of(",)}] \t\r\n");
    if (end == kNone) {
      at_.move_to(kNone);
      fail_expected("a value", at_);
    }
    const std::string_view text = rest.substr(0, end);
    at_.move_to(at_.at() + end);
    if (text == "None" || text == "null") return nullptr;
    if (text == "True" || text == "true") return true;
    if (text == "False" || text == "false") return false;
    try {
      return *read_json(text);
    } catch (const JsonError&) {
      throw CallError(fmt::format("expected a value, found '{}'", shown_name(text)));
    }
  }

  AnswerCursor& at_;
  const ValueNotation& notation_;
};

/// The calls of one answer in the model's own form.
class CallReader {
 public:
  CallReader(std::string_view answer, const CallSyntax& syntax, const CallableTools& tools)
      : answer_(answer), syntax_(syntax), tools_(tools) {}

  /// Reads from the first marker on. `strict`: a marker without the header of a call behind it begins no call.
  std::vector<ModelCall> read(bool strict) {
    const std::string marker = syntax_.marker();
    if (marker.empty()) {
      if (AnswerCursor at(answer_); !syntax_.object && begins_bare(at)) read_list(at);
      return take();
    }
    for (std::size_t at = answer_.find(marker); at != kNone && calls_.size() < kMaxCallsRead;) {
      AnswerCursor cursor(answer_, at);
      const bool fits = cursor.take(syntax_.first + syntax_.open) || cursor.take(syntax_.open);
      if (!fits) cursor.move_to(at + marker.size());
      if (fits || !strict) read_list(cursor);
      at = answer_.find(marker, std::max(cursor.at(), at + 1));
    }
    return take();
  }

  /// Objects of JSON without a marker.
  void read_objects(AnswerCursor& at) {
    try {
      const Json value = take_json(at);
      if (!value.is_array()) return add_object(value);
      for (const Json& one : value) add_object(one);
    } catch (const std::exception& error) {
      add({"", "", error.what()});
    }
  }
  std::vector<ModelCall> take() { return std::move(calls_); }

 private:
  void add(ModelCall call) {
    call.problem = beginning(call.problem, kMaxProblem);
    if (calls_.size() < kMaxCallsRead) calls_.push_back(std::move(call));
  }

  /// Without a marker an answer is a call if it begins with one of a known tool. The cursor is behind `open` then.
  bool begins_bare(AnswerCursor& at) const {
    if (!at.take(syntax_.first + syntax_.open)) return false;
    AnswerCursor next = at;
    return tools_.find(take_name(next)) != nullptr && next.take(syntax_.named);
  }

  void read_list(AnswerCursor& at) {
    std::size_t before = 0;
    do {
      before = calls_.size();
      read_one(at);
    } while (calls_.size() > before && calls_.back().problem.empty() && goes_on(at));
  }

  /// Another call of the same list, without a marker in front of it.
  bool goes_on(AnswerCursor& at) const {
    if (!syntax_.several) return false;
    AnswerCursor next = at;
    const std::string between = syntax_.between + syntax_.open;
    if (trimmed(between).empty() || !next.take(between)) return false;
    if (syntax_.object && next.rest().find_first_of("{[") != next.rest().find_first_not_of(kBlanks)) return false;
    if (next.done()) return false;
    at = next;
    return true;
  }

  void read_one(AnswerCursor& at) {
    AnswerCursor next = at;
    next.skip(kBlanksAndCommas);
    if (syntax_.object || next.peek() == '{') {  // some models write objects whatever their template shows
      at = next;
      if (at.peek() != '{' && at.peek() != '[') return add({"", "", not_json(at)});
      read_objects(at);
      at.take(syntax_.close);
      return;
    }
    const std::string name = take_name(at);
    try {
      if (name.empty()) fail_expected("the name of a tool", at);
      const Json arguments = read_arguments(at, name);
      add(checked(name, arguments));
      at.take(syntax_.close);
    } catch (const std::exception& error) {
      const std::string problem = error.what();
      add({name, "{}", tools_.find(name) == nullptr && !at.done() ? unknown(name) : problem});
    }
  }

  static std::string not_json(AnswerCursor& at) {
    if (at.done()) return "the call is not complete: expected an object, found the end of the answer";
    const AnswerCursor found = at;
    at.move_to(at.at() + value_end(at.rest()).value_or(at.rest().size()));
    return fmt::format("the call is not JSON: expected an object, found '{}'", shown_name(found.rest().substr(0, 32)));
  }

  std::string take_name(AnswerCursor& at) const {
    at.skip_blanks();
    const std::string_view rest = at.rest();
    std::size_t length = 0;
    for (const ToolSchema& tool : tools_.schemas()) {  // the longest of those that it may be
      if (tool.name.size() > length && rest.starts_with(tool.name)) length = tool.name.size();
    }
    const auto ends = [](char c) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      return !letter && c != '_' && c != '-';
    };
    if (length == 0 || (length < rest.size() && !ends(rest[length]))) {
      length = std::min(rest.find_first_of(std::string(" \t\r\n<>(){}[]:\"'") + kSpecialMark), rest.size());
      length = std::min(length, kMaxName);
    }
    at.move_to(at.at() + length);
    return utf8::repaired(rest.substr(0, length));
  }

  Json read_arguments(AnswerCursor& at, const std::string& name) const {
    const ValueNotation& notation = syntax_.arguments;
    if (!at.take(syntax_.named)) fail_expected(fmt::format("'{}'", without_marks(trimmed(syntax_.named))), at);
    switch (notation.form) {
      case Form::json:
        return take_json(at);
      case Form::keywords:
        return LiteralReader(at, notation).keywords();
      case Form::literals:
        at.skip_blanks();
        if (at.peek() != '{') fail_expected("'{'", at);
        return LiteralReader(at, notation).object(0);
      case Form::elements:
        return read_elements(at, name);
    }
    return {};
  }

  Json read_elements(AnswerCursor& at, const std::string& name) const {
    const ValueNotation& notation = syntax_.arguments;
    const CallableTool* tool = tools_.find(name);
    const std::optional<Schema> schema = tool ? std::optional<Schema>(tool->schema.parameters) : std::nullopt;
    Json out = Json::object();
    while (at.take(notation.key_open)) {
      const std::string_view rest = at.rest();
      const std::string close(trimmed(notation.key_close));
      const std::size_t end = rest.substr(0, kMaxName + close.size()).find(close[0]);
      if (end == kNone || end == 0) {
        if (rest.size() < kMaxName) at.move_to(kNone);
        fail_expected("the name of an argument", at);
      }
      const std::string key = without_marks(trimmed(rest.substr(0, end)));
      at.move_to(at.at() + end);
      if (!at.take_before_text(notation.key_close)) fail_expected(fmt::format("'{}'", without_marks(close)), at);
      if (out.size() == kMaxArguments)
        throw CallError(fmt::format("the call has more than {} arguments", kMaxArguments));
      out[key] = element_value(key, take_element(at), schema);
    }
    AnswerCursor end = at;
    if (!end.take(syntax_.close)) fail_expected(fmt::format("'{}'", without_marks(trimmed(syntax_.close))), end);
    return out;
  }

  /// The text up to what ends it, behind which another element or the end of the call stands.
  std::string take_element(AnswerCursor& at) const {
    const ValueNotation& notation = syntax_.arguments;
    const std::string_view rest = at.rest();
    const std::string_view close = trimmed(notation.value_close);
    const std::string_view blanks = std::string_view(notation.value_close).substr(0, notation.value_close.find(close));
    const auto ends_at = [&](std::size_t place) {
      AnswerCursor next(rest, place);
      if (!next.take(close)) return false;
      AnswerCursor other = next;
      if (!next.take(notation.key_open) && !other.take(syntax_.close)) return false;
      at.move_to(at.at() + place + close.size());
      return true;
    };
    std::size_t begin = std::min(rest.find_first_not_of(kBlanks), rest.size());
    if (begin < rest.size() && (rest[begin] == '{' || rest[begin] == '[')) {  // a marker inside of JSON is text
      const std::size_t end = value_end(rest, begin).value_or(kNone);
      const std::size_t place = end == kNone ? kNone : rest.find_first_not_of(kBlanks, end);
      if (place != kNone && rest.substr(place).starts_with(close) && ends_at(place))
        return std::string(rest.substr(begin, end - begin));
    }
    for (std::size_t place = rest.find(close); place != kNone; place = rest.find(close, place + 1)) {
      if (!ends_at(place)) continue;
      std::string_view value = rest.substr(0, place);
      if (value.ends_with(blanks)) value.remove_suffix(blanks.size());
      return std::string(value);
    }
    at.move_to(kNone);
    throw CallError(
        fmt::format("the call is not complete: expected '{}' behind the last argument, found the end of the "
                    "answer",
                    without_marks(close)));
  }

  /// A text stands as it is; anything else, if the schema allows it, as JSON or with Python's words.
  static Json element_value(const std::string& name, const std::string& written, const std::optional<Schema>& schema) {
    const Json text = utf8::repaired(without_marks(written));
    const std::string_view word = trimmed(written);
    const std::string json = word == "True"    ? "true"
                             : word == "False" ? "false"
                             : word == "None"  ? "null"
                                               : without_marks(word);
    try {
      const Json value = *read_json(json);
      if (value.is_string()) return text;
      const bool fits = schema && check_member(name, json, *schema).empty();
      const bool text_fits = schema && check_member(name, json_text(text), *schema).empty();
      return fits || (schema && !text_fits) ? value : text;
    } catch (const JsonError&) {
      return text;
    }
  }

  std::string unknown(const std::string& name) const {
    std::string out = fmt::format("there is no tool '{}'; the tools are:", shown_name(name));
    for (const ToolSchema& one : tools_.schemas()) out += " " + one.name;
    return out;
  }

  ModelCall checked(const std::string& name, const Json& arguments) const {
    ModelCall call{name, json_text(arguments), ""};
    const CallableTool* tool = tools_.find(name);
    if (tool == nullptr) {
      call.problem = unknown(name);
    } else if (!arguments.is_object()) {
      call.problem = fmt::format("'{}' is no object", syntax_.arguments_key);
    } else if (const std::string wrong = check_json(call.arguments, tool->schema.parameters); !wrong.empty()) {
      call.problem = "the arguments do not fit the schema: " + wrong;
    }
    return call;
  }

  void add_object(const Json& object) {
    ModelCall call;
    try {
      call = read_object(object);
    } catch (const std::exception& error) {
      call.problem = error.what();
    }
    add(std::move(call));
  }

  ModelCall read_object(const Json& object) const {
    const std::string& name_key = syntax_.name_key;
    if (!object.is_object() || !object.contains(name_key) || !object[name_key].is_string())
      return {"", "",
              fmt::format("the call is no object with the keys '{}' and '{}'", name_key, syntax_.arguments_key)};
    Json arguments = Json::object();
    if (object.contains(syntax_.arguments_key)) arguments = object[syntax_.arguments_key];
    if (arguments.is_string())
      arguments = *read_json(arguments.get_ref<const std::string&>());  // as OpenAI writes them
    return checked(object[name_key].get<std::string>(), arguments);
  }

  std::string_view answer_;
  const CallSyntax& syntax_;
  const CallableTools& tools_;
  std::vector<ModelCall> calls_;
};

/// True if the text begins as a bare call of one of the tools does, up to the tool's name.
bool begins_as_call(std::string_view text, const CallSyntax& syntax, const CallableTools& tools) {
  AnswerCursor at(text);
  at.take("[");
  if (!at.take("{") || !at.take(json_text(Json(syntax.name_key))) || !at.take(":")) return false;
  at.skip_blanks();
  return std::any_of(tools.schemas().begin(), tools.schemas().end(),
                     [&](const ToolSchema& tool) { return at.rest().starts_with(json_text(Json(tool.name))); });
}

/// True for a list or an object that has what a call has; it may have a problem.
bool looks_like_call(const Json& value, const CallSyntax& syntax, const CallableTools& tools) {
  if (value.is_array())
    return !value.empty() && std::all_of(value.begin(), value.end(),
                                         [&](const Json& one) { return looks_like_call(one, syntax, tools); });
  return value.is_object() && value.contains(syntax.name_key) && value[syntax.name_key].is_string() &&
         value.contains(syntax.arguments_key) && tools.find(value[syntax.name_key].get<std::string>()) != nullptr;
}

/// An answer that is nothing but calls of known tools, without their marker. If this is the model's own form, a call
/// may have arguments that do not fit, which the model is told; else it is an answer in JSON.
std::vector<ModelCall> bare_calls(std::string_view answer, const CallSyntax& syntax, const CallableTools& tools) {
  std::string_view text = trimmed(answer, kBlanksAndCommas);
  if (text.starts_with("```")) {
    text.remove_prefix(std::min(text.find_first_of("{[\n", 3), text.size()));
    text = trimmed(text, kBlanksAndCommas);
    if (text.ends_with("```")) text = trimmed(text.substr(0, text.size() - 3), kBlanksAndCommas);
  }
  if (!text.starts_with('{') && !text.starts_with('[')) return {};
  const bool own = syntax.object && syntax.marker().empty();
  CallSyntax bare = syntax;
  bare.first = bare.open = bare.close = bare.last = "";
  bare.object = true;
  CallReader reader(text, bare, tools);
  for (AnswerCursor at(text); !at.done(); at.skip(kBlanksAndCommas)) {
    const std::size_t length = value_end(at.rest()).value_or(kNone);
    const bool opens = at.peek() == '{' || at.peek() == '[';
    if (!opens) return {};
    if (length == kNone) {  // cut off
      if (!begins_as_call(at.rest(), bare, tools)) return {};
    } else {
      try {
        if (!looks_like_call(*read_json(without_marks(at.rest().substr(0, length))), bare, tools)) return {};
      } catch (const JsonError&) {
        return {};
      }
    }
    reader.read_objects(at);
  }
  std::vector<ModelCall> calls = reader.take();
  const bool fit = std::all_of(calls.begin(), calls.end(),
                               [&](const ModelCall& call) { return call.problem.empty() || call.tool.empty() || own; });
  return fit ? calls : std::vector<ModelCall>();
}

bool is_answer(const std::string& text, const CallableTools& tools) {
  if (tools.answer() == nullptr) return false;
  try {
    return accepts(*tools.answer(), text);
  } catch (const std::runtime_error&) {  // it takes too many steps
    return false;
  }
}

}  // namespace

std::vector<ModelCall> calls_in(const std::string& answer, const ToolFormat& format, const CallableTools& tools) {
  const CallSyntax& syntax = format.syntax;
  if (tools.limits().choice == ToolChoice::none) return {};
  const std::string_view header = trimmed(syntax.text_open);
  if (!header.empty() && trimmed(answer).starts_with(header)) return {};
  const bool channels = !header.empty();
  std::vector<ModelCall> calls = CallReader(answer, syntax, tools).read(channels);
  for (const CallSyntax& one : syntax.also) {  // takes the first header that fits
    std::vector<ModelCall> found = CallReader(answer, one, tools).read(channels);
    const bool better = calls.empty() || (!calls[0].problem.empty() && !found.empty() && found[0].problem.empty());
    if (better) calls = std::move(found);
  }
  if (!calls.empty() || channels) return calls;
  const bool is_own = syntax.object && syntax.marker().empty();
  if (tools.answer() != nullptr && (!is_own || is_answer(answer, tools))) return {};
  return bare_calls(answer, syntax, tools);
}

}  // namespace baton
