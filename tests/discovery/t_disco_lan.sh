#!/bin/bash
# SPDX-License-Identifier: MIT
# t_disco_lan.sh DISCO_NODE: discovery over a real Avahi on three machines. Root; 77 = skipped.
set -u
node=$1
cd "$(dirname "$0")/../lan" || exit 2
export LAN=dt$$ LAN_DIR=${TMPDIR:-/tmp}/lan.disco.$$
. ./netns.sh
. ./check.sh
lan_need
trap 'lan_down; rm -rf "$LAN_DIR"' EXIT

declare -A pid
start() { # MACHINE [ARG...]
    local i=$1
    shift
    lan_bg "$i" "$LAN_DIR/n$i" "$node" "node000$i" groupgroup "400$i" interval=6000 "$@"
    pid[$i]=$(wait_pid "$i")
}
wait_pid() {
    local k
    for ((k = 0; k < 100; k++)); do
        lan_pids "$1" disco_node | grep . && return
        sleep .05
    done
}
stop() { kill -TERM "${pid[$1]}"; }
# The last event of machine $1 about node $2 begins with $3 ("[+~]" here, "-" gone) and matches $4.
last() { grep "^[-+~] node000$2" "$LAN_DIR/n$1" | tail -1 | grep -qE "^$3 .*${4:-}"; }
sees() { last "$1" "$2" '[+~]' "${3:-}"; }
gone() { last "$1" "$2" '-'; }
logged() { [ "$(grep -c "^log .*$2" "$LAN_DIR/n$1")" = "$3" ]; }
whys() { grep -c '^why' "$LAN_DIR/n$1"; }
why() { # MACHINE PATTERN
    local n
    n=$(whys "$1")
    kill -USR1 "${pid[$1]}"
    within 60 eval "[ \$(whys $1) -gt $n ]" && grep '^why' "$LAN_DIR/n$1" | tail -1 | grep -q "$2"
}
all_see() {
    local i j
    for i; do for j; do [ "$i" = "$j" ] || sees "$i" "$j" || return 1; done; done
}
ticks() { awk '{print $14 + $15}' "/proc/${pid[$1]}/stat"; }

t 'three machines' lan_up 3
LAN_MDNS_IFS=eth0,eth1

# Machine 3 has no responder yet: discovery says so once and goes on asking.
t 'avahi on 1 and 2' lan_mdns 1 2
lan_dbus 3
start 1
start 2
start 3 peer=10.77.0.1:4001
t '1 and 2 find each other' within 60 all_see 1 2
t 'IPv4 and IPv6 of one row' within 60 sees 1 2 '10\.77\.0\.2:4002 \[fd77::2\]:4002'
t 'it is found once' test "$(grep -c '^[-+] node0002' "$LAN_DIR/n1")" = 1
t '3 has no responder' within 60 logged 3 'Bonjour does not answer' 1
t 'and why says so' why 3 'Bonjour does not answer: named'
t 'a named peer is listed' within 60 grep -q '+ .*10.77.0.1:4001' "$LAN_DIR/n3"
sleep 3
t 'one line only' logged 3 'Bonjour does not answer' 1
t 'avahi comes up on 3' lan_mdns_start 3
t 'all find each other' within 60 all_see 1 2 3
t 'it says so' within 60 logged 3 'Bonjour answers again' 1
t 'why: registered and browsed on eth0' why 1 '"name":"eth0".*"registered":true,"browsed":true'
t 'why: a callback' why 1 '"last_callback_s":[0-9]'

stop 2
t 'goodbye is seen' within 60 eval 'gone 1 2 && gone 3 2'
t 'it ended cleanly' grep -q '^closed' "$LAN_DIR/n2"
start 2
t 'back again' within 60 all_see 1 2 3
kill -KILL "${pid[2]}"
t 'kill -9 is a goodbye of the responder' within 60 eval 'gone 1 2 && gone 3 2'
start 2
t 'back once more' within 60 all_see 1 2 3

lan_mdns_stop 1
t 'avahi stops under 1: others see it go' within 60 eval 'gone 2 1 && gone 3 1'
t '1 says so' within 60 logged 1 'Bonjour does not answer' 1
t '1 keeps what it knew' eval 'sees 1 2 && sees 1 3'
t 'avahi starts again' lan_mdns_start 1
t 'announced again within the interval' within 60 all_see 1 2 3
t '1 never lost them' no grep -q '^- node0003' "$LAN_DIR/n1"

kill -USR2 "${pid[1]}"
t 'sleep is a goodbye' within 60 eval 'gone 2 1 && gone 3 1'
kill -USR2 "${pid[1]}"
t 'wake: seen' within 60 eval 'sees 2 1 && sees 3 1'

before=$(ticks 1)
sleep 5
used=$(($(ticks 1) - before))
echo "     idle: $used ticks in 5 s"
t 'idle: it does not spin' between $used 0 50

