# What code on the torch package in ${lockstep_torch_dir} compiles and links with, added to the target lockstep_torch. Used
# by this tree (torch.cmake) and, installed, by projects outside it (lockstepConfig.cmake).
target_include_directories(lockstep_torch SYSTEM INTERFACE
  ${lockstep_torch_dir}/include ${lockstep_torch_dir}/include/torch/csrc/api/include)
# The package's c10d headers hide behind these; TorchConfig.cmake does not set them either.
target_compile_definitions(lockstep_torch INTERFACE USE_DISTRIBUTED USE_RPC)
target_link_libraries(lockstep_torch INTERFACE
  -Wl,--no-as-needed ${lockstep_torch_dir}/lib/libtorch.so -Wl,--as-needed
  ${lockstep_torch_dir}/lib/libtorch_cpu.so ${lockstep_torch_dir}/lib/libc10.so)
target_link_options(lockstep_torch INTERFACE -Wl,--allow-shlib-undefined
  # DT_RPATH, not DT_RUNPATH: it goes before LD_LIBRARY_PATH, so LOCKSTEP_LIBTORCH is only the second place looked at.
  -Wl,--disable-new-dtags -Wl,-rpath,${lockstep_torch_dir}/lib)
