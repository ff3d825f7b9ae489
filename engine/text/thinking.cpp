// SPDX-License-Identifier: Apache-2.0
#include "engine/text/thinking.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/utf8.h"
#include "engine/text/templates.h"

namespace baton {
namespace {

constexpr std::size_t kMaxBlankTokens = 8;  // tokens
constexpr std::size_t kMaxBlankBytes = 64;  // in front of thinking
constexpr const char* kThought = "\uE0B1";
constexpr const char* kContent = "\uE0B2";  // stand in no template

/// The forms that models of today are trained with.
struct KnownForm {
  std::string_view begin, end;
  std::string_view behind, no_thinking;  // where the template's own text does not say it
};
constexpr std::string_view kFinal = "<|channel|>final<|message|>";
constexpr std::array kForms = {
    KnownForm{"<think>", "</think>", "", ""},  // Qwen, DeepSeek, GLM, SmolLM, LFM, Nemotron
    KnownForm{"<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant", kFinal},  // gpt-oss
    KnownForm{"<|channel>thought", "<channel|>", "", ""},                                  // Gemma 4
    KnownForm{"[THINK]", "[/THINK]", "", ""},                                              // Mistral
    KnownForm{"<|START_THINKING|>", "<|END_THINKING|>", "", ""},                           // Command
    KnownForm{"<seed:think>", "</seed:think>", "", ""},                                    // Seed
    KnownForm{"◁think▷", "◁/think▷", "", ""},                                              // Kimi
    KnownForm{"<thought>", "</thought>", "", ""},                                          // EXAONE
    KnownForm{"<|inner_prefix|>", "<|inner_suffix|>", "", ""},                             // Apertus
    KnownForm{"<|begin_of_thought|>", "<|end_of_thought|>", "", ""},
    KnownForm{"<reasoning>", "</reasoning>", "", ""},
};

/// Words that a prompt may ask for: of an unknown model, they begin an answer.
bool may_be_asked_for(const KnownForm& form) { return form.begin == "<thought>" || form.begin == "<reasoning>"; }

bool is_blank(std::string_view text) { return utf8::trimmed(text).empty(); }

/// What a template writes behind the end of an earlier thinking, up to the answer; nothing if it writes none.
std::optional<std::string> text_behind(const ChatTemplate& chat, ChatOptions options, const KnownForm& form,
                                       const std::stop_token& stop) {
  options.add_generation_prompt = false;
  try {
    ChatMessage answer{"assistant", kContent};
    answer.thinking = kThought;
    const std::string text = chat.render({{"user", "probe"}, std::move(answer)}, options, stop);
    const std::size_t thought = text.find(kThought), content = text.rfind(kContent);
    const std::size_t end = thought == std::string::npos ? thought : text.find(form.end, thought);
    if (end == std::string::npos || content == std::string::npos || content < end + form.end.size()) return {};
    return text.substr(end + form.end.size(), content - end - form.end.size());
  } catch (const ModelError&) {
    return {};
  }
}

}  // namespace

ThinkingReader::ThinkingReader(const ThinkingMarks& marks) : marks_(marks), stops_({marks.end}) {
  if (marks_.begin.empty()) stage_ = Stage::inside;
}

std::string ThinkingReader::push(std::string_view token) {
  if (over_) return {};
  ++pushed_;
  if (stage_ == Stage::behind) {
    if (!token.empty() && is_blank(token) && ++blanks_ <= kMaxBlankTokens) return {};
    over_ = true;
    kept_ = pushed_ - 1;
    return {};
  }
  std::string opened;
  if (stage_ == Stage::opening) {
    opened = open(token);
    if (stage_ == Stage::opening) return {};
    token = opened;
  }
  last_token_ = last_.size();
  last_ += token;
  std::string thought = stops_.push(token);
  if (stops_.found()) {
    close();
  } else if (const std::size_t most = marks_.end.size(); last_.size() > most) {
    const std::size_t dropped = last_.size() - most;
    last_.erase(0, dropped);
  }
  return thought;
}

/// Reads the marker of the beginning. Returns the text of the thinking behind it.
std::string ThinkingReader::open(std::string_view token) {
  opening_ += token;
  const std::size_t first = std::min(opening_.find_first_not_of(utf8::kBlanks), opening_.size());
  const std::string_view said = std::string_view(opening_).substr(first);
  if (said.starts_with(marks_.begin)) {
    stage_ = Stage::inside;
    return std::string(said.substr(marks_.begin.size()));
  }
  const bool may_begin = said.empty() ? ++blanks_ <= kMaxBlankTokens : marks_.begin.starts_with(said);
  over_ = !may_begin;
  return {};
}

/// The marker of the end is complete. A token that also has text of the answer belongs to that.
void ThinkingReader::close() {
  stage_ = Stage::behind;
  blanks_ = 0;
  const std::size_t end = last_.find(marks_.end, last_token_ < marks_.end.size() ? 0 : last_token_ - marks_.end.size());
  const std::size_t behind = end + marks_.end.size();
  if (is_blank(std::string_view(last_).substr(behind))) return;
  over_ = true;
  kept_ = pushed_ - 1;
  rest_ = last_.substr(last_token_, behind - last_token_);
}

std::string ThinkingReader::finish() {
  if (stage_ != Stage::inside || over_) return {};
  return stops_.finish();
}

std::string ThinkingReader::rest() const { return ended() ? rest_ : begun() ? marks_.end : std::string(); }

ThinkingSplitter::Texts ThinkingSplitter::push(std::string_view text) {
  Texts texts;
  held_ += text;
  if (stage_ == Stage::opening) open();
  if (stage_ == Stage::inside) think(texts.thinking);
  if (stage_ == Stage::behind) begin_answer();
  if (stage_ == Stage::answer) texts.answer = std::exchange(held_, {});
  return texts;
}

ThinkingSplitter::Texts ThinkingSplitter::finish() {
  Texts texts;
  (stage_ == Stage::inside ? texts.thinking : texts.answer) = std::exchange(held_, {});
  return texts;
}

void ThinkingSplitter::thought_elsewhere() {
  thought_ = true;
  if (stage_ == Stage::opening) stage_ = Stage::behind;
}

/// Reads the marker of the beginning, or finds that there is none.
void ThinkingSplitter::open() {
  const std::size_t first = std::min(held_.find_first_not_of(utf8::kBlanks), held_.size());
  const std::string_view said = std::string_view(held_).substr(first);
  bool may_begin = said.empty() && first <= kMaxBlankBytes;
  for (const KnownForm& form : kForms) {
    if (may_be_asked_for(form)) continue;
    may_begin = may_begin || (!said.empty() && form.begin.starts_with(said));
    if (!said.starts_with(form.begin)) continue;
    end_ = form.end;
    header_ = std::string(form.behind) + std::string(form.no_thinking);
    held_.erase(0, first + form.begin.size());
    stage_ = Stage::inside;
    thought_ = true;
    return;
  }
  if (!may_begin) stage_ = Stage::answer;
}

void ThinkingSplitter::think(std::string& thinking) {
  const std::size_t end = held_.find(end_);
  if (end != std::string::npos) {
    thinking += held_.substr(0, end);
    held_.erase(0, end + end_.size());
    stage_ = Stage::behind;
    return;
  }
  std::size_t kept = std::min(end_.size() - 1, held_.size());
  while (!held_.ends_with(std::string_view(end_).substr(0, kept))) --kept;
  thinking += held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
}

void ThinkingSplitter::begin_answer() {
  held_.erase(0, std::min(held_.find_first_not_of(utf8::kBlanks), held_.size()));
  const bool whole = held_.starts_with(header_);
  if (held_.empty() || (!whole && header_.starts_with(held_))) return;
  if (whole) held_.erase(0, header_.size());
  stage_ = Stage::answer;
}

std::optional<ThinkingForm> thinking_form_of(const ChatTemplate& chat, const ChatOptions& options,
                                             const std::stop_token& stop) {
  const std::string source = chat.source();
  for (const KnownForm& known : kForms) {
    // The marker of the end is a form's own; that of the beginning may be put together from parts.
    if (source.find(known.end) == std::string::npos) continue;
    const bool begins = source.find(known.begin) != std::string::npos;
    const std::optional<std::string> behind = text_behind(chat, options, known, stop);
    if (!begins && !behind) continue;
    ThinkingForm form{
        {std::string(known.begin), std::string(known.end)}, std::string(known.behind), std::string(known.no_thinking)};
    if (known.behind.empty()) form.behind = behind && is_blank(*behind) ? *behind : "\n\n";
    return form;
  }
  return std::nullopt;
}

ThinkingStart thinking_start(const ThinkingForm& form, const ChatTemplate& chat, const ChatOptions& options,
                             const std::stop_token& stop) {
  ChatOptions without = options;
  without.add_generation_prompt = false;
  const std::vector<ChatMessage> probe{{"user", kContent}};
  const std::string prompt = chat.render(probe, options, stop), before = chat.render(probe, without, stop);
  const auto common = std::mismatch(prompt.begin(), prompt.end(), before.begin(), before.end()).first;
  const std::string_view own = std::string_view(prompt).substr(static_cast<std::size_t>(common - prompt.begin()));
  const std::size_t begin = own.rfind(form.marks.begin), end = own.rfind(form.marks.end);
  if (begin == std::string_view::npos) return ThinkingStart::model;
  return end != std::string_view::npos && end > begin ? ThinkingStart::closed : ThinkingStart::begun;
}

std::string without_thinking(const ThinkingForm& form, ThinkingStart start, bool calls) {
  if (start == ThinkingStart::closed) return {};
  if (start == ThinkingStart::begun) return "\n" + form.marks.end + form.behind;
  if (!form.no_thinking.empty() && !calls) return form.no_thinking;
  if (!form.no_thinking.empty()) return form.marks.begin + form.marks.end + form.behind;
  return form.marks.begin + "\n\n" + form.marks.end + form.behind;
}

}  // namespace baton
