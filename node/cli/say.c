/* SPDX-License-Identifier: MIT
 * say.c: see say.h. */
#include "node/cli/say.h"

#include "node/cli/cli.h"
#include "peer/identity.h"

#include <stdio.h>
#include <string.h>

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *rate(double bytes_s, char out[CLI_NUM])
{
    char b[CLI_NUM];
    if (bytes_s < 1) {
        snprintf(out, CLI_NUM, "-");
    } else {
        snprintf(out, CLI_NUM, "%.20s/s", cli_bytes((uint64_t)bytes_s, b));
    }
    return out;
}

void say_peers(const json_t *peers)
{
    size_t i;
    const json_t *p;
    printf("%-15s %-14s %-14s %-26s %9s %11s %11s %8s\n", "node", "name", "state", "address", "has",
           "in", "out", "answers");
    json_array_foreach(peers, i, p)
    {
        char in[CLI_NUM], out[CLI_NUM], rtt[CLI_NUM] = "-", has[CLI_NUM] = "-";
        const json_t *f = json_object_get(p, "fetch");
        double ms = number(p, "rtt_ms"), banned = number(f, "banned_s");
        if (ms > 0) {
            snprintf(rtt, sizeof rtt, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
        }
        if (json_object_get(p, "objects")) {
            snprintf(has, sizeof has, "%.0f", number(p, "objects"));
        }
        printf("%-15s %-14.14s %-14s %-26s %9s %11s %11s %8s%s\n", text(p, "short"),
               text(p, "name")[0] ? text(p, "name") : "-", text(p, "state"),
               text(p, "address")[0] ? text(p, "address") : "-", has,
               rate(number(p, "rate_in"), in), rate(number(p, "rate_out"), out), rtt,
               json_is_true(json_object_get(p, "keeper")) ? "  keeper" : "");
        if (banned > 0) {
            char d[CLI_NUM];
            printf("                banned for %s more: %s (shoal peers unban %s)\n",
                   cli_duration(banned, d), text(f, "last_fault"), text(p, "short"));
        }
        double bad = number(f, "bad_chunks"), paused = number(f, "paused_s");
        if (banned <= 0 && bad > 0) {
            printf("                gave %.0f bad chunk%s: it %s\n", bad, bad > 1 ? "s" : "",
                   text(f, "last_fault"));
        } else if (banned <= 0 && paused > 0) {
            char d[CLI_NUM];
            printf("                not asked for %s: it %s\n", cli_duration(paused, d),
                   text(f, "last_fault"));
        } else if (banned <= 0 && text(f, "last_fault")[0]) {
            printf("                its last fault: it %s\n", text(f, "last_fault"));
        }
        const json_t *word = json_object_get(p, "word");
        if (json_is_true(json_object_get(word, "void"))) {
            printf("                its word on digests is void: %s (shoal peers unban %s)\n",
                   text(word, "why"), text(p, "short"));
        }
    }
}

/* ---- status ---- */

static double at(const json_t *o, const char *a, const char *b, const char *c)
{
    o = json_object_get(o, a);
    return number(c ? json_object_get(o, b) : o, c ? c : b);
}

static const char *limit(double v, const char *unit, char out[CLI_NUM])
{
    char b[CLI_NUM];
    if (v < 1) {
        snprintf(out, CLI_NUM, "none");
    } else {
        snprintf(out, CLI_NUM, "%.20s%.8s", cli_bytes((uint64_t)v, b), unit);
    }
    return out;
}

/* What members say about digests: who lied, the manifest, audits. */
static void say_words(const json_t *w, const json_t *samples)
{
    size_t i;
    const json_t *m, *mf = json_object_get(w, "manifest");
    json_array_foreach(json_object_get(w, "members"), i, m)
    {
        struct key_id id;
        char who[ID_SHORT] = "?";
        if (json_is_true(json_object_get(m, "void"))) {
            if (!id_parse(text(m, "id"), &id, NULL)) {
                id_short(&id, who);
            }
            printf("liar     the word of %s is void: %s\n", who, text(m, "why"));
        }
    }
    if (number(mf, "objects") > 0) {
        printf("manifest %.16s..., digests of %.0f objects\n", text(mf, "sha256"),
               number(mf, "objects"));
    }
    if (number(samples, "compared") + number(samples, "pieces") > 0) {
        printf("compared %.0f objects, and a piece of %.0f others, before they were used on one "
               "member's word: %.0f were false\n",
               number(samples, "compared"), number(samples, "pieces"),
               number(samples, "false") + number(samples, "pieces_false"));
    }
    if (number(w, "audits") > 0) {
        char b[CLI_NUM];
        printf("audits   %.0f samples (%s) of what peers gave compared with the origin, %.0f were "
               "false\n",
               number(w, "audits"), cli_bytes((uint64_t)number(w, "audit_bytes"), b),
               number(w, "audits_failed"));
    }
}

/* The short form of an id in full. */
static const char *brief(const char *full, char out[ID_SHORT])
{
    struct key_id id;
    if (id_parse(full, &id, NULL)) {
        snprintf(out, ID_SHORT, "%s", "?");
    } else {
        id_short(&id, out);
    }
    return out;
}

static void say_node(const json_t *s)
{
    char d[CLI_NUM], id[ID_SHORT];
    const json_t *m = json_object_get(s, "model");
    printf("node     %s, %s, up %s, port %.0f, home %s\n", brief(text(s, "node"), id),
           text(s, "name"), cli_duration(number(s, "uptime_s"), d), number(s, "port"),
           text(s, "home"));
    if (json_is_string(json_object_get(s, "group"))) {
        printf("shoal    %s, %.0f members, %.0f connected%s%s\n", brief(text(s, "group"), id),
               number(s, "members"), number(s, "connected"),
               json_is_true(json_object_get(s, "keeper")) ? ", this node is a keeper" : "",
               json_is_true(json_object_get(s, "removed")) ? "; this node was REMOVED from it"
                                                           : "");
    }
    if (text(s, "hint")[0]) {
        printf("         %s\n", text(s, "hint"));
    }
    if (json_is_object(m)) {
        printf("model    %s, root %s\n", text(m, "address"), text(m, "short"));
        if (number(m, "spine_packed_from") > 0) {
            char a[CLI_NUM], b[CLI_NUM];
            printf("spine    packed without loss: %s of weights take %s\n",
                   cli_bytes((uint64_t)number(m, "spine_packed_from"), a),
                   cli_bytes((uint64_t)number(m, "spine_packed_bytes"), b));
        }
        if (text(m, "spine_why")[0]) {
            printf("         %s\n", text(m, "spine_why"));
        }
    }
    if (text(json_object_get(s, "compute"), "words")[0]) {
        printf("compute  %s\n", text(json_object_get(s, "compute"), "words"));
    }
}

/* Folders used in place, damaged files set aside, how far the scrub is. */
static void say_upkeep(const json_t *s)
{
    char a[CLI_NUM], b[CLI_NUM];
    const json_t *u = json_object_get(s, "upkeep"), *q = json_object_get(u, "quarantine");
    const json_t *list = json_object_get(s, "adopted"), *c = json_object_get(u, "scrub");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        printf("adopted  %s%s: %.0f objects, %s", text(f, "path"),
               json_is_true(json_object_get(f, "other_model")) ? " (another model's, not used)"
               : json_is_true(json_object_get(f, "here"))      ? ""
                                                               : " (not there now)",
               number(f, "objects"), cli_bytes((uint64_t)number(f, "bytes"), a));
        printf(number(f, "refused") > 0 ? "; %.0f looked at, %.0f refused\n" : "; %.0f looked at\n",
               number(f, "looked"), number(f, "refused"));
    }
    double total = number(c, "total"), days = number(c, "period_s") / 86400;
    if (days > 0 && total > 0) {
        printf("scrub    %.0f of %.0f MiB read of this round of %.3g days, %.0f damaged so far%s\n",
               number(c, "done") < total ? number(c, "done") : total, total, days, number(c, "bad"),
               json_is_true(json_object_get(u, "held")) ? "; it waits" : "");
    }
    if (number(q, "files") > 0) {
        printf("aside    %.0f damaged files, %s, in %s\n", number(q, "files"),
               cli_bytes((uint64_t)number(q, "bytes"), b), text(q, "folder"));
    }
}

