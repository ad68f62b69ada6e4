/* SPDX-License-Identifier: MIT
 * arith.c: what computes, by the command line's options and in its words. */
#include "node/cli/plat.h"
#include "node/cli/session.h"

#include <stdio.h>
#include <sys/stat.h>

/* This very build: what a GPU was tested with. Installing the same version anew tests it anew,
 * which costs a second. */
static void name_program(const struct cli *c, char *out, size_t n)
{
    struct stat sb = {0};
    (void)stat(c->exe, &sb);
    snprintf(out, n, "shoal %s, numerics %d, %lld bytes of %lld", SHOAL_VERSION,
             SHOAL_NUMERICS_VERSION, (long long)sb.st_size, (long long)sb.st_mtime);
}

int cli_compute_open(const struct cli *c, const struct compute_opts *k, const char *home,
                     void (*say)(void *ctx, const char *line), void *ctx, struct compute **out,
                     struct err *e)
{
    char program[160];
    struct buf place;
    struct err none;
    buf_init(&place, 4096);
    if (!home && !plat_home(&place, &none)) { /* without one, the self-test is made each time */
        home = place.p;
    }
    name_program(c, program, sizeof program);
    struct compute_setup o = {.choice = (enum compute_choice)k->backend.v,
                              .cpu = {.isa = k->isa.set ? (enum kern_isa)k->isa.v : KERN_ISA_AUTO,
                                      .threads = (unsigned)k->threads.v,
                                      .flush_subnormals = k->flush_subnormals},
                              .folder = home,
                              .program = program,
                              .say = say,
                              .say_ctx = ctx};
    int r = compute_open(&o, out, e);
    buf_free(&place);
    return r;
}

json_t *cli_compute_json(const struct compute *c)
{
    struct compute_report r;
    char words[600];
    compute_report(c, &r);
    cli_compute_words(c, words, sizeof words);
    return json_pack("{s:s, s:s, s:b, s:b, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:s}", "backend",
                     r.name, "cpu", r.cpu, "gpu", r.gpu && !r.lost, "lost", r.lost, "why_not",
                     r.why, "kernels_on_cpu", r.on_cpu, "kernels_kept", r.kept_code, "gpu_limit",
                     (json_int_t)r.limit, "gpu_bytes", (json_int_t)r.allocated, "gpu_batches",
                     (json_int_t)r.batches, "cpu_commands", (json_int_t)r.cpu_commands, "words",
                     words);
}

void cli_compute_words(const struct compute *c, char *out, size_t n)
{
    struct compute_report r;
    char a[CLI_NUM];
    compute_report(c, &r);
    if (!r.gpu) {
        snprintf(out, n, "%s (no GPU: %s)", r.name, r.why);
    } else if (r.lost) {
        snprintf(out, n, "%s, since %s failed; the next start tries it again", r.cpu, r.name);
    } else {
        snprintf(out, n, "%s, which may use %s%s%s", r.name, cli_bytes(r.limit, a),
                 r.on_cpu[0] ? "; on the CPU, since their bits differ there: " : "", r.on_cpu);
    }
}
