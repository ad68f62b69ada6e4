/* SPDX-License-Identifier: MIT
 * configs.c: kt_open for tests/kernels/t_ops.c that sets the shaders beside the scalar reference.
 */
#include "kernels/kt.h"

#include "tests/shaders/emu_backend.h"

size_t kt_open(struct kt_config c[KT_CONFIGS])
{
    static const struct emu_opts emus[] = {
        {.reverse = false},
        {.reverse = true, .plan = {.max_scores = 100}},
        {.flush = true},
        {.reverse = true, .flush = true, .plan = {.plain = true}},
    };
    struct kern_cpu_opts o = {.isa = KERN_ISA_SCALAR, .threads = 1};
    c[0] = (struct kt_config){.isa = KERN_ISA_SCALAR, .threads = 1};
    assert_int_equal(kern_cpu_open(&o, &c[0].b), 0);
    size_t n = 1;
    for (size_t i = 0; emu_usable() && i < sizeof emus / sizeof emus[0]; i++, n++) {
        c[n] = (struct kt_config){.threads = 1, .flush = emus[i].flush, .b = emu_open(&emus[i])};
        assert_non_null(c[n].b);
    }
    for (size_t i = 0; i < n; i++) {
        c[i].arena = c[i].b->alloc(c[i].b, KT_ARENA);
        assert_non_null(c[i].arena);
    }
    return n;
}