static void say_tiers(const json_t *s)
{
    char a[CLI_NUM], b[CLI_NUM], c[CLI_NUM];
    const json_t *t = json_object_get(s, "tiers");
    if (!json_is_object(t)) {
        return;
    }
    printf("RAM      %s in use, most %s; %.0f experts answered\n",
           cli_bytes((uint64_t)at(t, "ram", "used", NULL), a),
           cli_bytes((uint64_t)at(t, "ram", "peak", NULL), b), at(t, "ram", "hits", NULL));
    printf("disk     %s in %.0f objects, %s free; %.0f experts answered; %s written today\n",
           cli_bytes((uint64_t)at(t, "disk", "used", NULL), a), at(t, "disk", "objects", NULL),
           cli_bytes((uint64_t)at(t, "disk", "free", NULL), b), at(t, "disk", "hits", NULL),
           cli_bytes((uint64_t)at(t, "disk", "written_today", NULL), c));
    printf("peers    %s taken, %s given\n", cli_bytes((uint64_t)number(t, "peer_bytes"), a),
           cli_bytes((uint64_t)at(s, "serve", "bytes", NULL), b));
    const json_t *o = json_object_get(t, "origin");
    if (json_is_true(json_object_get(o, "used"))) {
        double measured = number(o, "measured_bytes_s");
        printf(
            "origin   %s taken; %s%s%s, %.0f retries\n", cli_bytes((uint64_t)number(o, "bytes"), a),
            json_is_true(json_object_get(o, "answers")) ? "it answers" : "no answer from it yet",
            measured < 1 ? "" : ", ", measured < 1 ? "" : rate(measured, c), number(o, "retries"));
    } else {
        printf("origin   not used (--offline)\n");
    }
    size_t i;
    const json_t *m;
    json_array_foreach(json_object_get(t, "mirrors"), i, m)
    {
        const char *why = text(m, "last_fault");
        printf("mirror   %s: %s, %s taken%s%s\n", text(m, "address"), text(m, "state"),
               cli_bytes((uint64_t)number(m, "bytes"), a), *why ? "; last fault: " : "", why);
    }
    double one = at(s, "basis", "one_member", "objects");
    if (one > 0) {
        printf("trust    %.0f objects rest on the word of one member\n", one);
    }
    say_words(json_object_get(s, "words"), json_object_get(json_object_get(s, "fetch"), "samples"));
    say_upkeep(s);
}

