// SPDX-License-Identifier: Apache-2.0
#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "engine/base/utf8.h"

namespace baton::text {
namespace {

// The work that a text may cost ends long matches; PCRE2's own limits begin anew at each position and do not count the
// characters that one item passes over. They remain for what happens between two callouts.
constexpr std::uint32_t kMatchLimit = 50'000'000;
constexpr std::uint32_t kDepthLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 65'536;
constexpr std::size_t kMaxPatternBytes = 16'384;
constexpr std::size_t kMatchStackBytes = 1u << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

template <auto release>
struct ReleasePattern {
  void operator()(auto* pointer) const { release(pointer); }
};
using Code = std::unique_ptr<pcre2_code, ReleasePattern<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, ReleasePattern<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, ReleasePattern<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, ReleasePattern<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, ReleasePattern<pcre2_jit_stack_free>>;

}  // namespace

struct Regex::Compiled {
  Code code;
  Where where;
  std::size_t units_per_item = 1;  // a repeat of n characters is one item
  std::size_t units_per_16 = 16;   // bytes that an item passes over; a property of Unicode is looked up for each
};

namespace {

/// What the callouts of one split count. PCRE2 calls them before every item of the pattern.
struct MatchWatch {
  TextWork& work;
  std::size_t units_per_item;
  std::size_t units_per_16;
  std::size_t last = 0;  // where the last item began to match
  bool ended = false;
};

int watch(pcre2_callout_block* block, void* data) {
  auto& state = *static_cast<MatchWatch*>(data);
  const std::size_t at = block->current_position;
  const std::size_t passed = at > state.last ? at - state.last : state.last - at;
  state.last = at;
  state.ended = !state.work.take(state.units_per_item + passed * state.units_per_16 / 16);
  return state.ended ? PCRE2_ERROR_CALLOUT : 0;
}

}  // namespace

Regex::Regex(std::string_view oniguruma, const Where& where) {
  if (oniguruma.size() > kMaxPatternBytes)
    where.fail(
        fmt::format("the regular expression has {} bytes, expected at most {}", oniguruma.size(), kMaxPatternBytes));
  RegexCosts costs;
  const std::string pattern = translated_regex(oniguruma, where, costs);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
                          &error, &offset, context.get()));
  if (!code)
    where.fail(fmt::format("the regular expression {} is broken: {}", in_quotes(oniguruma), message_of(error)));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT, pcre2_match interprets the code
  compiled_ = std::make_unique<Compiled>(
      Compiled{std::move(code), where, 1 + costs.longest_repeat / 8, 16 + costs.widest_class / 8});
}

Regex::~Regex() = default;

void Regex::split(std::string_view text, std::vector<Span>& out, TextWork& work) const {
  const pcre2_code* code = compiled_->code.get();
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  MatchWatch state{work, compiled_->units_per_item, compiled_->units_per_16};
  pcre2_set_callout(context.get(), watch, &state);
  JitStack stack;  // allocated only when the 32 KiB that PCRE2 uses of the thread's own stack are not enough

  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t end_of_last = 0;
  bool any = false;
  for (std::size_t from = 0; from <= text.size();) {
    int found = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      stack.reset(pcre2_jit_stack_create(32 * 1024, kMatchStackBytes, nullptr));
      if (!stack) throw std::bad_alloc();
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (state.ended) work.fail();
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) compiled_->where.fail(fmt::format("matching a text failed: {}", message_of(found)));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = bounds[0], end = bounds[1];
    from = end;
    if (begin == end) {
      from = end < text.size() ? end + utf8::at(text, end).bytes : text.size() + 1;
      if (any && end == end_of_last) continue;  // an empty match right after a match does not count
    }
    if (begin < end_of_last) compiled_->where.fail("a match began before the end of the last one");
    work.check_pieces(out.size() + 2);
    if (begin != end_of_last) out.push_back({end_of_last, begin, false});
    out.push_back({begin, end, true});
    end_of_last = end;
    any = true;
  }
  if (end_of_last != text.size()) out.push_back({end_of_last, text.size(), false});
}

}  // namespace baton::text
