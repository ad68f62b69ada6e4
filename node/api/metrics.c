/* SPDX-License-Identifier: MIT
 * metrics.c: a node's report as Prometheus reads it (text format 0.0.4). */
#include "node/api/api.h"

#include <stdbool.h>
#include <string.h>

struct metric {
    const char *name, *type, *help;
    const char *path;          /* in the report, with dots */
    const char *label, *value; /* NULL: none; rows of one name follow each other */
};

static const struct metric table[] = {
    {"shoal_uptime_seconds", "gauge", "Since this node was started.", "uptime_s", NULL, NULL},
    {"shoal_members", "gauge", "Members of the shoal, this node too.", "members", NULL, NULL},
    {"shoal_peers_connected", "gauge", "Members connected now.", "connected", NULL, NULL},
    {"shoal_objects", "gauge", "Objects that this node can give.", "objects", NULL, NULL},
    {"shoal_experts", "gauge", "Experts of the model, by who has them.", "coverage.experts.of",
     "held", "model"},
    {"shoal_experts", NULL, NULL, "coverage.experts.have", "held", "shoal"},
    {"shoal_experts", NULL, NULL, "coverage.own.experts", "held", "node"},
    {"shoal_taken_bytes_total", "counter", "Payload taken from each tier.", "tiers.origin.bytes",
     "tier", "origin"},
    {"shoal_taken_bytes_total", NULL, NULL, "tiers.mirror_bytes", "tier", "mirrors"},
    {"shoal_taken_bytes_total", NULL, NULL, "tiers.peer_bytes", "tier", "peers"},
    {"shoal_taken_bytes_total", NULL, NULL, "tiers.disk.bytes_read", "tier", "disk"},
    {"shoal_experts_answered_total", "counter", "Requests for experts answered by each tier.",
     "tiers.ram.hits", "tier", "ram"},
    {"shoal_experts_answered_total", NULL, NULL, "tiers.disk.hits", "tier", "disk"},
    {"shoal_experts_answered_total", NULL, NULL, "tiers.origin.fetches", "tier", "origin"},
    {"shoal_ram_bytes", "gauge", "Bytes of objects in RAM.", "tiers.ram.used", NULL, NULL},
    {"shoal_disk_bytes", "gauge", "Bytes of objects in the cache.", "tiers.disk.used", NULL, NULL},
    {"shoal_disk_may_bytes", "gauge", "Bytes of objects that may lie in the cache now.",
     "tiers.disk.limits.may", NULL, NULL},
    {"shoal_disk_written_bytes_total", "counter", "Bytes written to the cache by this process.",
     "tiers.disk.written", NULL, NULL},
    {"shoal_disk_written_today_bytes", "gauge",
     "Bytes written to the cache by all processes since midnight UTC.", "tiers.disk.written_today",
     NULL, NULL},
    {"shoal_scrub_bad_total", "counter", "Damaged chunks that scrubs of the cache have found.",
     "upkeep.scrub.bad", NULL, NULL},
    {"shoal_scrub_chunks", "gauge", "The present scrub of the cache, in MiB chunks.",
     "upkeep.scrub.done", "of", "done"},
    {"shoal_scrub_chunks", NULL, NULL, "upkeep.scrub.total", "of", "all"},
    {"shoal_quarantine_bytes", "gauge", "Damaged files set aside for people to look at.",
     "upkeep.quarantine.bytes", NULL, NULL},
    {"shoal_adopted_to_look", "gauge", "Objects of adopted folders that nobody has read yet.",
     "upkeep.to_look", NULL, NULL},
    {"shoal_disk_free_bytes", "gauge", "Bytes free on the cache's volume.", "tiers.disk.free", NULL,
     NULL},
    {"shoal_bad_chunks_total", "counter", "Chunks that were not what they should be.",
     "tiers.bad_chunks", "from", "disk"},
    {"shoal_bad_chunks_total", NULL, NULL, "fetch.bad_chunks", "from", "peers"},
    {"shoal_origin_retries_total", "counter", "Attempts at the origin beyond the first.",
     "tiers.origin.retries", NULL, NULL},
    {"shoal_origin_unused_bytes_total", "counter",
     "Bytes of the origin that came when nobody wanted them any more.", "tiers.origin.unused", NULL,
     NULL},
    {"shoal_served_bytes_total", "counter", "Payload given to peers.", "serve.bytes", NULL, NULL},
    {"shoal_served_chunks_total", "counter", "Chunks given to peers.", "serve.chunks", NULL, NULL},
    {"shoal_fetch_failed_total", "counter", "Objects that nobody could give.", "fetch.failed", NULL,
     NULL},
    {"shoal_hedges_total", "counter", "Chunks asked of a second source.", "fetch.hedges", NULL,
     NULL},
    {"shoal_fetch_objects_total", "counter", "Objects that came by the mesh.", "fetch.objects",
     NULL, NULL},
    {"shoal_fetch_conflicts_total", "counter", "Objects about which members contradicted others.",
     "fetch.conflicts", NULL, NULL},
    {"shoal_fetched_twice_bytes_total", "counter", "Bytes that came a second time.",
     "fetch.dup_bytes", NULL, NULL},
    {"shoal_leases_total", "counter",
     "Objects fetched by one member for others: asked of another, passed on to the next one, taken "
     "out of order by this node.",
     "fetch.leases.asked", "what", "asked"},
    {"shoal_leases_total", NULL, NULL, "fetch.leases.passed_on", "what", "passed_on"},
    {"shoal_leases_total", NULL, NULL, "fetch.leases.taken", "what", "taken"},
    {"shoal_lease_bytes_total", "counter", "Bytes that other members fetched for this one.",
     "fetch.leases.bytes", NULL, NULL},
    {"shoal_served_gets_total", "counter", "Requests of peers for objects.", "serve.gets", NULL,
     NULL},
    {"shoal_served_refused_total", "counter", "Of these, refused.", "serve.refused", NULL, NULL},
    {"shoal_statements_total", "counter",
     "Signed statements about digests: taken from members, refused, made by this node.",
     "words.taken", "what", "taken"},
    {"shoal_statements_total", NULL, NULL, "words.refused", "what", "refused"},
    {"shoal_statements_total", NULL, NULL, "words.made", "what", "made"},
    {"shoal_compared_total", "counter",
     "Objects on one member's word compared with the origin before use: whole (or a chunk), a "
     "piece; false ones.",
     "fetch.samples.compared", "what", "object"},
    {"shoal_compared_total", NULL, NULL, "fetch.samples.pieces", "what", "piece"},
    {"shoal_compared_total", NULL, NULL, "fetch.samples.false", "what", "false_object"},
    {"shoal_compared_total", NULL, NULL, "fetch.samples.pieces_false", "what", "false_piece"},
    {"shoal_uncompared_total", "counter",
     "Objects used on one member's word while no origin answered.", "fetch.samples.uncompared",
     NULL, NULL},
    {"shoal_audits_total", "counter", "Samples of what peers gave compared with the origin.",
     "words.audits", NULL, NULL},
    {"shoal_audits_failed_total", "counter", "Of these, different.", "words.audits_failed", NULL,
     NULL},
    {"shoal_audit_bytes_total", "counter", "Bytes of the origin that they took.",
     "words.audit_bytes", NULL, NULL},
    {"shoal_basis_objects", "gauge", "Objects on disk, by what their digests rest on.",
     "basis.one_member.objects", "on", "one_member"},
    {"shoal_basis_objects", NULL, NULL, "basis.two_members.objects", "on", "two_members"},
    {"shoal_basis_objects", NULL, NULL, "basis.origin.objects", "on", "origin"},
    {"shoal_basis_objects", NULL, NULL, "basis.manifest.objects", "on", "manifest"},
    {"shoal_homes_bytes", "gauge", "Experts on disks: of this node, of the shoal, held once alone.",
     "homes.used", "held", "node"},
    {"shoal_homes_bytes", NULL, NULL, "homes.covered", "held", "shoal"},
    {"shoal_homes_bytes", NULL, NULL, "homes.once", "held", "once"},
    {"shoal_homes_budget_bytes", "gauge", "What can be held: by this node, of the model by all.",
     "homes.budget", "of", "node"},
    {"shoal_homes_budget_bytes", NULL, NULL, "homes.possible", "of", "shoal"},
    {"shoal_homes_waiting", "gauge", "Experts that this node is to copy from others.",
     "homes.waiting", NULL, NULL},
    {"shoal_homes_missing", "gauge",
     "Objects that nobody in the shoal holds and somebody is to get.", "homes.missing", NULL, NULL},
    {"shoal_homes_covered_experts", "gauge", "Experts that somebody in the shoal holds.",
     "homes.covered_experts", NULL, NULL},
    {"shoal_homes_background", "gauge", "1: copies may be made in the background now.",
     "homes.background", NULL, NULL},
    {"shoal_network_metered", "gauge", "1: this machine's network counts as one that costs.",
     "homes.metered.now", NULL, NULL},
    {"shoal_homes_made_total", "counter", "Copies made in the background, by where they came from.",
     "homes.copied", "from", "peers"},
    {"shoal_homes_made_total", NULL, NULL, "homes.warmed", "from", "origin"},
    {"shoal_homes_made_bytes_total", "counter", "The same in bytes.", "homes.copied_bytes", "from",
     "peers"},
    {"shoal_homes_made_bytes_total", NULL, NULL, "homes.warmed_bytes", "from", "origin"},
    {"shoal_homes_offers_total", "counter",
     "Copies offered to others before they go, and what became of offers.", "homes.offered", "what",
     "offered"},
    {"shoal_homes_offers_total", NULL, NULL, "homes.released", "what", "released"},
    {"shoal_homes_offers_total", NULL, NULL, "homes.kept", "what", "kept"},
    {"shoal_refused_total", "counter", "Connections refused.", "refused.strangers", "why",
     "stranger"},
    {"shoal_refused_total", NULL, NULL, "refused.not_tls", "why", "not_tls"},
    {"shoal_refused_total", NULL, NULL, "refused.over_limit", "why", "over_limit"},
    {"shoal_refused_total", NULL, NULL, "refused.invites", "why", "invite"},
    {"shoal_refused_total", NULL, NULL, "refused.failed", "why", "handshake"},
    {"shoal_protocol_faults_total", "counter",
     "Connections ended because a peer broke the protocol.", "refused.protocol_faults", NULL, NULL},
    {"shoal_gpu_used", "gauge", "1: a GPU computes.", "compute.gpu", NULL, NULL},
    {"shoal_gpu_lost", "gauge", "1: the GPU failed; the CPU computes until the next start.",
     "compute.lost", NULL, NULL},
    {"shoal_gpu_bytes", "gauge", "Memory of the GPU: allocated, that it may use.",
     "compute.gpu_bytes", "what", "allocated"},
    {"shoal_gpu_bytes", NULL, NULL, "compute.gpu_limit", "what", "limit"},
    {"shoal_gpu_batches_total", "counter", "Submissions to the GPU.", "compute.gpu_batches", NULL,
     NULL},
    {"shoal_gpu_left_total", "counter", "Commands that the CPU did in the GPU's place.",
     "compute.cpu_commands", NULL, NULL},
    {"shoal_doubles_total", "counter", "Other processes met that have this node's key.",
     "refused.doubles", NULL, NULL},
};

