"""PySpark forks its Java gateway, with code of its own between fork and exec; gRPC's threads are there by then.

gRPC's handlers of forks abort one in twenty of such children (`mutex.cc ... Mutex::Fer with pending CondVar queueing`),
and each test that wanted the session fails with "Java gateway process exited". tests/conftest.py turns them off: nobody
here uses gRPC in a child that was forked.
"""

import subprocess
import sys

FORKS = 150
SCRIPT = f"""
import signal, subprocess
from concurrent.futures import ThreadPoolExecutor
import grpc

def as_pyspark_does():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
apart = [("grpc.use_local_subchannel_pool", 1)]
channels = [grpc.insecure_channel(f"127.0.0.1:{{port}}", options=apart) for _ in range(4)]
for channel in channels:
    grpc.channel_ready_future(channel).result()
print(sum(subprocess.run(["true"], preexec_fn=as_pyspark_does).returncode != 0 for _ in range({FORKS})))
"""


def test_what_is_forked_beside_grpc_lives() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n", done.stderr[-500:]
