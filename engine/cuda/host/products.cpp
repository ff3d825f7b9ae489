// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/products.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <dlfcn.h>
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <vector>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/json_fields.h"
#include "engine/cuda/host/check.h"
#include "engine/cuda/host/cuda.h"
#include "engine/cuda/kernels/kernels.h"

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

namespace {

// The number of prefill lengths is not bounded: when this many plans are kept, all are dropped.
constexpr std::size_t kMaxPlans = 4096;

// Ways to compute a product: the library's algorithms in its order, then our own kernels. Files hold these numbers.
constexpr int kMaxAlgorithms = 8;
constexpr int kFewRowsWay = kMaxAlgorithms, kFewRowsTensorWay = kMaxAlgorithms + 1, kMaxWays = kMaxAlgorithms + 2;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Measures the time of work on a stream, with the device's cache full of other data.
class ProductClock {
 public:
  explicit ProductClock(Stream stream) : stream_(static_cast<cudaStream_t>(stream.native)) {
    BATON_CUDA_CHECK(cudaEventCreate(&begin_));
    if (cudaEventCreate(&end_) != cudaSuccess || cudaMallocAsync(&other_, kOtherBytes, stream_) != cudaSuccess) {
      cudaGetLastError();
      other_ = nullptr;  // memory is short: measure without emptying the cache
    }
  }
  ~ProductClock() {
    if (other_ != nullptr) ignore(cudaFreeAsync(other_, stream_));
    if (end_ != nullptr) ignore(cudaEventDestroy(end_));
    ignore(cudaEventDestroy(begin_));
  }
  ProductClock(const ProductClock&) = delete;
  ProductClock& operator=(const ProductClock&) = delete;

  /// Returns the minimum of three runs, after one warm-up run.
  double milliseconds(const std::function<void()>& work) {
    double least = kNever;
    for (int repeat = 0; repeat < 4; ++repeat) {
      if (other_ != nullptr) BATON_CUDA_CHECK(cudaMemsetAsync(other_, repeat, kOtherBytes, stream_));
      BATON_CUDA_CHECK(cudaEventRecord(begin_, stream_));
      work();
      BATON_CUDA_CHECK(cudaEventRecord(end_, stream_));
      BATON_CUDA_CHECK(cudaEventSynchronize(end_));
      float time = 0.0f;
      BATON_CUDA_CHECK(cudaEventElapsedTime(&time, begin_, end_));
      if (repeat > 0) least = std::min(least, static_cast<double>(time));
    }
    return least;
  }

 private:
  static constexpr std::size_t kOtherBytes = std::size_t{256} << 20;  // more than the cache of any device
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  void* other_ = nullptr;
};

/// Returns the largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256u;
  return 1u << std::countr_zero(address);
}

}  // namespace

