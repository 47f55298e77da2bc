"""Run wire cases against a tool with AIPerf's command line and print what differs.

  run.py --tool "CMD profile" --tokenizer PATH_OR_NAME [--only NAME] [--json OUT]
Exit status: number of failing cases (at most 99).
"""
import argparse
import asyncio
import json
import pathlib
import shlex
import shutil
import tempfile
import time

from cases import CASES
from wireserver import WireServer


def load(art):
    recs = []
    for f in sorted(art.rglob("profile_export.jsonl")):
        recs += [json.loads(x) for x in f.read_text().splitlines() if x.strip()]
    texts = None
    for f in sorted(art.rglob("outputs.json")):
        d = json.loads(f.read_text())
        texts = d.get("data", d) if isinstance(d, dict) else d
    summary = {}
    for f in sorted(art.rglob("profile_export_aiperf.json")):
        summary = json.loads(f.read_text())
    return recs, texts, summary


def value(rec, tag):
    m = rec.get("metrics", {}).get(tag)
    return m.get("value") if isinstance(m, dict) else m


def text_of(entry):
    for k in ("output_text", "text", "response_text", "output", "generated_text", "content", "response"):
        v = entry.get(k)
        if isinstance(v, str):
            return v
        if isinstance(v, list):
            return "".join(x if isinstance(x, str) else json.dumps(x) for x in v)
    return None


def judge(c, rc, recs, texts, summary, server):
    e, bad = c["expect"], []
    good = [r for r in recs if not r.get("error")]
    fail = [r for r in recs if r.get("error")]
    if "ok" in e and len(good) != e["ok"]:
        bad.append(f"ok {len(good)} wanted {e['ok']}")
    if "err" in e and len(fail) != e["err"]:
        n = (summary.get("error_request_count") or {}).get("avg", 0) if isinstance(summary, dict) else 0
        if n != e["err"]:
            bad.append(f"err {len(fail)}/{n} wanted {e['err']}")
    if rc not in (0, 1):
        bad.append(f"exit {rc}")
    first = good[0] if good else None
    if first:
        for key, tag in (("ttft", "time_to_first_token"), ("ttfo", "time_to_first_output_token"), ("latency", "request_latency")):
            if key in e:
                v = value(first, tag)
                if v is None or not e[key][0] <= v <= e[key][1]:
                    bad.append(f"{key} {v} wanted {e[key]}")
        if "chunks" in e:
            v = value(first, "inter_chunk_latency")
            n = None if v is None else len(v) + 1
            if n != e["chunks"]:
                bad.append(f"chunks {n} wanted {e['chunks']}")
        if "osl" in e:
            v = value(first, "output_sequence_length")
            if v != e["osl"]:
                bad.append(f"osl {v} wanted {e['osl']}")
    if e.get("text") is not None and good:
        got = [text_of(t) for t in texts or []]
        if e["text"] not in got:
            bad.append(f"text {[g[:60] if g else g for g in got[:2]]}")
    if "code" in e and fail:
        code = (fail[0]["error"] or {}).get("code")
        if code != e["code"]:
            bad.append(f"code {code} wanted {e['code']}")
    if fail:
        error = fail[0]["error"] or {}
        for key, got in (("type", error.get("type")), ("cls", fail[0].get("error_class")),
                         ("retry_after", (error.get("details") or {}).get("retry_after"))):
            if key in e and got != e[key]:
                bad.append(f"{key} {got!r} wanted {e[key]!r}")
        if "message" in e and e["message"] not in (error.get("message") or ""):
            bad.append(f"message {error.get('message')!r:.200} wanted {e['message']!r}")
    if "groups" in e and len(summary.get("error_summary") or []) != e["groups"]:
        bad.append(f"groups {len(summary.get('error_summary') or [])} wanted {e['groups']}")
    if "connections" in e and server.post_connections() != e["connections"]:
        bad.append(f"connections {server.post_connections()} wanted {e['connections']}")
    if "sent" in e:
        try:
            w = e["sent"](server)
        except Exception as x:  # a check that cannot read the request is a failure
            w = repr(x)
        if w:
            bad.append(w)
    return bad


async def one(c, tool, tokenizer, keep):
    server = await WireServer(c["scripts"]).start()
    server.post_connections = lambda: len({r["conn"] for r in server.requests})
    art = pathlib.Path(tempfile.mkdtemp(prefix="wire-"))
    args, path = list(c["args"]), ""
    if "@path" in args:
        i = args.index("@path")
        path = args[i + 1]
        del args[i:i + 2]
    cmd = shlex.split(tool) + ["--model", "m", "--url", f"http://127.0.0.1:{server.port}{path}", "--endpoint-type", "chat",
                               "--streaming", "--tokenizer", tokenizer, "--isl", "16", "--osl", "5", "--concurrency", "1",
                               "--ui-type", "none", "--no-server-metrics", "--no-gpu-telemetry", "--export-outputs-json",
                               "--output-artifact-dir", str(art)]
    if "--request-count" not in args:
        cmd += ["--request-count", "1"]
    cmd += args
    t = time.monotonic()
    p = await asyncio.create_subprocess_exec(*cmd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        out, _ = await asyncio.wait_for(p.communicate(), 30 + c["expect"].get("wall", 30))
        bad = judge(c, p.returncode, *load(art), server)
    except asyncio.TimeoutError:
        p.kill()
        out, _ = await p.communicate()
        bad = ["hung"]
    wall = time.monotonic() - t
    await server.stop()
    if bad and keep:
        (art / "stdout.txt").write_bytes(out)
        print(f"    kept {art}: {shlex.join(cmd)}")
    else:
        shutil.rmtree(art, ignore_errors=True)
    return bad, wall


async def main():
    a = argparse.ArgumentParser()
    a.add_argument("--tool", required=True)
    a.add_argument("--tokenizer", default="gpt2")
    a.add_argument("--only")
    a.add_argument("--keep", action="store_true")
    a.add_argument("--json")
    o = a.parse_args()
    chosen = [c for c in CASES if (not o.only or o.only in c["name"])]
    failed, res = 0, {}
    for c in chosen:
        bad, wall = await one(c, o.tool, o.tokenizer, o.keep)
        failed += bool(bad)
        res[c["name"]] = bad
        print(f"{'FAIL' if bad else 'ok  '} {c['name']} {wall:.1f}s {'; '.join(bad)}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} hold")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(res, indent=1))
    raise SystemExit(min(failed, 99))


asyncio.run(main())
