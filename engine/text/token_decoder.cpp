// SPDX-License-Identifier: Apache-2.0
// The steps of a decoder. `joined`: the input consists of pieces of one long token instead of tokens.
#include "engine/text/token_decoder.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <optional>

#include "engine/base/utf8.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/regex.h"

namespace baton::text {

using StepPtr = std::shared_ptr<const DecoderStep>;

StepPtr spaced_step();
StepPtr byte_level_step();
StepPtr byte_fallback_step();
StepPtr fuse_step();
StepPtr replace_step(PatternPtr pattern, std::string content);
/// Removes `content` (one character) up to `start` times at the start of a token and up to `stop` times at its end.
StepPtr strip_step(std::string content, std::size_t start, std::size_t stop, bool joined);
/// `first_is_prefix`: marks in the first token are removed instead of replaced by spaces.
StepPtr metaspace_step(std::string mark, bool first_is_prefix);

namespace {

/// A step that consists of a function that starts a text and a function that returns the bytes of a token.
template <typename MakeRun, typename Bytes>
class Step : public DecoderStep {
 public:
  Step(MakeRun make_run, Bytes to_bytes) : make_run_(std::move(make_run)), to_bytes_(std::move(to_bytes)) {}
  std::unique_ptr<DecoderRun> run() const override { return make_run_(); }
  std::string bytes(std::string token, bool& is_bytes, TextWork& work) const override {
    return is_bytes ? token : to_bytes_(std::move(token), is_bytes, work);
  }

 private:
  MakeRun make_run_;
  Bytes to_bytes_;
};

template <typename MakeRun, typename Bytes>
StepPtr make_step(MakeRun make_run, Bytes to_bytes) {
  return std::make_shared<Step<MakeRun, Bytes>>(std::move(make_run), std::move(to_bytes));
}

std::string as_is(std::string token, bool&, TextWork&) { return token; }

/// The step of a tokenizer without decoder: joins tokens with spaces.
class Spaced : public DecoderRun {
 public:
  void push(std::string_view token, const Emit& emit, TextWork&) override {
    if (!first_) emit(" ");
    first_ = false;
    emit(token);
  }

 private:
  bool first_ = true;
};

/// Joins the bytes of all tokens to one text and holds back an incomplete character.
class ByteLevel : public DecoderRun {
 public:
  void push(std::string_view token, const Emit& emit, TextWork&) override {
    pending_ += byte_level_bytes(token);
    std::size_t done = 0;
    while (done < pending_.size()) {
      const utf8::CharacterStep step = utf8::scan(pending_, done);
      if (step.kind == utf8::Scan::unfinished) break;
      done += step.bytes;
    }
    emit(utf8::repaired(std::string_view(pending_).substr(0, done)));
    pending_.erase(0, done);
  }
  void finish(const Emit& emit, TextWork&) override {
    emit(utf8::repaired(pending_));
    pending_.clear();
  }

 private:
  std::string pending_;
};

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

/// A run of byte tokens is text when all of it is valid UTF-8, and otherwise one U+FFFD for each token, so the result
/// is known only when the run ends.
class ByteFallback : public DecoderRun {
 public:
  void push(std::string_view token, const Emit& emit, TextWork& work) override {
    if (const auto byte = fallback_byte(token)) {
      bytes_ += *byte;
      return;
    }
    finish(emit, work);
    emit(token);
  }
  void finish(const Emit& emit, TextWork& work) override {
    if (bytes_.empty()) return;
    work.allow(bytes_.size());
    if (utf8::is_valid(bytes_)) {
      emit(bytes_);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) emit(utf8::kReplacement);
    }
    bytes_.clear();
  }

 private:
  std::string bytes_;
};

class PassOn : public DecoderRun {
 public:
  void push(std::string_view token, const Emit& emit, TextWork&) override { emit(token); }
};

class Replace : public DecoderRun {
 public:
  Replace(PatternPtr pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void push(std::string_view token, const Emit& emit, TextWork& work) override {
    emit(replaced(token, *pattern_, content_, work));
  }

 private:
  PatternPtr pattern_;
  std::string content_;
};

std::string_view without_start(std::string_view token, std::string_view content, std::size_t most) {
  for (; most > 0 && token.starts_with(content); --most) token.remove_prefix(content.size());
  return token;
}

std::string_view without_end(std::string_view token, std::string_view content, std::size_t most) {
  for (; most > 0 && token.ends_with(content); --most) token.remove_suffix(content.size());
  return token;
}

struct StripRule {
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};

class StripEach : public DecoderRun {
 public:
  explicit StripEach(StripRule rule) : rule_(std::move(rule)) {}
  void push(std::string_view token, const Emit& emit, TextWork&) override {
    emit(without_end(without_start(token, rule_.content, rule_.start), rule_.content, rule_.stop));
  }

 private:
  StripRule rule_;
};

class StripJoined : public DecoderRun {
 public:
  explicit StripJoined(StripRule rule) : rule_(std::move(rule)), start_left_(rule_.start) {}
  void push(std::string_view piece, const Emit& emit, TextWork&) override {
    const std::string_view body = without_start(piece, rule_.content, start_left_);
    start_left_ = body.empty() ? start_left_ - (piece.size() - body.size()) / rule_.content.size() : 0;
    held_ += body;  // held back, since it may be the end of the token
    const std::size_t ready = without_end(held_, rule_.content, rule_.stop).size();
    emit(std::string_view(held_).substr(0, ready));
    held_.erase(0, ready);
  }

 private:
  StripRule rule_;
  std::size_t start_left_;
  std::string held_;
};

class Metaspace : public DecoderRun {
 public:
  Metaspace(PatternPtr mark, bool first_is_prefix) : mark_(std::move(mark)), drop_(first_is_prefix) {}
  void push(std::string_view token, const Emit& emit, TextWork& work) override {
    emit(replaced(token, *mark_, drop_ ? "" : " ", work));
    drop_ = false;
  }

