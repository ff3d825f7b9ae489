#include "engine/backend/make_backend.h"

#include <fmt/format.h>

#include <charconv>

#include "engine/cpu/cpu.h"
#include "engine/cuda/cuda.h"

namespace baton {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  const std::string_view device = options.device;
  if (device == "cpu") return make_cpu_backend(options.threads);
  if (device == "auto") return cuda_available() ? make_cuda_backend(0) : make_cpu_backend(options.threads);
  if (device == "cuda") return make_cuda_backend(0);
  if (device.starts_with("cuda:")) {
    const std::string_view digits = device.substr(5);
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0) return make_cuda_backend(index);
  }
  throw BackendError(fmt::format("device '{}' is not known; expected auto, cpu, cuda or cuda:N", device));
}

}  // namespace baton
