/* SPDX-License-Identifier: MIT
 * speculate.c: see speculate.h.
 *
 * Rule. A pass of m plain rows takes c seconds and yields m tokens; k draft rows take k * b more
 * and yield, with a share p of right tokens, p + p^2 + ... + p^k more. Rows are added, the
 * likeliest first, while each yields more for its time than the pass does without it; the whole
 * must gain GAIN. c and b are moving averages of what passes took; p is the sequence's own.
 *
 * b is known only by drafting. At first it is taken to be c / 4m, which is hopeful, so the first
 * good drafts measure it: LEARN short ones. No single measurement counts for more than MOST_ROW
 * passes, since other programs run, too, and a row does no more than a pass of its own would. Where
 * drafts do not pay, one of at most PROBE tokens is tried after HOLD passes, then after twice as
 * many, and so on up to HOLD_MOST: the cost of being sure. Where they pay, each REFRESH-th pass is
 * a plain one, which measures c. */
#include "node/infer/speculate.h"

#include "node/infer/internal.h"

#include <stdlib.h>
#include <string.h>

#define GAIN 1.05
#define KNOWN 4   /* plain passes before c is known */
#define RATE 0.25 /* of the averages */
#define LUCK 0.85 /* what a draft counts when the next one comes */
#define HOLD 16   /* passes */
#define HOLD_MOST 1024
#define MOST_ROW 1.25 /* of c: what one measurement of a row counts for at most */
#define LEARN 4 /* drafts of at most PROBE tokens before longer ones: the hope is not knowledge */
#define REFRESH 16
#define PROBE 2   /* tokens of a draft that only measures */
#define NO_NET 64 /* passes without a byte over the net */
#define SURE 0.98 /* no share is taken to be larger */

bool spec_parse(const char *s, struct spec_opts *out)
{
    memset(out, 0, sizeof *out);
    if (!s || !strcmp(s, "auto")) {
        out->mode = SPEC_MEASURED;
        return true;
    }
    if (!strcmp(s, "off") || !strcmp(s, "0")) {
        return true;
    }
    uint32_t v = 0;
    for (const char *p = s; *p; p++) {
        if (*p < '0' || *p > '9' || v > SPEC_MOST) {
            return false;
        }
        v = v * 10 + (uint32_t)(*p - '0');
    }
    out->mode = SPEC_ALWAYS;
    out->most = v;
    return *s && v >= 1 && v <= SPEC_MOST;
}

/* ---- how often drafts are right ---- */

void spec_luck_add(struct spec_luck *l, uint32_t tried, uint32_t right)
{
    l->tried = l->tried * LUCK + tried;
    l->right = l->right * LUCK + right;
}

double spec_luck_share(const struct spec_luck *l)
{
    double p = (l->right + 1) / (l->tried + 2);
    return p < SURE ? p : SURE;
}

/* ---- drafts ---- */

void spec_open(struct spec *s, struct infer *f, const struct spec_opts *o)
{
    memset(s, 0, sizeof *s);
    s->o = *o;
    s->f = f;
    s->o.most = !o->most ? SPEC_AUTO : o->most < SPEC_MOST ? o->most : SPEC_MOST;
    s->o.source = o->source ? o->source : &draft_lookup;
    s->hold = HOLD;
    s->s.why = o->mode == SPEC_OFF ? "it is off" : NULL;
}

uint32_t spec_most(const struct spec *s)
{
    return s->o.mode == SPEC_OFF ? 0 : s->o.most;
}

uint32_t spec_propose(const struct spec *s, const uint32_t *tokens, size_t n_tokens, uint32_t vocab,
                      const uint32_t *stop, size_t n_stop, size_t max, uint32_t out[SPEC_MOST])
{
    size_t room = max < spec_most(s) ? max : spec_most(s);
    size_t n = room ? s->o.source->propose(s->o.source->ctx, tokens, n_tokens, room, out) : 0;
    n = n < room ? n : room;
    for (size_t i = 0; i < n; i++) {
        bool ends = out[i] >= vocab;
        for (size_t k = 0; k < n_stop; k++) {
            ends = ends || out[i] == stop[k];
        }
        if (ends) {
            n = i;
        }
    }
    return (uint32_t)n;
}

