/* SPDX-License-Identifier: MIT
 * session_stats.c: what a run took and where its time went, for --json and for people. */
#include "node/cli/session.h"

#include "node/cli/plat.h"

#include <stdio.h>
#include <string.h>

static json_t *times_json(const struct infer *f)
{
    struct infer_times t;
    infer_get_times(f, &t);
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "wall_s", (double)t.wall_ns * 1e-9,
                     "compute_s", (double)t.compute_ns * 1e-9, "ram_s", (double)t.ram_ns * 1e-9,
                     "disk_s", (double)t.disk_ns * 1e-9, "peers_s", (double)t.peers_ns * 1e-9,
                     "origin_s", (double)t.origin_ns * 1e-9, "stall_s", (double)t.stall_ns * 1e-9);
}

static json_t *ahead_json(const struct infer *f)
{
    struct infer_ahead a;
    infer_get_ahead(f, &a);
    return json_pack("{s:b, s:s?, s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "on", a.on, "why_not", a.why,
                     "layers", (json_int_t)a.layers, "chosen", (json_int_t)a.chosen, "guessed",
                     (json_int_t)a.guessed, "right", (json_int_t)a.right, "moved",
                     (json_int_t)a.moved, "recall",
                     a.chosen ? (double)a.right / (double)a.chosen : 0, "wasted_bytes",
                     (json_int_t)a.wasted_bytes);
}

static json_t *spine_json(const struct infer *f)
{
    struct infer_spine w;
    infer_get_spine(f, &w);
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "resident", (json_int_t)w.resident, "kept",
                     (json_int_t)w.kept, "kept_from", (json_int_t)w.kept_from, "streamed",
                     (json_int_t)w.streamed, "streamed_disk", (json_int_t)w.disk);
}

json_t *cli_session_stats_json(const struct cli_session *s, const struct store_stats *v)
{
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I}",
        "origin_bytes", (json_int_t)v->origin_bytes, "peer_bytes", (json_int_t)v->peer_bytes,
        "mirror_bytes", (json_int_t)v->mirror_bytes, "disk_bytes", (json_int_t)v->disk_bytes,
        "ram_hits", (json_int_t)v->ram_hits, "disk_hits", (json_int_t)v->disk_hits,
        "origin_fetches", (json_int_t)v->origin_fetches, "experts_fetched",
        (json_int_t)v->experts_fetched, "peer_fetches", (json_int_t)v->peer_fetches,
        "experts_from_peers", (json_int_t)v->experts_from_peers, "ram_peak",
        (json_int_t)v->ram_peak, "spine_bytes_read", (json_int_t)v->spine_bytes_read, "retries",
        (json_int_t)v->retries, "bad_chunks", (json_int_t)v->bad_chunks, "refetched",
        (json_int_t)v->refetched, "wait_s", (double)v->wait_ns * 1e-9, "peak_rss",
        (json_int_t)plat_peak_rss());
    if (o && s->f) {
        json_object_set_new(o, "time", times_json(s->f));
        json_object_set_new(o, "spine", spine_json(s->f));
        json_object_set_new(o, "prefetch", ahead_json(s->f));
    }
    return o;
}

/* Appends ", 12 % disk" when it is worth a word. */
static void part(char *line, size_t cap, const char *name, uint64_t ns, uint64_t wall)
{
    size_t at = strlen(line);
    if (ns > wall / 200) {
        snprintf(line + at, cap - at, "%s%.0f %% %s", at ? ", " : "",
                 100 * (double)ns / (double)wall, name);
    }
}

void cli_session_say_times(struct cli_session *s)
{
    struct infer_times t;
    struct infer_ahead a;
    char line[200] = "", b[CLI_NUM];
    if (!s->f) {
        return;
    }
    infer_get_times(s->f, &t);
    infer_get_ahead(s->f, &a);
    if (!t.wall_ns) {
        return;
    }
    part(line, sizeof line, "computing", t.compute_ns, t.wall_ns);
    part(line, sizeof line, "RAM", t.ram_ns, t.wall_ns);
    part(line, sizeof line, "waiting for the disk", t.disk_ns, t.wall_ns);
    part(line, sizeof line, "for peers", t.peers_ns, t.wall_ns);
    part(line, sizeof line, "for the origin", t.origin_ns, t.wall_ns);
    part(line, sizeof line, "stalled", t.stall_ns, t.wall_ns);
    cli_note(s->c, "time    %s", line);
    if (a.layers) {
        cli_note(s->c, "ahead   %.0f %% of the experts guessed a layer before, %s read in vain%s%s",
                 a.chosen ? 100 * (double)a.right / (double)a.chosen : 0,
                 cli_bytes(a.wasted_bytes, b), a.on ? "" : "; off now: ", a.on ? "" : a.why);
    }
}

json_t *cli_basis_json(struct store *st, const struct store_since *since)
{
    struct store_rest r;
    store_rest(st, since, &r);
    json_t *objects = json_object();
    for (unsigned b = 0; b < STORE_BASES; b++) {
        json_object_set_new(objects, store_rests_name((enum store_rests)b),
                            json_integer((json_int_t)r.objects[b]));
    }
    return json_pack("{s:s, s:o}", "weakest", store_rests_name(r.weakest), "objects", objects);
}

void cli_say_basis(struct cli *c, struct store *st, const struct store_since *since)
{
    static const char *const words[STORE_BASES] = {
        "nobody vouches for", "on one member's word", "on two members' words",
        "of this node's own download", "as a published manifest has them"};
    struct store_rest r;
    char line[300] = "";
    store_rest(st, since, &r);
    for (unsigned b = 0; b < STORE_BASES; b++) {
        size_t at = strlen(line);
        if (r.objects[b]) {
            snprintf(line + at, sizeof line - at, "%s%llu %s", at ? ", " : "",
                     (unsigned long long)r.objects[b], words[b]);
        }
    }
    cli_note(c, "basis   of the objects used: %s", line);
}

int cli_speculate(const char *value, struct spec_opts *out, struct err *e)
{
    return spec_parse(value, out)
               ? 0
               : err_set(e, ERR_ARG, "--speculate %.50s: it must be auto, off or a number up to %d",
                         value, SPEC_MOST);
}

json_t *cli_speculate_json(const struct spec_stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s?}", "passes",
                     (json_int_t)s->passes, "with_draft", (json_int_t)s->with_draft, "drafted",
                     (json_int_t)s->drafted, "accepted", (json_int_t)s->accepted, "failed",
                     (json_int_t)s->failed, "share", s->share, "pass_s", s->pass_s, "draft_row_s",
                     s->row_s, "draft_row_wait_s", s->row_wait_s, "why_not", s->why);
}

void cli_say_speculate(struct cli *c, const struct spec_stats *s)
{
    char cost[80] = "";
    if (s->row_s > 0 && s->pass_s > 0) {
        snprintf(cost, sizeof cost, "; a drafted row costs %.2f of a pass, %.0f %% of it waiting",
                 s->row_s / s->pass_s, 100 * s->row_wait_s / s->row_s);
    }
    if (s->drafted) {
        cli_note(c, "drafts  %llu of %llu tokens were right, %llu passes%s%s%s",
                 (unsigned long long)s->accepted, (unsigned long long)s->drafted,
                 (unsigned long long)s->passes, cost, s->why ? "; off now: " : "",
                 s->why ? s->why : "");
    }
}
