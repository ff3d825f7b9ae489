// SPDX-License-Identifier: Apache-2.0
// The verbs of `baton-lab`: each function adds one to the command line. And the pictures that they share.
#pragma once

#include <string>

#include <baton/lab/profile.h>

#include "sdk/console/command_line.h"
#include "sdk/console/html.h"

namespace baton::inline v1::lab {
using namespace cli;

void add_bench(CommandLine& line);
void add_eval(CommandLine& line);
void add_load(CommandLine& line);
void add_perplexity(CommandLine& line);
void add_profile(CommandLine& line);
void add_learn(CommandLine& line);

/// The beginning of an SVG file of its own, up to its title at `left`; `grid`, `end` and `middle` are classes of lines
/// and texts. "</svg>\n" ends the file.
Markup begin_svg(double width, double height, double left, const std::string& title);

/// The profile of a model as a picture for a terminal: similarity and correlation over the layers, with l_s, l_d and
/// l_e marked; lines of at most `columns`. Dots of braille, or `ascii`.
std::string profile_plot(const ModelProfile& profile, int columns, bool ascii);

/// The same as an SVG file of its own, with the standard errors as bands.
Markup profile_svg(const ModelProfile& profile);

}  // namespace baton::inline v1::lab