/* ---- what passes cost ---- */

static double sum(const double part[SPEC_PARTS])
{
    double t = 0;
    for (int i = 0; i < SPEC_PARTS; i++) {
        t += part[i];
    }
    return t;
}

static uint32_t place(const struct spec *s, uint32_t rows)
{
    uint32_t most = sizeof s->plain / sizeof *s->plain - 1;
    return rows < most ? rows : most;
}

/* What a drafted row costs, before any was measured. */
static double hopeful(const struct spec *s, uint32_t at)
{
    return sum(s->plain[at].part) / (4.0 * at);
}

void spec_begin(struct spec *s)
{
    infer_get_times(s->f, &s->t0);
    s->rest_ns = 0;
}

void spec_rest(struct spec *s, uint64_t ns)
{
    s->rest_ns += ns;
}

void spec_end(struct spec *s, uint32_t rows, uint32_t drafted)
{
    struct infer_times t;
    infer_get_times(s->f, &t);
    uint64_t wall = t.wall_ns - s->t0.wall_ns, known = 0;
    const uint64_t ns[SPEC_REST] = {t.compute_ns - s->t0.compute_ns, t.ram_ns - s->t0.ram_ns,
                                    t.disk_ns - s->t0.disk_ns,
                                    t.peers_ns - s->t0.peers_ns + t.origin_ns - s->t0.origin_ns};
    double part[SPEC_PARTS];
    for (int i = 0; i < SPEC_REST; i++) {
        part[i] = (double)ns[i] * 1e-9;
        known += ns[i];
    }
    uint64_t rest = wall > known ? wall - known : 0;
    part[SPEC_REST] = (double)(rest + s->rest_ns) * 1e-9;
    spec_cost(s, rows, drafted, part);
}

void spec_cost(struct spec *s, uint32_t rows, uint32_t drafted, const double part[SPEC_PARTS])
{
    uint32_t at = place(s, rows);
    s->s.passes++;
    s->no_net = part[SPEC_NET] > 0 ? 0 : s->no_net + 1;
    if (!drafted) {
        double rate = s->plain[at].n ? RATE : 1;
        for (int i = 0; i < SPEC_PARTS; i++) {
            s->plain[at].part[i] += rate * (part[i] - s->plain[at].part[i]);
        }
        s->plain[at].n++;
        s->since_plain = 0;
        return;
    }
    s->since_plain++;
    s->s.with_draft++;
    if (!s->plain[at]
             .n) { /* nothing to compare it with: only where drafts are not chosen by cost */
        return;
    }
    double each[SPEC_PARTS], c = sum(s->plain[at].part);
    for (int i = 0; i < SPEC_PARTS; i++) {
        each[i] = (part[i] - s->plain[at].part[i]) / drafted;
    }
    double all = sum(each), most = MOST_ROW * c, scale = all > most ? most / all : 1;
    if (!s->row.n++) {
        s->row.part[SPEC_COMPUTE] = hopeful(s, at);
    }
    /* the mean of the first few and of the hope, then a moving one */
    double rate = 1.0 / (s->row.n + 1) > RATE ? 1.0 / (s->row.n + 1) : RATE;
    for (int i = 0; i < SPEC_PARTS; i++) {
        s->row.part[i] += rate * (each[i] * scale - s->row.part[i]);
    }
}

void spec_result(struct spec *s, struct spec_luck *l, uint32_t drafted, uint32_t accepted)
{
    uint32_t tried = accepted < drafted ? accepted + 1 : drafted;
    s->s.drafted += drafted;
    s->s.accepted += accepted;
    spec_luck_add(l, tried, accepted);
    spec_luck_add(&s->luck, tried, accepted);
}

void spec_shadow(struct spec *s, struct spec_luck *l, bool right)
{
    spec_luck_add(l, 1, right);
    spec_luck_add(&s->luck, 1, right);
}

