# SPDX-License-Identifier: MIT
# arm64.cmake: builds for Linux arm64 on a Linux x86-64 machine; tests run under qemu-user.
# Needs gcc-aarch64-linux-gnu, qemu-user and the :arm64 -dev packages (`./bootstrap test --all`
# installs them). "-cpu max" so that every instruction the NEON kernels may pick is there.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-cpu;max")
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
