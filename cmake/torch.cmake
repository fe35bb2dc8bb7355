# LibTorch, from a pip package of torch: LOCKSTEP_TORCH is its folder (.../site-packages/torch), by default that of the
# project's virtual environment. Both the CPU package and the CUDA package work; with the latter, set LOCKSTEP_CUDA_INCLUDE
# (the toolkit's headers, ';'-separated, NCCL's among them) and LOCKSTEP_CUDART (libcudart.so).
#
# Not find_package(Torch): its CUDA half wants a whole toolkit where the headers and one library are enough.
# Sanitizer trees hold torch-free code only: LibTorch itself is not instrumented.
file(GLOB lockstep_venv_torch ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
set(LOCKSTEP_TORCH "${lockstep_venv_torch}" CACHE PATH "Folder of the torch package")
set(LOCKSTEP_CUDA_INCLUDE "" CACHE STRING "Include folders of CUDA and NCCL; empty: build for CPU")
set(LOCKSTEP_CUDART "" CACHE FILEPATH "libcudart.so of the torch package's CUDA")

set(LOCKSTEP_TORCH_FOUND OFF)
if(LOCKSTEP_SANITIZE)
  return()
endif()
if(NOT EXISTS ${LOCKSTEP_TORCH}/lib/libtorch_cpu.so)
  message(STATUS "no LibTorch in '${LOCKSTEP_TORCH}': building the torch-free programs only")
  return()
endif()
set(LOCKSTEP_TORCH_FOUND ON)

add_library(lockstep_torch INTERFACE)
target_include_directories(lockstep_torch SYSTEM INTERFACE
  ${LOCKSTEP_TORCH}/include ${LOCKSTEP_TORCH}/include/torch/csrc/api/include)
# The package's c10d headers hide behind these; TorchConfig.cmake does not set them either.
target_compile_definitions(lockstep_torch INTERFACE USE_DISTRIBUTED USE_RPC)
target_link_libraries(lockstep_torch INTERFACE
  -Wl,--no-as-needed ${LOCKSTEP_TORCH}/lib/libtorch.so -Wl,--as-needed
  ${LOCKSTEP_TORCH}/lib/libtorch_cpu.so ${LOCKSTEP_TORCH}/lib/libc10.so)
target_link_options(lockstep_torch INTERFACE -Wl,--allow-shlib-undefined
  # DT_RPATH, not DT_RUNPATH: it goes before LD_LIBRARY_PATH, so LOCKSTEP_LIBTORCH is only the second place looked at.
  -Wl,--disable-new-dtags -Wl,-rpath,${LOCKSTEP_TORCH}/lib)
if(LOCKSTEP_CUDA_INCLUDE)
  target_include_directories(lockstep_torch SYSTEM INTERFACE ${LOCKSTEP_CUDA_INCLUDE})
  target_compile_definitions(lockstep_torch INTERFACE LOCKSTEP_CUDA USE_CUDA USE_C10D_NCCL)
  target_link_libraries(lockstep_torch INTERFACE -Wl,--no-as-needed ${LOCKSTEP_TORCH}/lib/libtorch_cuda.so
    ${LOCKSTEP_TORCH}/lib/libc10_cuda.so ${LOCKSTEP_CUDART} -Wl,--as-needed)
endif()

# One precompiled header for all code that uses torch: a file then takes 3 s instead of 20.
add_library(lockstep_torch_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
target_precompile_headers(lockstep_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/torch_pch.h)
target_compile_definitions(lockstep_torch_pch PUBLIC FMT_HEADER_ONLY SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
target_link_libraries(lockstep_torch_pch PRIVATE lockstep_torch)
