// SPDX-License-Identifier: Apache-2.0
// Cuts the source of a chat template into tokens, with Jinja's whitespace control: trim_blocks and lstrip_blocks are
// on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/errors.h"

namespace baton::jinja {

/// A place in the source, from 1; columns count bytes.
struct Place {
  int line = 1;
  int column = 1;
};

enum class TokenKind : std::uint8_t {
  data,  // text outside of tags
  print_begin,
  print_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,
  end,
};

struct TemplateToken {
  TokenKind kind = TokenKind::end;
  std::string text;  // for a string: its value
  Place place;

  bool is(TokenKind wanted, std::string_view wanted_text) const { return kind == wanted && text == wanted_text; }
  bool is_name(std::string_view wanted) const { return is(TokenKind::name, wanted); }
  bool is_symbol(std::string_view wanted) const { return is(TokenKind::symbol, wanted); }
};

/// Names of variables, members and arguments; they are compared more often than they are counted.
inline constexpr std::size_t kMaxNameBytes = 200;

/// Something is wrong at a place of the template; what() names the template, too.
class PlacedError : public ModelError {
 public:
  PlacedError(const std::string& origin, Place where, std::string_view what);
  Place place;
  std::string reason;
};

/// Says where in the template something is wrong. Throws PlacedError.
[[noreturn]] void fail(const std::string& origin, Place place, std::string_view what);

/// Always ends with a token of the kind `end`.
std::vector<TemplateToken> tokenize(std::string_view source, const std::string& origin);

/// Python's idea of space in str.strip() and \s.
bool is_python_space(char32_t c);

}  // namespace baton::jinja
