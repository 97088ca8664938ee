#!/bin/bash
# SPDX-License-Identifier: MIT
# trainer report --serve: the page of a run at the loopback address alone, followed while it trains, one file else; what
# asks in another way is refused.
. "$(dirname "$0")/lib.sh"
tiny_config
expect 2 "$trainer" report --run run --port 80
says err "add --serve"
expect 2 "$trainer" report --run run --serve --port 65536
"$trainer" report --run run --serve --port 0 >served 2>served.err &
server=$!
for _ in $(seq 100); do
    [ -s served ] && break
    sleep 0.05
done
port=$(sed -nE 's@^http://127\.0\.0\.1:([0-9]+)/ shows run and follows it.*@\1@p' served)
[ -n "$port" ] || fail "no address: $(cat served served.err)"
expect 1 "$trainer" report --run run --serve --port "$port"
says err "port $port of 127.0.0.1 cannot be had"

# ask METHOD PATH HOST: status and headers into ./answer, the body into ./body
ask() {
    python3 - "$port" "$@" <<'PY'
import http.client, sys

port, method, path, host = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
connection.putrequest(method, path, skip_host=True)
connection.putheader("Host", host)
connection.putheader("Content-Length", "3" if method == "POST" else "0")
connection.endheaders()
if method == "POST":
    connection.send(b"x=1")
answer = connection.getresponse()
open("body", "wb").write(answer.read())
open("answer", "w").write(f"{answer.status}\n{answer.headers}")
PY
}
# Before the run has begun there is nothing to show, and the browser is asked to come again.
ask GET / 127.0.0.1:"$port"
says answer 503
says answer "Refresh: 5"
# While it trains, and after its end.
expect 0 "$trainer" --config tiny.yaml
cp -r run whole
grep -v '"event":"end"' whole/metrics.jsonl >run/metrics.jsonl
ask GET / localhost:"$port"
says answer 200
says answer "Refresh: 5"
says answer "Content-Security-Policy: default-src 'none'"
cp whole/metrics.jsonl run/metrics.jsonl
ask GET /report.html 127.0.0.1:"$port"
says answer 200
! grep -q Refresh answer || fail "a run that has ended is asked for again"
same body whole/report.html
! grep -qi 'refresh\|<script' whole/report.html || fail "the file has a script or a refresh"
ask GET / elsewhere.example:"$port"
says answer 403
ask POST / 127.0.0.1:"$port"
says answer 405
ask GET /metrics.jsonl 127.0.0.1:"$port"
says answer 404
# At no other address: the kernel's table has the loopback one (0100007F) alone.
grep -qi "^ *[0-9]*: 0100007F:$(printf '%04X' "$port") " /proc/net/tcp || fail "not at the loopback address"
kill -INT $server
wait $server || fail "exit code $? after SIGINT"
finish
