// SPDX-License-Identifier: Apache-2.0
// The page at /: lists the workflows, runs one and shows its events. It is page.html, one file without a network.
#pragma once

#include <string_view>

namespace baton::serve {

std::string_view page();

/// Of the page: it takes nothing from elsewhere, talks with its own server alone, and is no part of another page.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace baton::serve
