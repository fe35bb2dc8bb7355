# LibTorch, from a pip package of torch: LOCKSTEP_TORCH names its folder (.../site-packages/torch), else it is that of the
# virtual environment LOCKSTEP_VENV. The CPU package and the CUDA package work; the latter is recognised by its
# libtorch_cuda.so, and cmake/cuda.cmake finds CUDA's headers beside it.
#
# Not find_package(Torch): its CUDA half wants a whole toolkit where the headers and one library are enough.
# Sanitizer trees hold torch-free code only: LibTorch itself is not instrumented.
set(LOCKSTEP_TORCH "" CACHE PATH "Folder of a torch package; empty: that of LOCKSTEP_VENV")
set(LOCKSTEP_VENV .venv CACHE STRING "Virtual environment of the project to take torch from")
set(LOCKSTEP_GPU auto CACHE STRING "Build for NVIDIA GPUs: 1, 0, or auto: if the torch package is one for CUDA")

set(LOCKSTEP_TORCH_FOUND OFF)
set(LOCKSTEP_CUDA_FOUND OFF)
if(LOCKSTEP_SANITIZE)
  return()
endif()
if(LOCKSTEP_TORCH)
  set(lockstep_torch_dir ${LOCKSTEP_TORCH})
  if(NOT EXISTS ${lockstep_torch_dir}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "TORCH: no torch package in ${LOCKSTEP_TORCH}: expected lib/libtorch_cpu.so there.\n"
      "  do: name the folder that this prints: python -c 'import torch; print(torch.__path__[0])'")
  endif()
else()
  file(GLOB lockstep_torch_dir ${CMAKE_SOURCE_DIR}/${LOCKSTEP_VENV}/lib/python3*/site-packages/torch)
endif()
if(NOT EXISTS ${lockstep_torch_dir}/lib/libtorch_cpu.so)
  message(STATUS "no LibTorch in '${lockstep_torch_dir}': building the torch-free programs only")
  return()
endif()
set(LOCKSTEP_TORCH_FOUND ON)

add_library(lockstep_torch INTERFACE)
include(torch_target)

if(NOT LOCKSTEP_GPU MATCHES "^(auto|0|1)$")
  message(FATAL_ERROR "LOCKSTEP_GPU: expected auto, 0 or 1, found '${LOCKSTEP_GPU}'")
endif()
if(EXISTS ${lockstep_torch_dir}/lib/libtorch_cuda.so)
  if(NOT LOCKSTEP_GPU STREQUAL 0)
    include(cuda)
  endif()
elseif(LOCKSTEP_GPU STREQUAL 1)
  message(FATAL_ERROR "GPU=1: the torch package in ${lockstep_torch_dir} is one for CPUs: it has no lib/libtorch_cuda.so.\n"
    "  do: name a torch for CUDA with TORCH=, or build with GPU=0")
endif()

# One precompiled header for all code that uses torch: a file then takes 3 s instead of 20.
add_library(lockstep_torch_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
target_precompile_headers(lockstep_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/torch_pch.h)
lockstep_pch_cache(lockstep_torch_pch)
target_compile_definitions(lockstep_torch_pch PUBLIC FMT_HEADER_ONLY SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
target_link_libraries(lockstep_torch_pch PRIVATE lockstep_torch)
