#!/bin/bash
# SPDX-License-Identifier: MIT
# t_lan_static.sh SHOAL JGET MODEL_FOLDER: a network on which no multicast passes: named peers, and what
# `peers --why` says. Root; 77 = skipped.
set -u
shoal=$1 jget=$2 model=$3
cd "$(dirname "$0")" || exit 2
export LAN=ls$$ LAN_DIR=${TMPDIR:-/tmp}/lan.static.$$
. ./netns.sh
. ./check.sh
. ./up.sh
lan_need nginx
lan_trap
P='whale:'

t 'four machines' lan_up 4
t 'avahi on three' lan_mdns 1 2 3
for i in 1 2 3 4; do lan_mcast_off $i; done
M=$(lan_origin 4 "$model")
t 'a shoal on 1' found 1
t 'up on 1' up 1
T=$(invite 1 --uses 2)
t '2 joins by the addresses in the invite' join 2 "$T"
t '3 joins too' join 3 "$T"
forget 2 # what it heard while joining would do as well
forget 3
ip -n "$(lan_ns 2)" route add unreachable "$(lan_addr 4)/32"
lan_zero
t 'up on 2 with a named peer, and one that is not there' up 2 --peer "$(lan_addr 1):$up_port" --peer 10.77.0.99:4433
t 'up on 3 without' up 3
t '1 and 2 are connected' within 60 eval 'sees 1 2 && sees 2 1'
t '1 answers' answers 1 "$LAN_DIR/a.json"
t '2 answers' answers 2 "$LAN_DIR/b.json"
t '... the same' same "$LAN_DIR/a.json" "$LAN_DIR/b.json"
t 'its experts went over the link from 1' between "$(sent_to 2 1)" $(($(of "$LAN_DIR/a.json" stats.experts_fetched) * 19584)) 40000000
t '... and from no origin' test "$(of "$LAN_DIR/b.json" stats.origin_bytes)" = 0
t '1 and 3 never met' eval 'no sees 1 3 && no sees 3 1'

why() { node "$1" peers --why >"$LAN_DIR/why.$1" && node "$1" peers --why --json >"$LAN_DIR/why.$1.json"; }
t 'why on 2' why 2
t '... its interface' within 60 eval 'why 2 && grep -q "^  eth0 .*announc" "$LAN_DIR/why.2"'
t '... the named peer at its address' grep -Eq "^ +$(lan_addr 1):$up_port .*(connected|authentic)" "$LAN_DIR/why.2"
dead_end() {
    node 2 peers --why >"$LAN_DIR/why.2"
    grep -Eq '^ +10\.77\.0\.99:4433 .*(unreachable|timed out|No route)' "$LAN_DIR/why.2"
}
t '... and the one that is not there' within 60 dead_end
t 'why on 3' within 60 eval 'why 3 && grep -q "announced as" "$LAN_DIR/why.3"'
t '... its interface' grep -q '^  eth0 ' "$LAN_DIR/why.3"
t '... that nobody was found' grep -Eq 'nobody was found|no answer|nobody' "$LAN_DIR/why.3"
t '... the same as JSON' test "$("$jget" -s name=eth0 'interfaces.*' <"$LAN_DIR/why.3.json" | wc -l)" = 1
sed 's/^/     /' "$LAN_DIR/why.2" "$LAN_DIR/why.3"

t '1 and 2 stop' eval 'down 1 && down 2'
rm -rf "$(home 2)/cache"
up_begin 2
sleep 3.5 # longer than a start waits for peers
t 'up on 1, while 2 looks for its model' up 1
t '2 gets it from there' up_done 2
t 'all stop' eval 'down 1 && down 2 && down 3'
[ $lan_failed = 0 ] || show_logs
lan_result 'no multicast'
