/* SPDX-License-Identifier: MIT
 * limits.h: every maximum of the wire, beside the schema (shoal.proto). A length, count or offset
 * from a peer is compared with one of these before memory is touched. Bytes unless said.
 *
 * The sizes follow from K3: 92 x 896 experts are 10,304 bytes of bitmap; the largest spine tensor
 * has 2,240 chunks; a full roster (256 members, 1,024 removed) is 60 KB. */
#ifndef SHOAL_PROTO_LIMITS_H
#define SHOAL_PROTO_LIMITS_H

#define WIRE_VERSION 1     /* protocol version spoken here */
#define WIRE_VERSION_MIN 1 /* lowest one that this code still speaks */

#define WIRE_HEAD 8                /* two u32, little-endian: body length, raw length */
#define WIRE_BODY_MAX (256 * 1024) /* protobuf bytes of one frame, at least 1 */
#define WIRE_BODY_GUEST \
    (80 * 1024) /* the same from a node that is no member yet: its roster fits */
#define WIRE_RAW_MAX \
    (1024 * 1024) /* raw bytes after the body: one chunk, only with Data and FileData */
#define WIRE_CHUNK (1024 * 1024)     /* bytes of a chunk; the last of an object may be shorter */
#define WIRE_DECODE_FACTOR 16        /* memory of a decoded body: this often its length ... */
#define WIRE_DECODE_BASE (16 * 1024) /* ... and this */

#define WIRE_ID 32                  /* node, group, model root, any SHA-256 */
#define WIRE_TEXT_MAX 400           /* a sentence of a peer */
#define WIRE_NAME_MAX 64            /* a name that people gave a node; software name */
#define WIRE_FEATURES_MAX 64        /* numbers in a feature list */
#define WIRE_SESSION 16             /* Hello.session, Hello.machine, Join.invite_id */
#define WIRE_ROSTER_MAX (72 * 1024) /* ROSTER_BLOB_MAX of peer/roster.h is below it */

#define WIRE_KIND_MAX 255 /* ObjectId.kind */
#define WIRE_LAYER_MAX 0xffff
#define WIRE_INDEX_MAX 0xffffff
#define WIRE_CHUNKS_MAX 0xffff   /* chunks of one object: 64 GiB */
#define WIRE_GET_CHUNKS_MAX 4096 /* chunks of one Get, digests of one Digests */
#define WIRE_ROWS_MAX 4096       /* rows of one Have */
#define WIRE_ROW_BYTES_MAX 8192  /* bits of one row: 65,536 objects */
#define WIRE_PARTS_MAX 256       /* frames of one snapshot */
#define WIRE_SPANS_MAX 4096      /* added and removed spans of one HaveDelta together */
#define WIRE_CREDIT_MAX (1u << 30)
#define WIRE_BUSY_MS_MAX 600000      /* OriginState.busy_ms */
#define WIRE_TAKE_MAX 256            /* objects of one LeaseTake, at least 1 */
#define WIRE_OFFER_MAX 256           /* objects of one Offer or Kept, at least 1 */
#define WIRE_BUDGET_MAX (1ull << 60) /* Place.budget and used */

#define WIRE_FILE_OPEN 4           /* FileGets not answered on a connection, in one direction */
#define WIRE_FILE_NAME 255         /* FileGet.name */
#define WIRE_FILE_MAX (1ull << 30) /* FileData.total */
#define WIRE_SEALED_MAX 256        /* KeyReply.sealed */
#define WIRE_PROMPT_MAX 4096       /* Verify.prompt */
#define WIRE_VERIFY_NEW 64         /* Verify.max_new, VerifyReply.ids */

#define WIRE_STATEMENT_OBJECTS 4096     /* objects of one statement */
#define WIRE_STATEMENT_MAX (160 * 1024) /* its bytes: Statements.blob */
#define WIRE_SIGNERS_MAX 64             /* StatementsAsk.seen */

#endif
