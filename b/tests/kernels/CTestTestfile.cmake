# CMake generated Testfile for 
# Source directory: /tmp/me/merge/tests/kernels
# Build directory: /tmp/me/merge/b/tests/kernels
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[t_matmul]=] "/tmp/me/merge/b/tests/kernels/t_matmul")
set_tests_properties([=[t_matmul]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;2;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_kbench]=] "/tmp/me/merge/b/tests/kernels/t_kbench")
set_tests_properties([=[t_kbench]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;3;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_ops]=] "/tmp/me/merge/b/tests/kernels/t_ops")
set_tests_properties([=[t_ops]=] PROPERTIES  LABELS "threads" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;4;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_pool]=] "/tmp/me/merge/b/tests/kernels/t_pool")
set_tests_properties([=[t_pool]=] PROPERTIES  LABELS "threads" TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;5;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_math]=] "/tmp/me/merge/b/tests/kernels/t_math")
set_tests_properties([=[t_math]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;6;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_math_all]=] "/tmp/me/merge/b/tests/kernels/t_math" "1")
set_tests_properties([=[t_math_all]=] PROPERTIES  LABELS "long" TIMEOUT "3600" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/kernels/CMakeLists.txt;8;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_close]=] "/tmp/me/merge/b/tests/kernels/t_close")
set_tests_properties([=[t_close]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;10;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
add_test([=[t_refuse]=] "/tmp/me/merge/b/tests/kernels/t_refuse")
set_tests_properties([=[t_refuse]=] PROPERTIES  TIMEOUT "120" _BACKTRACE_TRIPLES "/tmp/me/merge/tests/CMakeLists.txt;15;add_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;11;shoal_test;/tmp/me/merge/tests/kernels/CMakeLists.txt;0;")