lan_readdr 2 77
t 'a new address is found' within 60 sees 1 2 '10\.77\.0\.77:4002'
t 'the old one is dropped' within 60 eval '! sees 1 2 "10\.77\.0\.2:4002"'
lan_readdr 2 2

# A daemon that hangs, and one that is gone: calls to it must not hold this program up.
hang() { for p in $(lan_pids "$1" avahi-daemon); do kill "-$2" "$p"; done; }
hang 1 STOP
kill -USR2 "${pid[1]}" # asleep and awake again: withdrawn and announced, which hangs
t 'asleep' within 60 eval '[ "$(grep "^state" "$LAN_DIR/n1" | tail -1)" = "state asleep" ]'
kill -USR2 "${pid[1]}"
t 'avahi hangs: it says so' within 60 logged 1 'Bonjour does not answer' 2
t 'and answers why meanwhile' why 1 'it hangs'
hang 1 CONT
t 'avahi goes on' within 60 logged 1 'Bonjour answers again' 2
t 'all are there' within 60 all_see 1 2 3
hang 3 STOP
kill -USR2 "${pid[3]}" # withdraws, which hangs
stop 3
kill -USR1 "${pid[3]}" # what comes after that is not listened to
t 'ends in time while avahi hangs' within 60 grep -q '^closed' "$LAN_DIR/n3"
hang 3 CONT
t 'its goodbye comes late' within 60 eval 'gone 1 3 && gone 2 3'
start 3
t 'back from the hang' within 60 all_see 1 2 3

lan_cut 1
t 'cable pulled: interface down' within 60 logged 1 'eth0: down' 1
t 'its peers are gone' within 60 eval 'gone 1 2 && gone 1 3'
lan_heal 1
t 'plugged in: seen' within 60 eval 'sees 1 2 && sees 1 3'

stop 1
stop 2
stop 3
t 'all ended' within 60 eval '[ -z "$(lan_pids 1 disco_node)$(lan_pids 2 disco_node)$(lan_pids 3 disco_node)" ]'

# Names, link-local addresses, an interface that comes late.
start 1 'name=Same Mac'
within 60 logged 1 'announced as' 1
start 2 'name=Same Mac'
t 'clash: both are found' within 60 all_see 1 2
t 'clash: one has another name' within 60 eval 'logged 1 "another node has the wished name" 1 ||
    logged 2 "another node has the wished name" 1'
stop 1
stop 2

for i in 1 2 3; do
    ip -n "$(lan_ns $i)" addr flush dev eth0 scope global
done
sleep 3
start 1
start 2
t 'link-local only: found with scope' within 60 eval 'sees 1 2 "\[fe80::[0-9a-f:]*%eth0\]:4002"'
ip -n "$(lan_ns 3)" link set eth0 down
start 3
sleep 1
t 'no interface, nothing announced' no logged 3 'announced as' 1
ip -n "$(lan_ns 3)" link set eth0 up
ip -n "$(lan_ns 3)" addr add 10.77.0.3/24 brd + dev eth0
ip -n "$(lan_ns 1)" addr add 10.77.0.1/24 brd + dev eth0
t 'interface appears late: found' within 60 eval 'sees 1 3 && sees 3 1'
stop 1
stop 2
stop 3
t 'all ended cleanly' within 60 eval 'grep -q ^closed "$LAN_DIR/n1" && grep -q ^closed "$LAN_DIR/n2" &&
    grep -q ^closed "$LAN_DIR/n3"'

# Multicast does not pass: named peers only, then everything. The goodbyes are to be heard first.
forgotten() { # and the daemon answers
    lan_run "$1" timeout 20 avahi-browse -apc >"$LAN_DIR/heard" 2>/dev/null && ! grep -q _shoal "$LAN_DIR/heard"
}
t 'the goodbyes are heard' within 60 eval 'forgotten 1 && forgotten 2'
lan_mcast_off 2
start 1 peer=10.77.0.2:4002
start 2
sleep 3
t 'no multicast: the named peer is there' within 60 grep -q '+ .*10.77.0.2:4002' "$LAN_DIR/n1"
t 'no multicast: nobody is announced' no grep -q '^. node0002' "$LAN_DIR/n1"
lan_mcast_on 2
t 'multicast again: found' within 60 all_see 1 2

# A second cable between 1 and 2: one row, more addresses; a goodbye takes all of them.
t 'a second cable' lan_wire 1 2 eth1 78
t 'both ways are found' within 60 sees 1 2 '10\.78\.0\.2:4002'
t 'still one row' test "$(grep -c '^+ node0002' "$LAN_DIR/n1")" = 1
stop 2
t 'goodbye on both' within 60 gone 1 2
stop 1

if grep -lE 'Sanitizer|runtime error' "$LAN_DIR"/n[123]; then
    lan_failed=1
fi
if [ $lan_failed != 0 ]; then
    for i in 1 2 3; do
        echo "== machine $i"
        grep -v '^why' "$LAN_DIR/n$i" | tail -40
    done
fi
lan_result 'discovery over Avahi'