/* The same for each peer, labelled by its short id. */
static const struct metric of_peers[] = {
    {"shoal_peer_connected", "gauge", "1: connected.", "state", NULL, NULL},
    {"shoal_peer_objects", "gauge", "Objects that a peer has.", "objects", NULL, NULL},
    {"shoal_peer_received_bytes_total", "counter", "Bytes that came over its connection.",
     "bytes_in", NULL, NULL},
    {"shoal_peer_sent_bytes_total", "counter", "Bytes sent over its connection.", "bytes_out", NULL,
     NULL},
    {"shoal_peer_rtt_seconds", "gauge", "Round trip.", "rtt_ms", NULL, NULL},
    {"shoal_peer_bad_chunks_total", "counter", "Chunks of it that were not what they should be.",
     "fetch.bad_chunks", NULL, NULL},
    {"shoal_peer_bans_total", "counter", "How often it was banned since this node was started.",
     "fetch.bans", NULL, NULL},
    {"shoal_peer_banned_seconds", "gauge", "Nothing is fetched from it for so long still.",
     "fetch.banned_s", NULL, NULL},
    {"shoal_peer_void", "gauge", "1: its word on digests is void, because it said something false.",
     "word.void", NULL, NULL},
    {"shoal_peer_one_word_objects", "gauge", "Objects on disk that rest on its word alone.",
     "word.alone", NULL, NULL},
};