// The library's matrices are column-major: from row-major W [N, C] and x [T, C] it computes out^T [N, T] = (W^T)^T x^T.
struct Products::Plan {
  explicit Plan(const CublasLt& lt_in) : lt(lt_in) {}
  ~Plan() {
    for (const cublasLtMatrixLayout_t layout : {w, x, out}) {
      if (layout != nullptr) lt.layout_destroy(layout);
    }
    if (desc != nullptr) lt.desc_destroy(desc);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CublasLt& lt;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, out = nullptr;
  bool has(int one) const { return one >= kMaxAlgorithms ? ours : one < static_cast<int>(algorithms.size()); }

  std::vector<cublasLtMatmulAlgo_t> algorithms;  // in the library's order
  bool ours = false;                             // our own kernels can compute it
  std::string name;                              // its key as a text
  int way = 0;
  bool chosen = false;  // the way is the fastest of those that it has
};

Products::Products() { BATON_CUBLAS_CHECK(lt_, create(&handle_)); }

Products::~Products() {
  plans_.clear();
  lt_.destroy(handle_);
}

Products::Plan& Products::plan_for(const Product& p) {
  const std::array<std::uint32_t, 3> aligned = {alignment_of(p.w), alignment_of(p.x), alignment_of(p.out)};
  const Key key = {p.t,
                   p.n,
                   p.c,
                   p.out_stride,
                   p.x_stride,
                   p.w_stride,
                   p.dtype == DType::bf16,
                   p.out_dtype == DType::bf16,
                   p.bias != nullptr,
                   aligned[0],
                   aligned[1],
                   aligned[2]};
  if (const auto known = plans_.find(key); known != plans_.end()) return *known->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();

  auto plan = std::make_unique<Plan>(lt_);
  plan->name = fmt::format("{}", fmt::join(key, " "));
  plan->ours = takes_few_rows(p);
  const auto type_of = [](DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; };
  const cudaDataType_t type = type_of(p.dtype);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    BATON_CUBLAS_CHECK(lt_, desc_set(plan->desc, attribute, &value, sizeof(value)));
  };
  BATON_CUBLAS_CHECK(lt_, desc_create(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const auto columns = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  BATON_CUBLAS_CHECK(lt_, layout_create(&plan->w, type, columns(p.c), columns(p.n), p.w_stride));
  BATON_CUBLAS_CHECK(lt_, layout_create(&plan->x, type, columns(p.c), columns(p.t), p.x_stride));
  BATON_CUBLAS_CHECK(lt_, layout_create(&plan->out, type_of(p.out_dtype), columns(p.n), columns(p.t), p.out_stride));

  cublasLtMatmulPreference_t made = nullptr;
  BATON_CUBLAS_CHECK(lt_, preference_create(&made));
  const auto destroy = [this](cublasLtMatmulPreference_t preference) { lt_.preference_destroy(preference); };
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(destroy)> preference(made, destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    BATON_CUBLAS_CHECK(lt_, preference_set(preference.get(), attribute, &value, sizeof(value)));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
  std::array<cublasLtMatmulHeuristicResult_t, kMaxAlgorithms> offered{};
  int found = 0;
  const int wanted = p.t <= kFewRows ? kMaxAlgorithms : 1;
  const cublasStatus_t status = lt_.heuristic(handle_, plan->desc, plan->w, plan->x, plan->out, plan->out,
                                              preference.get(), wanted, offered.data(), &found);
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; ++i) {
    if (offered[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      plan->algorithms.push_back(offered[static_cast<std::size_t>(i)].algo);
  }
  if (plan->algorithms.empty()) {
    throw BackendError(fmt::format("cuBLASLt: no algorithm for [{}, {}] times [{}, {}] in {}: {}", p.t, p.c, p.n, p.c,
                                   name_of(p.dtype), lt_.status_string(status)));
  }
  return *(plans_[key] = std::move(plan));
}

void Products::run(const Product& p, const Plan& plan, int way, void* workspace, Stream stream) {
  switch (way) {
    case kFewRowsWay:
      return launch_few_rows(stream, p);
    case kFewRowsTensorWay:
      return launch_few_rows_tensor(stream, p);
    default:
      return run_algorithm(p, plan, plan.algorithms.at(static_cast<std::size_t>(way)), workspace, stream);
  }
}

void Products::run_algorithm(const Product& p, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                             Stream stream) {
  if (p.bias != nullptr) {
    BATON_CUBLAS_CHECK(lt_, desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof(p.bias)));
  }
  const float one = 1.0f, zero = 0.0f;
  BATON_CUBLAS_CHECK(lt_,
                     matmul(handle_, plan.desc, &one, p.w, plan.w, p.x, plan.x, &zero, p.out, plan.out, p.out, plan.out,
                            &algorithm, workspace, kWorkspaceBytes, static_cast<cudaStream_t>(stream.native)));
}

void Products::remember(const std::filesystem::path& folder, const std::string& machine) {
  measured_ = MeasuredProducts(folder, fmt::format("{}, cuBLASLt {}", machine, lt_.version()), kMaxWays);
}

void Products::multiply(const Product& p, void* workspace, Stream stream, bool may_measure) {
  Plan& plan = plan_for(p);
  if (p.t <= kFewRows && !plan.chosen) choose(p, plan, workspace, stream, may_measure);
  run(p, plan, plan.way, workspace, stream);
}

void Products::choose(const Product& p, Plan& plan, void* workspace, Stream stream, bool may_measure) {
  if (const auto known = measured_.find(plan.name); known && plan.has(*known)) {
    plan.way = *known;
    plan.chosen = true;
  } else if (may_measure) {
    plan.chosen = true;
    try {
      plan.way = measure(p, plan, workspace, stream);
      measured_.add(plan.name, plan.way);
    } catch (const BackendError&) {  // it stays the library's first choice
    }
  }
}

/// Returns the fastest of the ways to compute the product on its actual operands. The cache is emptied before each run,
/// because in decoding a weight is never in the cache.
int Products::measure(const Product& p, const Plan& plan, void* workspace, Stream stream) {
  ProductClock clock(stream);
  int fastest = 0;
  double least = kNever;
  for (int way = 0; way < kMaxWays; ++way) {
    if (!plan.has(way)) continue;
    try {
      const double time = clock.milliseconds([&] { run(p, plan, way, workspace, stream); });
      if (time < least) fastest = way;
      least = std::min(least, time);
    } catch (const BackendError&) {  // the way does not work on this device
    }
  }
  return fastest;
}

namespace {

// Files of another format are ignored. It changes also when a kernel for products of few rows does.
constexpr int kFormat = 1;

constexpr std::size_t kMaxProducts = 4096;  // a model has five shapes or so, each for one to eight rows
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 20;

}  // namespace

MeasuredProducts::MeasuredProducts(const std::filesystem::path& folder, std::string machine, int max_ways)
    : machine_(std::move(machine)) {
  if (folder.empty()) return;
  file_ = folder / fmt::format("{:016x}.json", hash_bytes(machine_.data(), machine_.size()));
  std::error_code failed;
  if (!std::filesystem::exists(file_, failed)) return;
  try {
    read(max_ways);
  } catch (const std::exception&) {
    fastest_.clear();
  }
}

void MeasuredProducts::read(int max_ways) {
  const std::string origin = file_.string();
  const JsonDocument document = parse_json(InputFile(file_).text(kMaxFileBytes), origin,
                                           {.max_depth = 2, .max_values = kMaxProducts + 4, .max_bytes = 8 << 20});
  const JsonFields fields(*document, origin);
  fields.integer("format", kFormat, kFormat);
  if (fields.text_or("machine", "") != machine_) fields.fail("machine", "expected this machine");
  const Json* all = fields.find("fastest");
  if (all == nullptr) fields.fail("fastest", "expected an object");
  const JsonFields ways(*all, origin, "fastest.");
  for (const auto& [product, way] : all->items()) fastest_[product] = ways.integer(product, 0, max_ways - 1);
}

std::optional<int> MeasuredProducts::find(const std::string& product) const {
  const auto found = fastest_.find(product);
  return found == fastest_.end() ? std::nullopt : std::optional(found->second);
}

void MeasuredProducts::add(const std::string& product, int way) {
  if (fastest_.size() >= kMaxProducts) fastest_.clear();
  fastest_[product] = way;
  if (file_.empty()) return;
  try {
    write_whole(file_, json_text(Json{{"format", kFormat}, {"machine", machine_}, {"fastest", fastest_}}),
                Links::replace);
  } catch (const std::filesystem::filesystem_error&) {  // a full disk, a folder that is read-only
  }
}

}  // namespace baton::cuda

namespace baton {

// The measured peak rates of a device: cuBLASLt's product of two large bf16 matrices, and a copy within its memory.

namespace {

constexpr int kSide = 8192;  // rows and columns of the matrices

/// Owns device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { BATON_CUDA_CHECK(cudaMalloc(&data_, bytes)); }
  ~Memory() { cuda::ignore(cudaFree(data_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { BATON_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cuda::ignore(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { BATON_CUDA_CHECK(cudaEventRecord(event_, nullptr)); }
  double seconds_since(const Event& before) const {
    BATON_CUDA_CHECK(cudaEventSynchronize(event_));
    float ms = 0;
    BATON_CUDA_CHECK(cudaEventElapsedTime(&ms, before.event_, event_));
    return ms / 1000.0;
  }

 private:
  cudaEvent_t event_{};
};

/// Returns the median of 15 runs, after two warm-up runs.
template <class Run>
double median_seconds(const Run& run) {
  constexpr int kRuns = 15;
  Event begin, end;
  std::vector<double> times;
  for (int i = -2; i < kRuns; ++i) {
    begin.record();
    run();
    end.record();
    const double seconds = end.seconds_since(begin);
    if (i >= 0) times.push_back(seconds);
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

double copy_gbs() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const Memory from(kBytes), to(kBytes);
  BATON_CUDA_CHECK(cudaMemset(from.get(), 1, kBytes));
  const double seconds = median_seconds(
      [&] { BATON_CUDA_CHECK(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, nullptr)); });
  return 2.0 * static_cast<double>(kBytes) / seconds / 1e9;
}

/// Returns bf16 numbers of either sign, 0.5 to 2 in magnitude. With zeros the device draws less power, and is faster
/// than with real weights.
std::vector<std::uint16_t> random_numbers() {
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(kSide) * kSide);
  std::uint64_t state = 1;
  for (std::uint16_t& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<std::uint16_t>(((state >> 40) & 0x80ffu) | 0x3f00u);
  }
  return numbers;
}

/// Owns the descriptors of a product.
struct MemoryPlan {
  explicit MemoryPlan(const cuda::CublasLt& library) : lt(library) {
    BATON_CUBLAS_CHECK(lt, create(&handle));
    BATON_CUBLAS_CHECK(lt, desc_create(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BATON_CUBLAS_CHECK(lt, layout_create(&square, CUDA_R_16BF, kSide, kSide, kSide));
    BATON_CUBLAS_CHECK(lt, preference_create(&preference));
  }
  ~MemoryPlan() {
    if (preference != nullptr) lt.preference_destroy(preference);
    if (square != nullptr) lt.layout_destroy(square);
    if (product != nullptr) lt.desc_destroy(product);
    if (handle != nullptr) lt.destroy(handle);
  }
  MemoryPlan(const MemoryPlan&) = delete;
  MemoryPlan& operator=(const MemoryPlan&) = delete;

  const cuda::CublasLt& lt;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t square = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

double gemm_gflops() {
  constexpr std::size_t kWorkspace = std::size_t{64} << 20;
  const auto numbers = random_numbers();
  const std::size_t bytes = numbers.size() * sizeof(std::uint16_t);
  const Memory a(bytes), b(bytes), out(bytes), workspace(kWorkspace);
  BATON_CUDA_CHECK(cudaMemcpy(a.get(), numbers.data(), bytes, cudaMemcpyHostToDevice));
  BATON_CUDA_CHECK(cudaMemcpy(b.get(), numbers.data(), bytes, cudaMemcpyHostToDevice));

  const cuda::CublasLt lt;
  const MemoryPlan plan(lt);
  const cublasOperation_t transposed = CUBLAS_OP_T;  // like weights [N, C] in the model
  BATON_CUBLAS_CHECK(lt, desc_set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  BATON_CUBLAS_CHECK(
      lt, preference_set(plan.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  BATON_CUBLAS_CHECK(lt, heuristic(plan.handle, plan.product, plan.square, plan.square, plan.square, plan.square,
                                   plan.preference, 1, &found, &count));
  if (count == 0) throw BackendError("limits: cuBLASLt has no bf16 algorithm for this device");
  const float one = 1.0f, zero = 0.0f;
  const double seconds = median_seconds([&] {
    BATON_CUBLAS_CHECK(
        lt, matmul(plan.handle, plan.product, &one, a.get(), plan.square, b.get(), plan.square, &zero, out.get(),
                   plan.square, out.get(), plan.square, &found.algo, workspace.get(), kWorkspace, nullptr));
  });
  return 2.0 * kSide * kSide * kSide / seconds / 1e9;
}

}  // namespace

MachineLimits measure_cuda_limits(int device) {
  BATON_CUDA_CHECK(cudaSetDevice(device));
  return {gemm_gflops(), copy_gbs(), "bf16 by cuBLAS"};
}

}  // namespace baton
