// SPDX-License-Identifier: Apache-2.0
// The page at /: lists the workflows, runs one and shows its events. It is one file, made of page.html, page.js and
// what sdk/web has for all pages.
#pragma once

#include <string_view>

namespace baton::serve {

std::string_view page();

/// The page takes nothing from elsewhere, runs no script but its own, talks with its own server alone, and is no part
/// of another page.
std::string_view page_policy();

}  // namespace baton::serve
