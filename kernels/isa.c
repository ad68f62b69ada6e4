/* SPDX-License-Identifier: MIT
 * isa.c: see isa.h and cpu.h. */
#include "kernels/isa.h"

#include "kernels/ops.h"

#include <string.h>

static const char *const names[] = {
    [KERN_ISA_AUTO] = "auto",
    [KERN_ISA_SCALAR] = "scalar",
    [KERN_ISA_AVX2] = "avx2",
    [KERN_ISA_NEON] = "neon",
};

const char *kern_isa_name(enum kern_isa isa)
{
    return (unsigned)isa < sizeof names / sizeof *names ? names[isa] : "?";
}

bool kern_isa_parse(const char *s, enum kern_isa *isa)
{
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(s, names[i])) {
            *isa = (enum kern_isa)i;
            return true;
        }
    }
    return false;
}

bool kern_isa_available(enum kern_isa isa)
{
    switch (isa) {
    case KERN_ISA_AUTO:
    case KERN_ISA_SCALAR:
        return true;
    case KERN_ISA_AVX2:
#ifdef KERN_HAVE_AVX2
        /* These also ask whether the system saves the wide registers. */
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
        return false;
#endif
    case KERN_ISA_NEON:
#ifdef KERN_HAVE_NEON
        return true;
#else
        return false;
#endif
    }
    return false;
}

int kern_isa_resolve(enum kern_isa want, enum kern_isa *isa)
{
    if (want == KERN_ISA_AUTO) {
        *isa = kern_isa_available(KERN_ISA_AVX2)   ? KERN_ISA_AVX2
               : kern_isa_available(KERN_ISA_NEON) ? KERN_ISA_NEON
                                                   : KERN_ISA_SCALAR;
        return 0;
    }
    if (!kern_isa_available(want)) {
        return KERN_ENOTSUP;
    }
    *isa = want;
    return 0;
}

const struct kern_ops *kern_ops_of(enum kern_isa isa)
{
    switch (isa) {
#ifdef KERN_HAVE_AVX2
    case KERN_ISA_AVX2:
        return &kern_ops_avx2;
#endif
#ifdef KERN_HAVE_NEON
    case KERN_ISA_NEON:
        return &kern_ops_neon;
#endif
    default:
        return &kern_ops_scalar;
    }
}
