"""A Ray cluster of two nodes of one core each on this machine. Prints its address; then each line of its input is an
order: `remove` the second node as if its machine had died, `add` another one, `stop`."""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

MEMORY = {"object_store_memory": 128 * 2**20}


def answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **MEMORY})
nodes = [cluster.add_node(num_cpus=1, **MEMORY)]
answer(cluster.address)
for order in map(str.strip, sys.stdin):
    if order == "remove":
        cluster.remove_node(nodes.pop(), allow_graceful=False)
    elif order == "add":
        nodes.append(cluster.add_node(num_cpus=1, **MEMORY))
    answer("done")
    if order == "stop":
        break
cluster.shutdown()
