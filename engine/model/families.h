// SPDX-License-Identifier: Apache-2.0
// What is told of the families that config.cpp and gguf_config.cpp read.
#pragma once

#include <baton/system_facts.h>

#include <string>
#include <vector>

namespace baton {

/// One for each family, in the order of its name. A test compares them with model_classes(), gguf_architectures() and
/// the goldens.
std::vector<ModelFamily> model_families();

/// The families as a table of Markdown, for docs/models.md.
std::string families_markdown();

}  // namespace baton
