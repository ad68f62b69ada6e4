/* SPDX-License-Identifier: MIT
 * spine.c: see spine.h. */
#include "node/cli/spine.h"

#include "kernels/pack.h"
#include "node/cli/plat.h"
#include "proto/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLE ((size_t)32 << 20) /* bytes of weights that are packed and unpacked */
#define DISK_SECONDS 1.0
#define WORTH 0.95 /* of the time; below it packing is worth it */
#define THREADS_MAX 8
#define LOOK_US 20000

const char *const cli_spine_names[] = {"auto", "bf16", "packed", NULL};

/* ---- deciding ---- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

bool spine_decide(const struct spine_facts *f, char why[STORE_FORMS_NOTE])
{
    char a[CLI_NUM], b[CLI_NUM], d[CLI_NUM], u[CLI_NUM];
    if (f->bytes <= f->ram) {
        snprintf(why, STORE_FORMS_NOTE, "bf16: all of it (%s) fits into memory as it is (%s)",
                 cli_bytes((uint64_t)f->bytes, a), cli_bytes((uint64_t)f->ram, b));
        return false;
    }
    double plain, packed, left = larger(f->bytes - f->ram, 0);
    double left_packed = larger(f->ratio * f->bytes - f->ram, 0);
    plan_spine(f, &plain, &packed);
    bool yes = packed < WORTH * plain;
    snprintf(why, STORE_FORMS_NOTE,
             "%s: for a token %.3g s packed and %.3g s as it is: %s and %s from the disk at %s/s, "
             "unpacked at %s/s by each of %.0f cores",
             yes ? "packed" : "bf16", packed, plain, cli_bytes((uint64_t)left_packed, a),
             cli_bytes((uint64_t)left, b), cli_bytes((uint64_t)f->disk, d),
             cli_bytes((uint64_t)f->unpack, u), f->cores);
    return yes;
}

/* ---- measuring ---- */

static enum kern_isa best(void)
{
    return kern_isa_available(KERN_ISA_AVX2)   ? KERN_ISA_AVX2
           : kern_isa_available(KERN_ISA_NEON) ? KERN_ISA_NEON
                                               : KERN_ISA_SCALAR;
}

static uint64_t read_all(const uint64_t *v, size_t n)
{
    uint64_t s[4] = {0};
    for (size_t i = 0; i + 4 <= n; i += 4) {
        for (size_t k = 0; k < 4; k++) {
            s[k] += v[i + k];
        }
    }
    return s[0] ^ s[1] ^ s[2] ^ s[3];
}

/* Weights of this model, from the largest object that is here. */
static int sample(struct cli_session *s, uint8_t **out, size_t *n, struct err *e)
{
    uint32_t best_id = MODEL_NONE;
    for (uint32_t id = 0; id < model_object_count(s->m); id++) {
        if (store_has_forms(s->st, id) &&
            (best_id == MODEL_NONE ||
             model_object(s->m, id)->size > model_object(s->m, best_id)->size)) {
            best_id = id;
        }
    }
    *n = 0;
    if (best_id == MODEL_NONE) {
        return err_set(e, ERR_NOTFOUND, "no weights of the spine are here to be measured");
    }
    uint64_t size = model_object(s->m, best_id)->size;
    *n = size < SAMPLE ? (size_t)size : SAMPLE;
    *n -= *n % 64;
    *out = malloc(*n);
    return *out ? store_read(s->st, best_id, 0, *out, *n, e)
                : err_set(e, ERR_NOMEM, "out of memory");
}

