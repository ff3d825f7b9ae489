// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace baton::cuda {
namespace {

// The library's version is that of the toolkit whose headers describe it.
#define BATON_TEXT(value) #value
#define BATON_TEXT_OF(value) BATON_TEXT(value)
constexpr const char* kLibrary = "libcublasLt.so." BATON_TEXT_OF(CUBLAS_VER_MAJOR);

/// Opens the first that can be opened; the reasons of all are in `reasons` when none can.
void* open_one_of(const std::vector<std::string>& files, std::string& reasons) {
  for (const std::string& file : files) {
    // It stays in memory: work of the library may run on after its last user here is gone.
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
    const char* reason = dlerror();
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", reason == nullptr ? file.c_str() : reason);
  }
  return nullptr;
}

template <class Function>
void find(void* library, Function& out, const char* name) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  if (out == nullptr) throw BackendError(fmt::format("device 'cuda': {} does not have function {}", kLibrary, name));
}

}  // namespace

std::vector<std::string> cublas_lt_files(const std::string& program, const char* environment) {
  namespace fs = std::filesystem;
  std::vector<std::string> files = {kLibrary};  // where the loader looks: the program's own paths, LD_LIBRARY_PATH, ...
  const auto add = [&](const fs::path& folder) {
    std::error_code failed;
    const fs::path file = folder / kLibrary;
    if (fs::exists(file, failed)) files.push_back(file.string());
  };
  const fs::path folder = fs::path(program).parent_path();
  add(folder);
  add(folder.parent_path() / "lib");
  if (environment != nullptr && *environment != 0) {  // what `pip install nvidia-cublas` brings
    std::error_code failed;
    for (const auto& python : fs::directory_iterator(fs::path(environment) / "lib", failed)) {
      const fs::path packages = python.path() / "site-packages" / "nvidia";
      add(packages / ("cu" BATON_TEXT_OF(CUBLAS_VER_MAJOR)) / "lib");
      add(packages / "cublas" / "lib");
    }
  }
  add("/usr/local/cuda/lib64");
  return files;
}

CublasLt::CublasLt() {
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  std::string reasons;
  library_ = open_one_of(cublas_lt_files(program, std::getenv("VIRTUAL_ENV")), reasons);
  if (library_ == nullptr) {
    throw BackendError(fmt::format(
        "device 'cuda': cannot open {} of the CUDA " BATON_TEXT_OF(
            CUBLAS_VER_MAJOR) " libraries: {}. Install the toolkit's cuBLAS, or, in a virtual environment that is "
                              "active, 'pip install nvidia-cublas'",
        kLibrary, reasons));
  }
  try {
    find(library_, version, "cublasLtGetVersion");
    find(library_, create, "cublasLtCreate");
    find(library_, destroy, "cublasLtDestroy");
    find(library_, status_string, "cublasLtGetStatusString");
    find(library_, matmul, "cublasLtMatmul");
    find(library_, desc_create, "cublasLtMatmulDescCreate");
    find(library_, desc_destroy, "cublasLtMatmulDescDestroy");
    find(library_, desc_set, "cublasLtMatmulDescSetAttribute");
    find(library_, layout_create, "cublasLtMatrixLayoutCreate");
    find(library_, layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(library_, preference_create, "cublasLtMatmulPreferenceCreate");
    find(library_, preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(library_, preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(library_, heuristic, "cublasLtMatmulAlgoGetHeuristic");
  } catch (...) {
    dlclose(library_);
    throw;
  }
}

CublasLt::~CublasLt() { dlclose(library_); }

}  // namespace baton::cuda
