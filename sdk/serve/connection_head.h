// SPDX-License-Identifier: Apache-2.0
// The header of a request as Beast has read it.
#pragma once

#include <boost/beast/http/parser.hpp>

#include <string_view>

#include "sdk/serve/admission.h"

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

}  // namespace baton::serve
