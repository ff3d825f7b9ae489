// SPDX-License-Identifier: Apache-2.0
// The header of a request as Beast has read it.
#pragma once

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "sdk/serve/admission.h"
#include "sdk/serve/api_error.h"

namespace baton::serve {

template <typename View>
std::string_view view_of(const View& text) {
  return {text.data(), text.size()};
}

/// Views of the parser's memory.
template <typename Parser>
RequestHead head_of(const Parser& parser) {
  using Field = boost::beast::http::field;
  const auto& request = parser.get();
  RequestHead head;
  head.method = view_of(request.method_string());
  head.target = view_of(request.target());
  head.host = view_of(request[Field::host]);
  head.origin = view_of(request[Field::origin]);
  head.authorization = view_of(request[Field::authorization]);
  head.content_type = view_of(request[Field::content_type]);
  head.content_encoding = view_of(request[Field::content_encoding]);
  if (const auto length = parser.content_length()) head.content_length = *length;
  return head;
}

/// Throws ApiError where the fields leave in doubt where the body ends, so that a proxy before this server might take
/// some of it for another request, or for none: both a length and chunks, several lengths, one that is no plain number,
/// and codings other than chunked.
template <typename Parser>
void check_framing(const Parser& parser) {
  using Field = boost::beast::http::field;
  const auto& request = parser.get();
  const auto lengths = request.equal_range(Field::content_length);
  const auto codings = request.equal_range(Field::transfer_encoding);
  const auto refuse = [](const char* expected) { throw ApiError(400, "malformed_request", expected); };
  if (codings.first != codings.second) {
    const bool chunked =
        std::next(codings.first) == codings.second && boost::beast::iequals(codings.first->value(), "chunked");
    if (!chunked || request.version() < 11) refuse("Transfer-Encoding: expected chunked alone, and HTTP 1.1");
    if (lengths.first != lengths.second) refuse("expected Content-Length or Transfer-Encoding, found both");
  }
  if (lengths.first == lengths.second) return;
  const std::string_view length = view_of(lengths.first->value());
  const bool plain =
      !length.empty() && std::all_of(length.begin(), length.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!plain || std::next(lengths.first) != lengths.second) refuse("Content-Length: expected one number");
}

}  // namespace baton::serve