static int measure(struct cli_session *s, struct spine_facts *f, struct err *e)
{
    uint8_t *v = NULL;
    size_t n;
    int r = sample(s, &v, &n, e);
    uint8_t *packed = r ? NULL : malloc(kern_pack_bound(n / 2));
    uint16_t *back = r ? NULL : calloc(n / 2, 2);
    if (!r && (!packed || !back)) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    if (!r) {
        size_t size = kern_pack((const uint16_t *)(const void *)v, n / 2, packed);
        double t[2] = {1e9, 1e9};
        volatile uint64_t sink = 0;   /* so that the reading is done */
        for (int i = 0; i < 3; i++) { /* the quickest: other programs only add to it */
            double at = clock_s(), took;
            r = kern_unpack(packed, size, n / 2, 0, n / 2, back, best()) ? ERR_FORMAT : r;
            took = clock_s() - at;
            t[0] = took < t[0] ? took : t[0];
            at = clock_s();
            sink += read_all((const uint64_t *)(const void *)v, n / 8);
            took = clock_s() - at;
            t[1] = took < t[1] ? took : t[1];
        }
        (void)sink;
        f->ratio = (double)size / (double)n;
        f->unpack = (double)n / larger(t[0], 1e-9);
        f->read = (double)n / larger(t[1], 1e-9);
        r = r ? err_set(e, r, "packing weights has failed") : 0;
    }
    r = r ? r : store_measure_disk(s->st, DISK_SECONDS, &f->disk, e);
    free(back);
    free(packed);
    free(v);
    return r;
}

static int decide(struct cli_session *s, bool *packed, char why[STORE_FORMS_NOTE], struct err *e)
{
    struct compute_opts o = {.threads = {0}};
    struct plan p;
    unsigned fast = 0;
    uint32_t embed = model_spine_id(s->m, MODEL_NONE, MODEL_EMBED);
    plan_make(&p, s->m, &o, plat_memory());
    struct spine_facts f = {
        .bytes =
            (double)(p.spine_bytes - (embed == MODEL_NONE ? 0 : model_object(s->m, embed)->size)),
        .ram = (double)p.spine_budget};
    plat_cores(&fast);
    f.cores = fast ? fast : 1;
    int r = f.bytes > f.ram ? measure(s, &f, e) : 0;
    *packed = !r && spine_decide(&f, why);
    return r;
}

/* ---- changing ---- */

struct changing {
    struct cli_session *s;
    struct store_converting *c;
    bool packed;
    atomic_uint next;
    atomic_ullong done;
    atomic_uint running;
    atomic_bool stop;
    pthread_mutex_t mu;
    int result;
    struct err err;
};

static bool differs(struct changing *x, uint32_t id)
{
    return store_has_forms(x->s->st, id) && (store_packed(x->s->st, id) != 0) != x->packed;
}

static void *changer(void *arg)
{
    struct changing *x = arg;
    uint32_t n = model_object_count(x->s->m), id;
    while (!atomic_load(&x->stop) && (id = atomic_fetch_add(&x->next, 1)) < n) {
        struct err e = {0};
        if (!differs(x, id)) {
            continue;
        }
        int r = store_convert(x->c, id, x->packed, &e);
        if (r && r != ERR_NOTFOUND) { /* it has left meanwhile */
            pthread_mutex_lock(&x->mu);
            x->err = x->result ? x->err : e;
            x->result = x->result ? x->result : r;
            pthread_mutex_unlock(&x->mu);
            atomic_store(&x->stop, true);
        }
        atomic_fetch_add(&x->done, model_object(x->s->m, id)->size);
    }
    atomic_fetch_sub(&x->running, 1);
    return NULL;
}

