# BATON_STATIC: programs that need nothing but the C library of the machine they run on (and, with CUDA, its driver and
# cuBLAS, which is loaded when it is first called). What ./dev gpu --pack builds.

add_link_options(-static-libstdc++ -static-libgcc)
find_library(BATON_YAML_A libyaml-cpp.a REQUIRED)
find_library(BATON_PCRE2_A libpcre2-8.a REQUIRED)
find_library(BATON_UTF8PROC_A libutf8proc.a REQUIRED)
find_library(BATON_XXHASH_A libxxhash.a REQUIRED)
find_library(BATON_SECCOMP_A libseccomp.a REQUIRED)

set_property(TARGET PkgConfig::PCRE2 PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_PCRE2_A})
set_property(TARGET PkgConfig::UTF8PROC PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_UTF8PROC_A})
set_property(TARGET PkgConfig::XXHASH PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_XXHASH_A})
set_property(TARGET PkgConfig::SECCOMP PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_SECCOMP_A})

# baton_replace(target archive): what links the imported library links the archive.
function(baton_replace target archive)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION_${configuration} ${archive})
  endforeach()
  set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION ${archive})
endfunction()

# baton_compiled(target source): the same with an archive made of one source.
function(baton_compiled target source)
  get_filename_component(name ${source} NAME_WE)
  add_library(baton_static_${name} STATIC ${source})
  target_include_directories(baton_static_${name} PRIVATE $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
  baton_replace(${target} ${CMAKE_CURRENT_BINARY_DIR}/libbaton_static_${name}.a)
  add_dependencies(${target} baton_static_${name})
endfunction()

baton_replace(yaml-cpp ${BATON_YAML_A})
baton_compiled(fmt::fmt cmake/static/fmt.cpp)
baton_compiled(hwy::hwy cmake/static/highway.cpp)

if(BATON_CUDA)
  find_package(CUDAToolkit REQUIRED)
  foreach(library cublas cublasLt)
    if(TARGET CUDA::${library})
      baton_replace(CUDA::${library} ${CMAKE_BINARY_DIR}/libbaton_lazy_cublas.a)
    endif()
  endforeach()
endif()

# Behind the layers: the library that loads cuBLAS, with the functions that the CUDA backend calls.
function(baton_lazy_cublas)
  set(source ${CMAKE_BINARY_DIR}/lazy_cublas.cpp)
  add_custom_command(OUTPUT ${source} DEPENDS baton_cuda ${PROJECT_SOURCE_DIR}/cmake/static/lazy_library.py
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/static/lazy_library.py ${source} --nm ${CMAKE_NM}
      --archive $<TARGET_FILE:baton_cuda>
      --library cublasLt=libcublasLt.so.${CUDAToolkit_VERSION_MAJOR} --library cublas=libcublas.so.${CUDAToolkit_VERSION_MAJOR}
    VERBATIM)
  add_library(baton_lazy_cublas STATIC ${source})
  set_target_properties(baton_lazy_cublas PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  foreach(library cublas cublasLt)
    if(TARGET CUDA::${library})
      add_dependencies(CUDA::${library} baton_lazy_cublas)
    endif()
  endforeach()
endfunction()
