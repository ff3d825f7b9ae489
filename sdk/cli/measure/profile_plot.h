// SPDX-License-Identifier: Apache-2.0
// The profile of a model as a picture: for a terminal, and as SVG.
#pragma once

#include <string>

#include <baton/profile.h>

#include "sdk/cli/console/html.h"

namespace baton::cli {

/// Similarity and correlation over the layers, with l_s, l_d and l_e marked; lines of at most `columns`. Dots of
/// braille, or `ascii`.
std::string profile_plot(const ModelProfile& profile, int columns, bool ascii);

/// The same as an SVG file of its own, with the standard errors as bands.
Markup profile_svg(const ModelProfile& profile);

}  // namespace baton::cli
