// SPDX-License-Identifier: Apache-2.0
#include "agents/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <new>
#include <stdexcept>

namespace baton {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::uint32_t kMatchLimit = 1'000'000;  // maximum backtracks of one match, which take tens of milliseconds
constexpr std::uint32_t kHeapLimitKib = 16'384;
constexpr int kMaxMatches = 100'000;

template <auto release>
struct ReleaseOutputPattern {
  void operator()(auto* pointer) const { release(pointer); }
};
using Code = std::unique_ptr<pcre2_code, ReleaseOutputPattern<pcre2_code_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, ReleaseOutputPattern<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, ReleaseOutputPattern<pcre2_match_data_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Pattern::Compiled {
  Code code;
};

namespace {

/// Iterates over the matches of a text.
class Matcher {
 public:
  Matcher(const pcre2_code* code, std::string_view text)
      : code_(code),
        text_(text),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  /// Finds the next match from `from` on. Returns its number of groups; 0: no match.
  int find(std::size_t from) {
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from, 0, data_.get(),
                                  context_.get());
    if (found == PCRE2_ERROR_NOMATCH) return 0;
    if (found < 0) throw std::runtime_error(fmt::format("matching a pattern failed: {}", message_of(found)));
    return found;
  }

  std::size_t begin(int group) const { return pcre2_get_ovector_pointer(data_.get())[2 * group]; }
  std::size_t end(int group) const { return pcre2_get_ovector_pointer(data_.get())[2 * group + 1]; }

 private:
  const pcre2_code* code_;
  std::string_view text_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

Pattern::Pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    throw std::invalid_argument(
        fmt::format("the pattern has {} bytes; expected at most {}", pattern.size(), kMaxPatternBytes));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (!code)
    throw std::invalid_argument(fmt::format("{} at character {} of the pattern", message_of(error), offset + 1));
  compiled_ = std::make_unique<Compiled>(Compiled{std::move(code)});
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::search(std::string_view text) const { return Matcher(compiled_->code.get(), text).find(0) > 0; }

std::optional<std::string> Pattern::last_answer(std::string_view text) const {
  std::uint32_t groups = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
  const int wanted = groups > 0 ? 1 : 0;

  Matcher matcher(compiled_->code.get(), text);
  std::optional<std::string> answer;
  std::size_t from = 0;
  for (int count = 0; from <= text.size() && count < kMaxMatches; ++count) {
    const int found = matcher.find(from);
    if (found == 0) break;
    const bool took_part = wanted < found && matcher.begin(wanted) != PCRE2_UNSET;
    if (took_part) {
      answer = std::string(text.substr(matcher.begin(wanted), matcher.end(wanted) - matcher.begin(wanted)));
    } else {
      answer = std::string();
    }
    const std::size_t end = matcher.end(0);
    from = end > from ? end : from + 1;  // \K can end a match before its begin, and an empty match must still advance
  }
  return answer;
}

}  // namespace baton
