// SPDX-License-Identifier: Apache-2.0
// The registry of reuse methods. Names are parsed where they enter (workflow files, command lines, the public
// interfaces); no other code names a method.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/reuse/method.h"

namespace baton {

/// All methods, in the order in which tables show them.
std::span<const Method* const> methods();
/// Those of the product alone.
std::span<const Method* const> product_methods();
/// Returns the method of a name, or null for an unknown name.
const Method* find_method(std::string_view name);

/// The method of a workflow file that names none.
const Method& default_method();

/// A method whose state gives the texts of prompts as samples (Method::observe), or null if there is none.
const Method* sampling_method();

/// A key of workflow files, and the methods that have it.
struct SharedKey {
  MethodKey key;  // as the first of them declares it
  std::vector<const Method*> methods;
};
/// The keys of these methods, each once, in the order of the methods.
std::vector<SharedKey> method_keys(std::span<const Method* const> of = methods());

/// Whether a key under `relay` is one of the laboratory's, also where the laboratory is missing. `name` is the key, or
/// the section that holds it.
bool is_laboratory_key(std::string_view name);

/// Adds the laboratory's methods behind the product's; workflow files may then have `relay.lab`. A program calls it
/// once at its start, before it reads a workflow or opens an engine, and while it has one thread
/// (register_lab_methods).
void register_laboratory(std::span<const Method* const> more);
bool has_laboratory();

}  // namespace baton