/* ---- the choice ---- */

/* Over the net comes what somebody pays for, or a member's machine gives: guesses are no reason to
 * ask for it. True where all experts are on this machine, or nothing came for a while. */
static bool local(struct spec *s)
{
    if (!s->looked && s->f) {
        s->looked = s->here = true;
        uint32_t n = model_object_count(s->f->m);
        for (uint32_t i = 0; i < n && s->here; i++) {
            if (model_object(s->f->m, i)->kind == MODEL_EXPERT) {
                enum store_tier t = store_where(s->f->st, i);
                s->here = t == STORE_RAM || t == STORE_DISK;
            }
        }
    }
    return s->here || s->no_net >= NO_NET;
}

/* The best candidate's next row: how much it yields. */
static size_t next_row(const struct spec_cand *c, const double *yield, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (c[i].use < c[i].have && (best == n || yield[i] > yield[best])) {
            best = i;
        }
    }
    return best;
}

static void all_of_it(struct spec_cand *c, size_t n, uint32_t room)
{
    for (size_t i = 0; i < n; i++) {
        c[i].use = c[i].have < room ? c[i].have : room;
        room -= c[i].use;
    }
}

/* True: what is chosen pays. */
static bool by_cost(const struct spec *s, uint32_t rows, struct spec_cand *c, size_t n,
                    uint32_t room)
{
    double yield[64], share[64];
    double cost = sum(s->plain[place(s, rows)].part), tokens = rows;
    double before = tokens / cost, row = s->row.n ? sum(s->row.part) : hopeful(s, place(s, rows));
    row = row > cost / 1000 ? row : cost / 1000; /* noise: no row is for nothing */
    n = n < 64 ? n : 64;
    for (size_t i = 0; i < n; i++) {
        yield[i] = share[i] = spec_luck_share(c[i].luck);
    }
    while (room) {
        size_t i = next_row(c, yield, n);
        if (i == n || yield[i] * cost <= tokens * row) {
            break;
        }
        tokens += yield[i];
        cost += row;
        yield[i] *= share[i];
        c[i].use++;
        room--;
    }
    return tokens / cost >= GAIN * before;
}

void spec_choose(struct spec *s, uint32_t rows, struct spec_cand *c, size_t n, uint32_t room)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        c[i].use = 0;
        any = any || c[i].have;
    }
    if (s->o.mode == SPEC_OFF || !any || !room) {
        return;
    }
    if (s->o.mode == SPEC_ALWAYS) {
        all_of_it(c, n, room);
        return;
    }
    if (!local(s)) {
        s->s.why = "experts come over the net";
        return;
    }
    if (s->plain[place(s, rows)].n < KNOWN || s->since_plain >= REFRESH) {
        return; /* a plain pass is measured first */
    }
    if (by_cost(s, rows, c, n, s->row.n < LEARN && room > PROBE ? PROBE : room)) {
        s->s.why = NULL;
        s->idle = 0;
        s->hold = HOLD;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        c[i].use = 0;
    }
    s->s.why = "drafted rows cost more than they save";
    if (++s->idle < s->hold) {
        return;
    }
    s->idle = 0;
    s->hold = s->hold < HOLD_MOST ? s->hold * 2 : HOLD_MOST;
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (c[i].have &&
            (best == n || spec_luck_share(c[i].luck) > spec_luck_share(c[best].luck))) {
            best = i;
        }
    }
    all_of_it(c + best, 1, room < PROBE ? room : PROBE);
}

void spec_get_stats(const struct spec *s, struct spec_stats *out)
{
    *out = s->s;
    out->pass_s = sum(s->plain[1].part);
    out->row_s = sum(s->row.part);
    double wait = s->row.part[SPEC_DISK] + s->row.part[SPEC_NET];
    out->row_wait_s = wait > 0 ? wait : 0; /* noise */
    out->share = s->luck.tried > 0 ? s->luck.right / s->luck.tried : 0;
}
