/* SPDX-License-Identifier: MIT
 * fake.h: a GPU of a thread: it executes batches through the emulated kernels, late and at times
 * that nobody can foresee, and checks that the memory it uses is still there. */
#ifndef SHOAL_TESTS_SHADERS_FAKE_H
#define SHOAL_TESTS_SHADERS_FAKE_H

#include "shaders/gpu.h"

struct fake_opts {
    size_t limit;      /* 0 = 1 GiB */
    unsigned delay_us; /* the most before each launch, */
    unsigned seldom;   /* or before one in so many, by chance; 0: each */
    uint32_t seed;
    int sabotage;        /* a kernel whose result is falsified in one bit, or -1 */
    uint32_t in_buffer;  /* of this buffer's first word */
    uint64_t fail_batch; /* fails instead of running; 0 = none */
    const char *system;  /* NULL: "test 1" */
    const char *text;    /* what the kernels are "compiled" from; NULL: one text */
    bool no_archive;     /* build writes nothing, */
    bool refuses;        /* load takes nothing, */
    bool half;           /* build ends in the middle of the file and does not notice */
    uint32_t salt;       /* no two archives are the same: what build adds to this one */
    int wrong_code;      /* who loads what build writes has this kernel sabotaged; 0: none */
};

/* Calls of build and of load to all fakes of this process, since it began. */
unsigned fake_builds(void);
unsigned fake_loads(void);

/* NULL without memory or threads. */
struct sh_device *fake_open(const struct fake_opts *o);
/* Launches that found their memory freed, or freed memory that was in use: must be 0. */
unsigned fake_faults(const struct sh_device *d);
/* Buffers that live now. Ask before close. */
unsigned fake_buffers(struct sh_device *d);
uint64_t fake_launches(struct sh_device *d);

#endif
