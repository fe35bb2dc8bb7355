# CUDA for the torch package in ${lockstep_torch_dir}: headers and libcudart from the nvidia packages that pip installed beside
# it, and what they lack from a toolkit of the same CUDA version (CUDA_HOME, /usr/local/cuda) or from the system. Nothing
# is compiled for GPUs here, so no nvcc is needed. All other libraries are found by the run paths of torch's own.
get_filename_component(site ${lockstep_torch_dir} DIRECTORY)
get_filename_component(prefix ${site}/../../.. ABSOLUTE)

# "13.0", as torch was built.
set(LOCKSTEP_CUDA_VERSION "")
if(EXISTS ${lockstep_torch_dir}/version.py)
  file(STRINGS ${lockstep_torch_dir}/version.py line REGEX "^cuda:.*'[0-9.]+'")
  string(REGEX REPLACE ".*'([0-9.]+)'.*" "\\1" LOCKSTEP_CUDA_VERSION "${line}")
endif()
string(REGEX REPLACE "\\..*" "" major "${LOCKSTEP_CUDA_VERSION}")

# Folders with headers, the nearest first. Those of another CUDA than torch's are left out.
file(GLOB candidates ${site}/nvidia/cu${major}/include ${site}/nvidia/*/include ${site}/nvidia/*/include/cccl)
if(NOT DEFINED lockstep_toolkits)
  set(lockstep_toolkits ${prefix} ${prefix}/targets/x86_64-linux $ENV{CUDA_HOME} /usr/local/cuda-${LOCKSTEP_CUDA_VERSION}
    /usr/local/cuda /usr)
endif()
set(toolkits "")
set(others "")
foreach(toolkit ${lockstep_toolkits})
  set(found "")
  if(EXISTS ${toolkit}/include/cuda.h)
    file(STRINGS ${toolkit}/include/cuda.h line REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX REPLACE ".* ([0-9]+)[0-9][0-9][0-9]$" "\\1" found "${line}")
  endif()
  if(found AND major AND NOT found STREQUAL major)
    list(APPEND others "${toolkit} (CUDA ${found})")
  else()
    list(APPEND candidates ${toolkit}/include ${toolkit}/include/cccl)
    list(APPEND toolkits ${toolkit})
  endif()
endforeach()
list(REMOVE_DUPLICATES candidates)

# What torch's CUDA headers include, and the pip package each comes from (CUDA 12 names differ).
set(needed
  cuda_runtime_api.h  nvidia-cuda-runtime  nvidia-cuda-runtime-cu12
  crt/host_defines.h  nvidia-cuda-crt      nvidia-cuda-nvcc-cu12
  nv/target           nvidia-cuda-cccl     nvidia-cuda-cccl-cu12
  cublas_v2.h         nvidia-cublas        nvidia-cublas-cu12
  cusparse.h          nvidia-cusparse      nvidia-cusparse-cu12
  cusolverDn.h        nvidia-cusolver      nvidia-cusolver-cu12
  nccl.h              nvidia-nccl-cu13     nvidia-nccl-cu12)
set(missing "")
set(packages "")
set(includes "")
while(needed)
  list(POP_FRONT needed header package package12)
  set(folder "")
  foreach(candidate ${candidates})
    if(EXISTS ${candidate}/${header})
      set(folder ${candidate})
      break()
    endif()
  endforeach()
  if(major EQUAL 12)
    set(package ${package12})
  endif()
  if(NOT folder)
    list(APPEND missing ${header})
    list(APPEND packages ${package})
  elseif(NOT folder STREQUAL /usr/include)  # looked at anyway, and last
    list(APPEND includes ${folder})
  endif()
endwhile()
list(REMOVE_DUPLICATES includes)

set(cudart "")
foreach(folder ${site}/nvidia/cu${major}/lib ${site}/nvidia/cuda_runtime/lib ${toolkits})
  file(GLOB cudart ${folder}/libcudart.so.${major} ${folder}/lib64/libcudart.so.${major} ${folder}/lib/libcudart.so.${major})
  if(cudart)
    list(GET cudart 0 cudart)
    break()
  endif()
endforeach()
if(NOT cudart)
  list(APPEND missing libcudart.so.${major})
  list(APPEND packages nvidia-cuda-runtime)
  if(major EQUAL 12)
    list(TRANSFORM packages REPLACE "^nvidia-cuda-runtime$" nvidia-cuda-runtime-cu12)
  endif()
endif()

if(missing)
  # NCCL has version numbers of its own: those torch asks for.
  list(REMOVE_DUPLICATES packages)
  set(pins "")
  file(GLOB metadata ${site}/torch-*.dist-info/METADATA)
  foreach(package ${packages})
    set(pin "${package}")
    if(metadata)
      list(GET metadata 0 file)
      file(STRINGS ${file} line REGEX "^Requires-Dist: ${package}==")
      if(line)
        string(REGEX REPLACE "^Requires-Dist: ([^ ;]+).*" "\\1" pin "${line}")
      endif()
    endif()
    if(pin STREQUAL package AND package MATCHES "^nvidia-cuda-" AND LOCKSTEP_CUDA_VERSION)
      set(pin "'${package}==${LOCKSTEP_CUDA_VERSION}.*'")
    endif()
    list(APPEND pins ${pin})
  endforeach()
  string(REPLACE ";" " " pins "${pins}")
  string(REPLACE ";" ", " missing "${missing}")
  string(REPLACE ";" ", " others "${others}")
  set(python python3)
  if(EXISTS ${prefix}/bin/python)
    set(python ${prefix}/bin/python)
  endif()
  if(others)
    set(others "\n  not used, because torch is for CUDA ${LOCKSTEP_CUDA_VERSION}: ${others}")
  endif()
  message(FATAL_ERROR "the torch in ${lockstep_torch_dir} is for CUDA ${LOCKSTEP_CUDA_VERSION}, and this is missing: ${missing}\n"
    "  looked beside it in ${site}/nvidia, in CUDA_HOME and in /usr/local/cuda${others}\n"
    "  do: ${python} -m pip install --no-deps ${pins}\n"
    "  or: set CUDA_HOME to a CUDA ${major} toolkit, or build without CUDA: GPU=0\n")
endif()

set(LOCKSTEP_CUDA_FOUND ON)
message(STATUS "CUDA ${LOCKSTEP_CUDA_VERSION}: ${includes}; ${cudart}")
target_include_directories(lockstep_torch SYSTEM INTERFACE ${includes})
target_compile_definitions(lockstep_torch INTERFACE LOCKSTEP_CUDA USE_CUDA USE_C10D_NCCL)
target_link_libraries(lockstep_torch INTERFACE -Wl,--no-as-needed ${lockstep_torch_dir}/lib/libtorch_cuda.so
  ${lockstep_torch_dir}/lib/libc10_cuda.so ${cudart} -Wl,--as-needed)