static void say_limits(const json_t *s)
{
    char a[CLI_NUM], b[CLI_NUM], c[CLI_NUM], d[CLI_NUM], f[CLI_NUM], r[CLI_NUM];
    const json_t *l = json_object_get(s, "limits");
    double ram = number(l, "ram_budget");
    printf("limits   to all peers %s, to each %s, from the origin %s, disk %s (%s stay free)%s%s\n",
           limit(number(l, "out_bytes_s"), "/s", a), limit(number(l, "out_peer_bytes_s"), "/s", b),
           limit(number(l, "origin_bytes_s"), "/s", c), limit(number(l, "disk_budget"), "", d),
           limit(number(l, "disk_floor"), "", f), ram > 0 ? ", experts in RAM " : "",
           ram > 0 ? limit(ram, "", r) : "");
    if (number(l, "origin_conn_bytes_s") > 0) {
        printf("         each connection to the origin %s\n",
               limit(number(l, "origin_conn_bytes_s"), "/s", a));
    }
    if (json_array_size(json_object_get(json_object_get(s, "tiers"), "mirrors"))) {
        printf("         from each mirror %s\n", limit(number(l, "mirror_bytes_s"), "/s", a));
    }
    const json_t *y = json_object_get(l, "yield");
    if (number(y, "computing") > 0) {
        printf("         peers are served at %s while this machine computes\n",
               rate(number(y, "bytes_s"), a));
    }
}

/* What the members keep together, and what is under way for it. */
static void say_homes(const json_t *h)
{
    char a[CLI_NUM], b[CLI_NUM], c[CLI_NUM];
    double least = -1, sum = 0, of = 0;
    size_t i;
    const json_t *l;
    const json_t *metered = json_object_get(h, "metered");
    if (json_is_true(json_object_get(metered, "now"))) {
        printf("network  counts as metered (--metered %s): nothing is copied in the background\n",
               text(metered, "setting"));
    }
    if (!json_is_object(h) || json_array_size(json_object_get(h, "members")) < 2) {
        return;
    }
    json_array_foreach(json_object_get(h, "layers"), i, l)
    {
        double min = number(l, "min");
        least = least < 0 || min < least ? min : least;
        sum += number(l, "mean") * number(l, "of");
        of += number(l, "of");
    }
    printf("homes    %s of the %s that fit on the shoal's disks; %.1f copies of an expert on "
           "average, at least %.0f; %s here\n",
           cli_bytes((uint64_t)number(h, "covered"), a),
           cli_bytes((uint64_t)number(h, "possible"), b), of > 0 ? sum / of : 0,
           least < 0 ? 0 : least, cli_bytes((uint64_t)number(h, "used"), c));
    const char *why = text(h, "why");
    if (number(h, "waiting") > 0 || json_is_true(json_object_get(h, "warm"))) {
        printf("         %.0f to be copied from others%s%s%s\n", number(h, "waiting"),
               json_is_true(json_object_get(h, "warm")) ? ", the coverage is being completed" : "",
               *why ? "; not now: " : "", why);
    }
}

void say_status(const json_t *s)
{
    const json_t *n;
    const char *key;
    bool any = false;
    say_node(s);
    if (text(json_object_get(s, "coverage"), "words")[0]) {
        printf("coverage %s\n", text(json_object_get(s, "coverage"), "words"));
    }
    say_homes(json_object_get(s, "homes"));
    say_tiers(s);
    say_limits(s);
    json_object_foreach(json_object_get(s, "refused"), key, n)
    {
        if (json_integer_value(n)) {
            printf("%s %s %lld", any ? "," : "refused ", key, (long long)json_integer_value(n));
            any = true;
        }
    }
    printf("%s", any ? "\n" : "");
}