 private:
  PatternPtr mark_;
  bool drop_;
};

}  // namespace

StepPtr spaced_step() {
  return make_step([] { return std::make_unique<Spaced>(); }, as_is);
}

StepPtr byte_level_step() {
  return make_step([] { return std::make_unique<ByteLevel>(); },
                   [](std::string token, bool& is_bytes, TextWork&) {
                     is_bytes = true;
                     return byte_level_bytes(token);
                   });
}

StepPtr byte_fallback_step() {
  return make_step([] { return std::make_unique<ByteFallback>(); },
                   [](std::string token, bool& is_bytes, TextWork&) {
                     const auto byte = fallback_byte(token);
                     is_bytes = byte.has_value();
                     return byte ? std::string(1, *byte) : token;
                   });
}

StepPtr fuse_step() {
  return make_step([] { return std::make_unique<PassOn>(); }, as_is);
}

StepPtr replace_step(PatternPtr pattern, std::string content) {
  return make_step([pattern, content] { return std::make_unique<Replace>(pattern, content); },
                   [pattern, content](const std::string& token, bool&, TextWork& work) {
                     return replaced(token, *pattern, content, work);
                   });
}

StepPtr strip_step(std::string content, std::size_t start, std::size_t stop, bool joined) {
  const StripRule rule{std::move(content), start, stop};
  if (joined) {
    return make_step([rule] { return std::make_unique<StripJoined>(rule); }, as_is);
  }
  return make_step(
      [rule] { return std::make_unique<StripEach>(rule); },
      [rule](const std::string& token, bool&, TextWork&) {
        return std::string(without_end(without_start(token, rule.content, rule.start), rule.content, rule.stop));
      });
}

StepPtr metaspace_step(std::string mark, bool first_is_prefix) {
  const PatternPtr pattern = string_pattern(std::move(mark), {});
  return make_step(
      [=] { return std::make_unique<Metaspace>(pattern, first_is_prefix); },
      [pattern](const std::string& token, bool&, TextWork& work) { return replaced(token, *pattern, " ", work); });
}

namespace {

constexpr int kMaxDecoderDepth = 16;
constexpr std::int32_t kMaxStrip = 1024;

std::string character_member(const Json& value, const char* key, const Where& where) {
  const std::string text = string_member(value, key, where);
  if (text.empty() || utf8::at(text, 0).bytes != text.size()) where.fail(fmt::format("'{}' must be a character", key));
  return text;
}

}  // namespace

TokenDecoder TokenDecoder::parse(const Json* value, const Where& where) {
  TokenDecoder out;
  if (value != nullptr) {
    out.add(*value, where, 0);
  } else {
    out.steps_.push_back(spaced_step());
  }
  return out;
}

void TokenDecoder::add(const Json& value, const Where& where, int depth) {
  check_step_count(steps_.size(), where);
  const std::string type = string_member(value, "type", where);
  if (type == "Sequence") {
    if (depth == kMaxDecoderDepth) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "decoders", where)) {
      add(part, where.in("decoders").in(i++), depth + 1);
    }
    return;
  }
  if (type == "Strip") {
    const auto count = [&](const char* key) {
      return static_cast<std::size_t>(index_of(member(value, key, where), kMaxStrip, where.in(key)));
    };
    steps_.push_back(strip_step(character_member(value, "content", where), count("start"), count("stop"), joined_));
    return;
  }
  if (type == "Fuse") {
    steps_.push_back(fuse_step());
    joined_ = true;
    return;
  }
  // The steps below read single tokens; after a step that joins tokens they would see pieces of arbitrary sizes.
  if (joined_)
    where.fail(fmt::format("the decoder {} after one that joins all tokens is not supported", in_quotes(type)));
  if (type == "ByteLevel") {
    steps_.push_back(byte_level_step());
    joined_ = true;
  } else if (type == "ByteFallback") {
    steps_.push_back(byte_fallback_step());
  } else if (type == "Replace") {
    steps_.push_back(replace_step(parse_pattern(member(value, "pattern", where), where.in("pattern")),
                                  string_member(value, "content", where)));
  } else if (type == "Metaspace") {
    const auto scheme = optional_string(value, "prepend_scheme", where);
    const bool prefix = scheme ? *scheme != "never" : bool_member(value, "add_prefix_space", true, where);
    steps_.push_back(metaspace_step(character_member(value, "replacement", where), prefix));
  } else {
    where.fail(fmt::format("the decoder {} is not supported", in_quotes(type)));
  }
}

std::string TokenDecoder::bytes(std::string token, TextWork& work) const {
  bool is_bytes = false;
  for (const auto& step : steps_) {
    work.spend(1 + token.size() / 16);
    token = step->bytes(std::move(token), is_bytes, work);
  }
  return token;
}

TokenDecoder::Run::Run(const TokenDecoder& decoder) {
  for (const auto& step : decoder.steps_) steps_.push_back(step->run());
}

void TokenDecoder::Run::push_from(std::size_t step, std::string_view token, std::string& out, TextWork& work) {
  if (step == steps_.size()) {
    out += token;
    return;
  }
  work.spend(1 + token.size() / 16);
  steps_[step]->push(
      token, [&](std::string_view piece) { push_from(step + 1, piece, out, work); }, work);
}

void TokenDecoder::Run::push(std::string_view token, std::string& out, TextWork& work) {
  push_from(0, token, out, work);
}

void TokenDecoder::Run::finish(std::string& out, TextWork& work) {
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    steps_[step]->finish([&](std::string_view piece) { push_from(step + 1, piece, out, work); }, work);
  }
}

}  // namespace baton::text