/* For each mirror, labelled by its host and port. */
static const struct metric of_mirrors[] = {
    {"shoal_mirror_usable", "gauge", "1: in use; 0: left alone for a while, or wrong.", "state",
     NULL, NULL},
    {"shoal_mirror_taken_bytes_total", "counter", "Bytes that came from it, with samples.", "bytes",
     NULL, NULL},
    {"shoal_mirror_failures_total", "counter", "Requests that it failed.", "failed", NULL, NULL},
};

static const json_t *find(const json_t *o, const char *path)
{
    char key[32];
    for (;;) {
        size_t n = strcspn(path, ".");
        if (n >= sizeof key) {
            return NULL;
        }
        memcpy(key, path, n);
        key[n] = 0;
        o = json_object_get(o, key);
        if (!path[n]) {
            return o;
        }
        path += n + 1;
    }
}

static int put_head(const struct metric *m, struct buf *out)
{
    return m->help
               ? buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type)
               : 0;
}

/* A number, a truth value or a state; false: there is none. */
static bool value_of(const json_t *v, double *real, bool *whole)
{
    const char *word = json_string_value(v);
    *whole = !json_is_real(v);
    *real = json_is_true(v) || (word && (!strcmp(word, "connected") || !strcmp(word, "in use")))
                ? 1
                : json_number_value(v);
    return json_is_number(v) || json_is_boolean(v) || word;
}