static int change(struct cli_session *s, bool packed, struct err *e)
{
    struct changing x = {.s = s, .packed = packed};
    uint64_t total = 0;
    pthread_t t[THREADS_MAX];
    unsigned fast, cores = plat_cores(&fast), n = 0;
    for (uint32_t id = 0; id < model_object_count(s->m); id++) {
        total += differs(&x, id) ? model_object(s->m, id)->size : 0;
    }
    int r = total ? store_convert_begin(s->st, &x.c, e) : 0;
    if (r || !total) {
        return r;
    }
    char a[CLI_NUM];
    cli_note(s->c, "spine   %s of weights are %s; it may be ended and begun again at any time",
             cli_bytes(total, a), packed ? "packed, without loss" : "unpacked");
    pthread_mutex_init(&x.mu, NULL);
    cores = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : cores;
    atomic_store(&x.running, cores);
    while (n < cores && !pthread_create(&t[n], NULL, changer, &x)) {
        n++;
    }
    atomic_fetch_sub(&x.running, cores - n);
    double from = clock_s();
    while (atomic_load(&x.running)) {
        uint64_t done = atomic_load(&x.done);
        double took = clock_s() - from;
        cli_session_fetching(s, done, total, took > 0.2 ? (double)done / took : 0);
        if (cli_interrupted()) {
            atomic_store(&x.stop, true);
        }
        usleep(LOOK_US);
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
    }
    cli_session_phase(s, PHASE_QUIET, 0, 0);
    pthread_mutex_destroy(&x.mu);
    store_convert_end(x.c);
    if (!n) {
        return err_set(e, ERR_NOMEM, "no thread could be started");
    }
    if (x.result) {
        *e = x.err;
        err_prefix(e, "the spine is %s", packed ? "packed in part" : "unpacked in part");
    } else if (cli_interrupted()) {
        return err_set(e, ERR_CANCELLED, "interrupted: the same command goes on where it was");
    }
    return x.result;
}

/* ---- all of it ---- */

/* What was asked for the last time; the note begins with it. */
static enum spine_form asked_before(const char *note)
{
    return !strncmp(note, "by --spine bf16", 15)     ? SPINE_BF16
           : !strncmp(note, "by --spine packed", 17) ? SPINE_PACKED
                                                     : SPINE_AUTO;
}

int cli_spine_setup(struct cli_session *s, const enum spine_form *asked, struct err *e)
{
    char note[STORE_FORMS_NOTE], why[STORE_FORMS_NOTE] = "";
    struct store_forms f;
    store_forms_note(s->st, note);
    store_get_forms(s->st, &f);
    enum spine_form form = asked ? *asked : asked_before(note);
    bool packed = form == SPINE_PACKED;
    int r = 0;
    if (!f.objects) { /* read in place, or nothing is large enough */
        struct store_converting *c = NULL;
        r = form == SPINE_PACKED && asked ? store_convert_begin(s->st, &c, e) : 0;
        store_convert_end(c);
        return r;
    }
    if (form == SPINE_AUTO) {
        r = decide(s, &packed, why, e);
    } else {
        snprintf(why, sizeof why, "by --spine %s", cli_spine_names[form]);
    }
    if (r) {
        return r;
    }
    cli_note(s->c, "spine   %s", why);
    r = change(s, packed, e);
    r = r || !strcmp(note, why) ? r : store_forms_say(s->st, why, e);
    return r;
}

json_t *cli_spine_json(struct store *st)
{
    struct store_forms f;
    char note[STORE_FORMS_NOTE];
    store_get_forms(st, &f);
    store_forms_note(st, note);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "form",
                     !f.packed               ? "bf16"
                     : f.packed == f.objects ? "packed"
                                             : "mixed",
                     "why", note, "objects", (json_int_t)f.objects, "packed", (json_int_t)f.packed,
                     "bytes", (json_int_t)f.bytes, "packed_from", (json_int_t)f.packed_from,
                     "packed_bytes", (json_int_t)f.packed_bytes);
}

void cli_spine_words(struct store *st, char *out, size_t n)
{
    struct store_forms f;
    char note[STORE_FORMS_NOTE], a[CLI_NUM], b[CLI_NUM];
    store_get_forms(st, &f);
    store_forms_note(st, note);
    if (f.packed) {
        snprintf(out, n, "packed without loss: %s of weights take %s, %.2f of it%s%s%s",
                 cli_bytes(f.packed_from, a), cli_bytes(f.packed_bytes, b),
                 (double)f.packed_bytes / (double)f.packed_from, *note ? " (" : "", note,
                 *note ? ")" : "");
    } else {
        snprintf(out, n, "as it is%s%s%s", *note ? " (" : "", note, *note ? ")" : "");
    }
}
