// SPDX-License-Identifier: Apache-2.0
// What this machine has: devices, the models that a bare name finds, and what confines code that a tool runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <baton/system_facts.h>

namespace baton::inline v1 {

/// A device, whether or not it can be used.
struct DeviceInfo {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // "Intel Xeon ..., AVX-512, 2 threads"
  std::string problem;      // why it cannot be used, or empty
};

/// The CPU, and the first CUDA device or why it cannot be used.
std::vector<DeviceInfo> devices();

/// A part of a device's self-test.
struct DeviceCheck {
  std::string name;         // "attention, heads of 64"
  std::string problem;      // what went wrong, or empty
  double milliseconds = 0;  // time on the device and on the CPU together
};

/// Tests a device ("cuda", "cuda:1", "cpu") in seconds: its copies, operations, choice of tokens and repeated steps
/// give what the CPU's do, and the model nano the same tokens. Calls on_check on the calling thread after each part; a
/// part that fails does not end the test. Throws Error when the device cannot be used at all.
void check_device(const std::string& device, const std::function<void(const DeviceCheck&)>& on_check);

/// A model that a name finds. Counts that its configuration does not give are 0.
struct ModelInfo {
  std::string name;
  std::filesystem::path path;
  std::string architecture;
  int layers = 0;
  int context = 0;
  std::int64_t bytes = 0;  // size of the weights' files
  std::string problem;     // why it cannot be used, as far as can be told from its configuration, or empty
};

/// Every model in the search path, the first of each name, then those of the cache of the Hugging Face hub that can be
/// used, named "hf:org/name" or "hf:org/name:FILE".
std::vector<ModelInfo> models();

/// The families that can be run, in the order of their names.
std::vector<ModelFamily> families();

/// The folders in which bare names are looked for, in order.
std::vector<std::filesystem::path> model_search_path();

/// The folder or the file of a model: a path, from the current folder, a bare name, or a published model that was
/// pulled ("hf:org/name", "hf:org/name:Q4_K_M", a URL). No network is used. Throws ResourceError, whose message lists
/// the folders that were searched, or names the command that pulls the model.
std::filesystem::path find_model(const std::string& model);

/// The file of a workflow: a path as it is, or, where no such file is, a bare name ("math_team") of one that is
/// installed with the library. What is not found is returned as it is; Workflow::load, which looks here too, says so.
std::filesystem::path find_workflow(const std::filesystem::path& file);

/// The names of the workflows that are installed with the library, in alphabetical order.
std::vector<std::string> workflows();

/// The layers of the sandbox of the `python` tool, and which of them hold on this machine. Starts a process to try
/// them. SECURITY.md says what the tool promises with which layers. Throws std::runtime_error when the sandbox cannot
/// be made.
std::vector<IsolationFact> isolation();

}  // namespace baton::inline v1