static int put_value(const char *label, const char *name, struct buf *out)
{
    int r = buf_addf(out, "{%s=\"", label);
    for (; !r && *name; name++) {
        bool odd = *name == '"' || *name == '\\';
        r = *name == '\n' ? buf_add(out, "\\n", 2) : buf_addf(out, odd ? "\\%c" : "%c", *name);
    }
    return r ? r : buf_add(out, "\"}", 2);
}

static int put(const struct metric *m, const char *label, const char *name, const json_t *v,
               double scale, struct buf *out)
{
    double x;
    bool whole;
    if (!value_of(v, &x, &whole)) {
        return 0;
    }
    int r = buf_addf(out, "%s", m->name);
    if (!r && label) {
        r = put_value(label, name, out);
    }
    return r       ? r
           : whole ? buf_addf(out, " %.0f\n", x * scale)
                   : buf_addf(out, " %.9g\n", x * scale);
}

/* Each metric with a row for each of a list. */
static int put_rows(const struct metric *m, size_t n, const json_t *list, const char *label,
                    const char *key, struct buf *out)
{
    int r = 0;
    for (size_t i = 0; !r && i < n; i++) {
        double scale = !strcmp(m[i].path, "rtt_ms") ? 1e-3 : 1;
        size_t k;
        const json_t *row;
        r = put_head(&m[i], out);
        json_array_foreach(list, k, row)
        {
            const char *name = json_string_value(json_object_get(row, key));
            const json_t *v = find(row, m[i].path);
            if (!r && name) {
                r = put(&m[i], label, name, v, scale, out);
            }
        }
    }
    return r;
}

/* What computes, by name, and each kernel that is left to the CPU because its bits differ on this
 * GPU. */
static int put_compute(const json_t *report, struct buf *out)
{
    static const struct metric info = {"shoal_compute_info",
                                       "gauge",
                                       "1, labelled with the backend that computes.",
                                       NULL,
                                       NULL,
                                       NULL};
    static const struct metric left = {
        "shoal_kernel_on_cpu",
        "gauge",
        "1: this kernel does not give the CPU's bits on this GPU, so the CPU does its work.",
        NULL,
        NULL,
        NULL};
    const char *name = json_string_value(find(report, "compute.backend"));
    const char *list = json_string_value(find(report, "compute.kernels_on_cpu"));
    json_t *one = json_true();
    int r = name ? put_head(&info, out) : 0;
    r = r || !name ? r : put(&info, "backend", name, one, 1, out);
    r = r || !list || !*list ? r : put_head(&left, out);
    while (!r && list && *list) {
        char kernel[64];
        size_t n = strcspn(list, ", ");
        memcpy(kernel, list, n < sizeof kernel ? n : sizeof kernel - 1);
        kernel[n < sizeof kernel ? n : sizeof kernel - 1] = 0;
        r = put(&left, "kernel", kernel, one, 1, out);
        list += n;
        list += strspn(list, ", ");
    }
    return r;
}

int api_metrics(const json_t *report, struct buf *out)
{
    int r = put_compute(report, out);
    for (size_t i = 0; !r && i < sizeof table / sizeof *table; i++) {
        r = put_head(&table[i], out);
        if (!r) {
            r = put(&table[i], table[i].label, table[i].value, find(report, table[i].path), 1, out);
        }
    }
    r = r ? r
          : put_rows(of_peers, sizeof of_peers / sizeof *of_peers, json_object_get(report, "peers"),
                     "peer", "short", out);
    return r ? r
             : put_rows(of_mirrors, sizeof of_mirrors / sizeof *of_mirrors,
                        find(report, "tiers.mirrors"), "mirror", "address", out);
}
