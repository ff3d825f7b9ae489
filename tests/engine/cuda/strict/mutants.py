# SPDX-License-Identifier: Apache-2.0
"""Mistakes seeded into the host code of the CUDA backend, each of which a named test must find.

    python3 tests/engine/cuda/strict/mutants.py [--only N,...] [--build DIR] [--jobs N]

tests/support/seeded_mistakes.py says how. It takes about ten minutes on two cores.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
import seeded_mistakes  # noqa: E402

MOVES = "transfers that run while kernels do break no rule in any order"
TIER = "a segment goes to host memory and returns bit for bit"
STAGED = "staging: what was given arrives, however late the copies are"
RESULTS = "a result is there while transfers are still in progress, after one wait"
STEPS = "decode steps, which may be replays, agree with steps that are not"
MODEL = "a model on the kernels agrees with the scalar oracle"
PRODUCTS = "products of any shape, alignment and bias meet the conditions of cuBLASLt"
FASTEST = "few rows run with the fastest algorithm, many with the library's first choice"
FAULTS = "every call that fails is an error that names it, or does no harm"
DEVICES = "an engine on the second device leaves the first alone, on whatever thread it is used"
LIMITS = "limits are measured on the device that is asked for"
KEPT = "vectors that a backend was told to keep are known by their address, until it need not"

# What goes wrong, the file, the text and what stands in its place, the test that finds it.
MUTANTS = [
    ("a transfer does not wait for the main stream", "device_runtime.cpp",
     "BATON_CUDA_CHECK(cudaStreamWaitEvent(stream, main_point_.get()));", ";", MOVES),
    ("the main stream's point is recorded on the wrong stream", "device_runtime.cpp",
     "BATON_CUDA_CHECK(cudaEventRecord(main_point_.get(), main_));",
     "BATON_CUDA_CHECK(cudaEventRecord(main_point_.get(), stream));", MOVES),
    ("an upload takes another block's wait for its own", "device_runtime.cpp",
     "return one.upload && one.memory == transfer.memory;", "return one.upload;", MOVES),
    ("a transfer does not wait for the one before it in the other direction", "device_runtime.cpp",
     "before != nullptr && before->upload != transfer.upload", "false && before != nullptr", MOVES),
    ("the main stream does not follow an upload", "device_runtime.cpp",
     "BATON_CUDA_CHECK(cudaStreamWaitEvent(main_, found->complete->get()));", ";", MOVES),
    ("memory is released on the main stream while a transfer uses it", "device_runtime.cpp",
     "if (newest == pending_.rend()) {", "if (true) {", MOVES),
    ("memory is released on a transfer's stream before the main stream is done with it", "device_runtime.cpp",
     "ignore(cudaStreamWaitEvent(last, main_point_.get()));", ";", MOVES),
    ("events of transfers in progress are used again", "device_runtime.cpp",
     "if (cudaEventQuery(one.complete->get()) == cudaSuccess) spare_", "spare_", MOVES),
    ("the event of a copy is made after the copy", "device_runtime.cpp",
     "if (spare_.empty()) spare_.push_back(std::make_unique<EventOwner>());\n  const cudaStream_t stream = "
     "stream_of(transfer.upload);",
     "const cudaStream_t stream = stream_of(transfer.upload);", FAULTS),
    ("a copy without an event outlives the call that failed", "device_runtime.cpp",
     "ignore(cudaStreamSynchronize(stream));\n    throw;", "throw;", FAULTS),
    ("a failure of a release is blamed on the next launch", "device_runtime.cpp",
     "ignore(cudaFreeAsync(memory, main_));", "cudaFreeAsync(memory, main_);", FAULTS),
    ("staging memory is written again before its copies ran", "staging.cpp",
     "runtime_.wait(segment_);", ";", STAGED),
    ("the end of a staging segment is not recorded", "staging.cpp", "runtime_.record(segment_);", ";", STAGED),
    ("the host reads before its copy ran", "staging.cpp",
     "wait_for_copies();\n    std::memcpy(host.data()", "std::memcpy(host.data()", MODEL),
    ("a result waits for the transfers in progress", "staging.cpp", "runtime_.wait_for_stream();",
     "runtime_.synchronize();", RESULTS),
    ("memory that grew is not released", "staging.cpp",
     "if (data_ != nullptr) runtime_.release(data_);  // freed", "// freed", MODEL),
    ("pinned memory is freed while copies read it", "staging.cpp",
     "runtime_.synchronize();\n  } catch (...) {  // NOLINT: a destructor\n", "} catch (...) {\n",
     "staging that ends waits for its copies"),
    ("pinned memory serves again before its transfer is complete", "staging.cpp",
     "wait_for(before);", ";",
     "pinned memory that is given back serves again, but not before its copies are made"),
    ("pinned memory is never freed", "staging.cpp",
     "for (const auto& [block, bytes] : blocks_) runtime_.release_pinned(block);", "", TIER),
    ("pieces of pinned memory that become one forget their transfers", "staging.cpp",
     "piece->second.last_upload = std::max(piece->second.last_upload, next->second.last_upload);", "",
     "pinned memory is divided into pieces, which become one again"),
    ("kept vectors are never released", "device_weights.cpp",
     "runtime_.release(data);\n}\n\nconst float*", "}\n\nconst float*", KEPT),
    ("memory is allocated on another stream than the one that uses it", "device_runtime.cpp",
     "cudaMallocAsync(&data, bytes, stream_.get())", "cudaMallocAsync(&data, bytes, capture_.get())", MODEL),
    ("the thread that releases has no device selected", "device_runtime.cpp",
     "ignore(cudaSetDevice(device_.index()));  // any thread releases", "", MOVES),
    ("launches go to the main stream while another is captured", "device_runtime.cpp",
     "return {capturing_ ? capture_.get() : stream_.get()};", "return {stream_.get()};", STEPS),
    ("the workspace of products is never released", "device_runtime.cpp", "release(workspace_);", "", MODEL),
    ("captured graphs are never destroyed", "device_runtime.cpp",
     "[](cudaGraph_t graph) { ignore(cudaGraphDestroy(graph)); }", "[](cudaGraph_t) {}", STEPS),
    ("waiting for the device leaves transfers in progress", "device_runtime.cpp",
     "wait_for_stream();\n    transfers_.synchronize();", "wait_for_stream();", TIER),
    ("times are taken with events that have none", "device_runtime.cpp",
     "std::make_unique<EventOwner>(cudaEventDefault)", "std::make_unique<EventOwner>()", MODEL),
    ("a failed allocation is blamed on nothing", "device_runtime.cpp",
     'check(code, "cudaMallocAsync", __FILE__, __LINE__);', "BATON_CUDA_CHECK(code);", FAULTS),
    ("a product has the strides of another operand", "products.cpp",
     "columns(p.c), columns(p.t), p.x_stride", "columns(p.c), columns(p.t), p.c", PRODUCTS),
    ("an algorithm serves operands of less alignment", "products.cpp",
     "aligned[1],\n                   aligned[2]};", "aligned[2],\n                   aligned[2]};", PRODUCTS),
    ("a product takes a way from a file that it does not have", "products.cpp",
     "known && plan.has(*known)", "known",
     "what was measured of a product is known to the next process, unless the file is wrong"),
    ("a product keeps the bias of the one before it", "products.cpp",
     "BATON_CUBLAS_CHECK(lt_, desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof(p.bias)));", ";",
     MODEL),
    ("products with a bias have no epilogue", "products.cpp",
     "set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);", "", PRODUCTS),
    ("an algorithm has less workspace than it was promised", "products.cpp",
     "&algorithm, workspace, kWorkspaceBytes,", "&algorithm, workspace, 0,", FASTEST),
    ("products run on the legacy stream", "products.cpp",
     "workspace, kWorkspaceBytes, static_cast<cudaStream_t>(stream.native)",
     "workspace, kWorkspaceBytes, nullptr", PRODUCTS),
    ("layouts are never destroyed", "products.cpp",
     "if (layout != nullptr) lt.layout_destroy(layout);", "", PRODUCTS),
    ("a capture that threw is never ended", "staging.cpp",
     "runtime_.end_capture();\n    throw;", "throw;", FAULTS),
    ("the limits of a device are measured on another", "products.cpp",
     "BATON_CUDA_CHECK(cudaSetDevice(device));", "BATON_CUDA_CHECK(cudaSetDevice(0));", LIMITS),
    ("launches do not ask for more than 48 KiB of shared memory", "../kernels/simt.cuh",
     "if (shared_bytes > kWithoutAsking) {", "if (false && shared_bytes > kWithoutAsking) {", "attention"),
    ("scratch memory does not grow", "staging.cpp", "if (bytes > bytes_) {", "if (data_ == nullptr) {", MODEL),
]


if __name__ == "__main__":
    seeded_mistakes.main(__doc__, "baton_test_strict", "engine/cuda/host", MUTANTS)
