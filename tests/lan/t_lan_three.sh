#!/bin/bash
# SPDX-License-Identifier: MIT
# t_lan_three.sh SHOAL JGET LAN_RANGES MODEL_FOLDER: three nodes with a real Avahi each, an nginx as origin on a
# fourth machine: one download, answers from peers alone, nodes that stop and die. Root; 77 = skipped.
set -u
shoal=$1 jget=$2 ranges=$3 model=$4
cd "$(dirname "$0")" || exit 2
export LAN=l3$$ LAN_DIR=${TMPDIR:-/tmp}/lan.three.$$
. ./netns.sh
. ./check.sh
. ./up.sh
lan_need nginx
lan_trap
P='whale:'

experts() { "$ranges" "$model" "$LAN_DIR/4/nginx/access.log" ${2:+"$2"} | awk -v w="$1" \
    '{ for (i = 1; i < NF; i += 2) if ($i == w) print $(i + 1) }'; }
once() { [ "$(experts more) $(experts part) $(experts again)" = '0 0 0' ]; }
on_disk() { find "$LAN_DIR"/home.[123] -name '*.mxfp4' -path '*/experts/*' | sed 's|.*/experts/||' | sort -u | wc -l; }
no_origin() { # MACHINE: its route to the origin is gone
    ip -n "$(lan_ns "$1")" route add unreachable "$(lan_addr 4)/32"
    ip -n "$(lan_ns "$1")" route add unreachable fd77::4/128
}

# What the answer has to be, and which experts it takes: one process, the folder read as an origin, no LAN.
t 'four machines' lan_up 4
t 'the answer without a LAN' eval '"$shoal" run --model "$model" --cache "$LAN_DIR/alone" --prompt "$P" \
    --max-new 24 --ignore-eos --json --quiet >"$LAN_DIR/alone.json" 2>/dev/null'
used=$(of "$LAN_DIR/alone.json" stats.experts_fetched)
t 'it takes some experts, not all' between "$used" 20 330
t 'avahi on three' lan_mdns 1 2 3
M=$(lan_origin 4 "$model")

t 'a shoal on 1' found 1
t 'up on 1' up 1
T=$(invite 1 --uses 2)
t 'an invite' test -n "$T"
t '2 joins over the network' join 2 "$T"
t '3 joins over the network' join 3 "$T"
forget 2
forget 3
no_origin 2
lan_block 3 4
lan_zero # what a node brings beside the run counts like what the run brings: all of it has to come by these links
t 'up on 2, which has no route to the origin' up 2
t 'up on 3, whose frames to the origin vanish' up 3
t 'all are connected, no address was given' within 60 eval 'connected 1 2 && connected 2 2 && connected 3 2'
t '2 and 3 see each other' eval 'sees 2 3 && sees 3 2'
heard() { node "$1" peers --why | grep -Eq 'announced as .*; 2 other nodes seen'; }
t 'by Bonjour' within 60 eval 'heard 1 && heard 2 && heard 3'

t '1 answers' answers 1 "$LAN_DIR/a.json"
t '... the same' same "$LAN_DIR/alone.json" "$LAN_DIR/a.json"
t 'the origin sent each expert of the answer' between "$(experts once)" "$used" 336
t '... whole, and no byte twice' once
t '2 answers' answers 2 "$LAN_DIR/b.json"
t '... the same' same "$LAN_DIR/alone.json" "$LAN_DIR/b.json"
t '... and from no origin' test "$(of "$LAN_DIR/b.json" stats.origin_bytes)" = 0
t 'nothing of it in the log of the origin' test "$(experts requests "$(lan_addr 2)")" = 0
t 'its experts went over the links from 1 and 3' between "$(sent_to 2 1 3)" $((used * 19584)) 40000000
t '3 answers' answers 3 "$LAN_DIR/c.json"
t '... the same' same "$LAN_DIR/alone.json" "$LAN_DIR/c.json"
t '... and from no origin' test "$(of "$LAN_DIR/c.json" stats.origin_bytes)" = 0
t 'nothing of it in the log of the origin' test "$(experts requests "$(lan_addr 3)")" = 0
t 'its experts went over the links from 1 and 2' between "$(sent_to 3 1 2)" $((used * 19584)) 40000000
t 'still each expert once' once
printf '     '
"$ranges" "$model" "$LAN_DIR/4/nginx/access.log"

covered() { [ "$(status "$1" coverage.experts.missing)" = "$((336 - $(on_disk)))" ]; }
t 'status: how much of the experts the disks hold' within 60 eval 'covered 1 && covered 2 && covered 3'
t '... in words' grep -Eq "$((336 - $(on_disk))) .*on no disk" <(node 2 status)

goodbyes() { logs "$1" "peer ${id[3]} says goodbye"; }
by1=$(goodbyes 1) by2=$(goodbyes 2)
t '3 stops' down 3
t '... nobody lists it as connected' within 60 eval 'no sees 1 3 && no sees 2 3 && connected 1 1 && connected 2 1'
t '... since it said goodbye' eval '[ "$(goodbyes 1)" -gt "$by1" ] && [ "$(goodbyes 2)" -gt "$by2" ]'
lan_zero
rm -rf "$(home 3)/cache"
t '3 answers by itself, offline, its cache empty' answers 3 "$LAN_DIR/d.json" --offline
t '... the same' same "$LAN_DIR/alone.json" "$LAN_DIR/d.json"
t '... and from no origin' test "$(of "$LAN_DIR/d.json" stats.origin_bytes)" = 0
t 'its experts went over the links from 1 and 2' between "$(sent_to 3 1 2)" $((used * 19584)) 40000000
t 'nothing of 3 in the log of the origin' test "$(experts requests "$(lan_addr 3)")" = 0

# The logs tell what ended a connection: three heartbeats without a word take 9 s on any machine.
silent() { logs "$1" "peer ${id[1]} is silent for 9000 ms: taken for dead"; }
by2=$(silent 2)
dead 1
t 'kill -9 of 1: no ghost' within 60 eval 'no sees 2 1 && connected 2 0'
t '... the connection ended, no heartbeat was waited for' test "$(silent 2)" = "$by2"
t '1 again' up 1
t '... connected again' within 60 eval 'sees 2 1 && sees 1 2'
t '3 again' up 3
t '... connected again' within 60 eval 'connected 1 2 && connected 2 2 && connected 3 2'
by2=$(silent 2) by3=$(silent 3)
lan_cut 1
dead 1
t 'no power on 1: no ghost after three heartbeats' within 60 eval 'no sees 2 1 && no sees 3 1'
t '... both say so' eval '[ "$(silent 2)" -gt "$by2" ] && [ "$(silent 3)" -gt "$by3" ]'
t '... the others keep each other' within 60 eval 'sees 2 3 && sees 3 2'
lan_heal 1
t 'power on 1' up 1
t '... connected again' within 60 eval 'connected 1 2 && connected 2 2 && connected 3 2'
t '1 answers from its disk' answers 1 "$LAN_DIR/e.json"
t '... the same' same "$LAN_DIR/alone.json" "$LAN_DIR/e.json"
t 'the origin sent nothing twice' once
t 'all stop' eval 'down 1 && down 2 && down 3'
[ $lan_failed = 0 ] || show_logs
lan_result 'three nodes'
